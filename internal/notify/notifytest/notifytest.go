// Package notifytest is the contract of [notify.Notifier] as a test suite, and a
// webhook receiver that can misbehave.
package notifytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
)

// waitLimit bounds what must happen in no time.
const waitLimit = 10 * time.Second

// Alert returns an ordinary alert, of which n makes id, device, sequence and
// token.
func Alert(n int) notify.Alert {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)
	return notify.Alert{
		ID:          fmt.Sprintf("ns/hub/0/%d/1772366400250", n),
		Source:      "/ns/hub",
		Device:      fmt.Sprintf("device-%d", n),
		Rule:        "temperature",
		Temperature: 91.5,
		Threshold:   80,
		Enqueued:    at,
		Partition:   "0",
		Sequence:    int64(n),
		Window:      time.Minute,
		Remember:    time.Minute,
		Token:       at.UnixMilli() + int64(n),
		Expires:     at.Add(20 * time.Second),
		Suppressed:  3,
		Replica:     "replica-a",
	}
}

// Run holds a notifier whose receiver is well to the contract. open returns a
// new one, and a function that says how many alerts its receiver has taken.
func Run(t *testing.T, open func(t *testing.T) (n notify.Notifier, taken func() int)) {
	t.Run("NilMeansTaken", func(t *testing.T) {
		n, taken := open(t)
		if err := n.Notify(t.Context(), Alert(1)); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		if got := taken(); got != 1 {
			t.Fatalf("the receiver took %d alerts, want 1", got)
		}
	})

	t.Run("EveryKind", func(t *testing.T) {
		n, taken := open(t)
		all := Alerts()
		for name, a := range all {
			if err := n.Notify(t.Context(), a); err != nil {
				t.Errorf("%s: Notify: %v", name, err)
			}
		}
		if got := taken(); got != len(all) {
			t.Errorf("the receiver took %d alerts, want %d", got, len(all))
		}
	})

	t.Run("ContextOver", func(t *testing.T) {
		n, taken := open(t)
		why := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		err := n.Notify(ctx, Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil although its context was over")
		}
		if !errors.Is(err, why) {
			t.Errorf("error %q does not say why the context ended", err)
		}
		if !asError(t, err).Untaken {
			t.Errorf("Untaken is false although nothing can have been sent: %v", err)
		}
		if got := taken(); got != 0 {
			t.Errorf("the receiver took %d alerts, want 0", got)
		}
	})

	t.Run("Concurrent", func(t *testing.T) {
		const n = 32
		notifier, taken := open(t)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := notifier.Notify(t.Context(), Alert(i)); err != nil {
					t.Errorf("Notify: %v", err)
				}
			})
		}
		wg.Wait()
		if got := taken(); got != n {
			t.Errorf("the receiver took %d alerts, want %d", got, n)
		}
	})
}

// userinfo, path and query of the URL that RunHTTP gives away.
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

// RunHTTP holds a notifier that posts to a URL to the contract, whatever its
// receiver does. open returns a new one for the URL, which has secrets wherever a URL
// can have some; secrets is what open configures besides.
func RunHTTP(t *testing.T, open func(t *testing.T, url string) notify.Notifier, secrets ...string) {
	secrets = append(secrets, urlSecrets...)

	// start returns a server that counts what it takes, and the notifier for it.
	start := func(t *testing.T) (*server, notify.Notifier, func() int) {
		var taken atomic.Int64
		s := &server{}
		s.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			taken.Add(1)
			fmt.Fprintln(w, "ok")
		}))
		return s, open(t, secretURL(s.URL)), func() int { return int(taken.Load()) }
	}

	Run(t, func(t *testing.T) (notify.Notifier, func() int) {
		_, n, taken := start(t)
		return n, taken
	})

	for name, b := range map[string]Behaviour{
		"Hang":         Hang,
		"TakeThenHang": TakeThen(Hang),
	} {
		t.Run("ContextEnds/"+name, func(t *testing.T) {
			s, n, _ := start(t)
			s.BehaveAlways(b)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			why := errors.New("the reason")
			result := make(chan error, 1)
			go func() { result <- n.Notify(ctx, Alert(1)) }()
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
			HoldsNoSecret(t, secrets, n, err)
		})
	}

	// A receiver that has said yes in its first line, and then stalls.
	t.Run("AnswerStalls", func(t *testing.T) {
		s, n, _ := start(t)
		s.BehaveAlways(func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
			take.ServeHTTP(w, r)
			w.(http.Flusher).Flush()
			Hang(w, r, take, stop)
		})
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if err := n.Notify(ctx, Alert(1)); err != nil {
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
		b       Behaviour
		taken   int
		certain bool // Untaken is known
	}{
		{"Redirect", Status(http.StatusFound, "Location", "/elsewhere"), 0, true},
		{"PermanentRedirect", Status(http.StatusPermanentRedirect, "Location", "/elsewhere"), 0, true},
		{"400", Status(http.StatusBadRequest), 0, true},
		{"401", Status(http.StatusUnauthorized), 0, true},
		{"401Echo", Echo(http.StatusUnauthorized), 0, true},
		{"404", Status(http.StatusNotFound), 0, true},
		{"429", Status(http.StatusTooManyRequests, "Retry-After", "7"), 0, true},
		{"500", Status(http.StatusInternalServerError), 0, false},
		{"503", Status(http.StatusServiceUnavailable, "Retry-After", "7"), 0, false},
		{"Reset", Reset, 0, false},
		{"Close", Close, 0, false},
		{"Garbage", Garbage, 0, false},
		{"TakeThenReset", TakeThen(Reset), 1, false},
		{"TakeThenClose", TakeThen(Close), 1, false},
		{"TakeThenGarbage", TakeThen(Garbage), 1, false},
		{"TakeThen502", TakeThen(Status(http.StatusBadGateway)), 1, false},
	} {
		t.Run("Fails/"+tt.name, func(t *testing.T) {
			s, n, taken := start(t)
			// On a fresh connection, and on a kept one, where it is tempting to try
			// again unasked.
			for _, conn := range []string{"fresh", "kept"} {
				if conn == "kept" {
					if err := n.Notify(t.Context(), Alert(1)); err != nil {
						t.Fatalf("Notify: %v", err)
					}
				}
				before := taken()
				s.Behave(tt.b) // whoever comes again, or follows, is served well
				err := n.Notify(t.Context(), Alert(2))
				if err == nil {
					t.Fatalf("%s connection: Notify returned nil", conn)
				}
				if e := asError(t, err); e.Untaken != tt.certain {
					t.Errorf("%s connection: Untaken is %v, want %v: %v", conn, e.Untaken, tt.certain, err)
				}
				if got := taken() - before; got != tt.taken {
					t.Errorf("%s connection: the receiver took %d alerts, want %d: one Notify is one attempt", conn, got, tt.taken)
				}
				HoldsNoSecret(t, secrets, n, err)
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
		err = n.Notify(t.Context(), Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil")
		}
		if e := asError(t, err); !e.Untaken || e.Refused {
			t.Errorf("got %+v, want Untaken, not Refused", e)
		}
		HoldsNoSecret(t, secrets, n, err)
	})

	t.Run("Fails/NotTLS", func(t *testing.T) {
		s, _, _ := start(t)
		n := open(t, strings.Replace(secretURL(s.URL), "http://", "https://", 1))
		err := n.Notify(t.Context(), Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil")
		}
		if !asError(t, err).Untaken {
			t.Errorf("Untaken is false although there was no connection: %v", err)
		}
		HoldsNoSecret(t, secrets, n, err)
	})

	t.Run("Recovers", func(t *testing.T) {
		s, n, taken := start(t)
		s.Behave(Reset, Status(http.StatusServiceUnavailable))
		for range 2 {
			if err := n.Notify(t.Context(), Alert(1)); err == nil {
				t.Fatal("Notify returned nil")
			}
		}
		if err := n.Notify(t.Context(), Alert(1)); err != nil || taken() != 1 {
			t.Errorf("Notify: %v, %d taken; want nil, 1", err, taken())
		}
	})
}

// secretURL puts the secrets into base.
func secretURL(base string) string {
	return strings.Replace(base, "://", "://us3r-secret:pa55%3Aw0rd%2Fsecret@", 1) +
		"/hook/" + secretPath + "?key=T0KEN+in+query"
}

// HoldsNoSecret checks what people print of an error and of its notifier.
func HoldsNoSecret(t *testing.T, secrets []string, n notify.Notifier, err error) {
	t.Helper()
	var printed bytes.Buffer
	for _, v := range []any{err, n} {
		fmt.Fprintf(&printed, "%v\n%+v\n%#v\n%s\n%q\n", v, v, v, v, v)
	}
	printChain(&printed, err)
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&printed), zap.DebugLevel))
	log.Error("notify", zap.Error(err), zap.Any("notifier", n), zap.Reflect("error", err))
	for _, s := range secrets {
		if strings.Contains(printed.String(), s) {
			t.Errorf("the secret %q is in\n%s", s, printed.String())
		}
	}
}

// printChain prints err and all that it wraps.
func printChain(w io.Writer, err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(w, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		printChain(w, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			printChain(w, err)
		}
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
