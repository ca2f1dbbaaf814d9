package partition_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
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
