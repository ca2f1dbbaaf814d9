package verify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"alertworker/internal/lab/verify"
)

// offline is the rule of the tables: 20 s, windows of 10 s.
var offline = verify.Rule{Name: "offline", Silent: 20 * time.Second, Levels: []verify.Level{{}}, Resolved: true, Quiet: "quiet"}

// heard is an event of device "a". Its sequence number is its time in ms.
func heard(seconds float64) verify.Reading { return reading(seconds, 20) }

// silent is an alert about the event of that time, or the floor, and a deadline.
func silent(about, deadline float64, token int64, seconds float64) verify.Delivery {
	d := alerted(about, token, seconds)
	d.Rule, d.ID, d.Deadline = "offline", d.ID+"/silent", at(deadline)
	return d
}

func heardAgain(by float64, token int64, seconds float64) verify.Delivery {
	d := recovered(by, token, seconds)
	d.Rule = "offline"
	return d
}

func TestSilences(t *testing.T) {
	mute := offline
	mute.Resolved = false
	frozenOnly := offline
	frozenOnly.Only = []verify.Condition{{Name: "kind", Values: []string{"frozen"}}}
	ofKind := func(seconds float64, kind string) verify.Reading {
		r := heard(seconds)
		r.Fields = map[string]string{"kind": kind}
		return r
	}
	because := func(d verify.Delivery) verify.Delivery {
		d.Excluded = true
		return d
	}
	ofHub := heard(70)
	ofHub.ByHub = true
	for _, tt := range []struct {
		name    string
		rule    verify.Rule
		log     []any
		until   float64 // seconds; 0: nothing more comes
		unknown []string
		want    findings
	}{
		{name: "dies", rule: offline, log: []any{heard(0), heard(19), heard(38), silent(38, 58, 1, 60)}, want: findings{opened: 1, alerts: 1}},
		{name: "dies, and comes back", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), heard(60), heardAgain(60, 2, 61)}, until: 70, want: findings{opened: 1, alerts: 1, recoveries: 1}},
		{name: "is not reported", rule: offline, log: []any{heard(0), heard(90)}, until: 100, want: findings{opened: 1, lost: 1}},
		{name: "is not reported at the end", rule: offline, log: []any{heard(0)}, until: 100, want: findings{opened: 1, lost: 1, stale: 1}},
		{name: "is reported too late", rule: offline, log: []any{heard(0), silent(0, 20, 1, 56)}, until: 60, want: findings{opened: 1, alerts: 1, lost: 1}},
		{name: "is heard before that can be proven", rule: offline, log: []any{heard(0), heard(54)}, until: 60, want: findings{}},
		{name: "was heard just before its deadline", rule: offline, log: []any{heard(0), heard(19), silent(0, 20, 1, 22)}, until: 38, want: findings{alerts: 1, wrong: 1}},
		{name: "reported before its deadline", rule: offline, log: []any{heard(0), silent(0, 15, 1, 16)}, until: 50, want: findings{alerts: 1, wrong: 1}},
		{name: "another event is named", rule: offline, log: []any{heard(0), heard(10), silent(0, 30, 1, 31)}, until: 50, want: findings{alerts: 1, wrong: 1}},
		{name: "late, because events may have been lost", rule: offline, log: []any{heard(0), silent(5, 25, 1, 30)}, until: 60, want: findings{opened: 1, alerts: 1}},
		{name: "reported long after it was heard", rule: offline, log: []any{heard(0), heard(56), heard(75), heard(94), heard(113), silent(0, 20, 1, 125)}, until: 130, want: findings{opened: 1, alerts: 1, lost: 1, wrong: 1, open: 1}},
		{name: "no recovery", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), heard(30), heard(49), heard(68)}, until: 84, want: findings{alerts: 1, stale: 1}},
		{name: "no recovery, and the rule sends none", rule: mute, log: []any{heard(0), silent(0, 20, 1, 25), heard(30), heard(49), heard(68)}, until: 84, want: findings{alerts: 1}},
		{name: "a recovery without an alert", rule: offline, log: []any{heard(0), heard(54), heardAgain(54, 1, 55)}, until: 60, want: findings{recoveries: 1, wrong: 1}},
		{name: "a recovery after an alert of unknown fate", rule: offline, log: []any{heard(0), heard(54), heardAgain(54, 1, 55)}, until: 60, unknown: []string{"a"}, want: findings{recoveries: 1}},
		{name: "a recovery by an event that ended nothing", rule: offline, log: []any{heard(0), heard(1), heardAgain(1, 1, 55)}, until: 60, want: findings{opened: 1, recoveries: 1, wrong: 2, lost: 1}},
		{name: "a recovery by a later event", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), heard(60), heard(61), heardAgain(61, 2, 62)}, until: 70, want: findings{opened: 1, alerts: 1, recoveries: 1}},
		{name: "a recovery within the window", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), heard(26), heardAgain(26, 2, 27)}, until: 40, want: findings{alerts: 1, recoveries: 1, tooClose: 1}},
		{name: "comes and goes within a window", rule: func() verify.Rule { r := offline; r.Window = time.Minute; return r }(), log: []any{heard(0), silent(0, 20, 1, 25), heard(30)}, until: 110, want: findings{opened: 1, alerts: 1}},
		{name: "told twice", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), silent(0, 20, 2, 80)}, until: 90, want: findings{opened: 1, alerts: 2, wrong: 1}},
		{name: "what the hub says does not count", rule: offline, log: []any{heard(0), silent(0, 20, 1, 25), ofHub}, until: 300, want: findings{opened: 1, alerts: 1}},
		{name: "quiet", rule: offline, log: []any{with(heard(0), "quiet", "true")}, until: 300, want: findings{}},
		{name: "expected", rule: frozenOnly, log: []any{ofKind(0, "frozen"), silent(0, 20, 1, 25)}, until: 300, want: findings{opened: 1, alerts: 1}},
		{name: "expected, and not reported", rule: frozenOnly, log: []any{ofKind(0, "frozen"), heard(10)}, until: 300, want: findings{opened: 1, lost: 1, stale: 1}},
		{name: "not expected", rule: frozenOnly, log: []any{ofKind(0, "chilled"), heard(10)}, until: 300, want: findings{}},
		{name: "never said", rule: frozenOnly, log: []any{heard(10)}, until: 300, want: findings{}},
		{name: "not expected, and reported", rule: frozenOnly, log: []any{ofKind(0, "chilled"), silent(0, 20, 1, 25)}, until: 300, want: findings{alerts: 1, wrong: 1}},
		{name: "no longer expected", rule: frozenOnly, log: []any{ofKind(0, "frozen"), silent(0, 20, 1, 25), ofKind(60, "chilled"), because(heardAgain(60, 2, 61))}, until: 300, want: findings{opened: 1, alerts: 1, recoveries: 1}},
		{name: "no longer expected, and nobody is told why", rule: frozenOnly, log: []any{ofKind(0, "frozen"), silent(0, 20, 1, 25), ofKind(60, "chilled"), heardAgain(60, 2, 61)}, until: 300, want: findings{opened: 1, alerts: 1, recoveries: 1, wrong: 1}},
		{name: "heard again, and said to be no longer expected", rule: frozenOnly, log: []any{ofKind(0, "frozen"), silent(0, 20, 1, 25), heard(60), because(heardAgain(60, 2, 61))}, until: 70, want: findings{opened: 1, alerts: 1, recoveries: 1, wrong: 1}},
		{
			name: "dies when the records have ended", rule: offline,
			log: []any{heard(0), heard(15), silent(15, 35, 1, 36)}, until: 30,
			want: findings{alerts: 1},
		},
		{name: "refused", rule: offline, log: []any{heard(0), refused(silent(0, 20, 1, 25))}, until: 300, want: findings{opened: 1, refused: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rules
			r.Proof, r.Unknown = 30*time.Second, tt.unknown
			if tt.until > 0 {
				r.Until = at(tt.until)
			}
			report := recordTo(verify.NewLog(tt.rule), tt.log).Check(r)
			if got := findingsOf(report); got != tt.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, tt.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
		})
	}
}

const (
	speaksTooSoon   bug = "a device is silent before its deadline"
	missesEvents    bug = "some events are not heard"
	forgetsSilences bug = "some silences are forgotten"
	provesLate      bug = "silences are proven two minutes late"
	tellsTooLate    bug = "a silence is sent long after the device was heard again"
	namesAnother    bug = "an alert names an earlier event"
	sendsAgain      bug = "a silence is sent again under another id"
)

var silenceBugs = []bug{
	speaksTooSoon, missesEvents, forgetsSilences, provesLate, tellsTooLate, namesAnother, sendsAgain,
	ignoresWindow, remembersWindow, resolvesAtOnce, resolvesTwice, recoversUnsent, keepsDue, forgetsDue, resolvesLate,
}

// listen is a worker that watches one device for silence, and has a bug or none. It takes up to 30 s to prove a silence, and 2 s to read and to send.
func listen(seed uint64, b bug) verify.Report {
	chance := rand.New(rand.NewPCG(seed, 1))
	rule := offline
	rule.Window = []time.Duration{10 * time.Second, time.Minute}[chance.IntN(2)]
	log := verify.NewLog(rule)
	little := func() time.Duration { return time.Duration(chance.IntN(9)) * quarter }
	var events []verify.Reading
	now := start
	for range 1 + chance.IntN(12) {
		now = now.Add(time.Duration(1+chance.IntN(19)) * time.Second)
		if chance.IntN(2) == 0 {
			now = now.Add(time.Duration(chance.IntN(240)) * time.Second)
		}
		events = append(events, verify.Reading{Device: "a", Temperature: 20, At: now, Partition: "0", Sequence: int64(len(events))})
	}
	token, clock, window := int64(0), start, start
	open, notified := false, false
	var due *verify.Reading // of which a recovery is
	var dueAt time.Time
	send := func(d verify.Delivery, sent time.Time) {
		if sent.Before(clock) {
			sent = clock
		}
		token++
		clock = sent
		d.Device, d.Rule, d.Partition, d.Token, d.At = "a", "offline", "0", token, sent
		log.Delivered(d)
		if chance.IntN(8) == 0 { // its answer was lost
			token++
			clock = sent.Add(little() / 2)
			d.Token, d.At = token, clock
			log.Delivered(d)
		}
	}
	recover := func(until time.Time) {
		if due == nil || !dueAt.Before(until) {
			return
		}
		if notified || b == recoversUnsent {
			if b != forgetsDue || chance.IntN(4) > 0 {
				send(verify.Delivery{ID: fmt.Sprint(due.Sequence, "/resolved"), Recovery: true, Sequence: due.Sequence}, dueAt)
			}
			if b == resolvesTwice {
				send(verify.Delivery{ID: fmt.Sprint(due.Sequence, "/resolved/again"), Recovery: true, Sequence: due.Sequence}, clock.Add(rule.Window))
			}
			if notified = b == remembersWindow; notified {
				window = clock.Add(rule.Window)
			}
		}
		due = nil
	}
	for i := range events {
		e := events[i]
		log.Published(e)
		read, end := e.At.Add(little()), start.Add(time.Hour)
		if i+1 < len(events) {
			end = events[i+1].At
		}
		if open {
			open, due, dueAt = false, &events[i], read
			if dueAt.Before(window) && b != resolvesAtOnce {
				dueAt = window
			}
			if b == resolvesLate {
				dueAt = dueAt.Add(2 * time.Minute)
			}
		}
		last := e
		if b == missesEvents && i > 0 && chance.IntN(4) == 0 {
			last = events[i-1]
		}
		deadline := last.At.Add(20 * time.Second)
		if b == speaksTooSoon {
			deadline = last.At.Add(15 * time.Second)
		}
		proven := deadline.Add(time.Duration(chance.IntN(120)) * quarter)
		if b == provesLate {
			proven = proven.Add(2 * time.Minute)
		}
		if proven.Before(e.At) {
			proven = e.At
		}
		if !proven.Before(end.Add(little())) || b == forgetsSilences && chance.IntN(4) == 0 {
			recover(end)
			continue
		}
		recover(proven)
		if b != keepsDue {
			due = nil
		}
		open = true
		covered := notified && !deadline.After(window)
		unclaimed := end.Sub(deadline) < 35*time.Second && chance.IntN(3) == 0 // the device is heard again before that
		if covered && b != ignoresWindow || unclaimed {
			continue
		}
		if b == namesAnother && i > 0 {
			last = events[i-1]
		}
		d := verify.Delivery{ID: fmt.Sprint(last.Sequence, "/silent"), Sequence: last.Sequence, Deadline: deadline}
		if b == tellsTooLate {
			proven = proven.Add(5 * time.Minute)
		}
		send(d, proven.Add(little()/2))
		if b == sendsAgain {
			d.ID += "/again"
			send(d, clock.Add(2*time.Minute))
		}
		notified = true
		window = clock.Add(rule.Window + time.Duration(chance.IntN(5))*quarter)
	}
	recover(start.Add(time.Hour))
	return log.Check(verify.Rules{Window: rules.Window, Bound: rules.Bound, Proof: 30 * time.Second, Slack: 2 * time.Second})
}

// A worker without a bug is never found wanting, and each bug is found in some of the same histories.
func TestSilenceBugsAreFound(t *testing.T) {
	for seed := range uint64(histories) {
		if r := listen(seed, none); !r.OK() {
			t.Fatalf("history %d: %v %v %v %v", seed, r.Lost, r.TooClose, r.Stale, r.Wrong)
		}
	}
	for _, b := range silenceBugs {
		found := 0
		for seed := range uint64(histories) {
			if r := listen(seed, b); !r.OK() {
				found++
			}
			if found > 0 && testing.Short() {
				break
			}
		}
		t.Logf("%s: found in %d of %d histories", b, found, histories)
		if found == 0 {
			t.Errorf("never found: %s", b)
		}
	}
}

// When nothing comes to the hub, that is one silence, of the hub.
func TestHubIsCutOff(t *testing.T) {
	name := func(i int) string { return fmt.Sprint("d", i) }
	for _, tt := range []struct {
		name    string
		devices int
		alive   int  // of them, that go on when the others fall silent, after a minute
		whole   bool // the worker reports the hub
		each    bool // it reports each device
		ok      bool
	}{
		{"all, one silence", 30, 0, true, false, true},
		{"all, each", 30, 0, false, true, false},
		{"all, both", 30, 0, true, true, false},
		{"all, nothing", 30, 0, false, false, false},
		{"two, one silence", 2, 0, true, false, true},
		{"two, each", 2, 0, false, true, false},
		{"one, one silence", 1, 0, true, false, false},
		{"one, each", 1, 0, false, true, true},
		{"one of them goes on, each", 30, 1, false, true, true},
		{"one of them goes on, one silence", 30, 1, true, false, false},
		{"one of them goes on, nothing", 30, 1, false, false, false},
		{"all go on, and the hub is reported", 30, 30, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := offline
			rule.Resolved = false
			log := verify.NewLog(rule)
			last := make([]float64, tt.devices)
			newest := 0.0
			for step := range 400 { // of half a second
				for i := range tt.devices {
					if seconds := float64(step)/2 + float64(i)/100; step%4 == i%4 && (seconds < 60 || i < tt.alive) {
						r := heard(seconds)
						r.Device, r.Sequence, last[i] = name(i), int64(step*100+i), seconds
						newest = max(newest, seconds)
						log.Published(r)
					}
				}
			}
			for i := tt.alive; tt.each && i < tt.devices; i++ {
				d := silent(last[i], last[i]+20, 1, 84)
				d.Device, d.Sequence = name(i), int64(math.Floor(last[i]*2))*100+int64(i)
				log.Delivered(d)
			}
			if tt.whole {
				d := silent(newest, newest+20, 1, 84)
				if tt.alive > 0 {
					d = silent(60, 80, 1, 84)
				}
				d.Device = "hub/telemetry"
				log.Delivered(d)
			}
			r := rules
			r.Proof, r.Until = 10*time.Second, at(200)
			if got := log.Check(r); got.OK() != tt.ok {
				t.Errorf("lost %d, too close %d, stale %d, wrong %v", len(got.Lost), len(got.TooClose), len(got.Stale), got.Wrong)
			}
			if !tt.whole || !tt.ok {
				return
			}

			over := silent(newest, newest+20, 2, 95)
			over.Device, over.ID, over.Recovery = "hub/telemetry", "over", true
			log.Delivered(over)
			if got := log.Check(r); len(got.Wrong) == 0 {
				t.Error("it may be said to be over while it lasts")
			}
		})
	}
}

// When nothing at all has come to a partition for as long as a device may be silent, no device was silent: each has
// that time again.
func TestGap(t *testing.T) {
	const devices = 30
	name := func(i int) string { return fmt.Sprint("d", i) }
	for _, tt := range []struct {
		name     string
		devices  int
		deadline float64 // of the alerts about all devices but the first, which goes on; 0: there are none
		sent     float64
		ok       bool
	}{
		{"nobody is told", devices, 0, 0, true},
		{"in the gap, told after it", devices, 80, 101, false},
		{"long before they have had their time again", devices, 110, 115, false},
		{"just before they have had their time again", devices, 119.9, 121, false},
		{"when they have had their time again", devices, 120, 122, true},
		{"one more device, in the gap", 1, 80, 81, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := offline
			rule.Resolved = false
			log := verify.NewLog(rule)
			for step := range 60 {
				for i := range tt.devices {
					r := heard(float64(step) + float64(i)/100)
					r.Device, r.Sequence = name(i), int64(step*100+i)
					log.Published(r)
				}
			}
			for step := range 60 {
				r := heard(100 + float64(step))
				r.Device, r.Sequence = name(0), int64(10_000+step)
				log.Published(r)
			}
			for i := 1; tt.deadline > 0 && i < tt.devices; i++ {
				d := silent(59+float64(i)/100, tt.deadline, 1, tt.sent)
				d.Device, d.Sequence = name(i), int64(5900+i)
				log.Delivered(d)
			}
			r := rules
			r.Proof, r.Until = 40*time.Second, at(124)
			if got := log.Check(r); got.OK() != tt.ok {
				t.Errorf("lost %d, too close %d, stale %d, wrong %v", len(got.Lost), len(got.TooClose), len(got.Stale), got.Wrong)
			}
		})
	}
}
