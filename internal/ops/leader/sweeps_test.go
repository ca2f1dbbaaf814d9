package leader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/ops/leader"
	"alertworker/internal/records"
)

// The members of a partition that the hub does not have are no more, once it is known for ten minutes; what is not known
// takes nothing out.
func TestIncidentsOfPartitionsThatAreNoMore(t *testing.T) {
	for name, tt := range map[string]struct {
		has   []string
		known time.Duration
		err   error
		left  []string // partitions with members
	}{
		"it has both":        {has: []string{"0", "1"}, known: time.Hour, left: []string{"0", "1"}},
		"it has one":         {has: []string{"0"}, known: 10 * time.Minute, left: []string{"0"}},
		"not known for long": {has: []string{"0"}, known: 10*time.Minute - 1, left: []string{"0", "1"}},
		"it does not answer": {err: errors.New("no link"), left: []string{"0", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := &incident.Book{Store: &records.Memory{}, Prefix: "incidents/"}
				group := incident.Group{Rule: "hot", Per: "site", Value: "berlin"}
				for _, partition := range []string{"0", "1"} {
					if _, err := book.Sync(t.Context(), group, partition, incident.Entry{Members: 1}); err != nil {
						t.Fatal(err)
					}
				}

				since := time.Now()
				time.Sleep(tt.known)
				hub := func(context.Context) ([]string, time.Time, error) { return tt.has, since, tt.err }
				report, _, err := leader.Incidents(book, hub, 24*time.Hour).Do(t.Context(), "")
				if tt.err != nil && (!errors.Is(err, tt.err) || !strings.Contains(err.Error(), "partitions")) || tt.err == nil && err != nil {
					t.Errorf("%q, %v", report, err)
				}

				r, _, err := book.Read(t.Context(), group)
				if err != nil {
					t.Fatal(err)
				}
				var left []string
				for partition, e := range r.Entries {
					if e.Members > 0 {
						left = append(left, partition)
					}
				}
				slices.Sort(left)
				if !slices.Equal(left, tt.left) {
					t.Errorf("partitions with members: %v, want %v", left, tt.left)
				}
			})
		})
	}
}

// Each run removes what nobody has written for the retention, and goes on where the run before was ended.
func TestOldIncidentsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retention = 24 * time.Hour
		store := &records.Memory{}
		cut := true
		book := &incident.Book{Prefix: "incidents/", Store: records.Around(store, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			if op == records.OpDelete && cut {
				return context.DeadlineExceeded
			}
			return call(ctx)
		})}
		group := incident.Group{Rule: "hot", Per: "site", Value: "berlin"}
		for _, members := range []int{1, 0} {
			if _, err := book.Sync(t.Context(), group, "0", incident.Entry{Members: members}); err != nil {
				t.Fatal(err)
			}
		}

		duty := leader.Incidents(book, func(context.Context) ([]string, time.Time, error) { return []string{"0"}, time.Time{}, nil }, retention)
		for _, tt := range []struct {
			after time.Duration
			cut   bool
			want  string
		}{
			{retention, false, "0 removed"},
			{3 * time.Second, true, ""},
			{0, false, "1 removed"},
			{0, false, "0 removed"},
		} {
			time.Sleep(tt.after)
			cut = tt.cut
			report, _, err := duty.Do(t.Context(), "")
			if (err != nil) != tt.cut || !strings.HasPrefix(report, tt.want) {
				t.Errorf("%q, %v, want %q", report, err, tt.want)
			}
		}
	})
}
