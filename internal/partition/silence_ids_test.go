package partition_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

// Devices that are silent since one place, where events may be missing, have ids of their own; so has the hub.
func TestSilencesHaveTheirOwnIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		for i := range 30 {
			p.talk(fmt.Sprint("oven/", i), 0)
		}
		p.skip(5)
		for range 30 {
			p.talk("other", m)
		}
		time.Sleep(time.Hour) // and then nothing comes to the hub
		for i := range 30 {
			p.talk(fmt.Sprint("oven/", i), 0)
		}
		time.Sleep(m)
		s.end()

		seen := map[string]string{}
		for _, a := range r.alerts("") {
			of := fmt.Sprintf("%s, resolved: %v", a.Device, a.Resolved)
			if other, again := seen[a.ID]; again && other != of {
				t.Errorf("%s is the id of %s and of %s", a.ID, other, of)
			}
			seen[a.ID] = of
		}
		if len(seen) < 2*30+2 {
			t.Errorf("%d notices, want those of 30 devices and of the hub", len(seen))
		}
	})
}

// A rule about silence that is renamed, and named back, again and again, finds one silence again and again. Each of its ends has
// an id of its own: a receiver remembers ends for long, and would show the device as silent for good.
func TestEachEndOfASilenceHasItsOwnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.publishBody("oven", "{}")
		for i, name := range []string{"other", "offline", "other", "offline", ""} {
			if i > 0 {
				p = p.reopen()
				s.start(p)
			}
			for range 60 {
				p.publishBody("kiln", "{}")
				time.Sleep(time.Minute)
			}
			s.end()
			next := silence(t, func(r *rules.Rule) { r.Name = name }, r)
			next.store, next.ledgers = s.store, s.ledgers
			s = next
		}

		ends := map[string]bool{}
		all := 0
		for _, a := range r.alerts("oven") {
			if a.Resolved {
				all++
				ends[a.ID] = true
			}
		}
		if all != 4 || len(ends) != all {
			t.Errorf("%d ends, want 4, with these ids: %v", all, slices.Sorted(maps.Keys(ends)))
		}
	})
}
