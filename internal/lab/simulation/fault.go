package simulation

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// latency is the most that a request or an answer takes on its way.
const latency = 15 * time.Millisecond

// slowest is the same while the service is slow. A claim, which asks twice, is granted in time mostly.
const slowest = 1500 * time.Millisecond

// chance is true once in n times.
func (w *World) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n) == 0
}

// later does something after a time.
func (w *World) later(d time.Duration, do func()) {
	w.work.Go(func() {
		time.Sleep(d)
		do()
	})
}

// victim returns the replica that a fault befalls, nil if there is none at present.
func (w *World) victim(f Fault) *body {
	w.mu.Lock()
	defer w.mu.Unlock()

	if f.Replica != Any {
		return w.slots[f.Replica]
	}

	alive := slices.DeleteFunc(slices.Clone(w.slots), func(b *body) bool { return b == nil })
	if len(alive) == 0 {
		return nil
	}

	return alive[w.rng.IntN(len(alive))]
}

// befalls has the fault begin that waits for a step of a replica, and returns it; one that does nothing if there is none.
func (w *World) befalls(b *body, step Step, after bool) Fault {
	w.mu.Lock()
	if after {
		w.steps[step]++
	}

	i := slices.IndexFunc(w.pending, func(f Fault) bool {
		return f.Step == step && f.After == after && (f.Replica == Any || f.Replica == b.slot)
	})
	if i < 0 || !slices.Contains(w.slots, b) {
		w.mu.Unlock()
		return Fault{}
	}

	f := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	w.mu.Unlock()
	w.begin(f, b)

	return f
}

// begin has a fault begin. b may be nil.
func (w *World) begin(f Fault, b *body) {
	who := "world"
	switch {
	case b != nil:
		who = b.name
	case slices.Contains([]Action{Kill, Stop, Away, Refuse, Cut, Lossy, Slow, Half, Freeze}, f.Do):
		return // it befalls a replica, and not what all of them use
	}

	now := time.Now()
	until := now.Add(f.For)
	w.say("FAULT", "%v of %s%s", f, who, f.moment())
	w.mu.Lock()
	w.faults++
	if f.Do != Spoil { // replicas go on with what they have
		w.spans = append(w.spans, span{now, until.Add(w.plan.after(f)), f.delaysClaims()})
	}
	w.mu.Unlock()

	switch f.Do {
	case Kill:
		w.replace(b, f.For, b.kill)
	case Stop:
		w.replace(b, f.For, b.end)
	case Half:
		b.hold(f, now.Add(never))
	case Freeze:
		b.freeze(until)
	case Away, Refuse, Cut, Lossy, Slow:
		b.disturb(f, until)
	case Rollout:
		w.rollOut(f.For)
	case Recreate, FailOver:
		w.waitFor(f)
	case Down:
		w.takeDown(f, until)
	case Choke:
		w.choke(f, until)
	case Replay:
		w.replayLetters()
	case Rotate:
		w.rotate()
	case Spoil:
		w.spoil(f)
	case Activate:
		w.activate(revokes)
	case Swap:
		w.activate(0)
	default:
		w.disturbHub(f)
	}
}

// moment says at which step f begins.
func (f Fault) moment() string {
	switch {
	case f.Step == "":
		return ""
	case f.After:
		return " after " + string(f.Step)
	}

	return " before " + string(f.Step)
}

// delaysClaims reports whether all that f does is that claims take longer.
func (f Fault) delaysClaims() bool {
	switch f.Do {
	case Slow:
		return !slices.ContainsFunc(f.Services, func(s Service) bool { return s != Windows && s != Items })
	case Late:
		return f.Step == Ask || f.Step == Claim
	}

	return false
}

// replace ends a replica, and has another one start in its place.
func (w *World) replace(b *body, after time.Duration, end func()) {
	w.mu.Lock()
	gone := w.slots[b.slot] != b || w.ended // at the end the places say who was there
	if !gone {
		w.slots[b.slot] = nil
	}

	w.mu.Unlock()
	if gone {
		return
	}

	end()
	w.later(after, func() { w.start(b.slot) })
}

// rollOut replaces one replica after the other by one with other rules.
func (w *World) rollOut(between time.Duration) {
	w.mu.Lock()
	w.rollouts++
	all := slices.Clone(w.slots)
	w.mu.Unlock()

	for i, b := range all {
		if b != nil {
			w.later(time.Duration(i)*between, func() { w.replace(b, time.Second, b.end) })
		}
	}
}

// takeDown has a receiver answer everybody with a status. 422 is for good: the inbox itself refuses.
func (w *World) takeDown(f Fault, until time.Time) {
	i := int(f.At/time.Millisecond) % len(w.inboxes)
	isForGood := f.Status == http.StatusUnprocessableEntity
	if isForGood {
		w.inboxes[i].Refuse(true)
		w.later(f.For, func() { w.inboxes[i].Refuse(false) })
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.downs[inboxName(i)] = refusal{until, f.Status, f.Asks}
}

// choke has a receiver answer what is about one device with a status, though it takes it.
func (w *World) choke(f Fault, until time.Time) {
	n := int(f.At / time.Millisecond)
	device := w.plan.Devices[n%len(w.plan.Devices)].Name

	w.mu.Lock()
	defer w.mu.Unlock()

	w.chokes[inboxName(n%len(w.inboxes))] = choking{device, refusal{until: until, status: f.Status}}
}

// chokesOn returns the status with which a receiver answers a message that it has taken, 0 if it says that it has.
func (w *World) chokesOn(name string, message []byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()

	c := w.chokes[name]
	if time.Now().Before(c.until) && bytes.Contains(message, []byte(strconv.Quote(c.device))) {
		return c.status
	}

	return 0
}

// refuses is how long after its end a fault may refuse what it has left: who was refused often asks once a minute.
const refuses = 30 * time.Second

// disturbHub has the hub itself misbehave.
func (w *World) disturbHub(f Fault) {
	n := int(f.At / time.Millisecond)
	partition := strconv.Itoa(n % w.plan.Partitions)
	refused := 1 + n%3

	switch f.Do {
	case Detach:
		if n%2 == 0 {
			w.hub.DetachWithoutError(partition)
		} else {
			w.hub.Detach(partition)
		}
	case Links:
		hub := w.hub
		hub.RefuseLinks(partition, refused, "simulated")
		w.later(f.For+refuses, func() { hub.RefuseLinks(partition, 0, "") })
	case Claims:
		hub := w.hub
		hub.RefuseClaims(refused, http.StatusInternalServerError)
		w.later(f.For+refuses, func() { hub.RefuseClaims(0, 0) })
	case Asked:
		status := http.StatusInternalServerError
		if n%2 == 0 {
			status = http.StatusServiceUnavailable // it is busy
		}
		w.hub.RefuseManagement(refused, status)
	case Mute:
		w.hub.Mute(partition)
	case Expire:
		w.expire(n % w.plan.Partitions)
	}
}

// waitFor has devices say nothing until the hub can be recreated: what is lost with it would be missing else.
func (w *World) waitFor(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if len(w.held) == 0 {
		w.holdUntil = time.Now().Add(holds)
	}

	w.held = append(w.held, f)
}

// hold recreates the hub if that is due and possible, and reports whether devices have to wait for it.
func (w *World) hold() bool {
	w.mu.Lock()
	held := slices.Clone(w.held)
	over := !time.Now().Before(w.holdUntil)
	w.mu.Unlock()
	if len(held) == 0 {
		return false
	}

	if w.allDone() {
		w.say("world", "the hub is recreated: %s", held[0].Do)
		w.recreate(held[0].Do == FailOver)
	} else if !over {
		return true
	}

	w.mu.Lock()
	w.held = nil
	w.mu.Unlock()

	return false
}
