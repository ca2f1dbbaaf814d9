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

// A work is a duty that notes when it was called.
type work struct {
	mu sync.Mutex
	at []time.Time
	do func(context.Context, int) error // nil: nothing
}

func (w *work) duty(name string, every time.Duration) leader.Duty {
	return leader.Duty{Name: name, Every: every, Do: func(ctx context.Context, _ string) (string, string, error) {
		w.mu.Lock()
		w.at = append(w.at, time.Now())
		n := len(w.at)
		w.mu.Unlock()
		if w.do == nil {
			return fmt.Sprintf("call %d", n), "", nil
		}
		return "", "", w.do(ctx, n)
	}}
}

func (w *work) seen() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.at)
}

// run starts a replica's roster; stop ends it and waits.
func run(s lease.Store, duties ...leader.Duty) (stop func()) {
	_, stop = roster(s, duties...)
	return stop
}

func roster(s lease.Store, duties ...leader.Duty) (r *leader.Scheduler, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r = leader.New(leader.Config{Store: s, Key: key, Duties: duties, Log: zap.NewNop()})
	running.Go(func() { r.Run(ctx) })
	return r, func() { cancel(); running.Wait() }
}

// Three replicas do a daily duty once a day and a frequent one as often as one would,
// whoever leads.
func TestDutiesRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var day, hour work
		start := func() func() {
			return run(s, day.duty("day", 24*time.Hour), hour.duty("hour", time.Hour))
		}
		began := time.Now()
		stops := []func(){start(), start(), start()}
		for i := range 2 * 24 * 2 { // two days of rolling restarts
			time.Sleep(30 * time.Minute)
			if i%5 == 0 {
				stops[i%3]()
				stops[i%3] = start()
			}
		}
		for _, stop := range stops {
			stop()
		}
		days := day.seen()
		if len(days) < 1 || len(days) > 2 {
			t.Errorf("the daily duty ran %d times in two days: %v", len(days), days)
		}
		for i, at := range days {
			if late := at.Sub(began.Add(time.Duration(i+1) * 24 * time.Hour)); late < 0 || late > time.Duration(i+1)*2*handover {
				t.Errorf("run %d was at %v", i, at)
			}
		}
		if hours := hour.seen(); len(hours) < 46 || len(hours) > 48 {
			t.Errorf("the hourly duty ran %d times in two days", len(hours))
		}
	})
}

// What fell into a time without any leader is made up for once.
func TestMissedIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var w work
		stop := run(s, w.duty("day", 24*time.Hour))
		time.Sleep(time.Hour)
		stop()
		time.Sleep(3 * 24 * time.Hour)
		stop = run(s, w.duty("day", 24*time.Hour))
		time.Sleep(time.Hour)
		stop()
		if at := w.seen(); len(at) != 1 || time.Since(at[0]) > time.Hour {
			t.Errorf("after three missed days the duty ran at %v", at)
		}
	})
}

// A duty that fails is tried again, later and later, up to every 4 minutes. The others do not wait for it.
func TestFailingDuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		bad := work{do: func(context.Context, int) error { return errors.New("no route") }}
		var good work
		stop := run(s, bad.duty("bad", time.Hour), good.duty("good", time.Minute))
		time.Sleep(4 * time.Hour)
		stop()
		at := bad.seen()
		if len(at) < 3*60/4 {
			t.Fatalf("tried %d times in 3 hours: %v", len(at), at)
		}
		for i := range at[1:] {
			most := min(30*time.Second<<min(i, 10), 4*time.Minute)
			if gap := at[i+1].Sub(at[i]); gap < most/2 || gap > most+time.Second {
				t.Errorf("try %d came after %v, want %v to %v", i+2, gap, most/2, most)
			}
		}
		if ok := good.seen(); len(ok) < 4*60-2 {
			t.Errorf("the other duty ran %d times in 4 hours, want once a minute", len(ok))
		}
	})
}

// A duty is interrupted when its time is up, and when its replica stops; then it is the
// next leader's at once.
func TestDutyIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		cause := make(chan error, 2)
		w := work{do: func(ctx context.Context, n int) error {
			if n == 3 {
				return nil
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}}
		d := w.duty("long", time.Hour)
		r, stop := roster(s, d)
		time.Sleep(time.Hour + 5*time.Minute + time.Second)
		at := w.seen()
		select {
		case err := <-cause:
			if len(at) != 1 || !strings.Contains(err.Error(), "5m") {
				t.Errorf("after 5 minutes: %d calls, %v", len(at), err)
			}
		default:
			t.Error("it runs on after 5 minutes")
		}
		time.Sleep(time.Minute) // in the second try
		if n := r.Failures()["long"]; n != 1 {
			t.Errorf("%d failures", n)
		}
		stop()
		stopped := time.Now()
		r, stop = roster(s, d)
		time.Sleep(time.Minute)
		if n := r.Failures()["long"]; n != 0 {
			t.Errorf("%d failures in a row after it was done", n)
		}
		stop()
		if at = w.seen(); len(at) != 3 || at[2].Sub(stopped) > handover {
			t.Errorf("the next leader: %v", at)
		}
	})
}

// How often a duty has failed in a row is known on the leader, also after another has led.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		var healed atomic.Bool
		bad := work{do: func(ctx context.Context, n int) error {
			if n == 6 {
				<-ctx.Done() // interrupted
			}
			if healed.Load() {
				return nil
			}
			return errors.New("no route")
		}}
		var good work
		duties := []leader.Duty{bad.duty("bad", time.Hour), good.duty("good", time.Hour)}
		check := func(what string, r *leader.Scheduler, want int) {
			t.Helper()
			if got := r.Failures(); len(got) != 2 || got["bad"] != want || got["good"] != 0 {
				t.Errorf("%s: %v, want %d of bad", what, got, want)
			}
		}
		a, stopA := roster(s, duties...)
		check("before it leads", a, 0)
		for len(bad.seen()) < 6 {
			time.Sleep(time.Second)
		}
		check("after five", a, 5)
		b, stopB := roster(s, duties...)
		time.Sleep(time.Minute) // of the 5 that the sixth takes
		check("on a replica that does not lead", b, 0)
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

// What a leader had begun that was killed, the next one begins again.
func TestKilledInADuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		a := &link{Store: s}
		w := work{do: func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		d := w.duty("janitor", time.Hour)
		stopA := run(a, d)
		synctest.Wait()
		stopB := run(s, d)
		time.Sleep(time.Hour + time.Minute)
		a.set(refusing)
		stopA()
		killed := time.Now()
		time.Sleep(takeover)
		if at := w.seen(); len(at) != 2 || at[1].Before(killed) {
			t.Errorf("runs at %v, killed at %v", at, killed)
		}
		time.Sleep(30 * time.Minute)
		stopB()
		if at := w.seen(); len(at) != 2 {
			t.Errorf("done, and then again: %v", at)
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
		stop := run(s, near.duty("near", time.Hour), far.duty("far", time.Hour))
		time.Sleep(time.Hour + time.Minute)
		stop()
		for name, w := range map[string]*work{"near": &near, "far": &far} {
			if at := w.seen(); len(at) != 1 {
				t.Errorf("%s: done %d times within an hour, want once", name, len(at))
			}
		}
	})
}

// What has a schedule of its own counts on the leader, like any other duty, and on the next one.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		first, stopFirst := roster(s, leader.Duty{Name: "heartbeat"})
		time.Sleep(time.Minute)
		second, stopSecond := roster(s, leader.Duty{Name: "heartbeat"})
		time.Sleep(time.Minute)
		for _, tt := range []struct {
			failed bool
			want   int
		}{{true, 1}, {false, 0}, {false, 0}, {true, 1}, {true, 2}} {
			for _, r := range []*leader.Scheduler{first, second} { // the first leads
				r.Record("heartbeat", tt.failed)
			}
			if n := first.Failures()["heartbeat"]; n != tt.want {
				t.Errorf("%d failures in a row, want %d", n, tt.want)
			}
			if n := second.Failures()["heartbeat"]; n != 0 {
				t.Errorf("%d failures on a replica that does not lead", n)
			}
			time.Sleep(time.Minute)
		}
		stopFirst()
		first.Record("heartbeat", false) // too late
		time.Sleep(handover)
		if n := second.Failures()["heartbeat"]; n != 2 {
			t.Errorf("%d failures in a row on the next leader, want 2", n)
		}
		stopSecond()
	})
}

// A note of version 1.0, which has terms and runs too, says when duties are due; what is no note says nothing.
func TestFormerNotes(t *testing.T) {
	for name, tt := range map[string]struct {
		note  string // with the time of the last run
		after time.Duration
		mark  string
	}{
		"1.0":     {`{"leader":"a","lost":"no","terms":[[1,"b",1,2,2,"no"]],"duties":{"janitor":{"last":%d,"mark":"8e","failed":3,"runs":[[1,1795261928,2,1,"ok"],[1,1795261928,0,0,""]]},"gone":{"last":1}}}`, 30 * time.Minute, "8e"},
		"no note": {`%d`, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memlease.New()
				note := fmt.Sprintf(tt.note, time.Now().Add(-30*time.Minute).Unix())
				l, err := s.Acquire(t.Context(), key, time.Minute, func(lease.Record) (string, error) { return "", nil })
				if err == nil {
					err = s.Release(t.Context(), l, note)
				}
				if err != nil {
					t.Fatal(err)
				}
				began, ran := time.Now(), time.Duration(0)
				stop := run(s, leader.Duty{Name: "janitor", Every: time.Hour, Do: func(_ context.Context, mark string) (string, string, error) {
					if ran = time.Since(began); mark != tt.mark {
						t.Errorf("it began at %q, want %q", mark, tt.mark)
					}
					return "", "", nil
				}})
				time.Sleep(tt.after + time.Minute)
				stop()
				if ran.Round(time.Second) != tt.after {
					t.Errorf("it ran after %v, want %v", ran, tt.after)
				}
				if r, err := s.Read(t.Context(), key); err != nil || len(r.Note) > 100 || strings.Contains(r.Note, "gone") {
					t.Errorf("it left %s, %v", r.Note, err)
				}
			})
		})
	}
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
	if report, _, err := d.Do(t.Context(), ""); err != nil || report != "12 removed" || s.olderThan != 720*time.Hour {
		t.Errorf("%q, %v, %+v", report, err, s)
	}
	if !s.mine("ns/hub/r/device") || s.mine("ns/hub/2/r/device") || s.mine("~duties/ns/hub") {
		t.Error("the records are not those of the scope")
	}
	s.err, s.next = errors.New("list blobs: no"), "8f"
	if _, next, err := d.Do(t.Context(), "8e"); err == nil || err.Error() != "12 removed, then: list blobs: no" || next != "8f" || s.from[1] != "8e" {
		t.Errorf("%v, %q after %q", err, next, s.from)
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
		start := func() (stop func()) { return run(store, leader.Janitor(records, "s", 720*time.Hour)) }
		stop := start()
		time.Sleep(time.Hour + 5*time.Minute)
		stop() // in the second run
		stop = start()
		time.Sleep(10 * time.Minute)
		if got := records.began(); got != "[ 40 80 c0]" {
			t.Errorf("it began at %q", got)
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
		leave := []string{"first", strings.Repeat("<", 50), "x", "\xff", ""}
		d := leader.Duty{Name: "long", Every: time.Hour, Do: func(_ context.Context, mark string) (_, next string, err error) {
			got = append(got, mark)
			next = leave[len(got)-1]
			if next == "x" {
				err = errors.New("no")
			}
			return "", next, err
		}}
		var between work
		stop := run(store, d, between.duty("between", time.Hour))
		time.Sleep(2*time.Hour + time.Minute)
		stop()
		if want := []string{"", "first", "", "x"}; !slices.Equal(got, want) {
			t.Errorf("marks %q, want %q", got, want)
		}
		if at := between.seen(); len(at) != 2 {
			t.Errorf("another duty was done %d times, want 2", len(at))
		}
	})
}
