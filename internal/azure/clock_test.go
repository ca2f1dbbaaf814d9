package azure_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"alertworker/internal/azure"
)

type answers func(*http.Request) *http.Response

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A refusal names a clock that is wrong, and still does when it is explained much later. The clock is learned from it.
func TestRefusalNamesTheClock(t *testing.T) {
	const rejected = "the credentials were rejected"
	for _, test := range []struct {
		name     string
		status   int
		code     string
		ahead    time.Duration // the service's clock
		want, no string
	}{
		{"behind", 403, "AuthenticationFailed", 20 * time.Minute, "403 AuthenticationFailed: this machine's clock is 20 min behind, by the answer's Date: correct it, or else " + rejected, ""},
		{"ahead", 403, "AuthenticationFailed", -3 * time.Hour, "403 AuthenticationFailed: this machine's clock is 3 h ahead", ""},
		{"unauthorized", 401, "", 20 * time.Minute, "401: this machine's clock is 20 min behind", ""},
		{"within what is allowed", 403, "AuthenticationFailed", 2 * time.Minute, "403 AuthenticationFailed: " + rejected, ""},
		{"mentioned", 403, "AuthenticationFailed", 2 * time.Minute, "; this machine's clock is 2 min behind, by the answer's Date", ""},
		{"right", 403, "AuthenticationFailed", 0, rejected, "clock"},
		{"no refusal", 500, "InternalError", 20 * time.Minute, "500 InternalError", "clock"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var clock azure.Clock
				if _, ok := clock.Ahead(); ok {
					t.Error("the clock is known before there was an answer")
				}
				client := &http.Client{Transport: clock.Through(answers(func(r *http.Request) *http.Response {
					h := http.Header{"X-Ms-Error-Code": {test.code}}
					h.Set("Date", time.Now().Add(test.ahead).UTC().Format(http.TimeFormat))
					return &http.Response{StatusCode: test.status, Header: h, Body: http.NoBody, Request: r}
				}))}
				p := runtime.NewPipeline("", "", runtime.PipelineOptions{}, &policy.ClientOptions{Transport: client, Retry: azure.Once()})
				r, err := runtime.NewRequest(t.Context(), http.MethodGet, "https://account/container")
				if err != nil {
					t.Fatal(err)
				}
				resp, err := p.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				refusal := runtime.NewResponseError(resp)
				time.Sleep(2 * time.Hour)
				got := azure.Explain(refusal).Error()
				if !strings.Contains(got, test.want) || test.no != "" && strings.Contains(got, test.no) {
					t.Errorf("it says %q, want %q and not %q", got, test.want, test.no)
				}
				if ahead, ok := clock.Ahead(); !ok || (ahead-test.ahead).Abs() > time.Second {
					t.Errorf("the clock is ahead by %v, %t; want %v", ahead, ok, test.ahead)
				}
				if !errors.Is(azure.Explain(refusal), refusal) {
					t.Error("the answer is lost")
				}
			})
		})
	}
}
