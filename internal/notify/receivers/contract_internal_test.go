package receivers

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

const (
	routingKey = "0123456789abcdef0123456789abcdef"
	aToken     = "T0KEN-of-an-identity"
)

// Every channel is held to the contract, whatever its receiver does: down, slow, broken,
// or answering anything.
func TestContract(t *testing.T) {
	opts := Options{
		Log: zap.NewNop(), Style: notify.Style{Page: "https://alerts.example.com/"}, Concurrency: 4,
		EventGridToken: func(context.Context) (string, error) { return aToken, nil },
	}
	start := func(t *testing.T, entry string, opts Options) notify.Notifier {
		t.Helper()
		rs, err := Open([]string{entry}, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(rs[0].Close)
		return rs[0].Notifier
	}
	elsewhere := map[string]func(t *testing.T){
		"log":  nil, // has no receiver that could fail; its package runs the suite
		"smtp": nil, // is not HTTP: its package has a suite for its own stages
		"pagerduty": func(t *testing.T) {
			notifytest.RunHTTP(t, func(t *testing.T, raw string) notify.Notifier {
				opts := opts
				opts.Transport = insteadOf(t, raw)
				return start(t, "pagerduty://"+routingKey, opts)
			}, routingKey)
		},
	}
	for _, c := range channels {
		scheme := c.schemes[0]
		t.Run(scheme, func(t *testing.T) {
			run, special := elsewhere[scheme]
			switch {
			case special && run == nil:
				t.SkipNow()
			case special:
				run(t)
			case slices.Contains(c.schemes, "http"):
				notifytest.RunHTTP(t, func(t *testing.T, raw string) notify.Notifier { return start(t, raw, opts) })
			case strings.HasSuffix(scheme, "+http"):
				name := strings.TrimSuffix(scheme, "http")
				notifytest.RunHTTP(t, func(t *testing.T, raw string) notify.Notifier { return start(t, name+raw, opts) })
			default:
				t.Errorf("nothing holds %s to the contract", scheme)
			}
		})
	}
	t.Run("eventgrid with an identity", func(t *testing.T) {
		notifytest.RunHTTP(t, func(t *testing.T, raw string) notify.Notifier {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			u.User = nil
			return start(t, "eventgrid+"+u.String(), opts)
		}, aToken)
	})
}

// insteadOf returns a transport that reaches the server at raw, whatever host is asked
// for, and with TLS only if raw is https.
func insteadOf(t *testing.T, raw string) *http.Transport {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Transport{DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if u.Scheme == "https" {
			return new(tls.Dialer).DialContext(ctx, network, u.Host)
		}
		return new(net.Dialer).DialContext(ctx, network, u.Host)
	}}
}
