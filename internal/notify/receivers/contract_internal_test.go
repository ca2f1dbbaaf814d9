package receivers

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

const (
	routingKey = "0123456789abcdef0123456789abcdef"
	aToken     = "T0KEN-of-an-identity"
)

// Every channel is held to the contract, whatever its receiver does: down, slow, broken,
// or answering anything.
func TestContract(t *testing.T) {
	opts := Options{
		Style: wording.Style{Page: "https://alerts.example.com/"}, Concurrency: 4,
		EventGridToken: func(context.Context) (string, error) { return aToken, nil },
	}
	elsewhere := map[string]func(t *testing.T){
		"log":  nil, // has no receiver that could fail; its package runs the suite
		"smtp": nil, // is not HTTP: its package has a suite for its own stages
		"pagerduty": func(t *testing.T) {
			testHTTP(t, func(t *testing.T, raw string) notify.Notifier {
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
				opts, key := opts, strings.Repeat("signing-", 4)
				signing := "whsec_" + base64.StdEncoding.EncodeToString([]byte(key))
				var err error
				if opts.WebhookSecrets, err = webhook.ParseSecrets(signing); err != nil {
					t.Fatal(err)
				}
				testHTTP(t, func(t *testing.T, raw string) notify.Notifier { return start(t, raw, opts) },
					signing, strings.TrimPrefix(signing, "whsec_"), key, hex.EncodeToString([]byte(key)))
			case strings.HasSuffix(scheme, "+http"):
				name := strings.TrimSuffix(scheme, "http")
				testHTTP(t, func(t *testing.T, raw string) notify.Notifier { return start(t, name+raw, opts) })
			default:
				t.Errorf("nothing holds %s to the contract", scheme)
			}
		})
	}
	t.Run("eventgrid with an identity", func(t *testing.T) {
		testHTTP(t, func(t *testing.T, raw string) notify.Notifier {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			u.User = nil
			return start(t, "eventgrid+"+u.String(), opts)
		}, aToken)
	})
}

// start opens the one receiver of an entry.
func start(t *testing.T, entry string, opts Options) notify.Notifier {
	t.Helper()
	opts.Log = zap.NewNop()
	rs, err := Open([]string{entry}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rs[0].Close)
	return rs[0].Notifier
}

// insteadOf returns a transport that reaches the server at raw instead of PagerDuty, and with TLS only if
// raw is https.
func insteadOf(t *testing.T, raw string) *http.Transport {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != "events.pagerduty.com:443" {
			t.Errorf("connects to %s", addr)
		}
		if u.Scheme == "https" {
			return new(tls.Dialer).DialContext(ctx, network, u.Host)
		}
		return new(net.Dialer).DialContext(ctx, network, u.Host)
	}}
}

// userinfo, path and query of the URL that testHTTP gives away.
const (
	secretUser     = "us3r-secret"
	secretPassword = "pa55:w0rd/secret"
	secretPath     = "T0KEN-in-path"
	secretQuery    = "T0KEN in query"
)

// urlSecrets is what must not be seen of it, in every spelling.
var urlSecrets = []string{
	secretUser, secretPassword, secretPath, secretQuery,
	"pa55%3Aw0rd%2Fsecret", "T0KEN+in+query", "T0KEN%20in%20query",
	"dXMzci1zZWNyZXQ6cGE1NTp3MHJkL3NlY3JldA==", // user:password
}

// testHTTP holds a notifier that posts to a URL to the contract, whatever its
// receiver does. open returns a new one for the URL, which has secrets wherever a URL
// can have some; secrets is what open configures besides.
func testHTTP(t *testing.T, open func(t *testing.T, url string) notify.Notifier, secrets ...string) {
	secrets = append(secrets, urlSecrets...)

	// start returns a server that counts what it takes, and the notifier for it.
	start := func(t *testing.T) (*notifytest.Server, notify.Notifier, func() int) {
		var taken atomic.Int64
		s := &notifytest.Server{}
		s.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			taken.Add(1)
			fmt.Fprintln(w, "ok")
		}))
		return s, open(t, secretURL(s.URL)), func() int { return int(taken.Load()) }
	}

	notifytest.Run(t, func(t *testing.T) (notify.Notifier, func() int) {
		_, n, taken := start(t)
		return n, taken
	})

	for name, b := range map[string]notifytest.Behaviour{
		"Hang":         notifytest.Hang,
		"TakeThenHang": notifytest.TakeThen(notifytest.Hang),
	} {
		t.Run("ContextEnds/"+name, func(t *testing.T) {
			s, n, _ := start(t)
			s.BehaveAlways(b)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			why := errors.New("the reason")
			result := make(chan error, 1)
			go func() { result <- n.Notify(ctx, notifytest.Alert(1)) }()
			receive(t, s.Arrived)
			cancel(why)
			err := receive(t, result)
			if err == nil {
				t.Fatal("Notify returned nil without an answer")
			}
			if !errors.Is(err, why) {
				t.Errorf("error %q does not say why the context ended", err)
			}
			if asError(t, err).Untaken {
				t.Errorf("Untaken is true although the receiver had the request: %v", err)
			}
			notifytest.HoldsNoSecret(t, secrets, n, err)
		})
	}

	// A receiver that has said yes in its first line, and then stalls.
	t.Run("AnswerStalls", func(t *testing.T) {
		s, n, _ := start(t)
		s.BehaveAlways(func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
			take.ServeHTTP(w, r)
			w.(http.Flusher).Flush()
			notifytest.Hang(w, r, take, stop)
		})
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if err := n.Notify(ctx, notifytest.Alert(1)); err != nil {
			t.Errorf("Notify: %v", err)
		}
		if ctx.Err() != nil {
			t.Error("Notify waited for the end of an answer that had said yes")
		}
	})

	// What no receiver may be able to do: get nil without taking, get Untaken
	// after taking, or get secrets printed.
	for _, tt := range []struct {
		name    string
		b       notifytest.Behaviour
		taken   int
		certain bool // Untaken is known
	}{
		{"Redirect", notifytest.Status(http.StatusFound, "Location", "/elsewhere"), 0, true},
		{"PermanentRedirect", notifytest.Status(http.StatusPermanentRedirect, "Location", "/elsewhere"), 0, true},
		{"400", notifytest.Status(http.StatusBadRequest), 0, true},
		{"401", notifytest.Status(http.StatusUnauthorized), 0, true},
		{"401Echo", echo(http.StatusUnauthorized), 0, true},
		{"404", notifytest.Status(http.StatusNotFound), 0, true},
		{"429", notifytest.Status(http.StatusTooManyRequests, "Retry-After", "7"), 0, true},
		{"500", notifytest.Status(http.StatusInternalServerError), 0, false},
		{"503", notifytest.Status(http.StatusServiceUnavailable, "Retry-After", "7"), 0, false},
		{"Reset", notifytest.Reset, 0, false},
		{"Close", notifytest.Close, 0, false},
		{"Garbage", garbage, 0, false},
		{"TakeThenReset", notifytest.TakeThen(notifytest.Reset), 1, false},
		{"TakeThenClose", notifytest.TakeThen(notifytest.Close), 1, false},
		{"TakeThenGarbage", notifytest.TakeThen(garbage), 1, false},
		{"TakeThen502", notifytest.TakeThen(notifytest.Status(http.StatusBadGateway)), 1, false},
	} {
		t.Run("Fails/"+tt.name, func(t *testing.T) {
			s, n, taken := start(t)
			// On a fresh connection, and on a kept one, where it is tempting to try
			// again unasked.
			for _, conn := range []string{"fresh", "kept"} {
				if conn == "kept" {
					if err := n.Notify(t.Context(), notifytest.Alert(1)); err != nil {
						t.Fatalf("Notify: %v", err)
					}
				}
				before := taken()
				s.Behave(tt.b) // whoever comes again, or follows, is served well
				err := n.Notify(t.Context(), notifytest.Alert(2))
				if err == nil {
					t.Fatalf("%s connection: Notify returned nil", conn)
				}
				if e := asError(t, err); e.Untaken != tt.certain {
					t.Errorf("%s connection: Untaken is %v, want %v: %v", conn, e.Untaken, tt.certain, err)
				}
				if got := taken() - before; got != tt.taken {
					t.Errorf("%s connection: the receiver took %d alerts, want %d: one Notify is one attempt", conn, got, tt.taken)
				}
				notifytest.HoldsNoSecret(t, secrets, n, err)
			}
		})
	}

	t.Run("Fails/NobodyListens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		n := open(t, secretURL("http://"+l.Addr().String()))
		err = n.Notify(t.Context(), notifytest.Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil")
		}
		if e := asError(t, err); !e.Untaken || e.Refused {
			t.Errorf("got %+v, want Untaken, not Refused", e)
		}
		notifytest.HoldsNoSecret(t, secrets, n, err)
	})

	t.Run("Fails/NotTLS", func(t *testing.T) {
		s, _, _ := start(t)
		n := open(t, strings.Replace(secretURL(s.URL), "http://", "https://", 1))
		err := n.Notify(t.Context(), notifytest.Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil")
		}
		if !asError(t, err).Untaken {
			t.Errorf("Untaken is false although there was no connection: %v", err)
		}
		notifytest.HoldsNoSecret(t, secrets, n, err)
	})

	t.Run("Recovers", func(t *testing.T) {
		s, n, taken := start(t)
		s.Behave(notifytest.Reset, notifytest.Status(http.StatusServiceUnavailable))
		for range 2 {
			if err := n.Notify(t.Context(), notifytest.Alert(1)); err == nil {
				t.Fatal("Notify returned nil")
			}
		}
		if err := n.Notify(t.Context(), notifytest.Alert(1)); err != nil || taken() != 1 {
			t.Errorf("Notify: %v, %d taken; want nil, 1", err, taken())
		}
	})
}

// secretURL puts the secrets into base.
func secretURL(base string) string {
	return strings.Replace(base, "://", "://us3r-secret:pa55%3Aw0rd%2Fsecret@", 1) +
		"/hook/" + secretPath + "?key=T0KEN+in+query"
}

// garbage answers with what is not HTTP, and repeats the request's URI.
func garbage(w http.ResponseWriter, r *http.Request, _ http.Handler, _ <-chan struct{}) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err) // only HTTP/2 cannot
	}
	io.WriteString(conn, "GARBAGE "+r.RequestURI+"\r\n\r\n")
	conn.Close()
}

// echo answers with a status and what was posted. It takes nothing.
func echo(code int) notifytest.Behaviour {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.Copy(w, r.Body)
	}
}

// waitLimit bounds what must happen in no time.
const waitLimit = 10 * time.Second

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitLimit):
		t.Fatal("it still has not happened")
		panic("unreachable")
	}
}

func asError(t *testing.T, err error) *notify.Error {
	t.Helper()
	var e *notify.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not a *notify.Error: %v", err, err)
	}
	return e
}

// docs/network.md has every host that a channel is known by.
func TestHostsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range channels {
		for _, host := range c.hosts {
			if !strings.Contains(string(text), "`"+host+"`") && !strings.Contains(string(text), "`*."+host+"`") {
				t.Errorf("%s is not in it", host)
			}
		}
	}
}
