package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"alertworker/internal/absence"
	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A told is told of notices, and delivers none.
type told struct{ given, withdrawn []*delivery.Notice }

func (*told) Alert(*delivery.Alert)                         {}
func (o *told) Give(_ delivery.Key, n *delivery.Notice)     { o.given = append(o.given, n) }
func (o *told) Withdraw(_ delivery.Key, n *delivery.Notice) { o.withdrawn = append(o.withdrawn, n) }
func (o *told) counts() string {
	return fmt.Sprintf("%d given, %d withdrawn", len(o.given), len(o.withdrawn))
}
func (o *told) last() *delivery.Notice { return o.given[len(o.given)-1] }

// memory are Incidents of one replica, which numbers them.
type memory struct {
	records map[incident.Group]incident.Record
	begun   int
	err     error  // of any write
	during  func() // happens during a Sync or Read; nil: nothing does
}

func (m *memory) Sync(_ context.Context, g incident.Group, partition string, e incident.Entry) (result incident.Result, err error) {
	if m.err != nil {
		return result, m.err
	}
	m.begun++
	if m.during != nil {
		m.during()
	}
	m.records[g], result = m.records[g].Sync(partition, e, fmt.Sprint("id-", m.begun), time.Now())
	return result, nil
}

func (m *memory) Read(_ context.Context, g incident.Group) (incident.Record, time.Time, error) {
	if m.during != nil {
		m.during()
	}
	return m.records[g], time.Now(), m.err
}

func (*memory) Open(context.Context, int, time.Duration) ([]incident.Listed, bool, error) {
	return nil, true, nil
}

func (m *memory) Close(_ context.Context, g incident.Group, e incident.End) error {
	m.records[g], _ = m.records[g].Closed(e)
	return m.err
}

// A grouped is the register of a rule with incidents, of which a test writes the records.
type grouped struct {
	*register
	to      told
	records memory
	n       int64
}

func newGrouped(t *testing.T) *grouped {
	set := rules.Threshold("temperature", 30, time.Minute)
	set.Rules[0].Resolved, set.Rules[0].Per = true, "site"
	return groupedBy(t, set)
}

func groupedBy(t *testing.T, set rules.Set) *grouped {
	g := &grouped{records: memory{records: map[incident.Group]incident.Record{}}}
	s := benchRules(t, set)
	g.register = newRegister(s.config.Evaluator, "0", "log", 20)
	g.watch(nil, s.log)
	g.out = &g.to
	return g
}

// read has a device in a site say a value, and writes the records that changes.
func (g *grouped) read(device, site, value string) {
	g.n++
	e := exactEvent(g.n, device, value)
	e.Body = []byte(strings.Replace(string(e.Body), "{", fmt.Sprintf(`{"site":%q,`, site), 1))
	g.take([]telemetry.Event{e})
	g.write()
}

func (g *grouped) write() {
	for one := g.nextGroup(); one != nil; one = g.nextGroup() {
		for any, err := true, error(nil); any && err == nil; {
			any, err = g.writeGroup(context.Background(), &g.records, one)
		}
	}
}

// settled has every receiver settle the notice that was given last.
func (g *grouped) settled() {
	n := g.to.last()
	n.Settle(0)
	g.settle(delivery.Key{About: sensor.Of("berlin"), Topic: g.evaluator.levels[0].shared}, n)
	g.write()
}

func (g *grouped) berlin() *group { return g.groups[g.evaluator.levels[0].groupKey("berlin")] }

// Groups have a bound, and so has what devices share; whoever has a group may join it all the same.
func TestWhoMayJoinAGroup(t *testing.T) {
	g := newGrouped(t)
	l := g.evaluator.levels[0]
	for length, want := range map[int]bool{0: false, 1: true, incident.MaxValue: true, incident.MaxValue + 1: false} {
		if got := g.mayJoin(l, strings.Repeat("x", length)); got != want {
			t.Errorf("%d bytes: %v", length, got)
		}
	}
	for i := range maxGroups - 1 {
		g.groupOf(l, fmt.Sprint(i))
	}
	if !g.mayJoin(l, "berlin") {
		t.Error("the last group has no room")
	}
	g.groupOf(l, "berlin")
	if g.mayJoin(l, "paris") || !g.mayJoin(l, "berlin") {
		t.Error("another group has room, or one that is there has none")
	}
}

// A group is there while it has members or something is due of it, and no longer.
func TestLifeOfAGroup(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	if b := g.berlin(); b == nil || b.members != 1 || !b.has(g.to.last()) || b.has(&delivery.Notice{}) {
		t.Fatalf("the group is %+v", b)
	}
	g.settled()
	g.read("freezer-2", "berlin", "40")
	g.read("freezer-1", "berlin", "20")
	if b := g.berlin(); b == nil || b.members != 1 || len(g.records.records) != 1 {
		t.Fatalf("the group is %+v", b)
	}
	g.settled() // what freezer-2 has said
	g.read("freezer-2", "berlin", "20")
	end := g.to.last()
	if !end.Incident.Over || end.Reading.More.Of.Device != "freezer-2" || !g.berlin().has(end) {
		t.Fatalf("the end is %+v", end)
	}
	g.alarms.history.edited = false
	g.settled()
	if !g.alarms.history.edited {
		t.Error("the ledger keeps the end")
	}
	if len(g.groups) != 0 || g.mark.held.Len() != 0 {
		t.Errorf("%d groups are left, and %d events hold the watermark", len(g.groups), g.mark.held.Len())
	}
	for _, r := range g.records.records {
		if r.State != incident.Closed {
			t.Errorf("it is %s", r.State)
		}
	}
}

// An alert that nobody has got when the last member leaves is withdrawn, and the next member has another one.
func TestMemberComesBackBeforeAnybodyWasTold(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.read("freezer-1", "berlin", "20")
	if got, want := g.to.counts(), "2 given, 1 withdrawn"; got != want { // an end, too
		t.Errorf("%s, want %s", got, want)
	}
	g.read("freezer-1", "berlin", "40")
	if got, want := g.to.counts(), "3 given, 2 withdrawn"; got != want || g.to.last().Incident.Over {
		t.Errorf("%s, want %s", got, want)
	}
	if n := g.mark.held.Len(); n != 1 {
		t.Errorf("%d events hold the watermark", n)
	}
}

// An alert waits for the record, is given once, and again under another name if the record has begun anew.
func TestAlertIsOfTheIncidentThatTheRecordNames(t *testing.T) {
	g := newGrouped(t)
	g.records.err = errors.New("503")
	g.read("freezer-1", "berlin", "40")
	g.queue(g.berlin())
	if got, want := g.to.counts(), "0 given, 0 withdrawn"; got != want || g.mark.held.Len() != 2 {
		t.Fatalf("%s, want %s; %d hold the watermark", got, want, g.mark.held.Len())
	}
	g.records.err = nil
	g.berlin().queued = false // who tries again has it
	g.queue(g.berlin())
	g.write()
	g.read("freezer-1", "berlin", "41")
	if got, want := g.to.counts(), "1 given, 0 withdrawn"; got != want || g.mark.held.Len() != 1 {
		t.Fatalf("%s, want %s; %d hold the watermark", got, want, g.mark.held.Len())
	}
	was := g.to.last().Incident.About.ID
	clear(g.records.records)
	g.register.write(g.berlin())
	g.write()
	if got, want := g.to.counts(), "2 given, 1 withdrawn"; got != want || g.to.last().Incident.About.ID == was {
		t.Errorf("%s, want %s; %s was %s", got, want, g.to.last().Incident.About.ID, was)
	}
}

// A record says of which event its members are, and how many they are once a window is over; nothing is written for nothing.
func TestWhatAnEntrySays(t *testing.T) {
	g := newGrouped(t)
	entry := func() (e incident.Entry) {
		for _, r := range g.records.records {
			e = r.Entries["0"]
		}
		return e
	}
	g.read("kiln", "", "20")
	g.read("freezer-1", "berlin", "40")
	g.read("freezer-2", "berlin", "40")
	if e := entry(); e.Members != 1 || e.First != "freezer-1" || e.Position.Sequence != 2 || e.Position.Log != logName("g", "0") {
		t.Errorf("the entry is %+v", e)
	}
	g.recount()
	g.write()
	if e := entry(); e.Members != 1 || g.records.begun != 1 {
		t.Errorf("within the window the entry is %+v, after %d writes", e, g.records.begun)
	}
	g.berlin().written = time.Now().Add(-2 * time.Minute)
	for range 3 {
		g.recount()
		g.write()
	}
	if e := entry(); e.Members != 2 || e.Position.Sequence != 3 || g.records.begun != 2 {
		t.Errorf("then it is %+v, after %d writes", e, g.records.begun)
	}
	g.berlin().written = time.Now().Add(-2 * time.Minute)
	g.recount()
	g.write()
	if g.records.begun != 2 {
		t.Error("it is written although nothing has changed")
	}
}

// A change that the record lacks is as old as the event that made it, however long nothing came before.
func TestHowOldIsWhatARecordLacks(t *testing.T) {
	g := newGrouped(t)
	lacks := func(n int64) {
		t.Helper()
		if _, at := g.mark.held.First(); at != micros(exactPosition(n).Time) {
			t.Errorf("it lacks a change since %v, want %v", fromMicros(at), exactPosition(n).Time)
		}
	}
	g.records.err = errors.New("503")
	g.n = 10
	g.read("freezer-1", "berlin", "40")
	lacks(11)
	g.records.err, g.berlin().queued = nil, false
	g.queue(g.berlin())
	g.write()
	g.settled()
	g.records.err = errors.New("503")
	g.n = 20
	g.read("freezer-1", "berlin", "20")
	lacks(21)
}

// A record says of which event the end of a silence is, also while the batch of that is being read.
func TestWhatAnEntrySaysOfASilence(t *testing.T) {
	g := groupedBy(t, rules.Set{Rules: []rules.Rule{{
		Name: "offline", Silent: time.Hour, Forget: rules.DefaultForget, Window: time.Minute, Resolved: true, Per: "site", Levels: []rules.Level{{}},
	}}})
	wants := func(members int, sequence int64) {
		t.Helper()
		g.write()
		for _, r := range g.records.records {
			if e := r.Entries["0"]; e.Members != members || e.Position.Sequence != sequence {
				t.Errorf("the entry is %+v, want %d members as of event %d", e, members, sequence)
			}
		}
	}
	g.mark.last = exactPosition(3)
	freezer := sensor.Of("freezer-1")
	if !g.FellSilent(0, absence.Silence{Of: freezer, Shared: "berlin", Since: roster.Place{Sequence: 1}}) {
		t.Fatal("it did not fall silent")
	}
	g.saved(g.unsaved)
	wants(1, 3)
	g.Heard(0, freezer, exactPosition(4), exactPosition(5))
	wants(0, 5)
}

// An end is due once the record says that nobody is left, whatever is counted meanwhile.
func TestEndAfterOneWrite(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	g.berlin().written = time.Now().Add(-2 * time.Minute)
	g.records.during = g.recount
	g.read("freezer-1", "berlin", "20")
	if got, want := g.to.counts(), "2 given, 0 withdrawn"; got != want || g.records.begun != 2 {
		t.Errorf("%s, want %s; %d writes", got, want, g.records.begun)
	}
}

// Whoever takes over a ledger that a group's last member has left, before its record says so, writes that: then its end is due,
// also of a rule that is not configured any more.
func TestLastMemberHasLeftTheLedgerAlone(t *testing.T) {
	for _, removed := range []bool{false, true} {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprint(removed, written), func(t *testing.T) {
				g := newGrouped(t)
				g.read("freezer-1", "berlin", "40")
				g.settled()
				g.records.err = errors.New("503")
				for key := range g.alarms.byKey {
					g.end(key, micros(time.Now()), true)
				}
				content := g.alarms.history.content(g.mark.last)
				g.addEnds(&content)
				if len(content.Alarms) != 0 || len(content.Ends) != 1 || content.Ends[0].Incident != "" || len(content.Levels) != 1 {
					t.Fatalf("the ledger has %+v", content)
				}
				if g.records.err = nil; written { // and then the owner died
					g.write()
				}

				next := newGrouped(t)
				next.records = g.records
				if removed {
					next.evaluator.levels, next.levels = nil, nil
				}
				next.mark.last = g.mark.last
				for _, l := range content.Levels {
					next.recall(l)
				}
				next.restoreEnd(content.Ends[0])
				next.write()
				if got, want := next.to.counts(), "1 given, 0 withdrawn"; got != want || next.mark.held.Len() != 0 {
					t.Fatalf("%s, want %s; %d hold the watermark", got, want, next.mark.held.Len())
				}
				if end := next.to.last(); !end.Incident.Over || end.Reading.More.Of.Device != "freezer-1" || end.Reading.Sequence != 1 {
					t.Errorf("%+v is due", end)
				}
			})
		}
	}
}

// The ledger says no more that a record was to be written once it was, and the incident goes on with members elsewhere.
func TestLastMemberHasLeftOfSeveralPartitions(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	for group, r := range g.records.records {
		r.Entries["1"] = incident.Entry{Members: 1}
		g.records.records[group] = r
	}
	g.records.err = errors.New("503")
	g.read("freezer-1", "berlin", "20")
	g.alarms.history.edited = false
	g.records.err = nil
	g.berlin().queued = false // who tries again has it
	g.queue(g.berlin())
	g.write()
	if got, want := g.to.counts(), "1 given, 0 withdrawn"; got != want || !g.alarms.history.edited || len(g.groups) != 0 {
		t.Errorf("%s, want %s; the ledger is to be written: %v, %d groups", got, want, g.alarms.history.edited, len(g.groups))
	}
}

// An end does not go out any more once a device is hot again, although the record cannot say so yet.
func TestEndIsDroppedBeforeTheRecordSaysSo(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	g.read("freezer-1", "berlin", "20")
	end := g.to.last()
	g.records.err = errors.New("503")
	g.read("freezer-1", "berlin", "40")
	if got, want := g.to.counts(), "2 given, 1 withdrawn"; got != want || !end.Incident.Over || g.berlin().has(end) {
		t.Errorf("%s, want %s", got, want)
	}
}

// The watermark stays before the first change that a record lacks, however many come after it, and goes on once it has them.
func TestWatermarkStaysBeforeWhatARecordLacks(t *testing.T) {
	g := newGrouped(t)
	g.read("kiln", "", "20")
	g.records.err = errors.New("503")
	for _, value := range []string{"40", "20", "40"} {
		g.read("freezer-1", "berlin", value)
	}
	if at := g.mark.position(); at.Sequence != 1 {
		t.Errorf("the watermark is %+v", at)
	}
	g.records.err = nil
	g.berlin().queued = false // who tries again has it
	g.queue(g.berlin())
	g.write()
	g.settled()
	if at := g.mark.position(); at.Sequence != 4 {
		t.Errorf("then it is %+v", at)
	}
}

// What changes while a record is written is not in it: the watermark stays before that until it is written, too.
func TestWatermarkStaysBeforeWhatChangesMeanwhile(t *testing.T) {
	g := newGrouped(t)
	g.read("kiln", "", "20")
	writes := 0
	g.records.during = func() {
		writes++
		switch at := g.mark.position(); {
		case writes == 1:
			g.read("freezer-1", "berlin", "20")
		case at.Sequence != 2:
			t.Errorf("the watermark is %+v", at)
		}
	}
	g.read("freezer-1", "berlin", "40")
	if at := g.mark.position(); at.Sequence != 3 || writes != 2 {
		t.Errorf("after %d writes the watermark is %+v", writes, at)
	}
}

// An end in the ledger of an owner before is not due while a device is hot, and does not stay in the ledger.
func TestEndInALedgerOfWhatGoesOn(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.alarms.history.edited = false
	id := g.evaluator.levels[0].id
	g.restoreEnd(ledger.End{Rule: id.rule, Level: id.name, Measured: id.measured, Per: id.per, Value: "berlin", Incident: "a", Overs: 1})
	if g.berlin().due != nil || !g.alarms.history.edited {
		t.Errorf("%+v is due, and the ledger is to be written: %v", g.berlin().due, g.alarms.history.edited)
	}
}

// What is left while other partitions have members is written in the ledger, which may have said that the record lacks it.
func TestLedgerAfterTheLastMemberOfAPartition(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	of := g.berlin().of()
	g.records.records[of], _ = g.records.records[of].Sync("1", incident.Entry{Members: 1}, "another", time.Now())
	g.alarms.history.edited = false
	g.read("freezer-1", "berlin", "20")
	if got, want := g.to.counts(), "1 given, 0 withdrawn"; got != want || !g.alarms.history.edited {
		t.Errorf("%s, want %s; the ledger is to be written: %v", got, want, g.alarms.history.edited)
	}
}

// A receiver that forgets is told again of incidents that a record has, and of no rule that is not configured any more.
func TestOpenIncidents(t *testing.T) {
	g := newGrouped(t)
	g.records.err = errors.New("503")
	g.read("freezer-1", "berlin", "40")
	if all := g.openAlarms(); len(all) != 0 {
		t.Errorf("without a record %+v are open", all)
	}
	g.records.err = nil
	g.berlin().queued = false // who tries again has it
	g.queue(g.berlin())
	g.write()
	if all := g.openAlarms(); len(all) != 1 || all[0].Incident == nil || all[0].Incident.About.ID != g.to.last().Incident.About.ID || all[0].Reading.More.Of.Device != "freezer-1" {
		t.Errorf("with a record %+v are open", all)
	}
	s := &Stream{register: g.register}
	s.owner.check, s.owner.work = func() error { return nil }, &s.work
	defer s.work.Wait()
	key := g.berlin().key
	if err := s.mayRefresh(t.Context(), key); err != nil {
		t.Error(err)
	}
	g.records.err = errors.New("503")
	g.read("freezer-1", "berlin", "20")
	if err := s.mayRefresh(t.Context(), key); err != errNotDue {
		t.Errorf("without members: %v", err)
	}
	g.read("freezer-1", "berlin", "40")
	g.records.err = nil
	g.berlin().queued = false
	g.queue(g.berlin())
	g.write()
	g.berlin().level.removed = time.Now()
	if all := g.openAlarms(); len(all) != 0 {
		t.Errorf("of a rule that is removed %+v are open", all)
	}
}

// Nothing is claimed for an alert while the record of its incident is being written, or for one of which nothing is known.
func TestAlertIsNotClaimedForBeforeItsRecord(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	key, n, s := g.berlin().key, g.to.last(), &Stream{register: g.register}
	if err := s.MayClaim(key, n); err != nil {
		t.Error(err)
	}
	g.queue(g.berlin())
	if err := s.MayClaim(key, n); err != errNotWritten {
		t.Errorf("while it is being written: %v", err)
	}
	if err := s.MayClaim(g.evaluator.levels[0].groupKey("rome"), n); err != errNotWritten {
		t.Errorf("of a group that is not there: %v", err)
	}
}

// An end that the record contradicts is not sent, and is due no more; another one that has become due meanwhile stays.
func TestEndThatTheRecordContradicts(t *testing.T) {
	for name, another := range map[string]bool{"the same": false, "another": true} {
		g := newGrouped(t)
		g.read("freezer-1", "berlin", "40")
		g.settled()
		g.read("freezer-1", "berlin", "20")
		b, n := g.berlin(), g.to.last()
		s := &Stream{register: g.register, config: Config{Incidents: &g.records}}
		if about, err := s.maySendIncident(t.Context(), b.key, n); err != nil || about.ID != n.Incident.About.ID {
			t.Errorf("%s: %+v, %v", name, about, err)
		}
		g.records.err = errors.New("503")
		if _, err := s.maySendIncident(t.Context(), b.key, n); err != g.records.err || b.due == nil {
			t.Errorf("%s: without a record %v, and %+v is due", name, err, b.due)
		}
		g.records.err = nil
		// somewhere else a device is hot
		g.records.records[b.of()], _ = g.records.records[b.of()].Sync("1", incident.Entry{Members: 1}, "another", time.Now())
		if another {
			g.records.during = func() { g.endGroup(b, incident.End{Incident: "another", Overs: 1}, time.Now()) }
		}
		if _, err := s.maySendIncident(t.Context(), b.key, n); err != errNotDue || (b.due != nil) != another {
			t.Errorf("%s: %v, and %+v is due", name, err, b.due)
		}
		g.write()
		if left := len(g.groups) > 0; left != another { // else it would count for ever
			t.Errorf("%s: groups %+v", name, g.groups)
		}
	}
}

// A silence is a member of a group once the ledger in the store holds it.
func TestSilenceIsAMemberOnceTheLedgerHoldsIt(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{{Name: "offline", Per: "gateway", Silent: time.Hour, Forget: rules.DefaultForget, Resolved: true, Levels: []rules.Level{{}}}}}
	s := benchRules(t, set)
	g := &grouped{register: newRegister(s.config.Evaluator, "0", "log", 20), records: memory{records: map[incident.Group]incident.Record{}}}
	g.watch(nil, s.log)
	g.out = &g.to
	if !g.FellSilent(0, absence.Silence{Of: sensor.Of("meter-1"), Shared: "gw-12", Deadline: 2, Proven: 2}) {
		t.Fatal("it is not silent")
	}
	g.write()
	if len(g.groups)+len(g.records.records)+len(g.to.given) != 0 {
		t.Errorf("before that there are the groups %v and records %v, and %s", g.groups, g.records.records, g.to.counts())
	}
	g.saved(g.unsaved)
	g.write()
	if of := g.groups[g.levels[0].groupKey("gw-12")]; of == nil || of.members != 1 || len(g.records.records) != 1 || len(g.to.given) != 1 {
		t.Errorf("then the group is %+v, with the records %v, and %s", of, g.records.records, g.to.counts())
	}
}

// An end that is due already is not given again, and another one takes its place.
func TestEndThatIsDueAlready(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	g.read("freezer-1", "berlin", "20")
	b, end := g.berlin(), endOf(g.to.last())
	g.alarms.history.edited = false
	g.endGroup(b, end, time.Time{})
	if got, want := g.to.counts(), "2 given, 0 withdrawn"; got != want || g.alarms.history.edited {
		t.Errorf("%s, want %s", got, want)
	}
	end.Overs++
	g.endGroup(b, end, time.Time{})
	if got, want := g.to.counts(), "3 given, 1 withdrawn"; got != want || !g.alarms.history.edited || endOf(g.to.last()) != end {
		t.Errorf("%s, want %s", got, want)
	}
	g.dropEnd(b)
	if got, want := g.to.counts(), "3 given, 2 withdrawn"; got != want || b.due != nil {
		t.Errorf("%s, want %s", got, want)
	}
	g.alarms.history.edited = false
	if g.endGroup(b, end, time.Time{}); !g.alarms.history.edited {
		t.Error("the ledger does not get it")
	}
}

// Who else than the owner of the first partition ends what nobody ends, and what has members here, is nobody.
func TestWhoAdoptsAnIncident(t *testing.T) {
	for _, tt := range []struct {
		name     string
		id       string        // of the partition
		device   string        // that is a member here before, if not empty
		members  int           // that the record has of this partition
		lasts    time.Duration // for which it has been over
		site     string
		isDue    bool
		isWanted bool // its record is to be written
	}{
		{name: "overdue", id: "0", lasts: 2 * time.Hour, site: "berlin", isDue: true, isWanted: true},
		{name: "overdue, elsewhere", id: "1", lasts: 2 * time.Hour, site: "berlin"},
		{name: "just over", id: "0", lasts: time.Minute, site: "berlin"},
		{name: "with a member", id: "0", device: "freezer-1", lasts: 2 * time.Hour, site: "berlin"},
		{name: "members that nobody knows", id: "1", members: 2, site: "berlin", isWanted: true},
		{name: "members that are known", id: "1", device: "freezer-1", members: 2, site: "berlin"},
		{name: "too long a value", id: "0", lasts: 2 * time.Hour, site: strings.Repeat("x", 129)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGrouped(t)
			g.id = tt.id
			if tt.device != "" {
				g.read(tt.device, "berlin", "40")
				g.settled()
			}
			before := len(g.to.given)
			r := incident.Record{ID: "a", State: incident.Running, Overs: 1, Entries: map[string]incident.Entry{tt.id: {Members: tt.members}}}
			if tt.lasts > 0 {
				r.State = incident.Over
			}
			of := incident.Group{Rule: g.evaluator.levels[0].rule.Name, Per: "site", Value: tt.site}
			other := of
			other.Per = "plant"
			g.adopt(incident.Listed{Group: other, Record: r, Age: tt.lasts})
			if len(g.regrouped) > 0 || len(g.to.given) > before {
				t.Error("one of no rule is adopted")
			}
			g.adopt(incident.Listed{Group: of, Record: r, Age: tt.lasts})
			if isDue := len(g.to.given) > before; isDue != tt.isDue {
				t.Errorf("an end is due: %v", isDue)
			}
			if isWanted := len(g.regrouped) > 0; isWanted != tt.isWanted {
				t.Errorf("the record is to be written: %v", isWanted)
			}
			if tt.device == "" && !tt.isWanted && len(g.groups) > 0 {
				t.Error("there is a group")
			}
		})
	}
}

// Who takes over a group without members, and finds its record further on than the ledger, has nobody forget it: the record
// is written once the events are read again.
func TestLeftGroupIsRemembered(t *testing.T) {
	g := newGrouped(t)
	g.read("freezer-1", "berlin", "40")
	g.settled()
	for group, r := range g.records.records { // written as of an event that the watermark has not passed
		e := r.Entries["0"]
		e.Position.Sequence = 4
		r.Entries["0"] = e
		g.records.records[group] = r
	}
	held := exactPosition(1)
	g.records.err = errors.New("503")
	for key := range g.alarms.byKey {
		g.end(key, micros(time.Now()), true)
	}
	content := g.alarms.history.content(held)
	g.addEnds(&content)

	g.records.err = nil
	next := newGrouped(t)
	next.records = g.records
	next.evaluator.levels, next.levels = nil, nil
	next.mark.last = held
	for _, l := range content.Levels {
		next.recall(l)
	}
	next.restoreEnd(content.Ends[0])
	next.write()
	later := next.alarms.history.content(held)
	next.addEnds(&later)
	if len(later.Ends) != 1 {
		t.Errorf("the ledger has %d ends, and the record is %+v", len(later.Ends), g.records.records)
	}
}

// What a record lacks of which no event is known is as old as it is since this owner knows of it.
func TestLackWithoutAnEvent(t *testing.T) {
	g := newGrouped(t)
	g.last.untilStore, g.last.until = time.Now(), time.Now()
	g.records.err = errors.New("503")
	g.restoreEnd(ledger.End{Rule: "temperature", Measured: g.evaluator.levels[0].id.measured, Per: "site", Value: "berlin"})
	g.write()
	if _, at := g.mark.held.First(); time.Since(fromMicros(at)).Abs() > time.Minute {
		t.Errorf("it is from %v", fromMicros(at))
	}
}

// The end of an incident of silences says that they are over, also if its last member was another owner's.
func TestEndOfSilencesThatAnotherOwnerKnew(t *testing.T) {
	g := newGrouped(t)
	l := g.evaluator.levels[0]
	l.rule.Silent = 15 * time.Minute
	g.endGroup(g.groupOf(l, "berlin"), incident.End{Incident: "id", Overs: 1}, time.Now())
	if limit := g.to.last().Reading.Limit; limit != 900 {
		t.Errorf("it says %v s", limit)
	}
}
