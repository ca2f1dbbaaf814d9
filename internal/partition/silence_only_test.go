package partition_test

import (
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

// frozen makes a rule about silence one of devices that say that they are frozen.
func frozen(r *rules.Rule) { r.Only = []rules.Condition{{Name: "kind", Values: []string{"frozen"}}} }

// Devices that say that a rule does not expect to hear from them are not silent, and their silences end, whoever owns
// the partition.
func TestSilenceOnly(t *testing.T) {
	const m = time.Minute
	for _, takeOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			p.reached = true
			s := silence(t, frozen, r)
			s.start(p)
			for _, device := range []string{"stays", "changes", "returns"} {
				p.publishBody(device, `{"kind":"frozen"}`)
			}
			p.publishBody("chilled", `{"kind":"chilled"}`)
			p.publishBody("unknown", `{"hello":1}`)
			time.Sleep(10 * m)
			p.publishBody("stays", `{"hello":1}`) // it is what it was
			p.publishBody("chilled", `{"hello":1}`)
			time.Sleep(6 * m)
			if takeOver {
				s.end()
				next := silence(t, frozen, r)
				next.store, next.ledgers = s.store, s.ledgers
				p, s = p.reopen(), next
				s.start(p)
			}
			time.Sleep(2 * m)
			p.publishBody("changes", `{"kind":"chilled"}`)
			p.publishBody("returns", `{"kind":"frozen"}`)
			time.Sleep(time.Hour)
			for device, want := range map[string]bool{"stays": false, "chilled": true} {
				if got := s.device(device).Heard; len(got) != 1 || got[0].Excluded != want {
					t.Errorf("of %s it knows %+v", device, got)
				}
			}
			s.end()
			for device, want := range map[string]string{
				"stays": "alert 6", "changes": "alert 2, recovery 8", "returns": "alert 3, recovery 9, alert 9", "chilled": "", "unknown": "",
			} {
				if got := r.notified(device); !sameSet(got, want) {
					t.Errorf("taken over %t: notified of %s: %s; want %s", takeOver, device, got, want)
				}
			}
			for _, a := range r.alerts("changes") {
				if want := `kind is "chilled", not frozen`; a.Resolved && a.Excluded != want {
					t.Errorf("taken over %t: the recovery says %q; want %q", takeOver, a.Excluded, want)
				}
			}
		})
	}
}
