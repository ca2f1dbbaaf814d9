package duty_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/duty"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
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

func config(s lease.Store, readers map[string]notify.Reporter) duty.SummaryConfig {
	return duty.SummaryConfig{Store: s, Scope: scope, Source: "/ns/hub", Receivers: readers, Timeout: 10 * time.Second}
}

// alert sends one through the gate of receiver, whose windows are short, after so many suppressed readings.
func alert(t rapid.TB, s lease.Store, receiver, device string, suppressed int64) {
	t.Helper()
	g := throttle.New(throttle.Config{Store: s, Scope: scope, Receiver: receiver, Window: time.Second, SendTimeout: time.Second})
	send := func() {
		r, err := g.Do(context.Background(), throttle.Request{Device: device, ID: "1", Enqueued: time.Now()}, func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken })
		if err != nil || r.Outcome != throttle.Sent {
			t.Fatalf("%v, %v", r.Outcome, err)
		}
	}
	send()
	if suppressed > 0 {
		g.Suppressed(device, suppressed)
		time.Sleep(2 * time.Second)
		send()
	}
	time.Sleep(2 * time.Second)
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
		s, r := memlease.New(), &reader{}
		alert(t, s, "r", "too early", 0)
		until(t, "2000-01-03T00:00:00Z")
		alert(t, s, "r", "both days", 7) // two alerts
		alert(t, s, "other", "both days", 0)
		alert(t, s, "other", "that day", 0)
		until(t, "2000-01-03T23:59:50Z")
		alert(t, s, "r", "that day", 0)
		until(t, "2000-01-04T07:00:00Z")
		alert(t, s, "other", "both days", 9)
		alert(t, s, "r", "both days", 0)
		alert(t, s, "r", "this day", 0)
		if _, err := s.Acquire(t.Context(), "~duties/"+scope, time.Minute, func(lease.Record) (string, error) { return `{"n":["a"]}`, nil }); err != nil {
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
		report, err := duty.Summary(duty.Every(time.Hour), c).Do(t.Context(), &duty.Call{Due: due.In(time.FixedZone("", 60*60))})
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
	if _, err := duty.Summary(duty.Every(time.Hour), config(memlease.New(), map[string]notify.Reporter{"r": r})).Do(t.Context(), &duty.Call{Due: time.Now()}); err != nil {
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
			s := memlease.New()
			for _, d := range all {
				alert(t, s, "r", d.Device, d.Suppressed)
			}
			if _, err := duty.Summary(duty.Every(time.Hour), config(s, map[string]notify.Reporter{"r": r})).Do(t.Context(), &duty.Call{Due: time.Now()}); err != nil {
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

// A crowd is a store that lists so many devices, each with one alert of today.
type crowd struct {
	lease.Store
	n int
}

func (c crowd) List(context.Context, string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) {
		note := fmt.Sprintf(`{"counts":{"day":%d,"alerts":[1,0],"suppressed":[0,0]}}`, time.Now().Unix()/86400)
		for i := range c.n {
			if !yield(lease.Entry{Key: fmt.Sprint(scope, "/r/", i), Record: lease.Record{Note: note}}, nil) {
				return
			}
		}
	}
}

// What is too much for the memory is left out, and said to be.
func TestSummaryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, more := range map[int]bool{100_000: false, 100_001: true} {
			r := &reader{}
			if _, err := duty.Summary(duty.Every(time.Hour), config(crowd{memlease.New(), n}, map[string]notify.Reporter{"r": r})).Do(t.Context(), &duty.Call{Due: time.Now()}); err != nil {
				t.Fatal(err)
			}
			if got := r.last(t); got.More != more || got.Days[1].Devices != 100_000 || len(got.Days[1].MostAlerts) != 10 {
				t.Errorf("of %d devices: %d, more %t", n, got.Days[1].Devices, got.More)
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
		stop := run(s, "a", duty.Summary(daily(t), config(s, map[string]notify.Reporter{"well": well, "busy": busy, "refusing": refusing})))
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
		if len(runs) != 3 || runs[0].Outcome != duty.Failed || !strings.Contains(runs[0].Detail, "busy: connection refused") ||
			runs[2].Outcome != duty.Done || runs[2].Detail != "0 and 0 alerts; refusing: answered 400" {
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
			due := duty.Every(time.Hour)
			stopA := run(a, "a", duty.Summary(due, config(s, map[string]notify.Reporter{"r": killed})))
			synctest.Wait() // a leads
			stopB := run(s, "b", duty.Summary(due, config(s, map[string]notify.Reporter{"r": r})))
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

// What cannot be counted is not sent.
func TestSummaryFails(t *testing.T) {
	no := errors.New("no")
	for name, change := range map[string]func(*duty.SummaryConfig){
		"the store cannot list": func(c *duty.SummaryConfig) { c.Store = &link{Store: c.Store} },
		"the store is down": func(c *duty.SummaryConfig) {
			c.Store = failing{c.Store}
		},
		"dead letters cannot be counted": func(c *duty.SummaryConfig) {
			c.DeadLetters = func(context.Context, time.Time, int) (int, error) { return 0, no }
		},
	} {
		r := &reader{}
		c := config(memlease.New(), map[string]notify.Reporter{"r": r})
		change(&c)
		if _, err := duty.Summary(duty.Every(time.Hour), c).Do(t.Context(), &duty.Call{Due: time.Now()}); err == nil || !strings.Contains(err.Error(), "count ") || len(r.came) > 0 {
			t.Errorf("%s: %v, %d summaries", name, err, len(r.came))
		}
	}
}

type failing struct{ lease.Store }

func (failing) List(context.Context, string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) { yield(lease.Entry{}, errors.New("down")) }
}

// A receiver that does not answer is left to the next try, and does not keep the others waiting for long.
func TestSummaryToAHangingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := reporter(func(ctx context.Context, _ notify.Summary) error { <-ctx.Done(); return context.Cause(ctx) })
		r, start := &reader{}, time.Now()
		_, err := duty.Summary(duty.Every(time.Hour), config(memlease.New(), map[string]notify.Reporter{"a": hangs, "b": r})).Do(t.Context(), &duty.Call{Due: time.Now()})
		if err == nil || !strings.Contains(err.Error(), "within 10s") || len(r.taken) != 1 || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v, the other took %d", err, time.Since(start), len(r.taken))
		}
	})
}
