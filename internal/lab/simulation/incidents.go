package simulation

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"alertworker/internal/lab/inbox"
)

// sites is what the judge of incidents knows: which devices of a site are hot, and what receivers took of each.
type sites struct {
	mu    sync.Mutex
	hot   map[string]map[string]bool // by site and device; false: it is not, or says that it is quiet
	since map[string]time.Time       // when each site began to be hot
	hots  []hotSite                  // that are not any more
	told  []message
}

// A hotSite is how long a site was hot.
type hotSite struct {
	site     string
	from, to time.Time
}

// A message is what a receiver took about an incident.
type message struct {
	receiver string
	inbox.Delivery
}

// publish notes what a device says of its temperature.
func (s *sites) publish(site, device string, temperature float64, isQuiet bool) {
	if site == "" {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.hot[site] == nil {
		s.hot[site] = map[string]bool{}
	}
	was := s.isHot(site)
	s.hot[site][device] = temperature >= limit+2 && !isQuiet
	switch is := s.isHot(site); {
	case is && !was:
		s.since[site] = time.Now()
	case was && !is:
		s.hots = append(s.hots, hotSite{site, s.since[site], time.Now()})
	}
}

// isHot reports whether a device of a site is hot.
func (s *sites) isHot(site string) bool {
	return slices.Contains(slices.Collect(maps.Values(s.hot[site])), true)
}

// unheard returns the sites that were hot for longer than bound, of which a receiver knew nothing at the end of that.
func (s *sites) unheard(receivers int, bound time.Duration) (wrong []string) {
	for _, h := range s.hots {
		if h.to.Sub(h.from) < bound {
			continue
		}

		for i := range receivers {
			open := map[string]bool{}
			for _, m := range s.told {
				if m.receiver == inboxName(i) && m.Alert.PerValue == h.site && m.At.Before(h.to) && !m.Refused {
					open[m.Alert.Incident.ID] = !m.Alert.Resolved
				}
			}

			if !slices.Contains(slices.Collect(maps.Values(open)), true) {
				wrong = append(wrong, fmt.Sprintf("%s did not know that %s was hot for %v", inboxName(i), h.site, h.to.Sub(h.from)))
			}
		}
	}

	return wrong
}

// heard notes what a receiver got.
func (s *sites) heard(receiver string, d inbox.Delivery) {
	isLetter := d.Refused && !d.Alert.Resolved // nobody has to hear of its end
	if d.Dropped || isLetter || d.Alert.Incident == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, message{receiver, d})
}

// A stand is how a site is to one receiver.
type stand struct {
	last  string          // the incident that its last message was about
	open  map[string]bool // of which it has an alert, and no end
	alert time.Time       // the last one
}

// wrongIncidents returns what is wrong with incidents, as receivers heard of them, once all has come to rest.
func (w *World) wrongIncidents() (wrong []string) {
	if !w.plan.Incidents {
		return nil
	}

	bound := w.rules(w.now()).Bound + w.plan.Window + slack
	w.sites.mu.Lock()
	defer w.sites.mu.Unlock()

	stands := map[[2]string]*stand{}
	stand := func(receiver, site string) *stand {
		about := [2]string{receiver, site}
		if stands[about] == nil {
			stands[about] = &stand{open: map[string]bool{}}
		}

		return stands[about]
	}

	for _, t := range w.sites.told {
		site, id := t.Alert.PerValue, t.Alert.Incident.ID
		s := stand(t.receiver, site)
		switch since := t.At.Sub(s.alert); {
		case t.Refused: // an end, which is a dead letter
			delete(s.open, id)
			continue

		case t.Alert.Resolved:
			if len(s.open) == 0 && len(w.plan.Faults) == 0 { // else it may have got one
				wrong = append(wrong, fmt.Sprintf("%s heard the end of %s in %s, and no alert before it", t.receiver, id, site))
			}
			delete(s.open, id)

		default:
			if since < w.plan.Window-time.Second && !w.inDoubt(t.At.Add(w.plan.Ahead)) {
				wrong = append(wrong, fmt.Sprintf("%s heard of %s in %s %v after another alert", t.receiver, id, site, since))
			}
			s.alert = t.At
			s.open[id] = true
		}

		s.last = id
	}

	for site := range w.sites.hot {
		isHot := w.sites.isHot(site)
		for i := range w.plan.Receivers {
			s := stand(inboxName(i), site)
			isKnown := len(s.open) == 1 && s.open[s.last]
			if isHot && !isKnown || !isHot && len(s.open) > 0 {
				wrong = append(wrong, fmt.Sprintf("to %s %d incidents in %s are open, its last message is about %q, and the site is hot: %t",
					inboxName(i), len(s.open), site, s.last, isHot))
			}
		}
	}

	return append(wrong, w.sites.unheard(w.plan.Receivers, bound)...)
}
