package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"alertworker/internal/lab/inbox"
	"alertworker/internal/notify/webhook"
)

const (
	mustSay = 55 * time.Second // until a replica says that a receiver takes nothing: 30 s, and some reports
	asksFor = 20 * time.Minute // for which a receiver asks to wait
)

// withhold has receivers ask to wait for long, and nothing else go wrong: all replicas, for so long that alerts are given
// up, or one of them, beside others that they serve.
func (p *Plan) withhold(rng *rand.Rand, all bool) {
	p.Faults, p.Outages, p.Mutes = nil, nil, nil
	p.Receivers, p.Repeat = 1, 0
	p.Silent, p.Expects = 0, false
	p.Replicas, p.Partitions = 2, max(p.Partitions, 2)
	p.Length = 14 * time.Minute

	f := Fault{
		At:      30*time.Second + time.Duration(rng.IntN(60))*time.Second,
		Replica: Any,
		Do:      Down,
		For:     6 * time.Minute,
		Status:  one(rng, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusForbidden),
		Asks:    asksFor,
	}
	if all {
		p.GiveUp = 4 * time.Minute
	} else {
		f.Replica, f.Do, f.For, f.Services = rng.IntN(2), Refuse, 90*time.Second, []Service{Receivers}
	}

	p.Faults = []Fault{f}
}

// givesUp is the age at which alerts become dead letters.
func (p Plan) givesUp() time.Duration {
	if p.GiveUp > 0 {
		return p.GiveUp
	}
	return time.Hour
}

// asks returns for how long a receiver asks to wait at most; 0: for no longer than any service.
func (p Plan) asks() (longest time.Duration) {
	for _, f := range p.Faults {
		longest = max(longest, f.Asks)
	}
	return longest
}

// A saying is since when a replica has reported that alerts wait, and no receiver that takes nothing.
type saying struct {
	since  time.Time
	accuse bool
}

// reported notes what a replica says of itself in its heartbeat while the receiver takes nothing of anybody. w.mu is held.
func (w *World) reported(of *body, report []byte) {
	var said struct {
		Status struct {
			Headline string
			Waiting  int
			Problems []struct{ Receiver string }
		}
	}
	if w.plan.GiveUp == 0 || len(report) == 0 || json.Unmarshal(report, &said) != nil {
		return
	}

	f := w.plan.Faults[0]
	since := time.Since(w.began)
	isWithheld := since > f.At && since < f.At+f.For
	accuses := slices.ContainsFunc(said.Status.Problems, func(p struct{ Receiver string }) bool { return p.Receiver != "" })
	if !isWithheld || said.Status.Waiting == 0 || accuses {
		delete(w.says, of)
		return
	}

	if w.says[of].since.IsZero() {
		w.says[of] = saying{since: time.Now()}
	}

	if s := w.says[of]; time.Since(s.since) > mustSay && !s.accuse {
		w.says[of] = saying{s.since, true}
		w.unsaid = append(w.unsaid, fmt.Sprintf("%s said nothing of a receiver that took nothing, for %v: %s", of.name, time.Since(s.since), said.Status.Headline))
	}
}

// gaveUp tells the judge of an alert that is kept as a dead letter because the receiver did not take it in time.
func (w *World) gaveUp(letter []byte) {
	var kept struct {
		Reason string
		Alert  json.RawMessage
	}
	if w.plan.GiveUp == 0 || json.Unmarshal(letter, &kept) != nil || !strings.HasPrefix(kept.Reason, "not taken within") {
		return
	}

	a, err := webhook.Decode(kept.Alert)
	if err != nil {
		w.say("world", "a dead letter cannot be read: %v", err)
		return
	}

	w.take(inboxName(0))(inbox.Delivery{At: time.Now(), Alert: a, Refused: true})
}
