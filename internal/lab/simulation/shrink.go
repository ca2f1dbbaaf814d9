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

		saved := len(p.Faults) + len(p.Devices) - len(smaller.Faults) - len(smaller.Devices)
		if saved == 0 {
			return smaller
		}

		p = smaller
	}
}

// fewer returns as few of all as still fail: it leaves out half of them, then quarters, then smaller parts.
func fewer[T any](all []T, fails func([]T) bool) []T {
	for part := (len(all) + 1) / 2; part > 0; {
		some := without(all, part, fails)
		left := len(some) < len(all)
		all = some

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

// without leaves out one part of a size after the other, and returns what still fails.
func without[T any](all []T, part int, fails func([]T) bool) []T {
	for from := 0; from < len(all); {
		some := slices.Delete(slices.Clone(all), from, min(from+part, len(all)))
		if fails(some) {
			all = some
			continue
		}

		from += part
	}

	return all
}
