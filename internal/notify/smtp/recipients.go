package smtp

import (
	"maps"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/notify"
)

const (
	// patience is how long a recipient whom the server refuses for now holds up what the others are to get next about the
	// same device, and then is waited for no more until he takes a mail. Who greylists wants to be asked again after
	// 5 minutes, as postgrey does.
	patience = 10 * time.Minute

	maxAlerts = 4096 // that are remembered
)

// recipients remembers who has taken alerts that others have not, so that nobody gets them twice. It is lost with the
// process. It is safe for concurrent use.
type recipients struct {
	mu      sync.Mutex
	taken   map[string]*taking   // by the ids of alerts
	failing map[string]time.Time // by address: since when the server refuses everything for him
}

// A taking is by whom an alert was taken, by address.
type taking struct {
	by    map[string]bool
	tried time.Time
}

// A part of a message goes in one mail: alerts, and those who have taken none of them.
type part struct {
	to     []*mail.Address
	alerts []notify.Alert
}

// parts returns the mails that bring alerts to whoever has not taken them yet; mostly it is one, with all to all.
func (r *recipients) parts(to []*mail.Address, alerts []notify.Alert) (all []part) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, one := range to {
		var open []notify.Alert
		for _, a := range alerts {
			t := r.taken[a.ID]
			if isFor(a, one) && (t == nil || !t.by[one.Address]) {
				open = append(open, a)
			}
		}

		same := func(p part) bool {
			return slices.EqualFunc(p.alerts, open, func(a, b notify.Alert) bool { return a.ID == b.ID })
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].to = append(all[i].to, one)
		} else if len(open) > 0 {
			all = append(all, part{to: []*mail.Address{one}, alerts: open})
		}
	}

	return all
}

// isFor reports whether a recipient is to get an alert.
func isFor(a notify.Alert, one *mail.Address) bool {
	return a.To == "" || slices.Contains(strings.Split(a.To, ","), one.Address)
}

// took notes that some recipients, one at least, have taken alerts.
func (r *recipients) took(alerts []notify.Alert, by []*mail.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, a := range alerts {
		t := r.taken[a.ID]
		if t == nil {
			if len(r.taken) >= maxAlerts { // forget the one that was not tried for the longest time
				tried := func(a, b string) int { return r.taken[a].tried.Compare(r.taken[b].tried) }
				delete(r.taken, slices.MinFunc(slices.Collect(maps.Keys(r.taken)), tried))
			}
			t = &taking{by: map[string]bool{}}
			r.taken[a.ID] = t
		}

		t.tried = time.Now()
		for _, one := range by {
			t.by[one.Address] = true
		}
	}

	for _, one := range by {
		delete(r.failing, one.Address)
	}
}

// settled forgets alerts that everybody has taken.
func (r *recipients) settled(alerts []notify.Alert) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range alerts {
		delete(r.taken, a.ID)
	}
}

// some reports whether each of alerts was taken by somebody.
func (r *recipients) some(alerts []notify.Alert) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(alerts, func(a notify.Alert) bool { return r.taken[a.ID] == nil })
}

// waits reports whether a recipient whom the server refuses for now is still waited for, and whether this is the first time
// since he took a mail.
func (r *recipients) waits(address string) (first, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	since, known := r.failing[address]
	if !known {
		since = time.Now()
		r.failing[address] = since
	}

	return !known, time.Since(since) < patience
}
