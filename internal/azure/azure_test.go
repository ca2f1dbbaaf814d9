package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

func TestName(t *testing.T) {
	tests := []struct{ key, want string }{
		{"device-1", "device-1"},
		{"Device_1", "Device_1"},
		{"host.example.com", "host.example.com"},
		{"a.", "a~2E"},
		{"..", "~2E~2E"},
		{"a..b", "a~2E~2Eb"},
		{"a/b", "a~2Fb"},
		{"a~2Fb", "a~7E2Fb"},
		{"ü", "~C3~BC"},
		{strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"abc" + strings.Repeat("#", 100), "~~2a25a29e1df7a7a7eb50d0e1ac8ebc24b0fa3e07e9bc4fa0a9c0fe9ba3d9f5f2"},
	}
	for _, test := range tests[:len(tests)-1] {
		if got := azure.Name(test.key); got != test.want {
			t.Errorf("Name(%q) is %q, want %q", test.key, got, test.want)
		}
	}
	long := azure.Name(tests[len(tests)-1].key)
	if !strings.HasPrefix(long, "~~") || len(long) != 66 {
		t.Errorf("the name of a long key is %q", long)
	}
}

func FuzzName(f *testing.F) {
	f.Add("a/b", "a_b")
	f.Add("a~2Fb", "a/b")
	f.Add(".", "..")
	f.Add("a.b", "a~2Eb")
	f.Add(strings.Repeat("#", 128), azure.Name(strings.Repeat("#", 128)))
	f.Fuzz(func(t *testing.T, a, b string) {
		name := azure.Name(a)
		if (a == b) != (name == azure.Name(b)) {
			t.Errorf("%q and %q are both called %q", a, b, name)
		}
		if len(name) > 255 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~.") != "" ||
			strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
			t.Errorf("%q is no safe name", name)
		}
	})
}

func answered(status int, code string, header ...string) error {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return fmt.Errorf("write: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code, RawResponse: &http.Response{StatusCode: status, Header: h}})
}

// ofNoUse is an error of the SDK that repeating a call does not help.
type ofNoUse struct{}

func (ofNoUse) Error() string { return "no credentials" }
func (ofNoUse) NonRetriable() {}

func TestShouldRetry(t *testing.T) {
	reset := errors.New("connection reset by peer")
	tests := []struct {
		name     string
		err      error
		try      int
		budget   time.Duration
		want     bool
		min, max time.Duration // of the pause
	}{
		{"conflict", answered(412, "ConditionNotMet"), 0, time.Minute, true, 0, 0},
		{"exists", answered(409, "BlobAlreadyExists"), 4, time.Minute, true, 0, 0},
		{"vanished", answered(404, "BlobNotFound"), 0, time.Minute, true, 0, 0},
		{"container gone", answered(404, "ContainerNotFound"), 0, time.Minute, false, 0, 0},
		{"six tries", answered(412, "ConditionNotMet"), 5, time.Minute, false, 0, 0},
		{"refused", answered(403, "AuthenticationFailed"), 0, time.Minute, false, 0, 0},
		{"no answer", reset, 0, time.Minute, true, 50 * time.Millisecond, 100 * time.Millisecond},
		{"no answer, again", reset, 3, time.Minute, true, 400 * time.Millisecond, 800 * time.Millisecond},
		{"no answer in time", context.DeadlineExceeded, 0, time.Minute, true, 50 * time.Millisecond, 100 * time.Millisecond},
		{"no such host", &url.Error{Err: &net.DNSError{IsNotFound: true}}, 0, time.Minute, false, 0, 0},
		{"of no use, says the SDK", fmt.Errorf("token: %w", ofNoUse{}), 0, time.Minute, false, 0, 0},
		{"busy, of no use, says the SDK", errors.Join(ofNoUse{}, answered(503, "ServerBusy")), 0, time.Minute, true, 50 * time.Millisecond, 100 * time.Millisecond},
		{"busy", answered(503, "ServerBusy"), 0, time.Minute, true, 50 * time.Millisecond, 100 * time.Millisecond},
		{"busy, says how long", answered(503, "ServerBusy", "Retry-After", "2"), 0, time.Minute, true, 2 * time.Second, 2 * time.Second},
		{"throttled, says how long", answered(429, "", "x-ms-retry-after-ms", "1234"), 0, time.Minute, true, 1234 * time.Millisecond, 1234 * time.Millisecond},
		{"busy for longer than we have", answered(503, "ServerBusy", "Retry-After", "2"), 0, time.Second, false, 0, 0},
		{"retry with", answered(449, ""), 0, time.Minute, true, 50 * time.Millisecond, 100 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := false
				ctx := lease.OnFailedTry(t.Context(), func(err error) { failed = err != nil })
				ctx, cancel := context.WithTimeout(ctx, test.budget)
				defer cancel()
				start := time.Now()
				if got := azure.ShouldRetry(ctx, test.try, test.err); got != test.want {
					t.Errorf("ShouldRetry is %t, want %t", got, test.want)
				}
				if pause := time.Since(start); pause < test.min || pause > test.max {
					t.Errorf("the pause was %v, want %v to %v", pause, test.min, test.max)
				}
				// Only what is retried, and a conflict is an answer.
				if want := test.want && test.min > 0; failed != want {
					t.Errorf("it is told of as a failed try: %t, want %t", failed, want)
				}
			})
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			start := time.Now()
			if azure.ShouldRetry(ctx, 0, reset) || time.Since(start) != time.Millisecond {
				t.Errorf("ShouldRetry did not end with its context")
			}
			if azure.ShouldRetry(ctx, 0, answered(412, "ConditionNotMet")) {
				t.Errorf("ShouldRetry goes on after its context")
			}
		})
	})
}

func TestExplain(t *testing.T) {
	const address = "https://account.blob.core.windows.net/c/b?sig=secret"
	tests := []struct {
		err  error
		want string
	}{
		{answered(403, "AuthenticationFailed"), "403 AuthenticationFailed: the credentials were rejected"},
		{answered(403, "AuthorizationPermissionMismatch"), "403 AuthorizationPermissionMismatch: not permitted"},
		{answered(401, ""), "401: the credentials were rejected"},
		{answered(503, "ServerBusy"), "503 ServerBusy"},
		{&url.Error{Op: "Put", URL: address, Err: errors.New("EOF")}, "no answer from account.blob.core.windows.net: EOF"},
		{fmt.Errorf("sdk: %w", &url.Error{Op: "Put", URL: address, Err: &net.DNSError{Name: "account", Err: "no such host", IsNotFound: true}}),
			"no answer from account.blob.core.windows.net: lookup account: no such host: check the account's name"},
		{context.Canceled, "context canceled"},
	}
	for _, test := range tests {
		got := azure.Explain(test.err)
		if !strings.HasPrefix(got.Error(), test.want) || strings.Contains(got.Error(), "secret") || strings.Contains(got.Error(), "\n") {
			t.Errorf("Explain(%q) is %q, want %q", test.err, got, test.want)
		}
		if azure.Explain(got) != got {
			t.Errorf("%q is explained twice", got)
		}
		var link *url.Error
		if errors.As(got, &link) {
			t.Errorf("%q wraps the URL", got)
		}
	}
	if azure.Explain(nil) != nil {
		t.Error("Explain(nil) is not nil")
	}
	var resp *azcore.ResponseError
	if !errors.As(azure.Explain(answered(412, "ConditionNotMet")), &resp) || resp.StatusCode != 412 {
		t.Error("the answer is lost")
	}
	if !errors.Is(azure.Explain(&url.Error{Err: context.DeadlineExceeded}), context.DeadlineExceeded) {
		t.Error("the context's error is lost")
	}
}

func TestDate(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	got, err := azure.Date(&http.Response{Header: http.Header{"Date": {at.Format(http.TimeFormat)}}})
	if err != nil || !got.Equal(at) {
		t.Errorf("Date is %v, %v", got, err)
	}
	for _, resp := range []*http.Response{nil, {}, {Header: http.Header{"Date": {"yesterday"}}}} {
		if got, err := azure.Date(resp); err == nil {
			t.Errorf("Date of %v is %v", resp, got)
		}
	}
}
