package ownership

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the owners are: replicas that see the same take different
// partitions, then all have their shares, and then nobody wants more.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var partitions, sharing []string
		for i := range rapid.IntRange(1, 40).Draw(t, "partitions") {
			partitions = append(partitions, fmt.Sprint(i))
		}
		slices.Sort(partitions)
		for i := range rapid.IntRange(1, 8).Draw(t, "replicas") {
			sharing = append(sharing, string(rune('a'+i)))
		}
		owners := map[string]string{}
		candidates := append([]string{"", "leaving"}, sharing...)
		for _, p := range partitions {
			if owner := rapid.SampledFrom(candidates).Draw(t, "owner"); owner != "" {
				owners[p] = owner
			}
		}

		after := maps.Clone(owners)
		moved := map[string]bool{}
		for _, me := range sharing {
			for _, p := range shareOf(me, partitions, owners, sharing) {
				if moved[p] {
					t.Errorf("two replicas want partition %s", p)
				}
				if owners[p] == me || owners[p] == "leaving" {
					t.Errorf("%s wants partition %s of %s", me, p, owners[p])
				}
				moved[p] = true
				after[p] = me
			}
		}
		later := maps.Clone(owners)
		for _, me := range rapid.Permutation(sharing).Draw(t, "order") {
			for _, p := range shareOf(me, partitions, later, sharing) {
				later[p] = me
			}
		}
		if !maps.Equal(later, after) {
			t.Errorf("one after the other they take %v, at once %v", later, after)
		}
		counts := map[string]int{}
		for _, p := range partitions {
			if after[p] == "" {
				t.Errorf("nobody takes partition %s", p)
			}
			counts[after[p]]++
		}
		least, most := len(partitions), 0
		for _, replica := range sharing {
			least, most = min(least, counts[replica]), max(most, counts[replica])
		}
		if most > least+1 {
			t.Errorf("shares are %v", counts)
		}
		for _, me := range sharing {
			if more := shareOf(me, partitions, after, sharing); len(more) > 0 {
				t.Errorf("%s wants %v although shares are %v", me, more, counts)
			}
		}
	})
}

func TestShareOfOneThatDoesNotTakePart(t *testing.T) {
	if got := shareOf("c", []string{"0", "1"}, nil, []string{"a", "b"}); got != nil {
		t.Errorf("it wants %v", got)
	}
	if got := shareOf("c", []string{"0", "1"}, nil, nil); got != nil {
		t.Errorf("it wants %v", got)
	}
}

// shareOf is share with these live owners of partitions.
func shareOf(me string, partitions []string, owners map[string]string, sharing []string) []string {
	records := map[string]Record{}
	for _, p := range partitions {
		records[p] = Record{Partition: p, Owner: owners[p]}
	}
	return share(me, partitions, records, sharing)
}
