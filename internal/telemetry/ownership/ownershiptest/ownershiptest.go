// Package ownershiptest holds an ownership store to its contract.
package ownershiptest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/telemetry/ownership"
)

const scope = "ns.servicebus.windows.net/hub/$default"

// Run checks a store. Open returns an empty one.
func Run(t *testing.T, open func(t *testing.T) ownership.Store) {
	t.Run("Empty", func(t *testing.T) {
		if got := list(t, open(t), scope); len(got.Partitions)+len(got.Heartbeats) > 0 {
			t.Errorf("it has %+v", got)
		}
	})
	t.Run("Claim", func(t *testing.T) { claims(t, open(t)) })
	t.Run("OneWinner", func(t *testing.T) { oneWinner(t, open(t)) })
	t.Run("Heartbeats", func(t *testing.T) { heartbeats(t, open(t)) })
	t.Run("Age", func(t *testing.T) { ages(t, open(t)) })
	t.Run("Scopes", func(t *testing.T) { scopes(t, open(t)) })
	t.Run("Many", func(t *testing.T) { many(t, open(t)) })
	t.Run("Ended", func(t *testing.T) { ended(t, open(t)) })
}

func list(t *testing.T, s ownership.Store, scope string) ownership.Records {
	t.Helper()
	records, err := s.List(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(records.Partitions, func(a, b ownership.Record) int { return cmp.Compare(a.Partition, b.Partition) })
	slices.SortFunc(records.Heartbeats, func(a, b ownership.Heartbeat) int { return cmp.Compare(a.Owner, b.Owner) })
	return records
}

func claim(t *testing.T, s ownership.Store, partition, owner, version string) bool {
	t.Helper()
	ok, err := s.Claim(t.Context(), scope, partition, owner, version)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func beat(t *testing.T, s ownership.Store, owner string, leaving bool) {
	t.Helper()
	if err := s.Beat(t.Context(), scope, owner, leaving); err != nil {
		t.Fatal(err)
	}
}

func claims(t *testing.T, s ownership.Store) {
	if !claim(t, s, "0", "a", "") {
		t.Fatal("nobody owns it, and it was refused")
	}
	first := list(t, s, scope).Partitions[0]
	if first.Partition != "0" || first.Owner != "a" || first.Version == "" {
		t.Errorf("a owns it as %+v", first)
	}
	if claim(t, s, "0", "b", "") {
		t.Error("b got what has a record")
	}
	if claim(t, s, "1", "b", first.Version) {
		t.Error("b got what has no record by another's version")
	}
	for _, owner := range []string{"a", "b", "", "c"} { // renew, steal, give back, take
		before := list(t, s, scope).Partitions[0]
		if !claim(t, s, "0", owner, before.Version) {
			t.Errorf("%q was refused", owner)
		}
		after := list(t, s, scope).Partitions[0]
		if after.Owner != owner || after.Version == before.Version {
			t.Errorf("%q owns it as %+v, before that it was %+v", owner, after, before)
		}
		if claim(t, s, "0", "late", before.Version) {
			t.Error("the version of before was taken")
		}
	}
	if got := list(t, s, scope); len(got.Partitions) != 1 || len(got.Heartbeats) != 0 {
		t.Errorf("it has %+v", got)
	}
}

func oneWinner(t *testing.T, s ownership.Store) {
	version := ""
	for round := range 10 {
		var won atomic.Int64
		var racers sync.WaitGroup
		for i := range 6 {
			racers.Go(func() {
				ok, err := s.Claim(t.Context(), scope, "0", fmt.Sprint(i), version)
				if err != nil {
					t.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		racers.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d has %d winners", round, won.Load())
		}
		version = list(t, s, scope).Partitions[0].Version
	}
}

func heartbeats(t *testing.T, s ownership.Store) {
	beat(t, s, "Replica-a.b_1", false)
	beat(t, s, "z", true)
	before := list(t, s, scope).Heartbeats
	if len(before) != 2 || before[0].Owner != "Replica-a.b_1" || before[0].Leaving || before[1].Owner != "z" || !before[1].Leaving {
		t.Fatalf("the heartbeats are %+v", before)
	}
	beat(t, s, "Replica-a.b_1", true)
	beat(t, s, "z", false)
	after := list(t, s, scope).Heartbeats
	if len(after) != 2 || !after[0].Leaving || after[1].Leaving || after[0].Version == before[0].Version || after[1].Version == before[1].Version {
		t.Errorf("the heartbeats are %+v, they were %+v", after, before)
	}
	forget := func(owner, version string, left int) {
		t.Helper()
		if err := s.Forget(t.Context(), scope, owner, version); err != nil {
			t.Error(err)
		}
		if got := list(t, s, scope).Heartbeats; len(got) != left {
			t.Errorf("the heartbeats are %+v, want %d", got, left)
		}
	}
	forget("z", before[1].Version, 2) // it has beaten since
	forget("z", after[1].Version, 1)
	forget("z", after[1].Version, 1)
	forget("Replica-a.b_1", "", 0)
	forget("Replica-a.b_1", "", 0)
	beat(t, s, "z", false)
	if got := list(t, s, scope).Heartbeats; len(got) != 1 {
		t.Errorf("the heartbeats are %+v", got)
	}
}

// An age is never more than the truth, and at most two seconds less.
func ages(t *testing.T, s ownership.Store) {
	began := time.Now()
	beat(t, s, "a", false)
	claim(t, s, "0", "a", "")
	written := time.Now()
	for time.Since(written) < 2500*time.Millisecond {
		least := max(0, time.Since(written)-2*time.Second)
		got := list(t, s, scope)
		most := time.Since(began)
		for _, age := range []time.Duration{got.Heartbeats[0].Age, got.Partitions[0].Age} {
			if age < least || age > most {
				t.Errorf("the age is %v, want %v to %v", age, least, most)
			}
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
}

func scopes(t *testing.T, s ownership.Store) {
	const longer = scope + "er"
	for i, scope := range []string{scope, longer} {
		if ok, err := s.Claim(t.Context(), scope, fmt.Sprint(i), "a", ""); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := s.Beat(t.Context(), scope, fmt.Sprint(i), false); err != nil {
			t.Fatal(err)
		}
	}
	for i, scope := range []string{scope, longer} {
		got := list(t, s, scope)
		if len(got.Partitions) != 1 || len(got.Heartbeats) != 1 || got.Partitions[0].Partition != fmt.Sprint(i) || got.Heartbeats[0].Owner != fmt.Sprint(i) {
			t.Errorf("%s has %+v", scope, got)
		}
	}
}

func many(t *testing.T, s ownership.Store) {
	const n = 40
	for i := range n {
		claim(t, s, fmt.Sprint(i), "a", "")
		beat(t, s, fmt.Sprint(i), false)
	}
	if got := list(t, s, scope); len(got.Partitions) != n || len(got.Heartbeats) != n {
		t.Errorf("it has %d partitions and %d heartbeats, want %d", len(got.Partitions), len(got.Heartbeats), n)
	}
}

func ended(t *testing.T, s ownership.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx, scope); err == nil {
		t.Error("List took no notice of its context")
	}
	if _, err := s.Claim(ctx, scope, "0", "a", ""); err == nil {
		t.Error("Claim took no notice of its context")
	}
	if err := s.Beat(ctx, scope, "a", false); err == nil {
		t.Error("Beat took no notice of its context")
	}
	if err := s.Forget(ctx, scope, "a", ""); err == nil {
		t.Error("Forget took no notice of its context")
	}
}
