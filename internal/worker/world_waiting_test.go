package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// What waits: receivers that take nothing for a long time, or less than is due, and a watch that sees what becomes of
// alerts meanwhile. Nothing else goes wrong in these plans, so that the watch knows what must be.

// withhold makes such a plan of some. It draws from a stream of its own.
func (p *plan) withhold() {
	d := draw{rand.New(rand.NewPCG(p.number, 5))}
	switch {
	case d.chance(0.03):
		d.refusal(p)
	case d.chance(0.01):
		d.overload(p)
	}
}

// refusal has a receiver take nothing for a while, which is longer than alerts may wait.
func (d draw) refusal(p *plan) {
	r := d.rule("readings", 60*second)
	r.Only, r.Valid = nil, nil
	p.waiting(r)
	for i := range p.readings {
		p.readings[i].value = pick(d, 35.0, 35, 90)
		p.readings[i].gap = min(p.readings[i].gap, 40*second)
	}
	status := pick(d, 429, 503, 403)
	says := &notify.Error{
		Untaken: true, Limited: true, Status: status, RetryAfter: pick(d, 25*second, 3*time.Minute, 10*time.Minute),
		Err: fmt.Errorf("%d and Retry-After", status),
	}
	if d.chance(0.3) {
		says = pick(d, errBusy, &notify.Error{Untaken: true, Limited: true, Status: 429, Err: errors.New("429")})
	}
	p.giveUp = pick(d, 5*time.Minute, 8*time.Minute)
	p.patience = p.giveUp + 2*time.Minute
	p.receivers = []planned{{says: says}}
	p.moves = []move{{at: time.Duration(d.IntN(40)) * second, what: receiverDown, for_: 20 * time.Minute}}
	if d.chance(0.4) {
		p.moves = append(p.moves, move{at: 2*time.Minute + d.minutes(8), what: pick(d, handOver, kill)})
	}
}

// overload has more critical alerts be due than a receiver takes, beside a few of a milder level. By receiver.next, in
// package delivery, none waits for more than the others, 64 later ones for its level, and as many for a refusal.
func (d draw) overload(p *plan) {
	p.waiting(rules.Rule{Name: rules.DefaultName, Field: "temperature", Window: 30 * second, Levels: []rules.Level{
		{Name: "warning", Limit: 30, Clear: 30}, {Name: "critical", Limit: 80, Clear: 80},
	}})
	p.devices, p.readings = nil, nil
	const devices, rounds = 27, 60
	for i := range devices {
		p.devices = append(p.devices, fmt.Sprint("crowd-", i))
	}
	for range rounds {
		for i, device := range p.devices {
			value := 90.0
			if i%9 == 4 {
				value = 35
			}
			p.readings = append(p.readings, reading{device: device, value: value, gap: second / 2, late: -1, mode: "run"})
		}
	}
	p.giveUp, p.patience = 12*time.Hour, 8*time.Minute
	p.receivers = []planned{{limits: notify.Limits{Rate: notify.Rate{Burst: 1, Every: 2 * second}}}}
	if d.chance(0.5) { // at first it takes nothing
		p.receivers[0].says = &notify.Error{Untaken: true, Limited: true, Status: 429, Err: errors.New("429")}
		p.moves = []move{{what: receiverDown, for_: 2 * time.Minute}}
	}
}

// waiting has one rule, one partition, and nothing that goes wrong.
func (p *plan) waiting(r rules.Rule) {
	p.only(r)
	p.calm()
	p.muteTimes, p.dies, p.tail, p.compacted = nil, "", "nothing", false
	p.changes = 10_000 // reading goes on, whatever holds the watermark
	for i := range p.partitions[0] {
		p.partitions[0][i].back, p.partitions[0][i].after = 0, 0
	}
}

// watch sees, until the world ends, that no reading is unsettled for longer than patience, and that a replica says that
// a receiver is down which takes nothing of what is due.
func (w *world) watch() {
	since := map[*process]time.Time{} // something is due and the receiver takes nothing
	for {
		select {
		case <-time.After(5 * second):
		case <-w.ctx.Done():
			return
		}
		w.mu.Lock()
		owner, processes := w.logs[0].owner, append([]*process(nil), w.processes...)
		w.mu.Unlock()
		if owner != nil && time.Since(owner.began) > 2*time.Minute {
			w.watchAge(owner)
		}
		for _, p := range processes {
			w.watchReceiver(p, since)
		}
	}
}

func (w *world) watchAge(o *owner) {
	for _, s := range o.worker.Partitions() {
		if age := time.Since(s.Oldest); s.Unsettled > 0 && age > w.patience {
			w.mu.Lock()
			w.violated("W1: %s has a reading that is unsettled since %v", o.name, age)
			w.mu.Unlock()
			w.patience = time.Hour
		}
	}
}

func (w *world) watchReceiver(p *process, since map[*process]time.Time) {
	in := w.inboxes[0]
	state := p.worker.Receivers()[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.gone || state.Waiting == 0 || in.says == nil || !time.Now().Before(w.down[receiverDown+in.name]) {
		delete(since, p)
		return
	}
	if _, known := since[p]; !known {
		since[p] = time.Now()
	}
	patience := 40 * second
	if len(w.processes) > 1 { // the one before may have died with a claim, and nobody asks the receiver before that is over
		patience += throttle.ClaimTTL(sendTimeout)
	}
	if lasts := time.Since(since[p]); lasts > patience && !state.Down {
		w.violated("W2: %s says that %s is up, which has taken nothing for %v: %+v", p.name, in.name, lasts, state)
		since[p] = time.Now().Add(time.Hour)
	}
}
