package notifytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/notify"
)

// Many are n alerts as a storm has them: of two rules, some of them recoveries.
func Many(n int) []notify.Alert {
	var alerts []notify.Alert
	for i := range n {
		a := Alert(i)
		switch i % 5 {
		case 1, 2:
			a = Sustained()
			a.Unit, a.Title = "°C", "Oven too hot"
		case 3:
			a = Resolved(Sustained())
		}
		a.ID, a.Device, a.Temperature, a.Shown = fmt.Sprint(a.ID, "/", i), fmt.Sprintf("oven-%03d", i), a.Temperature+float64(i), notify.Shown("").With("site", "berlin")
		alerts = append(alerts, a)
	}
	return alerts
}

// Storm is what the docs show: many ovens that get too hot at once, and two that are normal again.
func Storm() []notify.Alert {
	var alerts []notify.Alert
	for i := range 26 {
		a := Sustained()
		a.Device, a.ID = fmt.Sprintf("oven-%d", i+1), fmt.Sprint(a.ID, "/", i)
		a.Title, a.Unit, a.Temperature = "Oven too hot", "°C", 80+float64(i*37%90)/10
		if i >= 24 {
			a = Resolved(a)
		}
		a.Shown = notify.Shown("").With("site", []string{"berlin", "hamburg"}[i%2])
		alerts = append(alerts, a)
	}
	return alerts
}

// RunMany holds a notifier that posts to a URL to the contract of [notify.Batcher]. open returns a new one. fits
// fails the test if a message is more than the service takes, also if it has most alerts. Where
// machine is true the receiver drops repeats, by the ids of all alerts, which are in the message.
func RunMany(t *testing.T, most int, machine bool, open func(t *testing.T, url string) notify.Notifier, fits func(t *testing.T, body []byte)) {
	start := func(t *testing.T) (*server, notify.Batcher, func() []string) {
		var bodies atomic.Value
		bodies.Store([]string{})
		s := &server{}
		s.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies.Store(append(bodies.Load().([]string), string(body)))
		}))
		n, ok := open(t, s.URL).(notify.Batcher)
		if !ok {
			t.Fatal("it is no Batcher")
		}
		return s, n, func() []string { return bodies.Load().([]string) }
	}
	t.Run("NilMeansAllTaken", func(t *testing.T) {
		_, n, taken := start(t)
		for _, count := range []int{1, 2, 40} {
			before := len(taken())
			if err := n.NotifyMany(t.Context(), Many(count)); err != nil {
				t.Fatalf("%d: %v", count, err)
			}
			if got := len(taken()) - before; got != 1 {
				t.Fatalf("%d alerts are %d messages", count, got)
			}
			body := taken()[before]
			fits(t, []byte(body))
			for _, a := range Many(count) {
				if !strings.Contains(body, a.Device) || machine && !strings.Contains(body, a.ID) {
					t.Errorf("%d: %s is not there:\n%s", count, a.Device, body)
				}
			}
		}
	})
	t.Run("Size", func(t *testing.T) {
		for i, name := range []string{"\u20ac", "<", "\"", "\U0001F525", "\"", "<"} {
			_, n, taken := start(t)
			rules := []int{1, 40}[i%2]
			alerts := Many(most)
			for i := range alerts {
				alerts[i].Level, alerts[i].Resolved = "", false
				alerts[i].Device = strings.Repeat(name, 128-3) + fmt.Sprint(100+i)
				alerts[i].Rule = fmt.Sprint("rule-", i%rules)
				for range notify.MaxShown {
					alerts[i].Shown = alerts[i].Shown.With(strings.Repeat("n", 32), strings.Repeat(name, 128))
				}
			}
			if err := n.NotifyMany(t.Context(), alerts); err != nil {
				t.Fatal(err)
			}
			fits(t, []byte(taken()[0]))
		}
	})
	for _, tt := range []struct {
		name string
		b    Behaviour
		want notify.Error
	}{
		{"422", Status(http.StatusUnprocessableEntity), notify.Error{Untaken: true, Status: 422}},
		{"429", Status(http.StatusTooManyRequests, "Retry-After", "7"), notify.Error{Untaken: true, Limited: true, RetryAfter: 7 * time.Second, Status: 429}},
		{"503", Status(http.StatusServiceUnavailable, "Retry-After", "7"), notify.Error{Limited: true, RetryAfter: 7 * time.Second, Status: 503}},
		{"500", Status(http.StatusInternalServerError), notify.Error{Status: 500}},
		{"Reset", Reset, notify.Error{}},
		{"TakeThenReset", TakeThen(Reset), notify.Error{}},
	} {
		t.Run("Fails/"+tt.name, func(t *testing.T) {
			s, n, _ := start(t)
			s.Behave(tt.b)
			err := n.NotifyMany(t.Context(), Many(3))
			if err == nil {
				t.Fatal("NotifyMany returned nil")
			}
			got := *asError(t, err)
			got.Err, got.Refused = nil, false // which is the channel's to say
			if got != tt.want {
				t.Errorf("got %+v, want %+v: %v", got, tt.want, err)
			}
		})
	}
	t.Run("ContextOver", func(t *testing.T) {
		_, n, taken := start(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the reason")
		cancel(why)
		if err := n.NotifyMany(ctx, Many(3)); !errors.Is(err, why) || !asError(t, err).Untaken || len(taken()) > 0 {
			t.Errorf("%v, %d taken", err, len(taken()))
		}
	})
}
