package verify_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"alertworker/internal/lab/verify"
)

// A bug is one that a worker may have.
type bug string

const (
	none              bug = ""
	ignoresFor        bug = "the first reading at the limit opens"
	ignoresTaken      bug = "the device's clock is not looked at"
	endsByLate        bug = "a late reading counts as any other"
	ignoresClear      bug = "an alarm ends at its limit"
	ignoresClearFor   bug = "the first reading beyond clear ends an alarm"
	neverClearsAnew   bug = "a reading that is not beyond clear does not start the clock again"
	ignoresRepeat     bug = "an open alarm is sent again when the window is over"
	repeatsAny        bug = "a new alarm is not sent, because an earlier one was"
	ignoresBase       bug = "limits are not counted from the message"
	guessesBase       bug = "a message without the number counts from the last one"
	ignoresOnly       bug = "what a condition excludes counts as any other"
	keepsExcluded     bug = "what a condition excludes changes nothing"
	hidesExclusion    bug = "the recovery does not say that a condition excludes the device"
	ignoresOverride   bug = "the limit of the device is not looked at"
	ignoresQuiet      bug = "an alert of a quiet device is sent"
	ignoresHigher     bug = "a lower level is sent beside a higher one"
	forgetsMilder     bug = "a lower level that is still open is not sent when the higher one ends"
	ignoresWindow     bug = "every reading is sent"
	resolvesAtOnce    bug = "a recovery does not wait for the window"
	resolvesTwice     bug = "a recovery is sent again under another id"
	recoversUnsent    bug = "a recovery is sent although there was no alert"
	keepsDue          bug = "a recovery is sent although the alarm is open again"
	forgetsDue        bug = "the recovery of some is forgotten"
	forgetsAlarms     bug = "a take-over forgets alarms"
	forgetsSent       bug = "a take-over forgets that an alert was sent"
	takesForReplay    bug = "what opens soon after a recovery is taken for a replay"
	remembersWindow   bug = "what opens within the window before a recovery is taken for sent"
	resolvesLate      bug = "a recovery comes long after its window"
	resolvesOnLowered bug = "a recovery is sent about a reading that is between clear and limit"
	mixesSensors      bug = "what one sensor says counts for the other"
	sharesWindows     bug = "sensors share windows"
	forgetsSensors    bug = "the alarm of one sensor ends with that of the other"
	reversesElements  bug = "measurements of one message count from its end"
	readsFirstElement bug = "a condition is read in the first measurement of a message"
)

var bugs = []bug{
	ignoresFor, ignoresTaken, endsByLate, ignoresClear, ignoresClearFor, neverClearsAnew, ignoresRepeat, repeatsAny, ignoresBase, guessesBase,
	ignoresOnly, keepsExcluded, hidesExclusion, ignoresOverride, ignoresQuiet, ignoresHigher, forgetsMilder, ignoresWindow, resolvesAtOnce, resolvesTwice, recoversUnsent, keepsDue,
	forgetsDue, forgetsAlarms, forgetsSent, takesForReplay, remembersWindow, resolvesLate, resolvesOnLowered,
	mixesSensors, sharesWindows, forgetsSensors, reversesElements, readsFirstElement,
}

// A scene is a rule, what one device published, and chance.
type scene struct {
	rule     verify.Rule
	readings []verify.Reading // those of one message, which have one number, by their times
	chance   *rand.Rand
}

const quarter = 250 * time.Millisecond

// newScene draws one whose times and values collide with the bounds of the rules.
func newScene(seed uint64) scene {
	chance := rand.New(rand.NewPCG(seed, 0))
	s := scene{chance: chance, rule: verify.Rule{
		Name: "temperature", Resolved: true, Quiet: "quiet",
		Levels: []verify.Level{{Name: "warning", Limit: 30, Clear: 28, Override: "warning", For: time.Duration(chance.IntN(3)) * 2 * time.Second}},
	}}
	if chance.IntN(2) == 0 {
		s.rule.Levels = append(s.rule.Levels, verify.Level{Name: "critical", Limit: 34, Clear: 32, For: time.Duration(chance.IntN(3)) * 2 * time.Second})
	}
	s.rule.ClearFor = time.Duration(max(0, chance.IntN(4)-1)) * 2 * time.Second
	s.rule.Repeat = []time.Duration{0, 0, 25 * time.Second, verify.Never}[chance.IntN(4)]
	if chance.IntN(3) == 0 {
		s.countsFromMessage()
	}
	if chance.IntN(3) == 0 {
		s.rule.Only = []verify.Condition{{Name: "mode", Values: []string{"Run", "2"}}}
	}
	sensors := []string{""}
	if chance.IntN(3) == 0 {
		s.rule.Sensor = true
		sensors = []string{"x", "y"}
	}
	now, message := start, int64(0)
	values := map[string]int{}
	for range 1 + chance.IntN(40) {
		isFirst := !s.rule.Sensor || message == 0 || chance.IntN(2) == 0
		if isFirst {
			message++
			now = now.Add(time.Duration(chance.IntN(12)) * quarter)
			if chance.IntN(12) == 0 {
				now = now.Add(time.Duration(chance.IntN(20)) * time.Second)
			}
		}
		sensor := sensors[chance.IntN(len(sensors))]
		value := min(max(cmp.Or(values[sensor], 29)+chance.IntN(9)-4, 26), 36)
		values[sensor] = value
		r := verify.Reading{Device: "a", Sensor: sensor, Temperature: float64(value), At: now, Partition: "0", Sequence: message, Properties: map[string]string{}}
		if chance.IntN(3) == 0 && isFirst {
			r.Taken = now.Add(-time.Duration(chance.IntN(12)-2) * time.Second)
		}
		if !isFirst {
			last := s.readings[len(s.readings)-1]
			r.Properties, r.Fields = last.Properties, last.Fields
			if !last.Taken.IsZero() {
				r.Taken = last.Taken.Add(quarter)
			}
			r.Own = s.own()
			s.readings = append(s.readings, r)
			continue
		}
		if chance.IntN(10) == 0 {
			r.Properties["quiet"] = "true"
		}
		if chance.IntN(10) == 0 {
			r.Properties["warning"] = []string{"31", "29", "$twin.tags.warning"}[chance.IntN(3)]
		}
		r.Fields = s.fields()
		if s.rule.Sensor {
			r.Own = s.own()
		}
		s.readings = append(s.readings, r)
	}
	return s
}

// countsFromMessage has the same limits be counted from what the messages of a scene have.
func (s *scene) countsFromMessage() {
	s.rule.Base = "setpoint"
	for i := range s.rule.Levels {
		l := &s.rule.Levels[i]
		l.Override = ""
		l.Limit -= setpoint
		l.Clear -= setpoint
	}
}

const setpoint = 20 // in most messages

// fields draws what a message has besides its reading.
func (s scene) fields() map[string]string {
	all := map[string]string{"setpoint": fmt.Sprint(setpoint), "mode": []string{"run", "RUN", "2.0"}[s.chance.IntN(3)]}
	switch s.chance.IntN(12) {
	case 0:
		all["setpoint"] = "21"
	case 1:
		delete(all, "setpoint")
	case 2:
		all["mode"] = "clean"
	case 3:
		delete(all, "mode")
	}
	return all
}

// own draws what a measurement of a message has for itself.
func (s scene) own() map[string]string {
	if s.chance.IntN(6) > 0 {
		return map[string]string{}
	}
	return map[string]string{"mode": []string{"run", "clean"}[s.chance.IntN(2)]}
}

// message returns the end of the message that begins with reading i.
func (s scene) message(i int) (end int) {
	for end = i + 1; end < len(s.readings) && s.readings[end].Sequence == s.readings[i].Sequence; end++ {
	}
	return end
}

// publish publishes the message that begins with reading i. Devices that give times may send the newest first.
func (s scene) publish(i int, log *verify.Log) {
	all := slices.Clone(s.readings[i:s.message(i)])
	if !all[0].Taken.IsZero() && s.chance.IntN(2) == 0 {
		slices.Reverse(all)
	}
	log.PublishedTogether(all...)
}

// base returns what limits are counted from for a reading; last is what they were before.
func (s scene) base(r verify.Reading, last float64, b bug) (base float64, ok bool) {
	switch text := r.Fields["setpoint"]; {
	case s.rule.Base == "":
		return 0, true
	case b == ignoresBase:
		return setpoint, true
	case text == "":
		return last, b == guessesBase
	case text == "21":
		return 21, true
	}
	return setpoint, true
}

// excludes reports whether the scene's rule does not look at a message, or leaves a measurement out, which says nothing then.
func (s scene) excludes(r verify.Reading) (excludes, leaves bool) {
	mode, own := r.Fields["mode"], r.Own["mode"]
	switch {
	case len(s.rule.Only) == 0, own == "run":
		return false, false
	case own == "clean", r.Own != nil && mode == "":
		return false, true
	}
	return mode == "clean" || mode == "", false
}

// A key is one level of the device: its alarm, its window and what is due.
type key struct {
	level    verify.Level
	open     bool
	since    int             // the first of the readings at the limit, -1: none
	opened   int             // the reading that opened it last
	about    int             // the reading that the last alert was about
	sent     time.Time       // when that was
	clear    int             // while it is open: the first of the last readings, if all are beyond clear; -1: none
	newest   time.Time       // while it is open or has a first reading: when the last was taken, by the device's clock
	pending  *verify.Reading // that ended the alarm
	due      time.Time       // the worker gets round to it then
	clears   int             // its index
	notified bool            // of an alert, since the last recovery
	forgot   bool            // that it was
	untold   bool            // an alert was held back since it opened, and none was sent
	window   time.Time       // the end of the last one
	token    int64
	clock    time.Time // of the deliveries
}

// work is a worker that has a bug or none. It takes up to 2 s to read and to send, sends some alerts
// and recoveries again, and some of its requests arrive late, with an old token.
func (s scene) work(b bug, log *verify.Log) {
	bySensor := map[string][]*key{}
	for _, sensor := range []string{"", "x", "y"} {
		for _, l := range s.rule.Levels {
			bySensor[sensor] = append(bySensor[sensor], &key{level: l, since: -1, clear: -1, clock: start, window: start})
		}
	}
	little := func() time.Duration { return time.Duration(s.chance.IntN(9)) * quarter }
	send := func(k *key, r verify.Reading, id string, recovery bool, at time.Time) {
		k.clock = at
		k.token++
		d := verify.Delivery{Device: r.Device, Sensor: r.Sensor, Rule: s.rule.Name, Level: k.level.Name, ID: id, Token: k.token, At: at, Recovery: recovery, Partition: r.Partition, Sequence: r.Sequence}
		excludes, _ := s.excludes(r)
		d.Excluded = recovery && excludes && b != ignoresOnly && b != hidesExclusion
		log.Delivered(d)
		if s.chance.IntN(8) == 0 { // its answer was lost
			late := d
			k.clock = at.Add(little() / 2)
			k.token++
			d.Token, d.At = k.token, k.clock
			log.Delivered(d)
			if s.chance.IntN(2) == 0 { // and so was the request, for a while
				late.At = k.clock.Add(little())
				log.Delivered(late)
			}
		}
		if !recovery {
			k.notified, k.forgot = true, false
			k.window = k.clock.Add(rules.Window + time.Duration(s.chance.IntN(5))*quarter)
			for _, other := range bySensor[other(r.Sensor)] {
				if b == sharesWindows && other.level == k.level {
					other.window, other.notified = k.window, true
				}
			}
		}
	}
	resolve := func(k *key, until time.Time) {
		at := k.due
		if at.Before(k.clock) {
			at = k.clock
		}
		if at.Before(k.window) && b != resolvesAtOnce {
			at = k.window
		}
		if b == resolvesLate && k.pending != nil {
			at = at.Add(time.Minute)
		}
		if k.pending == nil || at.After(until) {
			return
		}
		if k.notified && !k.forgot || b == recoversUnsent {
			id := fmt.Sprint(k.clears, "/resolved")
			if b != forgetsDue || s.chance.IntN(4) > 0 {
				send(k, *k.pending, id, true, at)
			}
			if b == resolvesTwice {
				send(k, *k.pending, id+"/again", true, k.clock.Add(rules.Window))
			}
			if b == remembersWindow {
				k.window = k.clock.Add(rules.Window)
			}
			k.notified = b == resolvesTwice
		}
		if b == takesForReplay {
			k.window = k.clock.Add(2 * time.Second)
		}
		k.pending = nil
	}

	lastBase := float64(setpoint)
	at := start
	for n, message := 0, 0; n < len(s.readings); n++ {
		i, end := n, s.message(message)
		if b == reversesElements {
			i = message + end - 1 - n
		}
		r := s.readings[i]
		if n == message {
			s.publish(message, log)
			at = r.At.Add(little())
		}
		first := s.readings[message]
		if n+1 == end {
			message = end
		}
		keys := bySensor[r.Sensor]
		if b == mixesSensors {
			keys = bySensor[""]
		}
		if b == forgetsAlarms && s.chance.IntN(10) == 0 {
			for _, k := range keys {
				k.open, k.since, k.clear, k.pending = false, -1, -1, nil
			}
		}
		if b == forgetsSent && s.chance.IntN(10) == 0 {
			for _, k := range keys {
				k.forgot = true
			}
		}
		base, ok := s.base(r, lastBase, b)
		by := r
		if b == readsFirstElement {
			by = first
		}
		excludes, leaves := s.excludes(by)
		excluded := excludes && b != ignoresOnly
		if !ok && !excluded || excluded && b == keepsExcluded || leaves && b != ignoresOnly {
			for _, k := range keys {
				resolve(k, at)
			}
			continue
		}
		lastBase = base
		higher, ended := false, false
		for _, k := range slices.Backward(keys) {
			limit := base + k.level.Limit
			switch own := r.Properties[k.level.Override]; {
			case b == ignoresOverride, k.level.Override == "":
			case own == "31":
				limit = 31
			case own == "29":
				limit = 29
			}
			ends := limit - (k.level.Limit - k.level.Clear)
			if b == ignoresClear {
				ends = limit
			}
			late := (k.open || k.since >= 0) && !r.Taken.IsZero() && r.Taken.Before(k.newest) && b != endsByLate
			switch {
			case late:
			case r.Temperature < limit, excluded:
				k.since = -1
			case k.since < 0:
				k.since = i
			}
			if !k.open && k.since == i {
				k.newest = time.Time{}
			}
			if !late && r.Taken.After(k.newest) {
				k.newest = r.Taken
			}
			wasOpen := k.open
			beyond := r.Temperature < ends
			switch {
			case late:
			case !k.open, !beyond && b != neverClearsAnew:
				k.clear = -1
			case beyond && k.clear < 0:
				k.clear = i
			}
			cleared := beyond && k.clear >= 0 && (b == ignoresClearFor || lasted(s.readings[k.clear], r, b) >= s.rule.ClearFor)
			switch {
			case late:
			case k.open && (excluded || cleared), b == resolvesOnLowered && k.open && r.Temperature < limit && s.chance.IntN(3) == 0:
				resolve(k, at)
				k.open, k.pending, k.due, k.clears = false, &r, at, i
				if b == forgetsSensors {
					for _, k := range bySensor[other(r.Sensor)] {
						k.open = false
					}
				}
			case !k.open && k.since >= 0 && (b == ignoresFor || lasted(s.readings[k.since], r, b) >= k.level.For):
				k.open, k.opened = true, i
			}
			resolve(k, at) // what was due before this was read
			if k.open && b != keepsDue {
				k.pending = nil
			}
			k.untold = k.open && b != forgetsMilder && (k.untold || higher || ended)
			says := k.open && !late && !excluded && (r.Temperature >= limit || k.untold) && (!higher || b == ignoresHigher)
			needsAlert := says && (r.Properties["quiet"] == "" || b == ignoresQuiet)
			if says {
				k.untold = !needsAlert && b != forgetsMilder
			}
			higher, ended = higher || k.open, ended || wasOpen && !k.open
			covered := !r.At.After(k.window) && (k.notified || b == takesForReplay || b == remembersWindow)
			said := k.notified && r.At.Sub(k.sent) < s.rule.Repeat && (k.about >= k.opened || b == repeatsAny)
			covered = covered || said && b != ignoresRepeat
			if needsAlert && (!covered || b == ignoresWindow) {
				if at.Before(k.clock) {
					at = k.clock // one delivery at a time
				}
				if at.Before(k.window) && b != ignoresWindow {
					at = k.window
				}
				k.sent = at.Add(little() / 4)
				k.about = i
				send(k, r, fmt.Sprint(i), false, k.sent)
			}
		}
	}
	for _, sensor := range []string{"", "x", "y"} {
		for _, k := range bySensor[sensor] {
			resolve(k, start.Add(time.Hour))
		}
	}
}

// other returns the other one of two sensors.
func other(sensor string) string {
	switch sensor {
	case "x":
		return "y"
	case "y":
		return "x"
	}
	return "none"
}

// lasted is how long after first r is, by the device's clock if both have its time.
func lasted(first, r verify.Reading, b bug) time.Duration {
	if b != ignoresTaken && !first.Taken.IsZero() && !r.Taken.IsZero() {
		return r.Taken.Sub(first.Taken)
	}
	return r.At.Sub(first.At)
}

// check has the worker work, and judges.
func (s scene) check(b bug) verify.Report {
	log := verify.NewLog(s.rule)
	s.work(b, log)
	return log.Check(verify.Rules{Window: rules.Window, Bound: rules.Bound + 5*time.Second, Slack: 2 * time.Second})
}

// histories is how many the two tests below look at.
const histories = 500

// A worker without a bug is never found wanting, whatever devices publish and whatever comes late or twice.
func TestNobodyIsWronged(t *testing.T) {
	for seed := range uint64(histories) {
		s := newScene(seed)
		if r := s.check(none); !r.OK() {
			t.Fatalf("history %d, %+v\n%v\n%v %v %v %v", seed, s.rule, s.readings, r.Lost, r.TooClose, r.Stale, r.Wrong)
		}
	}
}

// Every bug is found in some of the same histories.
func TestBugsAreFound(t *testing.T) {
	for _, b := range bugs {
		t.Run(string(b), func(t *testing.T) {
			found, kinds := 0, map[string]int{}
			for seed := range uint64(histories) {
				r := newScene(seed).check(b)
				if !r.OK() {
					found++
				}
				for kind, n := range map[string]int{"lost": len(r.Lost), "too close": len(r.TooClose), "stale": len(r.Stale), "wrong": len(r.Wrong)} {
					if n > 0 {
						kinds[kind]++
					}
				}
				if found > 0 && testing.Short() {
					break
				}
			}
			t.Logf("found in %d of %d histories: %v", found, histories, kinds)
			if found == 0 {
				t.Error("it was never found")
			}
		})
	}
}
