package worker_test

import (
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// What receivers hear about silent sensors of a gateway, judged by when these and the gateway have sent something.

// watchSensors has a plan with a rule about silence watch the sensors of its gateway, in one partition. Nobody mutes or
// removes anything, and the hub has other devices: that is judged where devices have no sensors.
func (d draw) watchSensors(p *plan) {
	p.compacted, p.muteTimes = false, nil
	p.versions, p.partitions = p.versions[:1], p.partitions[:1]
	for i := range p.partitions[0] {
		p.partitions[0][i].version = 0
	}
	p.moves = slices.DeleteFunc(p.moves, func(m move) bool { return m.what == mute || m.what == forget })
	for i := range p.moves {
		p.moves[i].partition = 0
	}
	set := slices.Clone(p.versions[0])
	for i := range set {
		if r := &set[i]; r.Silence() {
			r.Field, r.Only, r.Valid, r.Forget = "temperature", nil, nil, rules.DefaultForget
		}
	}
	p.versions[0] = set
	for i := range p.readings {
		r := &p.readings[i]
		r.partition, r.quiet, r.noise = 0, 0, 0
		if r.fate != byHTTP {
			r.fate = readable
		}
	}
	for i := range p.receivers {
		p.receivers[i].changes = false
	}
	if d.chance(0.5) && len(p.devices) > 1 { // a sensor dies, and others go on
		p.dies, p.tail = pick(d, p.devices...), "cool"
	}
}

// lastHeard returns when the hub took the last reading of a sensor until a time, or of the gateway if it has no name; zero
// if there is none.
func (w *world) lastHeard(r *rules.Rule, of string, until time.Time) (at time.Time) {
	log := w.logs[0]
	for i, m := range log.readings {
		if e := log.events[i]; (of == "" || m.device == of) && counts(r, m) && !e.Enqueued.After(until) {
			at = e.Enqueued
		}
	}
	return at
}

// judgeSensorSilence checks what a receiver heard about the silence of a gateway and of its sensors: none of it is false,
// and none is missing.
func (w *world) judgeSensorSilence(in *inbox, s subject) {
	heard := in.heard(s)
	for of, arrivals := range heard {
		w.onceInAWindow(in, s, of, arrivals)
		for _, a := range arrivals {
			if !a.Resolved {
				w.sensorIsSilent(in, s, a)
			}
		}
	}
	for _, device := range append([]string{gateway}, w.devices...) {
		w.sensorSilenceIsNotLost(in, s, device, heard[matter{device, false}])
	}
}

// sensorIsSilent: nothing came of the sensor for as long as the alert says, and something of the gateway since; or nothing
// came of the gateway.
func (w *world) sensorIsSilent(in *inbox, s subject, a arrival) {
	rule, _ := w.ever(s)
	of := a.Device
	if of == gateway {
		of = ""
	}
	if a.Device == notify.Hub {
		w.violated("S1: %s hears that nothing comes to the hub", in.name)
		return
	}
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	if at := w.lastHeard(rule, of, a.Enqueued); at.After(a.Enqueued.Add(-a.Silent + time.Millisecond)) {
		w.violated("S1: %s hears that %s is silent (%s) until %v, and it was heard at %v", in.name, a.Device, s,
			a.Enqueued.Sub(w.start), at.Sub(w.start))
	}
	proven := claimed.Add(-freshness(a.Silent) - margin)
	if at := w.lastHeard(rule, of, proven); at.After(a.Enqueued) {
		w.violated("S1: %s hears that %s is silent (%s) under a claim of %v, and it was heard at %v", in.name, a.Device, s,
			claimed.Sub(w.start), at.Sub(w.start))
	}
	if at := w.lastHeard(rule, "", a.at); of != "" && at.Before(a.Enqueued.Add(-time.Millisecond)) {
		w.violated("S1: %s hears that the sensor %s is silent (%s) since %v, and nothing came of the gateway after %v", in.name, of, s,
			a.Enqueued.Sub(w.start), at.Sub(w.start))
	}
	if of != "" {
		w.sensorsHaveTimeAgain(in, s, a)
	}
}

// sensorsHaveTimeAgain: after the gateway was silent for as long as it may be, its sensors have as long again.
func (w *world) sensorsHaveTimeAgain(in *inbox, s subject, a arrival) {
	rule, _ := w.ever(s)
	heard := time.Time{} // the gateway, last
	for i, m := range w.logs[0].readings {
		at := w.logs[0].events[i].Enqueued
		if !counts(rule, m) {
			continue
		}
		isBack := !heard.IsZero() && at.Sub(heard) >= rule.Silent
		if isBack && heard.Before(a.Enqueued) && !at.After(a.at) && a.Enqueued.Before(at.Add(rule.Silent-time.Millisecond)) {
			w.violated("S1: %s hears that the sensor %s is silent (%s) until %v, and the gateway is back since %v", in.name, a.Device, s,
				a.Enqueued.Sub(w.start), at.Sub(w.start))
		}
		heard = at
	}
}

// sensorSilenceIsNotLost: at the end, what a receiver heard last of a sensor, or of the gateway, is whether it is silent.
func (w *world) sensorSilenceIsNotLost(in *inbox, s subject, device string, heard []arrival) {
	rule, _ := w.ever(s)
	of := device
	if device == gateway {
		of = ""
	}
	at, now := w.lastHeard(rule, of, time.Now()), time.Now()
	dead := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, matter{device, false}) })
	if at.IsZero() || dead || !in.filtersIn(0).Cover(s.rule, s.level) {
		return
	}
	long := 3*rule.Silent + rule.Window + 3*time.Minute
	last := lastWord(heard)
	isOpen := last != nil && !last.Resolved
	switch {
	case now.Sub(at) < rule.Silent:
		if isOpen && rule.Resolved {
			w.violated("S3: %s heard last that %s is silent (%s), and it was heard at %v", in.name, device, s, at.Sub(w.start))
		}
	case isOpen, now.Sub(at) < long:
	case of == "":
		w.violated("S2: the gateway is silent (%s) since %v, and %s did not hear that last", s, at.Sub(w.start), in.name)
	case w.goesOn(rule, at, now):
		w.violated("S2: the sensor %s is silent (%s) since %v, and %s did not hear that last", of, s, at.Sub(w.start), in.name)
	}
}

// goesOn reports whether the gateway was heard again and again from a time to another: not even half of what it may be
// silent was it.
func (w *world) goesOn(r *rules.Rule, from, to time.Time) bool {
	for ; from.Add(r.Silent / 2).Before(to); from = w.lastHeard(r, "", from.Add(r.Silent/2)) {
		if !w.lastHeard(r, "", from.Add(r.Silent/2)).After(from) {
			return false
		}
	}
	return true
}
