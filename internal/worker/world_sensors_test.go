package worker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// In some plans the devices are the sensors of one gateway: what holds of devices holds of sensors, but for silence, which
// the gateway has, too. Nobody but who makes
// messages, and who takes alerts, knows of it. The gateway has one more sensor, of which nobody judges anything: what it
// says, before or behind another one in the same message, is nothing to that.

const (
	gateway = "gw-12/oven" // over HTTP a device may be called like a sensor of another one
	noise   = "noise"
)

// gather has the devices be the sensors of a gateway, in some plans. It draws from a stream of its own.
func (p *plan) gather() {
	d := draw{rand.New(rand.NewPCG(p.number, 9))}
	any := func(is func(*rules.Rule) bool) bool {
		return slices.ContainsFunc(p.versions, func(set []rules.Rule) bool {
			return slices.ContainsFunc(set, func(r rules.Rule) bool { return is(&r) })
		})
	}
	if !d.chance(0.4) {
		return
	}
	if any((*rules.Rule).Silence) && len(p.devices) < 20 {
		p.watches = d.chance(0.5)
	}
	switch {
	case p.watches:
		d.watchSensors(p)
	case p.compacted, any((*rules.Rule).Silence): // silence is of the gateway, too
		return
	}
	p.gathered, p.each = true, d.chance(0.6)
	chokes := slices.ContainsFunc(p.receivers, func(to planned) bool { return to.chokes != "" })
	shares := any(func(r *rules.Rule) bool { return r.Per != "" })
	for i := range p.readings {
		r := &p.readings[i]
		r.gathered, r.each = true, p.each
		if p.each && !chokes && !shares && !p.watches && r.fate != byHTTP {
			r.noise, r.noiseFirst = pick(d, 0, 20.0, 20, 90, 35), d.chance(0.5)
			if r.value != 0 && d.chance(0.3) { // nothing that has to be told apart from what came of it then
				r.before, r.earlier = pick(d, 20, r.value), pick(d, second, 21*second, 71*second)
				r.newestFirst = d.chance(0.7)
			}
		}
	}
	for i, set := range p.versions {
		p.versions[i] = slices.Clone(set)
		for j := range p.versions[i] {
			r := &p.versions[i][j]
			r.Sensor = []string{"s"}
			if p.each {
				r.Each = "r"
			}
		}
	}
}

// id returns what a device of the plan is to a worker.
func (p *plan) id(device string) sensor.ID {
	if p.gathered {
		return sensor.ID{Device: gateway, Name: device}
	}
	return sensor.Of(device)
}

// measured returns a message about one value, with what stands beside it, from a sensor if it is one, and perhaps about
// one that it has measured before. A zero time is none.
func (r reading) measured(beside string, own time.Time) []byte {
	at := func(own time.Time) string {
		if own.IsZero() {
			return ""
		}
		return fmt.Sprintf(`,"at":%q`, own.Format(time.RFC3339Nano))
	}
	if r.before == 0 {
		beside += at(own)
	}
	switch {
	case !r.gathered:
		return fmt.Appendf(nil, `{"temperature":%v%s}`, r.value, beside)
	case !r.each:
		return fmt.Appendf(nil, `{"s":%q,"temperature":%v%s}`, r.device, r.value, beside)
	}
	one := fmt.Sprintf(`{"s":%q,"temperature":%v}`, r.device, r.value)
	if first := r.first(); first != nil {
		beside += at(own) // of noise
		all := []string{
			fmt.Sprintf(`{"s":%q,"temperature":%v%s}`, r.device, first.value, at(r.firstTime(own))),
			fmt.Sprintf(`{"s":%q,"temperature":%v%s}`, r.device, r.value, at(own)),
		}
		if r.newestFirst && !own.IsZero() {
			slices.Reverse(all)
		}
		one = strings.Join(all, ",")
	}
	if r.noise != 0 {
		other := fmt.Sprintf(`{"s":%q,"temperature":%v}`, noise, r.noise)
		if one = one + "," + other; r.noiseFirst {
			one = other + "," + one[:len(one)-len(other)-1]
		}
	}
	return fmt.Appendf(nil, `{"r":[%s]%s}`, one, beside)
}

// first returns what a message has measured before, as a message of its own; nil if there is nothing.
func (r reading) first() *reading {
	if r.before == 0 {
		return nil
	}
	r.value, r.before = r.before, 0
	if r.late >= 0 {
		r.late += r.earlier
	}
	return &r
}

// firstTime returns when that was, by the time of the message; zero if it has none.
func (r reading) firstTime(own time.Time) time.Time {
	if own.IsZero() {
		return own
	}
	return own.Add(-r.earlier)
}

// plain returns a as the plan knows it.
func (p *plan) plain(a notify.Alert) notify.Alert {
	if p.gathered && a.Sensor != "" {
		a.Device = a.Sensor
	}
	return a
}

func (p *plan) plainAll(alerts []notify.Alert) []notify.Alert {
	alerts = slices.Clone(alerts)
	for i, a := range alerts {
		alerts[i] = p.plain(a)
	}
	return alerts
}
