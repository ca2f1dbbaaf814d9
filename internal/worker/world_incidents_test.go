package worker_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// Incidents of silences: devices of one site that fall silent are one, whatever partitions they are in. Its record knows
// which partitions have some; the judge knows what devices have sent, and what receivers heard.

// share has devices that fall silent be one incident of their site, in some plans. It draws from a stream of its own, and
// last, which moves nothing else.
func (p *plan) share() {
	d := draw{rand.New(rand.NewPCG(p.number, 10))}
	if !d.chance(0.08) || p.gathered || p.compacted || p.patience > 0 {
		return
	}
	p.haveSites(d)
	p.sites, p.deadSite = map[string]string{}, pick(d, "", "berlin", "paris")
	for _, device := range p.devices {
		p.sites[device] = pick(d, "berlin", "berlin", "paris", "")
	}
	if d.chance(0.6) {
		p.readings, p.tail = d.comings(p), pick(d, "nothing", p.tail)
	}
	wander := d.chance(0.2)
	for i := range p.readings {
		r := &p.readings[i]
		if r.site = p.sites[r.device]; wander && d.chance(0.3) {
			r.site = pick(d, "berlin", "paris", "")
		}
		if r.fate == superseded { // the hub keeps all
			r.fate = readable
		}
	}
	if d.chance(0.6) {
		p.moves = append(p.moves, d.untold(p)...)
		slices.SortStableFunc(p.moves, func(a, b move) int { return int(a.at - b.at) })
	}
	if d.chance(0.3) {
		for range 1 + d.IntN(2) {
			p.faults = append(p.faults, fault{
				call: pick(d, callIncidentRead, callIncidentWrite), nth: d.IntN(8), what: pick(d, faultsOfAny...),
				for_: pick(d, second, 6*second, 15*second, 55*second),
			})
		}
	}
}

// haveSites has the rules about silence say what devices share. There is one.
func (p *plan) haveSites(d draw) {
	any, added := false, d.rule("silence", pick(d, 30*second, 60*second, 3*time.Minute))
	added.Silent = min(added.Silent, 2*time.Minute)
	for _, set := range p.versions {
		any = any || slices.ContainsFunc(set, func(r rules.Rule) bool { return r.Silence() })
	}
	for i, set := range p.versions {
		p.versions[i] = slices.Clone(set)
		if !any {
			p.versions[i] = append(p.versions[i], added)
		}
		for j := range p.versions[i] {
			if r := &p.versions[i][j]; r.Silence() {
				r.Per = "site"
			}
		}
	}
}

// comings are readings between which devices fall silent, and come back.
func (d draw) comings(p *plan) (all []reading) {
	home := map[string]int{}
	for _, device := range p.devices {
		home[device] = d.IntN(len(p.partitions))
	}
	for range 3 + d.IntN(12) {
		device := pick(d, p.devices...)
		all = append(all, reading{device: device, partition: home[device], value: pick(d, 20.0, 20, 20, 35), late: -1, mode: "run",
			gap: pick(d, 0, second, second, 20*second, 70*second, 100*second, 3*time.Minute)})
	}
	return all
}

// untold has nobody hear at first that a site is silent, and perhaps its owner end then.
func (d draw) untold(p *plan) (all []move) {
	at := time.Duration(d.IntN(40)) * second
	for range 1 + d.IntN(len(p.readings)) {
		at += p.readings[len(all)].gap
	}
	for _, set := range p.versions {
		for _, r := range set {
			if r.Silence() {
				at += r.Silent
				break
			}
		}
	}
	all = append(all, move{at: max(0, at-30*second), what: receiverDown, for_: pick(d, 50*second, 2*time.Minute, 5*time.Minute),
		receiver: d.IntN(len(p.receivers))})
	if d.chance(0.5) {
		all = append(all, move{at: at + time.Duration(d.IntN(60))*second, what: pick(d, kill, handOver, steal), partition: d.IntN(len(p.partitions)),
			for_: pick(d, 15*second, 50*second), deaf: d.chance(0.3)})
	}
	return all
}

// sharedBy returns what devices share whose last message, for a rule about silence, is m; empty if each is told of by itself.
func sharedBy(r *rules.Rule, m reading) string {
	if r.Per == "" || m.fate == undecodable || m.fate == byHTTP {
		return ""
	}
	return m.site
}

// judgeIncidents checks what a receiver heard about the sites of silent devices.
func (w *world) judgeIncidents(in *inbox, s subject, heard map[matter][]arrival) {
	rule, _ := w.ever(s)
	if rule.Per == "" {
		return
	}
	for of, arrivals := range heard {
		if of.shared {
			w.endsHaveAlerts(in, s, of, arrivals)
			w.endsAreTrue(in, s, of, arrivals)
		}
	}
	for _, site := range []string{"berlin", "paris"} {
		w.incidentIsNotLost(in, s, matter{site, true}, heard[matter{site, true}])
	}
}

// incidentIsTrue: a device of the site is silent when an alert is sent, in the partition that sends it, and no more are than it
// says.
func (w *world) incidentIsTrue(in *inbox, s subject, a arrival) {
	rule, _ := w.ever(s)
	if a.Incident == nil || a.Incident.ID == "" || a.Resolved && a.Incident.Members > 0 {
		w.violated("S1: %s hears of %s (%s): %+v", in.name, a.PerValue, s, a.Incident)
		return
	}
	w.judgeRecord(in, s, a)
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	proven := claimed.Add(-freshness(a.Silent) - margin)
	least := a.Silent // of all versions of the rule
	for _, set := range w.versions {
		if lasts := w.lasts(set, s); lasts > 0 {
			least = min(least, lasts)
		}
	}
	may, must, ever := []string{}, []string{}, []string{}
	here := false
	for _, log := range w.logs {
		for _, device := range w.devices {
			any, is := w.maySilent(log, rule, a.PerValue, device, a.at.Add(-least), proven)
			if any {
				ever = append(ever, device)
			}
			isExpected := w.isExpected(log, rule, device, claimed) != no || w.isExpected(log, rule, device, proven) != no
			if is && !w.wasRemoved(rule, device, a.at) && isExpected {
				may, here = append(may, device), here || log.id == a.Partition
			}
			if w.mustSilent(log, rule, a.PerValue, device, claimed) {
				must = append(must, device)
			}
		}
	}
	switch {
	case a.Resolved && len(must) > 0:
		w.violated("S1: %s hears at %v that nobody of %s is silent (%s), and %v are", in.name, a.at.Sub(w.start), a.PerValue, s, must)
	case a.Resolved:
	case !here:
		w.violated("S1: %s hears under a claim of %v that %s is silent (%s), by partition %s, and none of %v may be", in.name,
			claimed.Sub(w.start), a.PerValue, s, a.Partition, ever)
	case a.Incident.Members < 1, len(w.logs) == 1 && (a.Incident.Members > len(may) || a.Incident.AtLeast), a.Incident.Members > len(ever):
		w.violated("S1: %s hears at %v that %d of %s are silent (%s), at least: %v, and %v may be", in.name, a.at.Sub(w.start),
			a.Incident.Members, a.PerValue, s, a.Incident.AtLeast, may)
	case a.Incident.Members < len(must) && !a.Incident.AtLeast:
		w.violated("S1: %s hears at %v that %d of %s are silent (%s), and %v are", in.name, a.at.Sub(w.start), a.Incident.Members,
			a.PerValue, s, must)
	case !slices.Contains(ever, a.Device), a.Incident.First != "" && !slices.Contains(ever, a.Incident.First):
		w.violated("S1: %s hears that %s is silent (%s), by %s, first %s, and %v may be", in.name, a.PerValue, s, a.Device,
			a.Incident.First, ever)
	}
	if a.Resolved {
		return
	}
	isMuted := true
	for _, device := range ever {
		isMuted = isMuted && slices.ContainsFunc(w.muteTimes, func(m muteTime) bool { return m.covers(s.rule, device, w.start, a.Enqueued, a.at) })
	}
	if isMuted && len(ever) > 0 {
		w.violated("S1: %s hears that %s is silent (%s) at %v, when nobody wants to know", in.name, a.PerValue, s, a.at.Sub(w.start))
	}
}

// An incidentWrite is what the record of an incident said from a time on.
type incidentWrite struct {
	incident.Record
	at time.Time
	of incident.Group
}

// judgeRecord: under its claim an alert is sent only if the record says that the incident runs, with members in the partition that
// sends it, and an end only if it is over.
func (w *world) judgeRecord(in *inbox, s subject, a arrival) {
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	is, was := false, incident.Record{} // at some time until the receiver got it
	holds := func(r incident.Record) bool {
		if a.Resolved {
			return r.State == incident.Over && r.ID == a.Incident.ID
		}
		return r.MayAlert(a.Partition, a.Incident.ID)
	}
	for _, r := range w.incidents {
		if r.of.Rule != s.rule || r.of.Value != a.PerValue || r.at.After(a.at) {
			continue
		}
		if !r.at.Before(claimed) {
			is = is || holds(was)
		}
		was = r.Record
	}
	if !is && !holds(was) {
		w.violated("I: %s hears of %s in %s (%s) under a claim of %v, resolved: %v, and its record says %+v", in.name, a.Incident.ID,
			a.PerValue, s, claimed.Sub(w.start), a.Resolved, was)
	}
}

// maySilent reports whether a device has ever shared a value in a log, as a rule about silence has heard, and whether it may
// be silent with that: it was heard by a time last, as far as is sure until another time.
func (w *world) maySilent(log *hubLog, r *rules.Rule, value, device string, since, until time.Time) (any, is bool) {
	for i, m := range log.readings {
		at := log.events[i].Enqueued
		if m.device != device || !counts(r, m) || at.After(until) && at.After(since) {
			continue
		}
		shares := sharedBy(r, m) == value
		any = any || shares
		shares = shares || any && w.rosterDown > 0 // nobody may have heard what it shares since
		isHeard := m.fate == readable && w.isHeard(log, i, r)
		is = shares && !at.After(since) || is && !isHeard
	}
	return any, is
}

// mustSilent reports whether a device that shares a value must have an alarm at a time: nothing has failed, and nobody interfered.
func (w *world) mustSilent(log *hubLog, r *rules.Rule, value, device string, at time.Time) bool {
	odd := slices.ContainsFunc(w.readings, func(m reading) bool { return m.quiet > 0 || m.fate != readable })
	if odd || !w.elsewhere || !w.orderly() || len(w.operations)+len(w.muteTimes) > 0 || len(w.versions) > 1 || log.movedBack {
		return false
	}
	last, is := time.Time{}, false
	for i, m := range log.readings {
		if e := log.events[i]; m.device == device && counts(r, m) && !e.Enqueued.After(at) {
			last, is = e.Enqueued, sharedBy(r, m) == value
		}
	}
	silent := at.Sub(last)
	return is && silent > r.Silent+time.Minute && silent < r.Forget && w.isExpected(log, r, device, at) == yes
}

// wasRemoved reports whether people have removed a device well before a time, and nothing has come of it since.
func (w *world) wasRemoved(r *rules.Rule, device string, at time.Time) bool {
	return slices.ContainsFunc(w.operations, func(o operation) bool {
		return o.what == forget && !o.unsure && o.device == device && at.After(o.at.Add(30*second)) && w.stays(o, r, device)
	})
}

// endsAreTrue: of whom a receiver has heard that it is silent, and who has sent nothing since, its site's incident is not over.
func (w *world) endsAreTrue(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	for i, a := range heard {
		if a.dropped { // it comes late, or once more
			continue
		}
		claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
		for _, b := range heard[:i] {
			if at := slices.IndexFunc(w.logs, func(l *hubLog) bool { return l.id == b.Partition }); a.Resolved && !b.Resolved && at >= 0 &&
				w.staysSilent(w.logs[at], s, rule, b, claimed) {
				w.violated("S1: %s hears under a claim of %v that nobody of %s is silent (%s), and heard that %s is, which has sent nothing since",
					in.name, claimed.Sub(w.start), of.name, s, b.Device)
			}
		}
	}
}

// staysSilent reports whether the device of an alert is surely silent at a time, and nobody interfered.
func (w *world) staysSilent(log *hubLog, s subject, r *rules.Rule, a arrival, at time.Time) bool {
	interfered := slices.ContainsFunc(w.operations, func(o operation) bool { return o.device == a.Device && o.what == forget })
	last, missed := time.Time{}, false
	for i, m := range log.readings {
		missed = missed || m.fate == expired
		if e := log.events[i]; m.device == a.Device && counts(r, m) && !e.Enqueued.After(at) {
			last, missed = e.Enqueued, missed || m.fate != readable || m.site != a.PerValue
		}
	}
	return !interfered && !missed && !log.movedBack && w.lasting(log, s, a.Device) && !last.After(a.Since) && at.Sub(last) < r.Forget &&
		w.isExpected(log, r, a.Device, at) == yes
}

// endsHaveAlerts: who hears that an incident is over was told of it, and hears that once, unless it went on.
func (w *world) endsHaveAlerts(in *inbox, s subject, of matter, heard []arrival) {
	open := map[string]bool{}
	for _, a := range heard {
		if a.Incident == nil || a.dropped {
			continue
		}
		id := a.Incident.ID
		if a.Resolved && !open[id] && !a.Ambiguous && !w.mayMissRecords() {
			w.violated("S3: %s hears the end of %s in %s (%s), and no alert before it", in.name, id, of.name, s)
		}
		open[id] = !a.Resolved
	}
}

// incidentIsNotLost: at the end, what a receiver heard last of a site is whether a device of it is silent, and of each incident
// whether that is so.
func (w *world) incidentIsNotLost(in *inbox, s subject, of matter, heard []arrival) {
	last := lastWord(heard)
	if slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, of) && (last == nil || !d.at.Before(last.at)) }) {
		return
	}
	first, _ := w.ever(s)
	open := map[string]bool{}
	for _, a := range heard {
		if a.Incident != nil && !a.dropped {
			open[a.Incident.ID] = !a.Resolved
		}
	}
	for id, is := range open {
		isDead := slices.ContainsFunc(w.dead, func(d keptLetter) bool {
			return d.isOf(in, s, of) && d.Alert.Incident != nil && d.Alert.Incident.ID == id
		})
		if is && first.Resolved && id != last.Incident.ID && !isDead {
			w.violated("S3: %s heard last that %s is silent (%s) in %s, and then of %s", in.name, of.name, s, id, last.Incident.ID)
		}
	}
	isTold := last != nil && !last.Resolved
	rule, _ := w.in(len(w.versions)-1, s)
	if rule == nil {
		if first.Resolved && isTold {
			w.violated("S3: %s was removed, and %s heard last that %s is silent", s, in.name, of.name)
		}
		return
	}
	isOver := true
	for _, device := range w.devices {
		message, _, at := w.lastOf(rule, device)
		if sharedBy(rule, message) == of.name && !isTold && w.isToBeHeard(in, s, rule, device) {
			w.violated("S2: %s of %s is silent (%s) since %v, and %s did not hear that last", device, of.name, s, at.Sub(w.start), in.name)
		}
		isOver = isOver && w.isOver(s, rule, device)
	}
	if rule.Resolved && isTold && isOver {
		w.violated("S3: %s heard last that %s is silent (%s) since %v, and that is over", in.name, of.name, s, last.Sequence)
	}
}

// isOver reports whether at the end a device is surely not silent, or not watched any more.
func (w *world) isOver(s subject, r *rules.Rule, device string) bool {
	message, _, at := w.lastOf(r, device)
	silent := time.Since(at)
	_, forgotten := w.wasForgotten(r, device, at)
	never := !slices.ContainsFunc(w.readings, func(m reading) bool { return m.device == device && counts(r, m) })
	isHeard := message.fate == readable && silent < r.Silent && !w.scattered(device) && w.lasting(w.logs[w.home(device)], s, device)
	return never && at.IsZero() || forgotten || isHeard
}
