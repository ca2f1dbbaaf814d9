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

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// Summary keeps what tells how a service is, and AddHint adds where to look unless that says so itself.
func TestSummaryAndAddHint(t *testing.T) {
	refused := &url.Error{Op: "Put", URL: "https://acc.blob.core.windows.net/c/b?sig=s3cr3t", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	denied := answered(http.StatusForbidden, "AuthenticationFailed")
	const look = ": check the address in STORAGE_CONNECTION_STRING and whether this machine can connect to it"
	for _, test := range []struct {
		name    string
		err     error
		want    string
		refused bool
	}{
		{"no connection", azure.Explain(refused), "no answer from acc.blob.core.windows.net: dial: connection refused" + look, false},
		{"explained before", fmt.Errorf("write blob %q: %w", "b", azure.Explain(refused)), "no answer from acc.blob.core.windows.net: dial: connection refused" + look, false},
		{"no answer", fmt.Errorf("write blob: %w", context.DeadlineExceeded), "no answer in time" + look, false},
		{"answered", fmt.Errorf("read blob: %w", azure.Explain(denied)), "403 AuthenticationFailed: the credentials were rejected: check the account's name and its key, signature or identity in STORAGE_CONNECTION_STRING or STORAGE_ACCOUNT_URL, and this machine's clock", true},
		{"container", fmt.Errorf("read: %w", azure.NewContainer("c", azure.ContainerMissing, func(context.Context) error { return denied }).
			Do(t.Context(), func() error { return answered(404, "ContainerNotFound") })), "container \"c\" does not exist and could not be created", true},
		{"another", errors.New("no idea"), "no idea" + look, false},
	} {
		got := lease.AddHint(lease.Summary(test.err), "STORAGE_CONNECTION_STRING").Error()
		if !strings.HasPrefix(got, test.want) || test.name != "container" && got != test.want || strings.Contains(got, "s3cr3t") {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if lease.IsRefused(test.err) != test.refused {
			t.Errorf("%s: refused %v", test.name, !test.refused)
		}
	}
	if lease.AddHint(nil, "X") != nil {
		t.Error("an error where there was none")
	}
}
