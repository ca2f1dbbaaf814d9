package simulation

import (
	"slices"
	"time"
)

// Shrink returns a smaller plan that still fails: with fewer faults and devices, and a shorter time. fails runs a plan.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	for {
		smaller := p
		smaller.Faults = fewer(p.Faults, func(some []Fault) bool {
			q := p
			q.Faults = some
			return fails(q)
		})

		smaller.Devices = fewer(p.Devices, func(some []Device) bool {
			q := smaller
			q.Devices = some
			return len(some) > 0 && fails(q)
		})

		for smaller.Length > 30*time.Second {
			q := smaller
			q.Length = (q.Length * 2 / 3).Round(time.Second)
			if !fails(q) {
				break
			}

			smaller = q
		}

		if len(smaller.Faults) == len(p.Faults) && len(smaller.Devices) == len(p.Devices) {
			return smaller
		}

		p = smaller
	}
}

// fewer returns as few of all as still fail: it leaves out half of them, then quarters, then smaller parts.
func fewer[T any](all []T, fails func([]T) bool) []T {
	for part := (len(all) + 1) / 2; part > 0; {
		left := false
		for from := 0; from < len(all); {
			some := slices.Delete(slices.Clone(all), from, min(from+part, len(all)))
			if fails(some) {
				all, left = some, true
				continue
			}

			from += part
		}

		switch {
		case part == 1 && !left:
			return all

		case !left || part > len(all):
			part = (part + 1) / 2
			if part == 1 && len(all) == 0 {
				return all
			}
		}
	}

	return all
}
