package partition_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func wantAlerts(t *testing.T, r *receiver, device string, want int) []notify.Alert {
	t.Helper()
	got := r.alerts(device)
	if len(got) != want {
		t.Fatalf("%d alerts of %q, want %d: %v", len(got), device, want, got)
	}
	return got
}

func wantCheckpoint(t *testing.T, p *partition, want int64) {
	t.Helper()
	if got := p.checkpoint(); got != want {
		t.Fatalf("checkpoint at %d, want %d (of %v)", got, want, p.marks)
	}
}

// pass lets time pass, and everything happen that is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneBatchOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.publish("cold", 29.9)
		for range 20 {
			p.publish("hot", 30)
		}
		s := newSetup(t, r).start(p)
		defer s.end()
		synctest.Wait()
		a := wantAlerts(t, r, "", 1)[0]
		if a.Device != "hot" || a.Sequence != 2 || a.Temperature != 30 || a.Partition != "0" || a.Replica != "a" || a.Window != window || a.Source != "/ns/hub" {
			t.Errorf("alert %+v", a)
		}
		if want := fmt.Sprintf("ns/hub/0/2/%d", a.Enqueued.UnixMilli()); a.ID != want {
			t.Errorf("id %q, want %q", a.ID, want)
		}
		pass(interval)
		wantCheckpoint(t, p, 21) // also when idle
		pass(window - interval)
		p.publish("hot", 31)
		synctest.Wait()
		if a = wantAlerts(t, r, "", 2)[1]; a.Suppressed != 19 {
			t.Errorf("the second alert tells of %d suppressed, want 19", a.Suppressed)
		}
		if n := s.stats.Over.Load(); n != 21 {
			t.Errorf("%d readings are counted that reached the limit, of 21", n)
		}
	})
}

func TestReplayAfterACrashSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, r := memlease.New(), newPartition("0"), &receiver{}
		p.refuse = errors.New("it will crash before it checkpoints")
		for i := range 10 {
			p.publish(fmt.Sprint("device", i%5), 99)
		}
		first := newReplica(t, store, r)
		ctx, crash := context.WithCancelCause(t.Context())
		first.consume(ctx, p)
		synctest.Wait()
		wantAlerts(t, r, "", 5)
		crash(telemetry.ErrLost)
		first.work.Wait()

		pass(time.Hour)
		q := p.reopen()
		second := newReplica(t, store, r).start(q)
		defer second.end()
		synctest.Wait()
		wantAlerts(t, r, "", 5)
		q.publish("device0", 99)
		synctest.Wait()
		wantAlerts(t, r, "", 6)
		pass(interval)
		wantCheckpoint(t, q, 11)
	})
}

func TestCheckpointFollowsByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		p.largest = 100
		for range 10_000 {
			p.publish("cold", 1)
		}
		s := newSetup(t).start(p)
		defer s.end()
		synctest.Wait()
		wantCheckpoint(t, p, 10_000)
		for range 10 {
			p.publish("cold", 1)
			synctest.Wait()
		}
		if len(p.marks) != 1 {
			t.Errorf("checkpoints at %v before their interval is over", p.marks)
		}
	})
}

// The first event of a partition holds the checkpoint as any other, and so does a change that the record of an incident lacks,
// although an alert about a later event waits.
func TestWhatHoldsTheCheckpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		sites     []string // of hot devices, one event each; empty: it has none
		want      int64
		unsettled int // an alert about a member holds it, too
	}{
		"the first event":              {[]string{"", ""}, 0, 2},
		"a record and a later event":   {[]string{"cool", "berlin", ""}, 1, 3},
		"an event before a record":     {[]string{"cool", "", "berlin"}, 1, 3},
		"the first event and a record": {[]string{"berlin", ""}, 0, 3},
		"a record alone":               {[]string{"cool", "berlin"}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
				p.generation = "a"
				s := with(t, inSite, r)
				if tt.sites[0] == "" {
					s = newSetup(t, r)
				}
				var down atomic.Bool
				down.Store(true)
				s.ledgers = records.Around(s.ledgers, func(ctx context.Context, _ records.Op, name string, call func(context.Context) error) error {
					if down.Load() && strings.HasPrefix(name, "incidents/") {
						return errors.New("503")
					}
					return call(ctx)
				})
				s.start(p)
				defer s.end()
				for i, site := range tt.sites {
					device := fmt.Sprint("freezer-", i)
					switch site {
					case "cool":
						p.publish(device, cool)
					case "":
						p.publish(device, hot)
					default:
						p.publishOf(device, site, hot)
					}
					pass(time.Second)
				}
				pass(2 * interval)
				wantCheckpoint(t, p, tt.want)
				if state := s.states()[0]; state.Unsettled != tt.unsettled || !state.Oldest.Equal(p.log[tt.want].Enqueued) {
					t.Errorf("unsettled are %d events, since %v; want %d since %v", state.Unsettled, state.Oldest, tt.unsettled, p.log[tt.want].Enqueued)
				}
				down.Store(false)
				r.set(nil)
				pass(5 * time.Minute)
				wantCheckpoint(t, p, int64(len(tt.sites)))
				if state := s.states()[0]; state.Unsettled != 0 || !state.Oldest.IsZero() {
					t.Errorf("unsettled are %d events, since %v", state.Unsettled, state.Oldest)
				}
			})
		})
	}
}

// The ledger and the checkpoint follow although there is always an alert on its way.
func TestCheckpointFollowsWhileAlertsAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(3 * time.Second)}
		s := with(t, nil, r)
		s.start(p)
		defer s.end()
		for i := range 60 {
			p.publish(fmt.Sprint("oven-", i), hot)
			pass(time.Second)
			if n := int64(i) - 3*int64(interval/time.Second); p.checkpoint() < n {
				t.Fatalf("after %d events the checkpoint is at %d", i+1, p.checkpoint())
			}
		}
	})
}

// With as many changes as may be, reading pauses until the ledger has them.
func TestReadingPausesUntilTheLedgerIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		p.largest = 1
		s := with(t, nil) // whose alerts are settled at once
		s.config.MaxChanges = 4
		for i := range 10 {
			p.publish(fmt.Sprint("oven-", i), hot)
		}
		s.start(p)
		defer s.end()
		for _, want := range []int64{4, 8, 10} {
			pass(time.Second)
			if got := s.states()[0].Read.Sequence; got != want {
				t.Errorf("%d events are read, want %d", got, want)
			}
			pass(interval)
		}
	})
}

// A receiver that is dead for longer than NOTIFY_GIVE_UP does not hold the checkpoint for all of that time: a
// delivery that starts again holds it at the reading that it is about, not at its first.
func TestDeadReceiverDoesNotHoldTheCheckpoint(t *testing.T) {
	t.Parallel()
	for _, resolved := range []bool{false, true} {
		if testing.Short() && !resolved {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			p, live, dead := newPartition("0"), &receiver{}, &receiver{answer: func(context.Context, notify.Alert) error { return errBusy }}
			s := with(t, func(r *rules.Rule) { r.Resolved = resolved }, live, dead)
			s.config.GiveUp = 12 * time.Hour
			s.start(p)
			defer s.end()
			for minute := range int64(60 * 60) {
				p.publish("oven", 99)
				p.publish("kiln", 20)
				pass(time.Minute)
				if behind := minute + 1 - (p.checkpoint()+1)/2; behind > 13*60 {
					t.Fatalf("the checkpoint is %d min behind", behind)
				}
			}
			if n := len(s.dead.all()); n < 4 || n > 6 {
				t.Errorf("%d dead letters in 60 h", n)
			}
			dead.set(nil)
			pass(5 * time.Minute)
			if got := dead.alerts("oven"); len(got) == 0 || got[0].Sequence < 60*60*2-24*60*2 {
				t.Errorf("the receiver that is back took %+v", got)
			}
			wantCheckpoint(t, p, int64(len(p.log)))
		})
	}
}

// A receiver is down, more alerts wait for it than may, and the dead letters cannot be kept.
func TestReadingPausesWhenNothingMoreCanBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting, givenUp, more = 1000, 4096, 1000
		const most = waiting + givenUp
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		p.largest = 100
		for i := range most + more {
			p.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, r)
		s.waiting = waiting
		s.dead.err = errors.New("disk full")
		s.start(p)
		defer s.end()
		pass(time.Minute)
		p.mu.Lock()
		read := p.next
		p.mu.Unlock()
		// Until the receiver is known to be down, what waits for it counts too, and what it is asked about is no dead letter yet.
		if read < givenUp || read >= most+p.largest+s.config.Concurrency {
			t.Fatalf("read %d events, want to pause at %d", read, most)
		}
		s.dead.mu.Lock()
		s.dead.err = nil
		s.dead.mu.Unlock()
		r.set(nil)
		pass(5 * time.Minute)
		wantCheckpoint(t, p, most+more)
		if alerts, dead := len(r.alerts("")), len(s.dead.all()); alerts < waiting || alerts+dead != most+more {
			t.Errorf("%d alerts and %d dead letters of %d devices", alerts, dead, most+more)
		}
	})
}

func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name       string
		takes      time.Duration
		drain      time.Duration
		alerts     int
		checkpoint int64
	}{
		{"a send that ends is settled", 4 * time.Second, drain, 1, 2},
		{"a send that does not is left unsettled", 9 * time.Second, time.Second, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{answer: wait(tt.takes)}
				s := newSetup(t, r)
				s.config.DrainTimeout = tt.drain
				s.start(p)
				p.publish("cold", 1)
				p.publish("hot", 99)
				synctest.Wait()
				start := time.Now()
				s.end()
				if took := time.Since(start); took > min(tt.takes, tt.drain) {
					t.Errorf("drained in %v", took)
				}
				wantAlerts(t, r, "hot", tt.alerts)
				wantCheckpoint(t, p, tt.checkpoint)
			})
		})
	}
}

// What waits when a partition ends is its next owner's: nothing of it is sent any more, although the replica goes on.
func TestNothingIsSentOnceAPartitionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := with(t, nil, r)
		s.start(newPartition("1"))
		defer s.end()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, p) }()
		p.publish("oven", hot)
		pass(time.Minute)
		if r.asked() == 0 {
			t.Fatal("nothing was attempted")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		asked := r.asked()
		r.set(nil)
		pass(time.Hour)
		if n := s.dispatcher.Receivers()[0].Waiting; n != 0 || r.asked() != asked {
			t.Errorf("%d alerts wait, and %d attempts were made since", n, r.asked()-asked)
		}
	})
}

func TestNoCheckpointAfterThePartitionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(time.Second)}
		s := newSetup(t, r)
		ctx, lose := context.WithCancelCause(t.Context())
		s.consume(ctx, p)
		p.publish("hot", 99)
		synctest.Wait()
		lose(telemetry.ErrLost)
		s.work.Wait()
		wantAlerts(t, r, "hot", 1) // what is under way is brought to its end
		wantCheckpoint(t, p, 0)
	})
}

// A receiver with a level gets the alerts of that level, and those without one; what no
// receiver wants is settled.
func TestLevels(t *testing.T) {
	for _, tt := range []struct {
		level    string // of the threshold
		receives []string
		taken    []int
		filtered int64
	}{
		{"", []string{"", "critical"}, []int{1, 1}, 0},
		{"critical", []string{"", "critical", "warning"}, []int{1, 1, 0}, 2},
		{"warning", []string{"critical", "other"}, []int{0, 0}, 4},
	} {
		t.Run(fmt.Sprint(tt.level, tt.receives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPartition("0")
				var rs []*receiver
				for _, level := range tt.receives {
					rs = append(rs, &receiver{level: level})
				}
				s := newSetup(t, rs...)
				s.level = tt.level
				s.start(p)
				defer s.end()
				p.publish("hot", 99)
				p.publish("hot", 99)
				pass(2 * interval)
				for i, r := range rs {
					got := r.alerts("hot")
					if len(got) != tt.taken[i] || len(got) > 0 && got[0].Level != tt.level {
						t.Errorf("receiver of level %q got %+v, want %d", tt.receives[i], got, tt.taken[i])
					}
				}
				if got := s.stats.Filtered.Load(); got != tt.filtered {
					t.Errorf("%d are counted as filtered, want %d", got, tt.filtered)
				}
				if got := p.checkpoint(); got != 2 {
					t.Errorf("the checkpoint is at %d, want 2", got)
				}
			})
		})
	}
}

// Each receiver gets the levels that it asks for, whatever others got before.
func TestReceiversOfTwoLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, warning, critical := newPartition("0"), &receiver{level: "warning"}, &receiver{level: "critical"}
		s := newSetup(t, warning, critical)
		s.config.Rules.Rules[0].Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 30}, {Name: "critical", Limit: 80, Clear: 80}}
		s.start(p)
		p.feed("oven", time.Second, 40)
		p.feed("kiln", time.Second, 90)
		p.feed("stove", time.Second, 40)
		s.end()
		for device, want := range map[string]string{"oven": "warning alert 1; ", "kiln": "; critical alert 2", "stove": "warning alert 3; "} {
			if got := warning.notified(device) + "; " + critical.notified(device); got != want {
				t.Errorf("of the %s they are notified of %q, want %q", device, got, want)
			}
		}
	})
}

func TestPartitionTellsWhereItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("7"), &receiver{answer: wait(9 * time.Second)}
		s := with(t, nil, r)
		s.start(p)
		defer s.end()
		first := p.publish("oven", hot)
		time.Sleep(time.Second)
		last := p.publish("fridge", cool)
		pass(0)
		got := s.states()[0]
		got.Ledger = partitions.LedgerState{}
		want := partitions.State{
			Partition: "7", First: 1, Read: last.Position, ReadUntil: last.Enqueued,
			Unsettled: 1, Oldest: first.Enqueued.UTC(), Delivering: 1,
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if n := s.counts()[0]; n != (partitions.AlarmCounts{Rule: "temperature", Open: 1}) {
			t.Errorf("%+v", n)
		}
		pass(9*time.Second + interval)
		if got := s.states()[0]; got.Unsettled != 0 || !got.Oldest.IsZero() || got.Delivering != 0 || got.Committed.Sequence != 2 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

// A checkpoint that cannot be written is in the log, and what is settled by the end of a partition is its error if it is lost.
func TestCheckpointThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		p.refuse = errors.New("403")
		s := newSetup(t)
		core, logs := observer.New(zap.WarnLevel)
		s.config.Log = zap.New(core)
		ctx, stop := context.WithCancel(t.Context())
		s.consume(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, p) }()
		p.publish("oven", cool)
		pass(2 * interval)
		if all := logs.All(); len(all) != 1 || all[0].Message != "checkpoint failed; retrying" {
			t.Errorf("the log says %+v", all)
		}
		stop()
		if err := <-ended; !errors.Is(err, p.refuse) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A brokenPartition gives an error after its first events.
type brokenPartition struct {
	*partition
	asked int
}

func (p *brokenPartition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	if p.asked++; p.asked > 1 {
		return nil, errBusy
	}
	return p.partition.Receive(ctx)
}

// A partition that cannot be read any more ends with that error, once what is under way has ended, and its checkpoint is written.
func TestPartitionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(5 * time.Second)}
		s := with(t, nil, r)
		s.consume(t.Context())
		p.publish("oven", hot)
		began := time.Now()
		if err := partitions.New(t.Context(), s.partitions, &brokenPartition{partition: p}).Run(); !errors.Is(err, errBusy) {
			t.Errorf("it ends with %v", err)
		}
		if lasts := time.Since(began); lasts > drain {
			t.Errorf("it ends after %v", lasts)
		}
		wantCheckpoint(t, p, 1)
	})
}

// Neither what is no telemetry, nor what a test or nobody sends, is a sign of life.
func TestNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.publishBody("oven", `{}`)
		p.publishBody(notify.TestDevice+"-1", `{}`)
		p.publishBody("", `{}`)
		for range 3 * int(silent/time.Minute) / 2 {
			p.publishBody("kiln", `{}`)
			p.source = "twinChangeEvents"
			p.publishBody("oven", `{}`)
			p.source = ""
			pass(time.Minute)
		}
		s.end()
		if got := r.all(); len(got) != 1 || got[0].Device != "oven" {
			t.Errorf("notified of %+v", got)
		}
	})
}

// A reading that waits behind the alert of its device, and comes again because the link began earlier, holds the checkpoint
// at its place as before: it is not lost if that alert becomes a dead letter and the replica dies.
func TestReadingThatComesAgainHoldsItsPlace(t *testing.T) {
	for _, back := range []int64{2, 4} { // after which event reading begins again
		synctest.Test(t, func(t *testing.T) {
			store, p, r := memlease.New(), newPartition("0"), &receiver{}
			r.set(failing(errBusy))
			dies := newReplica(t, store, r)
			dies.config.GiveUp = time.Hour
			ctx, crash := context.WithCancelCause(t.Context())
			p.publish("cold", cool)
			p.publish("oven", hot) // 2
			dies.consume(ctx, p)
			pass(50 * time.Minute)
			for _, value := range []float64{cool, cool, hot, cool} { // 3 to 6, of which 5 joins
				device := map[bool]string{true: "oven", false: "cold"}[value == hot]
				p.publish(device, value)
			}
			pass(time.Minute)
			p.Rewind(telemetry.Position{Sequence: back})
			p.publish("cold", cool)
			pass(20 * time.Minute) // the alert about 2 is a dead letter
			crash(telemetry.ErrLost)
			dies.work.Wait()

			r.set(nil)
			p = p.reopen()
			next := newReplica(t, store, r).start(p)
			defer next.end()
			pass(time.Minute)
			if got := r.notified("oven"); got != "alert 5" {
				t.Errorf("after %d: notified of %q", back, got)
			}
		})
	}
}
