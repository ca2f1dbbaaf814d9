package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/incident"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

func inSite(r *rules.Rule) { r.Per = "site" }

// incidents says what the receiver was told of incidents: each has a letter, in the order of their alerts.
func (r *receiver) incidents() string {
	letters := map[string]string{}
	var all []string
	for _, a := range r.all() {
		if a.Incident == nil {
			all = append(all, "about "+a.Device)
			continue
		}

		letter, known := letters[a.Incident.ID]
		if !known {
			letter = string(rune('A' + len(letters)))
			letters[a.Incident.ID] = letter
		}

		what := fmt.Sprintf("%s: %d in %s", letter, a.Incident.Members, a.PerValue)
		if a.Resolved {
			what = letter + " over in " + a.PerValue
		}
		all = append(all, what)
	}

	return strings.Join(all, ", ")
}

// Devices of a site that are read by two replicas are one incident, which ends with the last of them.
func TestIncidentOfTwoPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s, p, q := with(t, inSite, r), newPartition("0"), newPartition("1")
		s.start(p)
		other := with(t, inSite, r)
		other.store, other.ledgers = s.store, s.ledgers
		other.start(q)

		began := time.Now()
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(time.Second)
		q.publishOf("freezer-2", "berlin", 40)
		p.publishOf("freezer-3", "paris", 40)
		time.Sleep(2 * window)
		q.publishOf("freezer-2", "berlin", 40) // a reminder
		p.publishOf("freezer-4", "berlin", 20)
		time.Sleep(2 * window)
		p.publishOf("freezer-4", "berlin", 40)
		time.Sleep(time.Second)
		if n, m := s.counts()[0], other.counts()[0]; n.Open != 3 || n.Incidents != 2 || m.Open != 1 || m.Incidents != 1 {
			t.Errorf("%+v and %+v are counted", n, m)
		}
		p.publishOf("freezer-1", "berlin", 20)
		q.publishOf("freezer-2", "berlin", 20)
		time.Sleep(2 * window)
		p.publishOf("freezer-4", "berlin", 20)
		time.Sleep(2 * window)
		q.publishOf("freezer-2", "berlin", 40)
		time.Sleep(interval)
		s.end()
		other.end()

		want := "A: 1 in berlin, B: 1 in paris, A: 2 in berlin, A: 3 in berlin, A over in berlin, C: 1 in berlin"
		if got := r.incidents(); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		for _, a := range r.all()[:4] {
			if i := a.Incident; a.PerValue == "berlin" && (i.First != "freezer-1" || !i.Began.Equal(began)) {
				t.Errorf("told of %+v", i)
			}
		}
		wantCheckpoint(t, p, 6)
		wantCheckpoint(t, q, 4)
	})
}

// What comes before everybody knows of an end is the same incident, and whoever is not told of its end is not told again
// within the window.
func TestIncidentGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s, p, q := with(t, inSite, r), newPartition("0"), newPartition("1")
		s.start(p, q)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(time.Second)
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(window / 2)
		q.publishOf("freezer-2", "berlin", 40)
		time.Sleep(2 * window)
		q.publishOf("freezer-2", "berlin", 20)
		time.Sleep(2 * window)
		s.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		for _, id := range []string{"0", "1"} {
			if _, c, err := ledger.Open(t.Context(), s.ledgers, id); err != nil || len(c.Ends) > 0 {
				t.Errorf("the ledger of %s has %+v, %v", id, c.Ends, err)
			}
		}
	})
}

// A device that alerted by itself, and is a member of an incident before its recovery could be sent, is normal again by itself.
func TestRecoveryOfWhoJoinsAnIncident(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, takenOver := range []bool{false, true} {
			t.Run(fmt.Sprint(silent, takenOver), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, p := &receiver{}, newPartition("0")
					p.reached = true
					configure := func(r *rules.Rule) {
						if inSite(r); silent {
							r.Field, r.Silent, r.Forget, r.Levels = "", time.Minute, 24*time.Hour, []rules.Level{{}}
						}
					}
					s := with(t, configure, r)
					s.start(p)
					becomes := func(site string, isHot bool) {
						switch {
						case !silent:
							p.publishOf("freezer-1", site, map[bool]float64{true: hot, false: cool}[isHot])
						case !isHot:
							p.publishOf("freezer-1", site, cool)
						default:
							pass(2 * time.Minute)
						}
					}
					if silent {
						p.publishOf("freezer-1", "", cool)
					}
					becomes("", true)
					pass(time.Second)
					if got, want := r.incidents(), "about freezer-1"; got != want {
						t.Fatalf("told %s, want %s", got, want)
					}
					r.set(failing(errBusy)) // which keeps the recovery waiting
					pass(window)
					becomes("berlin", false)
					pass(10 * time.Second)
					becomes("berlin", true)
					pass(10 * time.Second)
					if takenOver {
						s.end()
						next := with(t, configure, r)
						next.store, next.ledgers = s.store, s.ledgers
						s, p = next, p.reopen()
						p.reached = true
						s.start(p)
					}
					r.set(nil)
					pass(2 * time.Minute)
					if own := slices.ContainsFunc(r.all(), func(a notify.Alert) bool { return a.Incident == nil && a.Resolved }); own {
						t.Error("it is said to be normal while its site is told of")
					}
					becomes("berlin", false)
					pass(2 * window)
					s.end()
					own, last := []notify.Alert{}, ""
					for _, a := range r.all() {
						if a.Incident == nil {
							own = append(own, a)
						} else {
							last = a.PerValue
						}
					}
					if len(own) != 2 || !own[1].Resolved || last != "berlin" {
						t.Errorf("told %s: %+v", r.incidents(), own)
					}
				})
			})
		}
	}
}

// What people asked to be shown of readings is shown of the one that ended an incident, too.
func TestIncidentShowsWhatItsReadingsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s, p := with(t, inSite, r), newPartition("0")
		s.config.Rules.Show = []string{"floor"}
		s.start(p)
		say := func(value float64, floor string) {
			p.publishProperties("freezer-1", fmt.Sprintf(`{"temperature":%v}`, value), map[string]any{"site": "berlin", "floor": floor})
		}
		say(hot, "1")
		pass(2 * window)
		say(cool, "2")
		pass(window)
		s.end()
		all := r.all()
		if len(all) != 2 || all[0].Shown != notify.Shown("").With("floor", "1") || all[1].Shown != notify.Shown("").With("floor", "2") {
			t.Errorf("told of %+v", all)
		}
	})
}

// A device of which several sensors are members of an incident has one alert that waits.
func TestAlertOfAnIncidentIsSeenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s, p := with(t, func(r *rules.Rule) { inSite(r); r.Each, r.Sensor = ".", []string{"s"} }, r), newPartition("0")
		s.start(p)
		p.publishProperties("gateway", `[{"s":"a","temperature":91},{"s":"b","temperature":92}]`, map[string]any{"site": "berlin"})
		pass(time.Minute)
		if d := s.device("gateway"); len(d.Alarms) != 2 || len(d.Deliveries) != 1 {
			t.Errorf("it is known as %+v", d)
		}
		s.end()
	})
}

// A device without the property, or with too long a value, alerts by itself.
func TestDevicesWithoutAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s, p := with(t, inSite, r), newPartition("0")
		s.start(p)
		p.publish("kiln", 40)
		p.publishOf("oven", strings.Repeat("x", 129), 40)
		time.Sleep(2 * window)
		p.publish("kiln", 20)
		time.Sleep(window)
		s.end()
		if got, want := r.notified("kiln")+"; "+r.notified("oven"), "alert 1, recovery 3; alert 2"; got != want {
			t.Errorf("notified of %s, want %s", got, want)
		}
		if without, long := s.stats.Unshared.Load(), s.stats.Untracked.Load(); without != 1 || long != 1 {
			t.Errorf("%d counted without the property, and %d with too long a value", without, long)
		}
		for _, a := range r.all() {
			if a.Incident != nil {
				t.Errorf("%s is an incident", a.Device)
			}
		}
	})
}

// While the record of an incident cannot be written nobody is told, and nothing is settled; then both come. It is tried again
// with pauses that grow.
func TestIncidentsWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, down, failed := &receiver{}, atomic.Bool{}, atomic.Int64{}
		s, p := with(t, inSite, r), newPartition("0")
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, _ records.Op, name string, call func(context.Context) error) error {
			if down.Load() && strings.HasPrefix(name, "incidents/") {
				failed.Add(1)
				return errors.New("503")
			}
			return call(ctx)
		})
		core, logs := observer.New(zap.WarnLevel)
		s.config.Log = zap.New(core)
		s.start(p)
		p.publish("kiln", 20)
		time.Sleep(2 * interval)
		down.Store(true)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(5 * time.Minute)
		if got := r.incidents(); got != "" {
			t.Errorf("told %s without a record", got)
		}
		if logs.FilterMessageSnippet("the record of an incident cannot be written").Len() == 0 {
			t.Errorf("nobody is told why: %v", logs.All())
		}
		if n := failed.Load(); n < 5 || n > 25 { // after 1, 2, 4, … 60 s, or half of that
			t.Errorf("it was tried %d times in five minutes", n)
		}
		wantCheckpoint(t, p, 1)
		down.Store(false)
		time.Sleep(2 * time.Minute)
		down.Store(true)
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(5 * time.Minute)
		wantCheckpoint(t, p, 2)
		down.Store(false)
		time.Sleep(2 * time.Minute)
		s.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		wantCheckpoint(t, p, 3)
	})
}

// A record that was written, and fails when it is written again at once, is soon tried again, however long it had failed before.
func TestRecordThatFailsOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := with(t, inSite, &receiver{}), newPartition("0")
		var down, wasWritten atomic.Bool
		var failed time.Time
		pause := time.Duration(-1)
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			switch {
			case !strings.HasPrefix(name, "incidents/") || op == records.OpList:
			case down.Load():
				return errors.New("503")
			case op == records.OpWrite && !wasWritten.Swap(true):
				p.publishOf("freezer-1", "berlin", 20) // so that it is to be written again
				time.Sleep(time.Second)
			case wasWritten.Load() && failed.IsZero():
				failed = time.Now()
				return errors.New("503")
			case wasWritten.Load() && pause < 0:
				pause = time.Since(failed)
			}
			return call(ctx)
		})
		down.Store(true)
		s.start(p)
		p.publishOf("freezer-1", "berlin", 40)
		pass(2 * time.Minute)
		down.Store(false)
		pass(5 * time.Minute)
		s.end()
		if pause < 0 || pause > time.Second {
			t.Errorf("it is tried again after %v", pause)
		}
	})
}

// A rule without recoveries tells nobody of the end of a silence, nor does the next owner, to whom it was left to note that
// it is over.
func TestSilentGatewayWithoutRecoveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		silent := func(r *rules.Rule) {
			r.Per, r.Field, r.Silent, r.Forget, r.Levels = "gateway", "", 15*time.Minute, 24*time.Hour, []rules.Level{{}}
			r.Resolved = false
		}
		s := with(t, silent, r)
		whole := s.ledgers
		writes := 0
		s.ledgers = records.Around(whole, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			if strings.HasPrefix(name, "incidents/") && op == records.OpWrite {
				if writes++; writes > 2 { // of the entry, and that the incident is over
					return errors.New("503")
				}
			}
			return call(ctx)
		})
		s.start(p)
		say := func(device, gateway string) {
			p.publishProperties(device, `{}`, map[string]any{"gateway": gateway})
		}
		say("meter-1", "gw-12")
		for range 5 {
			say("meter-2", "gw-13")
			time.Sleep(5 * time.Minute)
		}
		say("meter-1", "gw-12")
		time.Sleep(5 * time.Minute)
		s.end()

		next := with(t, silent, r)
		next.store, next.ledgers = s.store, whole
		next.start(p.reopen())
		time.Sleep(10 * time.Minute)
		next.end()
		if got, want := r.incidents(), "A: 1 in gw-12"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		book := &incident.Book{Store: whole, Prefix: "incidents/"}
		if open, _, err := book.Open(t.Context(), 10, 0); err != nil || len(open) > 0 {
			t.Errorf("open are %+v, %v", open, err)
		}
	})
}

// The end of an incident that is due goes out although its rule is removed, and no alarm of it is left.
func TestIncidentOfARemovedRuleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		s := with(t, func(r *rules.Rule) {
			inSite(r)
			r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 30}, {Name: "critical", Limit: 80, Clear: 80}}
		}, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", 90)
		time.Sleep(time.Second)
		p.publishOf("freezer-2", "rome", 40) // whose alarm stays
		time.Sleep(2 * window)
		r.set(func(context.Context, notify.Alert) error { return errBusy })
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(window)
		if got := s.counts(); got[0].Incidents != 1 || got[1].Incidents != 0 {
			t.Errorf("incidents are counted whose members are all gone: %+v", got)
		}
		s.end()
		r.set(nil)
		next := with(t, func(r *rules.Rule) { r.Name = "another" }, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		time.Sleep(2 * window)
		if got := next.counts(); got[0] != (partitions.AlarmCounts{Rule: "another"}) {
			t.Errorf("alarms and incidents of another rule are counted: %+v", got)
		}
		next.end()
		if got, want := r.incidents(), "A: 1 in berlin, B: 1 in rome, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// Whoever takes over a partition whose ledger is lost knows none of its members, and so they are no more.
func TestIncidentWithoutItsLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		s := with(t, inSite, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(2 * window)
		s.end()
		if err := s.ledgers.Delete(t.Context(), "0", records.Any); err != nil {
			t.Fatal(err)
		}
		next := with(t, inSite, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		time.Sleep(2 * window)
		next.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// The next owner of a partition goes on with its members, with alerts that were not sent, and with ends that are due.
func TestIncidentAfterTakeOver(t *testing.T) {
	busy := func(context.Context, notify.Alert) error { return errBusy }
	type step struct {
		value float64       // of freezer-1; 0: nothing comes
		down  bool          // the receiver is
		lasts time.Duration // and then there is another owner
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"member":    {[]step{{40, false, 2 * window}, {0, false, 2 * window}, {20, false, 2 * window}}, "A: 1 in berlin, A over in berlin"},
		"alert":     {[]step{{40, true, 2 * window}, {0, false, 2 * window}}, "A: 1 in berlin"},
		"end":       {[]step{{40, false, 2 * window}, {20, true, window}, {0, false, 4 * window}}, "A: 1 in berlin, A over in berlin"},
		"reopened":  {[]step{{40, false, 2 * window}, {20, true, window}, {40, false, 2 * window}, {20, false, 4 * window}}, "A: 1 in berlin, A: 1 in berlin, A over in berlin"},
		"unheard":   {[]step{{40, true, window}, {20, false, 2 * window}}, ""},
		"told once": {[]step{{40, false, time.Second}, {0, false, time.Second}, {40, false, time.Second}}, "A: 1 in berlin"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := &receiver{}, newPartition("0")
				s := with(t, inSite, r)
				for i, step := range c.steps {
					r.set(nil)
					if step.down {
						r.set(busy)
					}

					if i > 0 {
						next := with(t, inSite, r)
						next.store, next.ledgers = s.store, s.ledgers
						s, p = next, p.reopen()
					}

					s.start(p)
					if step.value != 0 {
						p.publishOf("freezer-1", "berlin", step.value)
					}
					time.Sleep(step.lasts)
					s.end()
				}
				if got := r.incidents(); got != c.want {
					t.Errorf("told %s, want %s", got, c.want)
				}
				for _, a := range r.all() {
					if a.Device != "freezer-1" || a.Sequence == 0 {
						t.Errorf("it is about %q, event %d", a.Device, a.Sequence)
					}
					if began := r.all()[0].Incident.Began; began.IsZero() || a.Resolved && !a.Incident.Began.Equal(began) {
						t.Errorf("what began at %v has begun at %v when it is over", began, a.Incident.Began)
					}
				}
			})
		})
	}
}

// An incident of a partition that is no more is ended by the owner of the first one.
func TestIncidentOfAPartitionThatIsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		before, q := with(t, inSite, r), newPartition("1")
		before.start(q)
		q.publishOf("freezer-1", "berlin", 40)
		time.Sleep(2 * window)
		before.end()

		s := with(t, inSite, r)
		s.store, s.ledgers = before.store, before.ledgers
		s.start(newPartition("0"))
		book := &incident.Book{Store: s.ledgers, Prefix: "incidents/"}
		done, _, err := book.Sweep(t.Context(), "", 24*time.Hour, func(partition string) bool { return partition == "0" })
		if err != nil || done.Entries != 1 {
			t.Fatalf("taken out: %+v, %v", done, err)
		}
		time.Sleep(3 * time.Hour)
		s.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		if open, _, err := book.Open(t.Context(), 10, 0); err != nil || len(open) > 0 {
			t.Errorf("open: %+v, %v", open, err)
		}
	})
}

// Devices behind a gateway that fall silent are one incident, told once it is certain of one of them, and over when the
// last is heard again, also by a later owner.
func TestSilentGateway(t *testing.T) {
	silent := func(r *rules.Rule) {
		r.Per, r.Field, r.Silent, r.Forget, r.Levels = "gateway", "", 15*time.Minute, 24*time.Hour, []rules.Level{{}}
	}
	for _, takenOver := range []bool{false, true} {
		t.Run(fmt.Sprint(takenOver), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p, q := &receiver{}, newPartition("0"), newPartition("1")
				p.others, q.others = []*partition{q}, []*partition{p}
				s := with(t, silent, r)
				s.start(p, q)
				say := func(gateway string, devices ...int) {
					for _, n := range devices {
						[]*partition{p, q}[n%2].publishProperties(fmt.Sprint("meter-", n), `{}`, map[string]any{"gateway": gateway})
					}
				}
				say("gw-12", 0, 1, 2, 3)
				for range 6 {
					say("gw-13", 4, 5)
					time.Sleep(5 * time.Minute)
				}
				if got, want := r.incidents(), "A: 4 in gw-12"; got != want {
					t.Errorf("told %s, want %s", got, want)
				}
				if n := s.counts()[0]; n.Open != 4 || n.Incidents != 1 {
					t.Errorf("%+v are counted", n)
				}

				if takenOver {
					s.end()
					next := with(t, silent, r)
					next.store, next.ledgers = s.store, s.ledgers
					p, q = p.reopen(), q.reopen()
					p.others, q.others = []*partition{q}, []*partition{p}
					s = next
					s.start(p, q)
					time.Sleep(time.Minute)
				}

				say("gw-12", 0, 1, 2)
				say("gw-13", 4, 5)
				time.Sleep(time.Minute)
				say("gw-12", 3)
				say("gw-13", 4, 5)
				time.Sleep(2 * time.Minute)
				s.end()
				if got, want := r.incidents(), "A: 4 in gw-12, A over in gw-12"; got != want {
					t.Errorf("told %s, want %s", got, want)
				}
			})
		})
	}
}

// So long a value as there may be names an incident of silent devices, and with a longer one a device is told by itself.
func TestSilentDevicesWithLongValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.reached = true
		s := silence(t, func(r *rules.Rule) { r.Per = "gateway" }, r)
		s.start(p)
		long := strings.Repeat("x", incident.MaxValue)
		p.publishWith("meter-1", "gateway", long)
		p.publishWith("meter-2", "gateway", long+"x")
		pass(silent + 5*time.Minute)
		s.end()
		if got := r.incidents(); !sameSet(got, "A: 1 in "+long+", about meter-2") {
			t.Errorf("told %s", got)
		}
	})
}

// Who mutes a gateway is not told that the devices behind it are silent, before the mute ends; and alarms name their group.
func TestMutedGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		s := with(t, func(r *rules.Rule) {
			r.Per, r.Field, r.Silent, r.Forget, r.Levels = "gateway,hop", "", 15*time.Minute, 24*time.Hour, []rules.Level{{}}
		}, r)
		mute := rules.Mute{Property: "Gateway", Value: "gw-12", From: time.Now(), Until: time.Now().Add(time.Hour)}
		s.config.Mutes = func() rules.Mutes { return rules.Mutes{mute} }
		s.start(p)
		say := func(device, gateway string) {
			p.publishProperties(device, `{}`, map[string]any{"gateway": gateway})
		}
		say("meter-1", "gw-12")
		say("meter-2", "gw-13")
		for range 9 {
			say("meter-3", "gw-14")
			time.Sleep(5 * time.Minute)
		}
		if got, want := r.incidents(), "A: 1 in gw-13"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		if open := s.open(); len(open) != 1 || open[0].Device != "meter-2" || open[0].Group != "gw-13" {
			t.Errorf("open are %+v", open)
		}
		for range 9 {
			say("meter-3", "gw-14")
			time.Sleep(5 * time.Minute)
		}
		s.end()
		if got, want := r.incidents(), "A: 1 in gw-13, B: 1 in gw-12"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// A record that is lost before anybody was told of its incident begins anew, and people are told of that.
func TestIncidentWhoseRecordIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{answer: failing(errBusy)}, newPartition("0")
		s := with(t, inSite, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(window)
		for page, err := range records.Pages(t.Context(), s.ledgers, "incidents/") {
			if err != nil || len(page) != 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			if err := s.ledgers.Delete(t.Context(), page[0].Name, records.Any); err != nil {
				t.Fatal(err)
			}
		}
		r.set(nil)
		time.Sleep(10 * window)
		wantCheckpoint(t, p, 1)
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(2 * window)
		s.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// Who wants only some members is told of them although the alert about another one went to others.
func TestIncidentForWhoWantsOtherMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := &receiver{answer: wait(8 * time.Second), level: "hot", only: notify.Filter{Property: "team", Values: []string{"ours"}}}
		theirs := &receiver{level: "hot", only: notify.Filter{Property: "team", Values: []string{"theirs"}}}
		p := newPartition("0")
		s := with(t, inSite, ours, theirs)
		s.level = "hot"
		s.start(p)
		for i, team := range []string{"ours", "ours", "theirs", "nobody's"} {
			p.publishProperties(fmt.Sprint("freezer-", i), `{"temperature":40}`, map[string]any{"site": "berlin", "team": team})
			time.Sleep(time.Second)
		}
		if got := theirs.incidents(); got != "" {
			t.Errorf("told %s while the alert is on its way", got)
		}
		time.Sleep(window / 4)
		if got := theirs.incidents(); got == "" {
			t.Error("nobody is told once it has arrived")
		}
		time.Sleep(3 * window)
		wantCheckpoint(t, p, 4)
		s.end()
		if got, want := ours.incidents()+"; "+theirs.incidents(), "A: 1 in berlin; A: 4 in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// A rule that says how often an alarm is sent again says so of incidents, for one member and for several.
func TestIncidentThatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		s := with(t, func(r *rules.Rule) { inSite(r); r.Repeat = 30 * time.Minute }, r)
		store := &asked{Store: s.store}
		s.store = store
		s.start(p)
		for range 10 {
			p.publishOf("freezer-1", "berlin", 40)
			time.Sleep(2 * window)
		}
		p.publishOf("freezer-2", "berlin", 40)
		time.Sleep(5 * window)
		if got, want := r.incidents(), "A: 1 in berlin"; got != want || store.claims != 1 {
			t.Errorf("told %s, want %s; %d claims", got, want, store.claims)
		}
		time.Sleep(5 * window)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(window)
		p.publishOf("freezer-1", "berlin", 20)
		p.publishOf("freezer-2", "berlin", 20)
		time.Sleep(2 * window)
		p.publishOf("freezer-2", "berlin", 40)
		time.Sleep(window)
		s.end()
		if got, want := r.incidents(), "A: 1 in berlin, A: 2 in berlin, A over in berlin, B: 1 in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		if a := r.all()[0]; a.Repeat != 30*time.Minute {
			t.Errorf("it is repeated every %v", a.Repeat)
		}
	})
}

// An end that becomes due when the ledger has been written, because the record was not, is in the ledger all the same.
func TestIncidentThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, down := &receiver{}, atomic.Bool{}
		s, p := with(t, inSite, r), newPartition("0")
		whole := s.ledgers
		s.ledgers = records.Around(whole, func(ctx context.Context, _ records.Op, name string, call func(context.Context) error) error {
			if down.Load() && strings.HasPrefix(name, "incidents/") {
				return errors.New("503")
			}
			return call(ctx)
		})
		s.start(p)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(2 * window)
		r.set(failing(errBusy))
		down.Store(true)
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(4 * interval)
		down.Store(false)
		time.Sleep(2 * window)
		before, c, err := ledger.Open(t.Context(), whole, "0") // as whoever takes over after a crash finds it
		if err != nil || len(c.Ends) != 1 || c.Ends[0].Device != "freezer-1" {
			t.Errorf("%v has the ends %+v, %v", before, c.Ends, err)
		}
		s.end()
	})
}

// Devices that were silent when nobody could be told are an alert of the next owner's.
// A silence that is found late waits for its receiver as long as any other, and is not a dead letter at once.
func TestSilenceThatIsFoundLate(t *testing.T) {
	for _, per := range []string{"", "gateway"} {
		for _, takenOver := range []bool{false, true} {
			t.Run(fmt.Sprint(per, takenOver), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, p := &receiver{}, newPartition("0")
					configure := func() *setup {
						return with(t, func(r *rules.Rule) {
							r.Per, r.Field, r.Silent, r.Forget, r.Levels = per, "", 15*time.Minute, 48*time.Hour, []rules.Level{{}}
						}, r)
					}
					s := configure()
					reopen := func() {
						s.end()
						next := configure()
						next.store, next.ledgers = s.store, s.ledgers
						s, p = next, p.reopen()
						p.reached = true
						s.start(p)
					}
					s.start(p)
					p.publishWith("meter-1", "gateway", "gw-12")
					pass(2 * time.Minute)
					s.end()
					pass(s.config.GiveUp + time.Hour)
					r.set(failing(errBusy))
					reopen()
					pass(2 * time.Minute)
					if takenOver {
						reopen()
						pass(2 * time.Minute)
					}
					if all := s.dead.all(); len(all) != 0 || r.asked() == 0 {
						t.Errorf("%d attempts, then given up: %+v", r.asked(), all)
					}
					r.set(nil)
					pass(2 * time.Minute)
					s.end()
					if all := r.all(); len(all) != 1 || all[0].Device != "meter-1" {
						t.Errorf("told of %+v", all)
					}
				})
			})
		}
	}
}

func TestSilentGatewayIsToldByTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{answer: failing(errBusy)}, newPartition("0")
		silent := func(r *rules.Rule) {
			r.Per, r.Field, r.Silent, r.Forget, r.Levels = "gateway", "", 15*time.Minute, 24*time.Hour, []rules.Level{{}}
		}
		s := with(t, silent, r)
		s.start(p)
		say := func(device, gateway string) {
			p.publishProperties(device, `{}`, map[string]any{"gateway": gateway})
		}
		say("meter-1", "gw-12")
		for range 5 {
			say("meter-2", "gw-13")
			time.Sleep(5 * time.Minute)
		}
		s.end()
		r.set(nil)
		next := with(t, silent, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		say("meter-2", "gw-13")
		time.Sleep(2 * time.Minute)
		next.end()
		if got, want := r.incidents(), "A: 1 in gw-12"; got != want {
			t.Fatalf("told %s, want %s", got, want)
		}
		if a := r.all()[0]; a.Device != "meter-1" || a.Source != "/ns/hub/temperature/by-gateway/silent" || a.Silent != 15*time.Minute || !a.LastHeard.Equal(a.Since) || !a.Enqueued.Equal(a.Since.Add(a.Silent)) {
			t.Errorf("%+v", a)
		}
	})
}

// So many records of incidents are written at a time, and a partition ends once none is any more.
func TestEndWaitsForRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := with(t, inSite, &receiver{}), newPartition("0")
		var writing atomic.Int32
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			if strings.HasPrefix(name, "incidents/") && op == records.OpRead {
				writing.Add(1)
				defer writing.Add(-1)
				time.Sleep(time.Minute)
			}
			return call(ctx)
		})
		s.start(p)
		for i := range 10 {
			p.publishOf(fmt.Sprint("freezer-", i), fmt.Sprint("site-", i), 40)
		}
		pass(time.Second)
		if n := writing.Load(); n != 8 {
			t.Errorf("%d records are being written, want 8", n)
		}
		s.end()
		if writing.Load() != 0 {
			t.Error("a record is being written when the partition has ended")
		}
	})
}

// The last rule with state is removed while a receiver is down, and the partition moves on: the end that waits is sent.
func TestEndOfAnIncidentOfTheLastRuleWithState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, inSite, r)
		s.config.Rules.Rules[0].Name = "hot"
		s.start(p)
		p.publishOf("freezer-1", "berlin", hot)
		pass(time.Minute)
		s.end()

		r.set(failing(errBusy))
		for _, answer := range []func(context.Context, notify.Alert) error{failing(errBusy), nil} {
			r.set(answer)
			next := newSetup(t, r)
			next.store, next.ledgers = s.store, s.ledgers
			p = p.reopen()
			p.publish("kiln", cool)
			next.start(p)
			pass(30 * time.Minute)
			p.publish("kiln", cool)
			pass(2 * interval)
			next.end()
		}

		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// The recovery of an alarm of its own is about the end of the device's part in an incident, however long that has lasted, and
// until then nothing waits for it.
func TestRecoveryOfWhoWasLongInAnIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		s := with(t, inSite, r)
		s.config.GiveUp = time.Hour
		s.start(p)
		p.publishOf("freezer-1", "", hot)
		pass(time.Second)
		p.publishOf("freezer-1", "", cool) // its recovery waits for the window
		pass(time.Second)
		for range 24 {
			p.publishOf("freezer-1", "berlin", hot)
			pass(5 * time.Minute)
		}
		if d := s.device("freezer-1"); len(d.Deliveries) > 0 || !d.Alarms[0].Due.IsZero() {
			t.Errorf("waiting: %+v", d)
		}
		p.publishOf("freezer-1", "berlin", cool)
		pass(window)
		s.end()
		recovers := func(a notify.Alert) bool { return a.Resolved && a.Incident == nil && a.Sequence == 27 }
		if !slices.ContainsFunc(r.all(), recovers) {
			t.Errorf("no recovery of its own by the last reading: %+v", r.all())
		}
		if letters := s.dead.all(); len(letters) > 0 {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// A device that is silent again, as a member, is not said to send again while the ledger cannot be written.
func TestRecoveryWhileASilenceIsUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := &receiver{}, newPartition("0")
		p.reached = true
		s := with(t, func(r *rules.Rule) {
			inSite(r)
			r.Field, r.Silent, r.Forget, r.Levels = "", time.Minute, 24*time.Hour, []rules.Level{{}}
		}, r)
		var refuses atomic.Bool
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			if op == records.OpWrite && name == "0" && refuses.Load() {
				return errors.New("403")
			}
			return call(ctx)
		})
		s.start(p)
		p.publishOf("freezer-1", "", cool)
		pass(2 * time.Minute)
		r.set(failing(errBusy))
		pass(window)
		p.publishOf("freezer-1", "berlin", cool)
		pass(10 * time.Second)
		refuses.Store(true)
		pass(2 * time.Minute)
		r.set(nil)
		pass(5 * time.Minute)
		if n := len(r.all()); n != 1 {
			t.Errorf("%d messages while it is silent: %+v", n, r.all())
		}
		refuses.Store(false)
		s.end()
	})
}
