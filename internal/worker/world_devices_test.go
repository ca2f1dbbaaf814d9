package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// What devices send, and when.

// publish has devices send what is planned.
func (w *world) publish() {
	enqueued := w.start
	for i, r := range w.readings {
		enqueued = enqueued.Add(r.gap)
		time.Sleep(time.Until(enqueued))
		if r.fate == byHTTP {
			w.work.Go(func() { w.post(r, fmt.Sprint("key-", i)) })
			continue
		}
		w.mu.Lock()
		w.logs[r.partition].publish(w, r, enqueued)
		w.mu.Unlock()
	}
}

// event returns what r is to a worker, at a time.
func (r reading) event(at time.Time) telemetry.Event {
	e := telemetry.Event{Device: r.device, Enqueued: at, Body: []byte("{}")}
	if r.value != 0 {
		e.Body = r.measured(fmt.Sprintf(`,"mode":%q`, r.mode), r.deviceTime(at))
	}
	if r.gathered {
		e.Device = gateway
	}
	switch r.damage {
	case loose:
		e.Body = []byte(strings.NewReplacer(`"`, "'", "}", ",}").Replace(string(e.Body)))
	case brokenOff:
		e.Body = append(e.Body[:len(e.Body)-1], `,"x`...)
	case lost:
		e.Body = []byte(`{"temperature":90`) // of which nobody knows whether that is all
	}
	properties := map[string]any{}
	if r.site != "" {
		properties["site"] = r.site
	}
	if r.limit != 0 {
		properties["maxTemp"] = r.limit
	}
	if r.base != 0 {
		properties["base"] = r.base
	}
	if r.quiet > 0 {
		properties["quiet"] = at.Add(r.quiet).Format(time.RFC3339Nano)
	}
	if len(properties) > 0 && r.fate != byHTTP {
		e.Properties = telemetrytest.Properties(properties)
	}
	if r.fate == undecodable {
		e.Undecodable, e.Body, e.Properties = "broken", nil, nil
	}
	return e
}

// publish adds an event. The caller holds w.mu.
func (log *hubLog) publish(w *world, r reading, enqueued time.Time) {
	n := int64(len(log.events) + 1)
	e := r.event(enqueued)
	e.Position = telemetry.Position{Sequence: n, Offset: fmt.Sprint(n * 100), Time: enqueued}
	log.events, log.readings = append(log.events, e), append(log.readings, r)
	if r.fate == superseded {
		w.blur(r.device)
	}
	w.missLater(log, r.device)
	w.noteLocked("                                        %s/%d: %s %v %s", log.id, n, r.device, r.value, r.details())
	close(log.grown)
	log.grown = make(chan struct{})
}

// missLater has nobody know any more whether a device has alarms, once it has sent nothing for so long that a rule about
// silence may not know it any more. The caller holds w.mu.
func (w *world) missLater(log *hubLog, device string) {
	n := len(log.events)
	time.AfterFunc(w.leastForget(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.ContainsFunc(log.readings[n:], func(m reading) bool { return m.device == device && m.heard(w) }) {
			return
		}
		// Since it was missed last it may have sent only what holds no reading: nobody knows any more by that.
		if slices.ContainsFunc(w.operations, func(o operation) bool {
			last, is := o.last[log]
			return is && o.what == missed && o.device == device && !slices.ContainsFunc(log.readings[last:], func(m reading) bool {
				return m.device == device && (m.value != 0 || m.first() != nil)
			})
		}) {
			return
		}
		w.blur(device)
		w.operations = append(w.operations, operation{
			move: move{what: missed, device: device}, at: time.Now(),
			last: map[*hubLog]int64{log: int64(len(log.events))}, unsure: true,
		})
		w.forgetStories()
	})
}

// leastForget returns after what time without a message a device may not be known any more.
func (w *world) leastForget() time.Duration {
	least := rules.DefaultForget
	for _, set := range w.versions {
		for i := range set {
			if set[i].Silence() {
				least = min(least, set[i].Forget)
			}
		}
	}
	return least
}

// heard reports whether r is a sign of life to every rule.
func (r reading) heard(w *world) bool {
	return r.fate == readable && r.value != 0 && !slices.ContainsFunc(w.versions, func(set []rules.Rule) bool {
		return slices.ContainsFunc(set, func(rule rules.Rule) bool { return !valid(&rule, r.value) })
	})
}

func (r reading) details() string {
	s := cmp.Or(r.site, "-") + " " + r.fate
	if r.late >= 0 {
		s += fmt.Sprint(" late ", r.late)
	}
	if r.quiet > 0 {
		s += fmt.Sprint(" quiet for ", r.quiet)
	}
	if r.limit > 0 {
		s += fmt.Sprint(" own limit ", r.limit)
	}
	if r.base > 0 {
		s += fmt.Sprint(" base ", r.base)
	}
	return s + " " + r.mode + " " + r.damage
}

// deviceTime returns the time that the device gives a message that the hub takes at a time, zero if none.
func (r reading) deviceTime(at time.Time) time.Time {
	if r.late < 0 {
		return time.Time{}
	}
	return at.Add(-r.late)
}

// A post is a reading by HTTP, for whose outcome its sender asks until there is one.
type post struct {
	reading
	at      time.Time // of the last try
	key     string
	verdict telemetry.Verdict
	version int
}

// post sends a reading by HTTP until there is an outcome.
func (w *world) post(r reading, key string) {
	for range 40 {
		w.mu.Lock()
		var to *process
		for _, p := range w.processes {
			if !p.gone && !time.Now().Before(p.wakes) {
				to = p
			}
		}
		w.mu.Unlock()
		at := time.Now()
		if to != nil {
			ctx, cancel := context.WithTimeout(w.ctx, 20*second)
			verdict, _, err := to.intake.Handle(ctx, r.event(at), key)
			cancel()
			w.mu.Lock()
			w.noteLocked("                                        by HTTP %s %v %s, %s: %v, %v", r.device, r.value, r.site,
				key, verdict, err)
			if err == nil {
				w.posted = append(w.posted, post{r, at, key, verdict, to.version})
			}
			w.mu.Unlock()
			if err == nil || errors.As(err, new(*telemetry.DecodeError)) {
				return
			}
		}
		time.Sleep(10 * second)
	}
}

// pass lets time pass, in which devices send what the plan's tail says.
func (w *world) pass(d time.Duration) {
	r := reading{late: -1, mode: "run", site: "berlin", base: usualBase, gathered: w.gathered, each: w.each}
	switch w.tail {
	case "cool":
		r.value = 20
	case "warm": // between the limit and what ends an alarm
		r.value = 27
	}
	every := 100 * second
	if slices.ContainsFunc(w.subjects(), func(s subject) bool { r, _ := w.ever(s); return r.Silence() }) {
		every = 25 * second
	}
	for ; d > 0 && w.tail != "nothing"; d -= every {
		w.mu.Lock()
		for _, device := range w.devices {
			if device == w.dies {
				continue
			}
			r.device, r.partition = device, w.home(device)
			if w.sites != nil {
				r.site = w.sites[device]
			}
			if w.deadSite != "" && r.site == w.deadSite {
				continue
			}
			if w.compacted {
				r.fate = superseded
				w.logs[r.partition].publish(w, r, time.Now())
				r.fate = readable
			}
			w.logs[r.partition].publish(w, r, time.Now())
		}
		w.mu.Unlock()
		time.Sleep(every)
	}
	time.Sleep(max(0, d))
}

// home is the partition of a device since its last message.
func (w *world) home(device string) (partition int) {
	for _, r := range w.readings {
		if r.device == device && r.fate != byHTTP {
			partition = r.partition
		}
	}
	return partition
}
