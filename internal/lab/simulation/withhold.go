package simulation

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// asksFor is for how long a receiver asks to wait.
const asksFor = 20 * time.Minute

// withhold has a receiver ask one of two replicas to wait for long, beside the other one, which it serves, and nothing
// else go wrong.
func (p *Plan) withhold(rng *rand.Rand) {
	p.Faults, p.Outages, p.Mutes = nil, nil, nil
	p.Receivers, p.Repeat = 1, 0
	p.Silent, p.Expects = 0, false
	p.Replicas, p.Partitions = 2, max(p.Partitions, 2)
	p.Length = 14 * time.Minute
	p.Faults = []Fault{{
		At:       30*time.Second + time.Duration(rng.IntN(60))*time.Second,
		Do:       Refuse,
		For:      90 * time.Second,
		Status:   one(rng, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusForbidden),
		Asks:     asksFor,
		Services: []Service{Receivers},
		Replica:  rng.IntN(2),
	}}
}
