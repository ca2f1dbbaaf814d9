package leader_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/tally"
	"alertworker/internal/records"
)

const scope = "ns/hub/group"

// A reader takes summaries, or answers as told.
type reader struct {
	mu      sync.Mutex
	answers []error // to the next ones, in order; nil after that
	came    []notify.Summary
	taken   []notify.Summary
}

func (r *reader) Report(ctx context.Context, s notify.Summary) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("without an end")
	}
	r.came = append(r.came, s)
	if len(r.answers) > 0 {
		err := r.answers[0]
		r.answers = r.answers[1:]
		if err != nil {
			return err
		}
	}
	r.taken = append(r.taken, s)
	return nil
}

func (r *reader) last(t *testing.T) notify.Summary {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.taken) == 0 {
		t.Fatal("no summary was taken")
	}
	return r.taken[len(r.taken)-1]
}

func config(of *tally.Tally, readers map[string]notify.Reporter) leader.SummaryConfig {
	return leader.SummaryConfig{Tally: of, Scope: scope, Source: "/ns/hub", Receivers: readers, Timeout: 10 * time.Second}
}

func newTally(s records.Store) *tally.Tally { return tally.New(s, scope, zap.NewNop()) }

type taking struct{}

func (taking) Notify(context.Context, ...notify.Alert) error { return nil }

// alert has receiver take one, after so many suppressed readings.
func alert(t rapid.TB, of *tally.Tally, receiver, device string, suppressed int64) {
	t.Helper()
	if err := notify.Observe(taking{}, of.Receiver(receiver)).Notify(context.Background(), notify.Alert{Device: device, Suppressed: suppressed}); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, at string) {
	t.Helper()
	end, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(end))
}

// The bubble's time begins on 2000-01-01.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := &records.Memory{}, &reader{}
		s, other := newTally(store), newTally(store)
		alert(t, s, "r", "too early", 0)
		until(t, "2000-01-03T00:00:00Z")
		alert(t, s, "r", "both days", 0)
		alert(t, s, "r", "both days", 7)
		alert(t, s, "other", "both days", 0)
		alert(t, s, "other", "that day", 0)
		until(t, "2000-01-03T23:59:50Z")
		alert(t, s, "r", "that day", 0)
		until(t, "2000-01-04T07:00:00Z")
		alert(t, other, "r", "both days", 0)
		alert(t, other, "r", "both days", 9)
		alert(t, other, "r", "this day", 0)
		if err := other.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "2000-01-04T08:00:03Z")
		c := config(s, map[string]notify.Reporter{"r": r})
		asked := map[string]int{}
		c.DeadLetters = func(_ context.Context, day time.Time, limit int) (int, error) {
			asked[day.Format(time.RFC3339)] = limit
			return day.Day(), nil
		}
		due := time.Date(2000, 1, 4, 8, 0, 0, 0, time.UTC)
		report, err := leader.Summary(leader.Every(time.Hour), c).Do(t.Context(), &leader.Call{Due: due.In(time.FixedZone("", 60*60))})
		if err != nil || report != "3 and 3 alerts" {
			t.Errorf("%q, %v", report, err)
		}
		if want := map[string]int{"2000-01-03T00:00:00Z": 10_000, "2000-01-04T00:00:00Z": 10_000}; !maps.Equal(asked, want) {
			t.Errorf("dead letters were asked for %v, want %v", asked, want)
		}
		three, four := 3, 4
		want := notify.Summary{
			ID: "ns/hub/group/summary/2000-01-04T08:00:00Z", Source: "/ns/hub", Scope: scope,
			Due: due, Made: due.Add(3 * time.Second),
			Days: [2]notify.Day{
				{
					Date: time.Date(2000, 1, 3, 0, 0, 0, 0, time.UTC), Alerts: 3, Suppressed: 7, Devices: 2, DeadLetters: &three,
					MostAlerts:     []notify.DeviceCount{{Device: "both days", Alerts: 2, Suppressed: 7}, {Device: "that day", Alerts: 1}},
					MostSuppressed: []notify.DeviceCount{{Device: "both days", Alerts: 2, Suppressed: 7}},
				},
				{
					Date: time.Date(2000, 1, 4, 0, 0, 0, 0, time.UTC), Alerts: 3, Suppressed: 9, Devices: 2, DeadLetters: &four,
					MostAlerts:     []notify.DeviceCount{{Device: "both days", Alerts: 2, Suppressed: 9}, {Device: "this day", Alerts: 1}},
					MostSuppressed: []notify.DeviceCount{{Device: "both days", Alerts: 2, Suppressed: 9}},
				},
			},
		}
		got := r.last(t)
		got.Due, got.Made = got.Due.UTC(), got.Made.Round(0)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
	})
}

// Nothing to tell is told too, and without a count of dead letters if there are none.
func TestSummaryOfNothing(t *testing.T) {
	r := &reader{}
	if _, err := leader.Summary(leader.Every(time.Hour), config(newTally(&records.Memory{}), map[string]notify.Reporter{"r": r})).Do(t.Context(), &leader.Call{Due: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.last(t).Days {
		if d.Alerts+d.Devices+d.Suppressed != 0 || d.DeadLetters != nil || len(d.MostAlerts)+len(d.MostSuppressed) != 0 {
			t.Errorf("%+v", d)
		}
	}
}

// The first ten are those that sorting all would give, and all devices count.
func TestSummaryTop(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var all []notify.DeviceCount
		for i := range rapid.SampledFrom([]int{0, 9, 10, 11, 25}).Draw(rt, "devices") {
			d := notify.DeviceCount{Device: fmt.Sprint("device ", i), Alerts: 1, Suppressed: rapid.Int64Range(0, 5).Draw(rt, "suppressed")}
			if d.Suppressed > 0 {
				d.Alerts++
			}
			all = append(all, d)
		}
		r := &reader{}
		synctest.Test(t, func(t *testing.T) {
			s := newTally(&records.Memory{})
			for _, d := range all {
				for i := range d.Alerts {
					alert(t, s, "r", d.Device, min(i, 1)*d.Suppressed)
				}
			}
			if _, err := leader.Summary(leader.Every(time.Hour), config(s, map[string]notify.Reporter{"r": r})).Do(t.Context(), &leader.Call{Due: time.Now()}); err != nil {
				t.Fatal(err)
			}
		})
		day := r.last(t).Days[1]
		alertsOf := func(d notify.DeviceCount) int64 { return d.Alerts }
		suppressedOf := func(d notify.DeviceCount) int64 { return d.Suppressed }
		first := func(figure, tie func(notify.DeviceCount) int64) []notify.DeviceCount {
			want := slices.DeleteFunc(slices.Clone(all), func(d notify.DeviceCount) bool { return figure(d) == 0 })
			slices.SortFunc(want, func(a, b notify.DeviceCount) int {
				return cmp.Or(cmp.Compare(figure(b), figure(a)), cmp.Compare(tie(b), tie(a)), strings.Compare(a.Device, b.Device))
			})
			return want[:min(len(want), 10)]
		}
		if want := first(alertsOf, suppressedOf); !slices.Equal(day.MostAlerts, want) {
			rt.Fatalf("most alerts: %+v, want %+v", day.MostAlerts, want)
		}
		if want := first(suppressedOf, alertsOf); !slices.Equal(day.MostSuppressed, want) {
			rt.Fatalf("most suppressed: %+v, want %+v", day.MostSuppressed, want)
		}
		var alerts, suppressed int64
		for _, d := range all {
			alerts, suppressed = alerts+d.Alerts, suppressed+d.Suppressed
		}
		if day.Alerts != alerts || day.Suppressed != suppressed || day.Devices != int64(len(all)) {
			rt.Fatalf("%+v of %+v", day, all)
		}
	})
}

// What is too much for the memory is left out, and said to be.
func TestSummaryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, more := range map[int]bool{10_000: false, 10_001: true} {
			r, s := &reader{}, newTally(&records.Memory{})
			for i := range n {
				alert(t, s, "r", fmt.Sprint(i), 1)
			}
			if _, err := leader.Summary(leader.Every(time.Hour), config(s, map[string]notify.Reporter{"r": r})).Do(t.Context(), &leader.Call{Due: time.Now()}); err != nil {
				t.Fatal(err)
			}
			if got := r.last(t); got.More != more || got.Days[1].Devices != 10_000 || len(got.Days[1].MostAlerts) != 10 || got.Days[1].Alerts != int64(n) || got.Days[1].Suppressed != int64(n) {
				t.Errorf("of %d devices: %d with %d alerts, more %t", n, got.Days[1].Devices, got.Days[1].Alerts, got.More)
			}
		}
	})
}

// A receiver that has taken a summary, or refused it for good, is let be; the others are told again, with the
// same id, until they have it or the tries are used up. The next summary is for all.
func TestSummaryUntilAllHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		well, busy := &reader{}, &reader{answers: []error{down, &notify.Error{Err: down, Untaken: true}}}
		refusing := &reader{answers: []error{&notify.Error{Refused: true, Err: errors.New("answered 400")}}}
		s := memlease.New()
		stop := run(s, "a", leader.Summary(daily(t), config(newTally(&records.Memory{}), map[string]notify.Reporter{"well": well, "busy": busy, "refusing": refusing})))
		time.Sleep(9 * time.Hour)
		synctest.Wait()
		if len(well.came) != 1 || len(busy.came) != 3 || len(busy.taken) != 1 || len(refusing.came) != 1 {
			t.Errorf("came %d, %d and %d times", len(well.came), len(busy.came), len(refusing.came))
		}
		for _, got := range slices.Concat(well.came, busy.came, refusing.came) {
			if got.ID != "ns/hub/group/summary/2000-01-01T08:00:00Z" {
				t.Errorf("id %q", got.ID)
			}
		}
		runs := status(t, s).Runs
		if len(runs) != 3 || runs[0].Outcome != leader.Failed || !strings.Contains(runs[0].Detail, "busy: connection refused") ||
			runs[2].Outcome != leader.Done || runs[2].Detail != "0 and 0 alerts; refusing: answered 400" {
			t.Errorf("the log: %+v", runs)
		}
		time.Sleep(24 * time.Hour)
		stop()
		for name, r := range map[string]*reader{"well": well, "busy": busy, "refusing": refusing} {
			if got := r.last(t); got.ID != "ns/hub/group/summary/2000-01-02T08:00:00Z" {
				t.Errorf("%s: the last is %q", name, got.ID)
			}
		}
	})
}

// A leader that is killed after a receiver has taken the summary, and before that is recorded, is followed by
// one that sends the same id, and so is one that stops. A receiver that goes by it has the summary once.
func TestSummaryOfAKilledLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []bool{false, true} { // it has been sent
			time.Sleep(300 * time.Millisecond) // so that the due time is no full second
			s := memlease.New()
			a := &link{Store: s}
			sent := make(chan struct{})
			r := &reader{}
			killed := reporter(func(ctx context.Context, sum notify.Summary) error {
				if after {
					_ = r.Report(ctx, sum)
				}
				close(sent)
				<-ctx.Done()
				return ctx.Err()
			})
			due := leader.Every(time.Hour)
			stopA := run(a, "a", leader.Summary(due, config(newTally(&records.Memory{}), map[string]notify.Reporter{"r": killed})))
			synctest.Wait() // a leads
			stopB := run(s, "b", leader.Summary(due, config(newTally(&records.Memory{}), map[string]notify.Reporter{"r": r})))
			<-sent
			a.set(refusing)
			stopA()
			time.Sleep(takeover)
			stopB()
			ids := map[string]bool{}
			for _, sum := range r.taken {
				ids[sum.ID] = true
			}
			want := 1
			if after {
				want = 2
			}
			if len(r.taken) != want || len(ids) != 1 {
				t.Errorf("sent before the kill: %t; taken: %d times, of ids %v", after, len(r.taken), ids)
			}
		}
	})
}

type reporter func(context.Context, notify.Summary) error

func (f reporter) Report(ctx context.Context, s notify.Summary) error { return f(ctx, s) }

// What cannot be counted costs its figure, and not the summary.
func TestSummaryWithoutFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := func(context.Context, time.Time, int) (int, error) { return 0, errors.New("no leave to list") }
		two := func(context.Context, time.Time, int) (int, error) { return 2, nil }
		down := records.Around(new(records.Memory), func(context.Context, records.Op, string, func(context.Context) error) error {
			return errors.New("down")
		})
		unanswering := records.Around(new(records.Memory), func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			if op == records.OpList {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return call(ctx)
		})
		for _, test := range []struct {
			name        string
			store       records.Store
			deadLetters func(context.Context, time.Time, int) (int, error)
			report      string
		}{
			{"tallies cannot be listed", down, two, "alerts unknown; alerts not counted: down"},
			{"tallies are not answered", unanswering, two, "alerts unknown; alerts not counted: not counted within 1m0s"},
			{"dead letters cannot be counted", &records.Memory{}, no, "0 and 1 alerts; dead letters of 1999-12-31 not counted: no leave to list; dead letters of 2000-01-01 not counted: no leave to list"},
			{"neither", down, no, "alerts unknown; alerts not counted: down; dead letters"},
		} {
			r, s := &reader{}, newTally(test.store)
			c := config(s, map[string]notify.Reporter{"r": r})
			c.DeadLetters = test.deadLetters
			if _, ok := test.store.(*records.Memory); ok {
				alert(t, s, "r", "d", 0)
			}
			report, err := leader.Summary(leader.Every(time.Hour), c).Do(t.Context(), &leader.Call{Due: time.Now()})
			if err != nil || !strings.HasPrefix(report, test.report) {
				t.Errorf("%s: %q, %v", test.name, report, err)
			}
			for i, d := range r.last(t).Days {
				counted := strings.HasPrefix(test.report, "0 and 1")
				if d.Unknown == counted || counted && d.Alerts != int64(i) || (d.DeadLetters == nil) != strings.Contains(report, "dead letters of") {
					t.Errorf("%s: %+v", test.name, d)
				}
			}
		}
	})
}

// Receivers that do not answer are left to the next try, and keep nobody waiting: all are told
// side by side.
func TestSummaryToHangingReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readers := map[string]notify.Reporter{}
		for i := range 10 {
			readers[fmt.Sprint("hangs ", i)] = reporter(func(ctx context.Context, _ notify.Summary) error { <-ctx.Done(); return context.Cause(ctx) })
		}
		r, start := &reader{}, time.Now()
		readers["last"] = reporter(func(ctx context.Context, s notify.Summary) error {
			if wait := time.Since(start); wait > 0 {
				t.Errorf("it was told after %v", wait)
			}
			return r.Report(ctx, s)
		})
		_, err := leader.Summary(leader.Every(time.Hour), config(newTally(&records.Memory{}), readers)).Do(t.Context(), &leader.Call{Due: time.Now()})
		if err == nil || !strings.Contains(err.Error(), "within 10s") || len(r.taken) != 1 || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v, the last took %d", err, time.Since(start), len(r.taken))
		}
	})
}
