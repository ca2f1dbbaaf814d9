package ownership

import (
	"cmp"
	"slices"
)

// share returns the partitions that the replica me should claim now, free ones or those
// of other replicas. Replicas that see the same records compute disjoint shares, so they
// do not compete, also if one sees what others have claimed already: its own share stays
// the same. Once each has claimed its share, their numbers of partitions differ by at
// most one.
//
// partitions must be sorted. records hold the live owner of each that has one. sharing
// are the replicas that take part; any other keeps what it has.
func share(me string, partitions []string, records map[string]Record, sharing []string) []string {
	held := make(map[string][]string, len(sharing))
	for _, replica := range sharing {
		held[replica] = nil
	}

	var pool []string // free partitions
	divided := 0
	for _, p := range partitions {
		owner := records[p].Owner
		_, shares := held[owner]
		switch {
		case shares:
			held[owner] = append(held[owner], p)
		case owner == "":
			pool = append(pool, p)
		default:
			continue
		}

		divided++
	}

	// If the partitions do not divide evenly, replicas that have one more keep it, so that few
	// partitions move. Otherwise the order does not depend on what they have, so it
	// stays the same while one after the other claims its share.
	n := max(1, len(sharing))
	base, extra := divided/n, divided%n
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
		keeps := min(quota(i), len(held[replica]))
		pool = append(pool, held[replica][keeps:]...)
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
