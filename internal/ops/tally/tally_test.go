package tally_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/ops/tally"
	"alertworker/internal/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const scope = "ns/hub/$default"

// A receiver takes alerts, or does not.
type receiver struct{ err error }

func (r receiver) Notify(context.Context, ...notify.Alert) error { return r.err }

func alert(t *testing.T, to notify.Notifier, device string, suppressed int64) {
	t.Helper()
	if err := to.Notify(t.Context(), notify.Alert{Device: device, Suppressed: suppressed}); err != nil {
		t.Fatal(err)
	}
}

// two returns what was counted on the day before and the day so far.
func two(t *testing.T, of *tally.Tally) (days []tally.Day, more bool) {
	t.Helper()
	days, more, err := of.Days(t.Context(), time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1), 2)
	if err != nil {
		t.Fatal(err)
	}
	return days, more
}

func want(t *testing.T, got tally.Day, devices map[string]tally.Count) {
	t.Helper()
	if !maps.Equal(got.Devices, devices) {
		t.Errorf("counted %v, want %v", got.Devices, devices)
	}
}

// What replicas count adds up: over hours, restarts and replicas, for each receiver by
// itself. What is old is removed.
func TestDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is 2000-01-01T00:00Z
		store := &records.Memory{}
		a, b := tally.New(store, scope, zap.NewNop()), tally.New(store, scope, zap.NewNop())
		alert(t, notify.Observe(receiver{}, a.Receiver("r")), "old", 0)
		if err := a.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4*24*time.Hour - time.Minute) // one before midnight
		alert(t, notify.Observe(receiver{}, a.Receiver("r")), "d", 3)
		time.Sleep(time.Minute)
		for range 3 {
			alert(t, notify.Observe(receiver{}, a.Receiver("r")), "d", 1)
		}
		time.Sleep(2 * time.Hour)
		alert(t, notify.Observe(receiver{}, b.Receiver("r")), "d", 1)
		for range 2 {
			alert(t, notify.Observe(receiver{}, b.Receiver("q")), "d", 4)
		}
		if err := notify.Observe(receiver{}, b.Receiver("r")).Notify(t.Context(), notify.Alert{Device: "d", Resolved: true}); err != nil { // is no alert
			t.Error(err)
		}
		if err := notify.Observe(receiver{errors.New("no")}, a.Receiver("r")).Notify(t.Context(), notify.Alert{Device: "not taken"}); err == nil {
			t.Error("the failure is lost")
		}
		alert(t, notify.Observe(receiver{}, tally.New(store, "ns/hub/other", zap.NewNop()).Receiver("r")), "theirs", 0)

		days, _ := two(t, a)
		want(t, days[0], map[string]tally.Count{"d": {Alerts: 1, Suppressed: 3}})
		want(t, days[1], map[string]tally.Count{"d": {Alerts: 3, Suppressed: 3}}) // b has written nothing yet
		days, more := two(t, b)
		want(t, days[1], map[string]tally.Count{"d": {Alerts: 4, Suppressed: 8}})
		if more {
			t.Error("more")
		}
		all, _ := records.All(t.Context(), store, "")
		for _, r := range all {
			name := r.Name
			if !strings.HasPrefix(name, "tallies/ns~2Fhub~2F~24default/2000-01-0") || strings.Contains(name, "2000-01-01") {
				t.Errorf("there is %q", name)
			}
		}
	})
}

// Alerts cost no call: what changed is written once a minute and once at the end.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{}
		a := tally.New(store, scope, zap.NewNop())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		to := notify.Observe(receiver{}, a.Receiver("r"))
		for range 600 { // ten minutes
			alert(t, to, "d", 0)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		if n := store.puts.Load(); n < 10 || n > 11 {
			t.Errorf("%d writes for ten minutes of alerts and an hour of none, want one a minute", n)
		}
		alert(t, to, "last", 0)
		stop()
		running.Wait()
		days, _ := two(t, tally.New(store, scope, zap.NewNop()))
		want(t, days[1], map[string]tally.Count{"d": {Alerts: 600}, "last": {Alerts: 1}})
	})
}

type counted struct {
	records.Memory
	puts   atomic.Int64
	failed atomic.Bool
}

func (c *counted) Write(ctx context.Context, r records.Record) (string, error) {
	c.puts.Add(1)
	if c.failed.Load() {
		return "", errors.New("no answer")
	}
	return c.Memory.Write(ctx, r)
}

// An outage of the store costs nothing if it lasts less than six hours, and never memory.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		store := &counted{}
		store.failed.Store(true)
		core, log := observer.New(zap.WarnLevel)
		a := tally.New(store, scope, zap.New(core))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		to := notify.Observe(receiver{}, a.Receiver("r"))
		for range 9 {
			alert(t, to, "d", 0)
			time.Sleep(time.Hour)
		}
		if _, _, err := a.Days(t.Context(), time.Now(), 2); err == nil {
			t.Error("there are days from a store that does not respond")
		}
		store.failed.Store(false)
		days, _ := two(t, a)
		want(t, days[1], map[string]tally.Count{"d": {Alerts: 7}})
		if log.FilterMessageSnippet("dropped an hour").Len() != 2 {
			t.Errorf("%d hours are said to be lost, want 2", log.FilterMessageSnippet("dropped an hour").Len())
		}
		stop()
		running.Wait()
	})
}

// Too many devices cost their names, and no alert.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tally.New(&records.Memory{}, scope, zap.NewNop())
		to := notify.Observe(receiver{}, a.Receiver("r"))
		for i := range 10_050 {
			alert(t, to, fmt.Sprint("device ", i), 2)
		}
		days, more := two(t, a)
		if len(days[1].Devices) != 10_000 || days[1].Others != (tally.Count{Alerts: 50, Suppressed: 100}) || !more {
			t.Errorf("%d devices, others %+v, more %t", len(days[1].Devices), days[1].Others, more)
		}
	})
}

// A nil Tally counts nothing and wraps nothing.
func TestNil(t *testing.T) {
	var none *tally.Tally
	if got := notify.Observe(receiver{}, none.Receiver("r")); got != (receiver{}) {
		t.Errorf("%v", got)
	}
}

// On a real service the calls of a summary follow from replicas and hours, not from devices.
func TestOnBlobs(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	calls := &transport{next: azurite.Transport()}
	c := azurite.Container(t, azurite.NewContainer(), calls)
	store, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var replicas []*tally.Tally
	all := map[string]int64{}
	for r := range 3 {
		replica := tally.New(store, scope, zap.NewNop())
		for i := range 2000 {
			name := fmt.Sprintf("device #%d/ü", i)
			alert(t, notify.Observe(receiver{}, replica.Receiver("r")), name, int64(r))
			all[name] += int64(r)
		}
		replicas = append(replicas, replica)
		if err := replica.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, content string) {
		t.Helper()
		if _, err := store.Write(t.Context(), records.Record{Name: name, Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
	}
	put("tallies/ns~2Fhub~2F~24default/2020-01-01/00-x.json", "{}")
	calls.n.Store(0)
	days, more := two(t, replicas[0])
	if n := calls.n.Load(); n > 3+6+1 { // lists, at most two hours of three replicas, an old object
		t.Errorf("%d calls", n)
	}
	for name, suppressed := range all {
		got := tally.Count{}
		for _, d := range days { // midnight may pass
			got.Alerts, got.Suppressed = got.Alerts+d.Devices[name].Alerts, got.Suppressed+d.Devices[name].Suppressed
		}
		if got != (tally.Count{Alerts: 3, Suppressed: suppressed}) {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	if more {
		t.Error("more")
	}
	if left, err := records.All(t.Context(), store, "tallies/"); err != nil || slices.ContainsFunc(left, func(r records.Record) bool { return strings.Contains(r.Name, "2020") }) {
		t.Errorf("left are %v, %v", left, err)
	}

	// What cannot be read is no reason for too low figures that nobody knows of.
	put("tallies/ns~2Fhub~2F~24default/"+time.Now().UTC().Format("2006-01-02")+"/00-x.json", "no")
	if _, _, err := replicas[0].Days(t.Context(), time.Now().UTC().Truncate(24*time.Hour), 1); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a broken object: %v", err)
	}
}

type transport struct {
	next http.RoundTripper
	n    atomic.Int64
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.n.Add(1)
	return t.next.RoundTrip(req)
}
