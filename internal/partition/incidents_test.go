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

	"alertworker/internal/incident"
	"alertworker/internal/notify"
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

		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(time.Second)
		q.publishOf("freezer-2", "berlin", 40)
		p.publishOf("freezer-3", "paris", 40)
		time.Sleep(2 * window)
		p.publishOf("freezer-4", "berlin", 40) // a reminder
		time.Sleep(2 * window)
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

		want := "A: 1 in berlin, B: 1 in paris, A: 3 in berlin, A over in berlin, C: 1 in berlin"
		if got := r.incidents(); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		wantCheckpoint(t, p, 5)
		wantCheckpoint(t, q, 3)
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
		for _, a := range r.all() {
			if a.Incident != nil {
				t.Errorf("%s is an incident", a.Device)
			}
		}
	})
}

// While the record of an incident cannot be written nobody is told, and nothing is settled; then both come.
func TestIncidentsWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, down := &receiver{}, atomic.Bool{}
		s, p := with(t, inSite, r), newPartition("0")
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, _ records.Op, name string, call func(context.Context) error) error {
			if down.Load() && strings.HasPrefix(name, "incidents/") {
				return errors.New("503")
			}
			return call(ctx)
		})
		s.start(p)
		p.publish("kiln", 20)
		time.Sleep(2 * interval)
		down.Store(true)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(5 * time.Minute)
		if got := r.incidents(); got != "" {
			t.Errorf("told %s without a record", got)
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
		s := with(t, inSite, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", 40)
		time.Sleep(2 * window)
		r.set(func(context.Context, notify.Alert) error { return errBusy })
		p.publishOf("freezer-1", "berlin", 20)
		time.Sleep(window)
		s.end()
		r.set(nil)
		next := with(t, func(r *rules.Rule) { r.Name = "another" }, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		time.Sleep(2 * window)
		next.end()
		if got, want := r.incidents(), "A: 1 in berlin, A over in berlin"; got != want {
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
