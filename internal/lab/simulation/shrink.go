package simulation

import (
	"slices"
	"time"
)

// Shrink returns a smaller plan that still fails: with fewer faults and devices, and a shorter time. fails runs a plan.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	for was := -1; was != len(p.Faults)+len(p.Devices); {
		was = len(p.Faults) + len(p.Devices)

		p.Faults = fewer(p.Faults, func(some []Fault) bool {
			q := p
			q.Faults = some
			return fails(q)
		})

		p.Devices = fewer(p.Devices, func(some []Device) bool {
			q := p
			q.Devices = some
			return len(some) > 0 && fails(q)
		})

		for p.Length > 30*time.Second {
			q := p
			q.Length = (q.Length * 2 / 3).Round(time.Second)
			if !fails(q) {
				break
			}

			p = q
		}
	}

	return p
}

// fewer returns as few of all as still fail: it leaves out all of them, then halves, then smaller parts.
func fewer[T any](all []T, fails func([]T) bool) []T {
	for part := len(all); part > 0; part /= 2 {
		for from := 0; from < len(all); {
			some := slices.Delete(slices.Clone(all), from, min(from+part, len(all)))
			if fails(some) {
				all = some
			} else {
				from += part
			}
		}
	}

	return all
}
