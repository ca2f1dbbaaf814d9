package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ops/leader"
)

// A work is a duty that notes when and for what it was called.
type work struct {
	mu    sync.Mutex
	at    []time.Time
	calls []leader.Call
	do    func(context.Context, int) (string, error) // nil: nothing
}

func (w *work) duty(name string, every time.Duration) leader.Duty {
	return leader.Duty{Name: name, Every: every, Do: func(ctx context.Context, c *leader.Call) (string, error) {
		w.mu.Lock()
		w.at, w.calls = append(w.at, time.Now()), append(w.calls, *c)
		n := len(w.at)
		w.mu.Unlock()
		if w.do == nil {
			return fmt.Sprintf("call %d", n), nil
		}
		return w.do(ctx, n)
	}}
}

func (w *work) seen() ([]time.Time, []leader.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.at...), append([]leader.Call(nil), w.calls...)
}

// run starts a replica's roster; stop ends it and waits.
func run(s lease.Store, name string, duties ...leader.Duty) (stop func()) {
	_, stop = roster(s, name, duties...)
	return stop
}

func roster(s lease.Store, name string, duties ...leader.Duty) (r *leader.Scheduler, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r = leader.New(leader.Config{Store: s, Key: key, Replica: name, Duties: duties, Log: zap.NewNop()})
	running.Go(func() { r.Run(ctx) })
	return r, func() { cancel(); running.Wait() }
}

func status(t *testing.T, s lease.Store) leader.Status {
	t.Helper()
	st, err := leader.ReadStatus(t.Context(), s, key)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Three replicas do a daily duty once a day and a frequent one as often as one would,
// whoever leads.
func TestDutiesRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var day, hour work
		start := func(name string) func() {
			return run(s, name, day.duty("day", 24*time.Hour), hour.duty("hour", time.Hour))
		}
		began := time.Now()
		stops := []func(){start("a"), start("b"), start("c")}
		for i := range 2 * 24 * 2 { // two days of rolling restarts
			time.Sleep(30 * time.Minute)
			if i%5 == 0 {
				stops[i%3]()
				stops[i%3] = start(fmt.Sprint("replica-", i))
			}
		}
		for _, stop := range stops {
			stop()
		}
		days, calls := day.seen()
		if len(days) < 1 || len(days) > 2 {
			t.Errorf("the daily duty ran %d times in two days: %v", len(days), days)
		}
		for i, c := range calls {
			if late := days[i].Sub(began.Add(time.Duration(i+1) * 24 * time.Hour)); late < 0 || late > time.Duration(i+1)*2*handover {
				t.Errorf("run %d was at %v", i, days[i])
			}
			if i > 0 && c.Term < calls[i-1].Term {
				t.Errorf("term %d after %d", c.Term, calls[i-1].Term)
			}
		}
		if hours, _ := hour.seen(); len(hours) < 46 || len(hours) > 48 {
			t.Errorf("the hourly duty ran %d times in two days", len(hours))
		}
	})
}

// What fell into a time without any leader is made up for once.
func TestMissedIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var w work
		stop := run(s, "a", w.duty("day", 24*time.Hour))
		time.Sleep(time.Hour)
		stop()
		time.Sleep(3 * 24 * time.Hour)
		stop = run(s, "b", w.duty("day", 24*time.Hour))
		time.Sleep(time.Hour)
		stop()
		if at, _ := w.seen(); len(at) != 1 || time.Since(at[0]) > time.Hour {
			t.Errorf("after three missed days the duty ran at %v", at)
		}
	})
}

// A duty that fails is tried again, later and later, and given up until it is due
// again. The others do not wait for it.
func TestFailingDuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		bad := work{do: func(context.Context, int) (string, error) { return "", errors.New("no route") }}
		var good work
		stop := run(s, "a", bad.duty("bad", 24*time.Hour), good.duty("good", time.Minute))
		time.Sleep(34 * time.Hour)
		stop()
		at, _ := bad.seen()
		if len(at) != 5 {
			t.Fatalf("tried %d times for one due time, want 5: %v", len(at), at)
		}
		for i, most := range []time.Duration{30, 60, 120, 240} {
			most *= time.Second
			if gap := at[i+1].Sub(at[i]); gap < most/2 || gap > most+time.Second {
				t.Errorf("try %d came after %v, want %v to %v", i+2, gap, most/2, most)
			}
		}
		if ok, _ := good.seen(); len(ok) < 30*60-2 {
			t.Errorf("the other duty ran %d times in 30 hours, want once a minute", len(ok))
		}
	})
}

// A duty is interrupted when its time is up, and when its replica stops; then it is the
// next leader's at once.
func TestDutyIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		cause := make(chan error, 2)
		w := work{do: func(ctx context.Context, n int) (string, error) {
			if n == 3 {
				return "done after all", nil
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return "", ctx.Err()
		}}
		d := w.duty("long", time.Hour)
		stop := run(s, "a", d)
		time.Sleep(time.Hour + 5*time.Minute + time.Second)
		at, _ := w.seen()
		select {
		case err := <-cause:
			if len(at) != 1 || !strings.Contains(err.Error(), "5m") {
				t.Errorf("after 5 minutes: %d calls, %v", len(at), err)
			}
		default:
			t.Error("it runs on after 5 minutes")
		}
		time.Sleep(time.Minute) // in the second try
		stop()
		stopped := time.Now()
		if runs := status(t, s).Runs; len(runs) != 1 || runs[0].Outcome != leader.Interrupted {
			t.Errorf("after it was stopped: %+v", runs)
		}
		stop = run(s, "b", d)
		time.Sleep(time.Minute)
		stop()
		at, _ = w.seen()
		if len(at) != 3 || at[2].Sub(stopped) > handover {
			t.Errorf("the next leader: %v", at)
		}
		runs := status(t, s).Runs
		if len(runs) != 1 || runs[0].Outcome != leader.Done || runs[0].Detail != "done after all" {
			t.Errorf("the log: %+v", runs)
		}
	})
}

// The log has the last run of a duty, whoever led.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		if st := status(t, s); st.Leader != "" || st.Term != 0 || len(st.Runs) != 0 {
			t.Errorf("before anything: %+v", st)
		}
		w := work{do: func(_ context.Context, n int) (string, error) {
			time.Sleep(time.Duration(n) * time.Second)
			if n%2 == 0 {
				return "", fmt.Errorf("error %d", n)
			}
			return fmt.Sprint("report ", n), nil
		}}
		began := time.Now()
		d := w.duty("janitor", time.Hour)
		stop := run(s, "a", d)
		time.Sleep(3*time.Hour + 10*time.Minute)
		st := status(t, s)
		if st.Leader != "a" || st.Term == 0 || st.Since.Sub(began) > time.Second {
			t.Errorf("while a leads: %+v", st)
		}
		stop()
		if st := status(t, s); st.Leader != "" {
			t.Errorf("after a stopped %q leads", st.Leader)
		}
		stop = run(s, "b", d)
		time.Sleep(9 * time.Hour)
		stop()

		st = status(t, s)
		at, _ := w.seen()
		n := len(at)
		if len(st.Runs) != 1 || n < 13 {
			t.Fatalf("of %d runs %+v are logged, want the last", n, st.Runs)
		}
		want := leader.Run{
			Duty: "janitor", Term: st.Term, Replica: "b", Start: at[n-1].UTC().Truncate(time.Second), Seconds: float64(n),
			Outcome: leader.Done, Detail: fmt.Sprint("report ", n),
		}
		if n%2 == 0 {
			want.Outcome, want.Detail = leader.Failed, fmt.Sprint("error ", n)
		}
		if st.Runs[0] != want {
			t.Errorf("run %d is %+v, want %+v", n, st.Runs[0], want)
		}
	})
}

// Runs of a duty that fails again and again do not push out those of another.
func TestLogOfEachDuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		other := work{}
		janitor := work{do: func(context.Context, int) (string, error) { return "", errors.New("refused") }}
		stop := run(s, "a", other.duty("other", 24*time.Hour), janitor.duty("janitor", time.Hour))
		time.Sleep(34 * time.Hour)
		stop()
		runs := status(t, s).Runs
		if at, _ := janitor.seen(); len(runs) != 2 || runs[0].Duty != "janitor" || runs[1].Duty != "other" || len(at) < 100 {
			t.Errorf("of %d runs of the janitor and 1 of the other these are listed: %+v", len(at), runs)
		}
	})
}

// How often a duty has failed in a row is known on the leader, also after another has led.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var healed atomic.Bool
		bad := work{do: func(ctx context.Context, n int) (string, error) {
			if n == 6 {
				<-ctx.Done() // interrupted
			}
			if healed.Load() {
				return "", nil
			}
			return "", errors.New("no route")
		}}
		var good work
		duties := []leader.Duty{bad.duty("bad", time.Hour), good.duty("good", time.Hour)}
		check := func(what string, r *leader.Scheduler, want int) {
			t.Helper()
			if got := r.Failures(); len(got) != 2 || got["bad"] != want || got["good"] != 0 {
				t.Errorf("%s: %v, want %d of bad", what, got, want)
			}
		}
		a, stopA := roster(s, "a", duties...)
		check("before it leads", a, 0)
		time.Sleep(time.Hour + 20*time.Minute)
		check("after an hour", a, 5)
		b, stopB := roster(s, "b", duties...)
		time.Sleep(time.Minute)
		check("on a replica that does not lead", b, 0)
		time.Sleep(47 * time.Minute) // in the sixth run: an hour after the fifth, and 5 minutes long
		stopA()
		check("once stopped", a, 0)
		time.Sleep(handover + time.Second)
		if _, ok := b.Leading(); !ok {
			t.Fatal("b does not lead")
		}
		check("on the next leader, after one more", b, 6)
		healed.Store(true)
		time.Sleep(time.Hour)
		check("healed", b, 0)
		stopB()
	})
}

// A run whose replica was killed stays in the log as begun, and is begun again.
func TestKilledInADuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		a := &link{Store: s}
		w := work{do: func(ctx context.Context, n int) (string, error) {
			if n == 1 {
				<-ctx.Done()
			}
			return "", ctx.Err()
		}}
		d := w.duty("janitor", time.Hour)
		stopA := run(a, "a", d)
		synctest.Wait()
		stopB := run(s, "b", d)
		time.Sleep(time.Hour + time.Minute)
		a.set(refusing)
		stopA()
		begun := status(t, s).Runs
		time.Sleep(takeover)
		stopB()
		runs := status(t, s).Runs
		if len(begun) != 1 || len(runs) != 1 || runs[0].Term == begun[0].Term || begun[0].Outcome != leader.Begun || runs[0].Replica != "b" || runs[0].Outcome != leader.Done {
			t.Errorf("the log: %+v, then %+v", begun, runs)
		}
	})
}

// A clock that was far ahead when a duty was done does not keep it from being done.
func TestClockGoneWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		l, err := s.Acquire(t.Context(), key, time.Minute, func(lease.Record) (string, error) {
			return fmt.Sprintf(`{"duties":{"near":{"last":%d},"far":{"last":%d}}}`, time.Now().Add(30*time.Minute).Unix(), time.Now().AddDate(1, 0, 0).Unix()), nil
		})
		if err == nil {
			err = s.Release(t.Context(), l, fmt.Sprintf(`{"duties":{"near":{"last":%d},"far":{"last":%d}}}`, time.Now().Add(30*time.Minute).Unix(), time.Now().AddDate(1, 0, 0).Unix()))
		}
		if err != nil {
			t.Fatal(err)
		}
		var near, far work
		stop := run(s, "a", near.duty("near", time.Hour), far.duty("far", time.Hour))
		time.Sleep(time.Hour + time.Minute)
		stop()
		if at, _ := near.seen(); len(at) != 0 {
			t.Error("done an hour after now, not an hour after it was done")
		}
		if at, _ := far.seen(); len(at) != 1 {
			t.Errorf("done %d times within an hour, want once", len(at))
		}
	})
}

// What has a schedule of its own is recorded on the leader, like any other duty, and outlives it.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		a, stopA := roster(s, "a", leader.Duty{Name: "heartbeat"})
		b, stopB := roster(s, "b", leader.Duty{Name: "heartbeat"})
		time.Sleep(time.Minute)
		for n := range 12 {
			began := time.Now()
			time.Sleep(2 * time.Second)
			for _, r := range []*leader.Scheduler{a, b} { // one of which leads
				switch {
				case n%2 == 1:
					r.Record("heartbeat", began, leader.Failed, "not accepted")
				case n == 10: // it was accepted, and says what is not well
					r.Record("heartbeat", began, leader.Reported, "receiver hook is down")
				default:
					r.Record("heartbeat", began, leader.Done, fmt.Sprint("report ", n))
				}
			}
		}
		synctest.Wait()
		check := func(r *leader.Scheduler) {
			t.Helper()
			runs := status(t, s).Runs
			if len(runs) != 1 || runs[0].Detail != "not accepted" || runs[0].Outcome != leader.Failed || runs[0].Seconds != 2 {
				t.Errorf("%+v", runs)
			}
			if n := r.Failures()["heartbeat"]; n != 1 {
				t.Errorf("%d failures in a row, want 1", n)
			}
		}
		first, second, stopFirst, stopSecond := a, b, stopA, stopB
		if _, leads := b.Leading(); leads {
			first, second, stopFirst, stopSecond = b, a, stopB, stopA
		}
		check(first)
		stopFirst()
		first.Record("heartbeat", time.Now(), leader.Done, "too late")
		time.Sleep(handover)
		check(second)
		stopSecond()
	})
}

// A sweep answers as told.
type sweep struct {
	removed int
	next    string
	err     error

	from      []string
	olderThan time.Duration
	mine      func(string) bool
}

func (s *sweep) Sweep(_ context.Context, from string, olderThan time.Duration, mine func(string) bool) (int, string, error) {
	s.from, s.olderThan, s.mine = append(s.from, from), olderThan, mine
	return s.removed, s.next, s.err
}

func TestJanitor(t *testing.T) {
	s := &sweep{removed: 12}
	d := leader.Janitor(s, "ns/hub", 720*time.Hour)
	if report, err := d.Do(t.Context(), &leader.Call{}); err != nil || report != "12 removed" || s.olderThan != 720*time.Hour {
		t.Errorf("%q, %v, %+v", report, err, s)
	}
	if !s.mine("ns/hub/r/device") || s.mine("ns/hub/2/r/device") || s.mine("~duties/ns/hub") {
		t.Error("the records are not those of the scope")
	}
	s.err, s.next = errors.New("list blobs: no"), "8f"
	c := leader.Call{Mark: "8e"}
	if _, err := d.Do(t.Context(), &c); err == nil || err.Error() != "12 removed, then: list blobs: no" || c.Mark != "8f" || s.from[1] != "8e" {
		t.Errorf("%v, %+v after %q", err, c, s.from)
	}
}

// A steps is a sweep that leaves these marks; but for the last, it goes on until its context ends.
type steps struct {
	mu   sync.Mutex
	next []string
	from []string
}

func (s *steps) Sweep(ctx context.Context, from string, _ time.Duration, _ func(string) bool) (int, string, error) {
	s.mu.Lock()
	n := len(s.from)
	s.from = append(s.from, from)
	s.mu.Unlock()
	if n >= len(s.next) {
		return 1, "", nil
	}
	<-ctx.Done()
	return 100_000, s.next[n], ctx.Err()
}

func (s *steps) began() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.from)
}

// A sweep that takes long stops in time and goes on soon, from where it stopped, also if another
// replica leads then; when it has come to the end, it is due at the next time.
func TestJanitorGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, records := memlease.New(), &steps{next: []string{"40", "80", "c0"}}
		start := func(name string) (stop func()) {
			return run(store, name, leader.Janitor(records, "s", 720*time.Hour))
		}
		stop := start("a")
		time.Sleep(time.Hour + 5*time.Minute)
		stop() // in the second run
		stop = start("b")
		time.Sleep(10 * time.Minute)
		if got := records.began(); got != "[ 40 80 c0]" {
			t.Errorf("it began at %q", got)
		}
		runs := status(t, store).Runs
		if len(runs) != 1 || runs[0].Outcome != leader.Done || runs[0].Detail != "1 removed" {
			t.Errorf("the log: %+v", runs)
		}
		time.Sleep(30 * time.Minute)
		if got := records.began(); got != "[ 40 80 c0]" {
			t.Errorf("it had come to the end, and began at %q", got)
		}
		time.Sleep(time.Hour)
		stop()
		if got := records.began(); got != "[ 40 80 c0 ]" {
			t.Errorf("an hour later it began at %q", got)
		}
	})
}

// A mark outlives leaders and failures, and not its duty; one that is too long is none.
func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		var got []string
		leave := []string{"first", strings.Repeat("<", 50), "x", ""}
		d := leader.Duty{Name: "long", Every: time.Hour, Do: func(_ context.Context, c *leader.Call) (string, error) {
			got = append(got, c.Mark)
			c.Mark = leave[len(got)-1]
			if c.Mark == "x" {
				return "", errors.New("no")
			}
			return "", nil
		}}
		var between work
		stop := run(store, "a", d, between.duty("between", time.Hour))
		time.Sleep(2*time.Hour + time.Minute)
		stop()
		if want := []string{"", "first", "", "x"}; !slices.Equal(got, want) {
			t.Errorf("marks %q, want %q", got, want)
		}
		if at, _ := between.seen(); len(at) != 2 {
			t.Errorf("another duty was done %d times, want 2", len(at))
		}
	})
}
