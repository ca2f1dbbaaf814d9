package eventhubs_test

import (
	"slices"
	"testing"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
)

// What one replica reports of all: its own partition, another's and a dead one's.
func TestOwnerships(t *testing.T) {
	t.Parallel()
	h := newHub(t, 3)
	h.Publish(t, "0", "a")
	h.Publish(t, "0", "b")
	config := h.config()
	config.OwnershipExpiry = time.Minute
	s := h.source(t, config)
	for id, owner := range map[string]string{"0": s.Owner(), "1": "another"} {
		h.own(t, id, owner)
	}
	h.setCheckpoint(t, "0", 0, "0")
	want := []telemetry.PartitionStatus{
		{Partition: "0", Owner: s.Owner(), Mine: true, Checkpoint: 0, Last: 1},
		{Partition: "1", Owner: "another", Checkpoint: -1, Last: -1},
		{Partition: "2", Checkpoint: -1, Last: -1},
	}
	check := func(s *eventhubs.Source, want []telemetry.PartitionStatus) {
		t.Helper()
		got, err := s.Ownerships(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	check(s, want)

	// To whom ownerships expire at once, nobody owns anything.
	config.OwnershipExpiry, config.BalanceInterval = 2*time.Nanosecond, time.Nanosecond
	orphaned := slices.Clone(want)
	orphaned[0].Owner, orphaned[0].Mine, orphaned[1].Owner = "", false, ""
	time.Sleep(2 * time.Second) // until an age is seen by a clock of whole seconds
	check(h.source(t, config), orphaned)

	// The hub is gone, the store is not.
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	without := slices.Clone(want[:2])
	without[0].Last = -1
	check(s, without)

	h.store.failWith(func(method string) error { return errOnPurpose })
	if _, err := s.Ownerships(t.Context(), true); err == nil {
		t.Error("no error although the store failed")
	}
}

// own claims a partition nobody owns yet for an owner that is alive.
func (h *hub) own(t *testing.T, id, owner string) {
	t.Helper()
	if err := ownership.Beat(t.Context(), &h.store.well, h.scope(), owner, false, nil); err != nil {
		t.Fatal(err)
	}
	if ok, err := ownership.Claim(t.Context(), &h.store.well, h.scope(), ownership.Record{Partition: id, Owner: owner}); err != nil || !ok {
		t.Fatal(ok, err)
	}
}
