package ownership

import (
	"cmp"
	"slices"
)

// share returns the partitions that the replica me should take now, from nobody
// or from another replica. All replicas that see the same compute shares that
// have no partition in common, so they do not compete; and once each has taken
// its own, their numbers of partitions differ by one at most. Nor do they if one
// sees what others have taken meanwhile: its own share is still the same.
//
// The partitions must be sorted. Owners holds the live owner of each that has
// one. Sharing are the replicas that take part; one that does not keeps what it
// has.
func share(me string, partitions []string, owners map[string]string, sharing []string) []string {
	held := make(map[string][]string, len(sharing))
	for _, replica := range sharing {
		held[replica] = nil
	}
	var pool []string // what is to be had
	divided := 0
	for _, p := range partitions {
		owner := owners[p]
		if _, ok := held[owner]; ok {
			held[owner] = append(held[owner], p)
		} else if owner == "" {
			pool = append(pool, p)
		} else {
			continue
		}
		divided++
	}

	if len(sharing) == 0 {
		return nil
	}
	// If they cannot all have the same, those that have one more keep it, so that
	// few partitions change hands. Otherwise the order does not depend on what
	// they have: it stays while one after the other takes its share.
	base, extra := divided/len(sharing), divided%len(sharing)
	order := slices.Clone(sharing)
	slices.SortFunc(order, func(a, b string) int {
		more := func(replica string) int { return min(1, max(0, len(held[replica])-base)) }
		return cmp.Or(cmp.Compare(more(b), more(a)), cmp.Compare(a, b))
	})
	quota := func(i int) int {
		if i < extra {
			return base + 1
		}
		return base
	}
	for i, replica := range order {
		if n := quota(i); len(held[replica]) > n {
			pool = append(pool, held[replica][n:]...)
		}
	}
	for i, replica := range order {
		room := min(max(0, quota(i)-len(held[replica])), len(pool))
		if replica == me {
			return pool[:room]
		}
		pool = pool[room:]
	}
	return nil
}
