package partition_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

// A rule about silence is missing for some minutes, in which nobody hears for it, and a receiver has not been told yet of a
// device that fell silent before. It is not told what nobody knows any more: if the device sends nothing, it is told once
// that is known again, with the time as of which it is. Who was told hears nothing again.
func TestSilenceThatWaitsWhileItsRuleIsMissing(t *testing.T) {
	const m = time.Minute
	for _, partition := range []string{"0", "1"} {
		for _, per := range []string{"", "gateway"} {
			for _, isBack := range []bool{false, true} {
				t.Run(fmt.Sprint(partition, per, isBack), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p, told, down := newPartition(partition), &receiver{}, &receiver{answer: failing(errBusy)}
						p.reached = true
						configure := func(name string) *setup {
							return silence(t, func(r *rules.Rule) { r.Name, r.Per = name, per }, told, down)
						}
						hello := func() { p.publishWith("oven", "gateway", "gw-12") }
						s := configure("offline")
						s.start(p)
						hello()
						pass(silent + m)
						s.end()
						for _, name := range []string{"another", "offline"} {
							next := configure(name)
							next.config.Rules.Rules[0].Field = map[string]string{"another": "probe"}[name] // it hears something else
							next.store, next.ledgers, s = s.store, s.ledgers, next
							p = p.reopen()
							next.start(p)
							if name == "another" {
								pass(m)
								hello()
								pass(4 * m)
								next.end()
							}
						}
						defer s.end()
						since := time.Now()
						down.set(nil)
						pass(silent - m)
						if got := down.notified(""); got != "" {
							t.Errorf("notified of %s, and the device has sent something", got)
						}
						if isBack {
							hello()
						}
						pass(4 * m)
						got := down.alerts("")
						if isBack {
							if len(got) != 0 || told.notified("oven") != "alert 1, recovery 3" && per == "" {
								t.Errorf("notified of %s and %s", told.notified(""), down.notified(""))
							}
							return
						}
						if len(got) != 1 || got[0].Resolved || len(told.alerts("")) != 1 {
							t.Fatalf("notified of %s and %s", told.notified(""), down.notified(""))
						}
						if a := got[0]; per == "" && (a.Since.Before(since) || a.Enqueued.Before(since.Add(silent))) {
							t.Errorf("%+v: %v and %v; nobody knows what was before %v", a, a.Since, a.Enqueued, since)
						}
					})
				})
			}
		}
	}
}
