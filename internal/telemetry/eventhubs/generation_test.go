package eventhubs_test

import (
	"context"
	"testing"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// consumed is what a consumer found in partition 0.
type consumed struct {
	resumed telemetry.Checkpoint
	over    bool
	event   telemetry.Position
}

// consumeOne runs a source until a consumer of partition 0 has got one event, if one is
// expected, and has called then.
func consumeOne(t *testing.T, h *hub, expected bool, then func(context.Context, telemetry.Partition, telemetry.Position) error) (found consumed) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := h.source(t, h.latest()).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		defer cancel()
		found.resumed, found.over = p.Resumed()
		if expected {
			events, err := p.Receive(ctx)
			if err != nil {
				t.Error(err)
				return err
			}
			found.event = events[0].Position
		}
		if err := then(context.WithoutCancel(ctx), p, found.event); err != nil {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Events and checkpoints say which hub numbered them. A position in a hub that is gone
// moves no checkpoint of the one that took its place, however empty that is.
func TestPositionsKnowTheirHub(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.setCheckpoint(t, "0", -1, "-1") // another tool wrote it
	h.Publish(t, "0", "a")
	settle := func(ctx context.Context, p telemetry.Partition, at telemetry.Position) error {
		return p.Checkpoint(ctx, telemetry.Checkpoint{Position: at})
	}
	first := consumeOne(t, h, true, settle)
	if first.event.Generation == "" || first.resumed.Generation != first.event.Generation || first.over {
		t.Fatalf("%+v: want events and their checkpoint of one generation", first)
	}
	again := consumeOne(t, h, false, settle)
	if again.resumed.Position != first.event {
		t.Errorf("the checkpoint is %+v, want %+v", again.resumed, first.event)
	}

	h.replace(t, devhub.Config{Partitions: 1})
	second := consumeOne(t, h, false, func(ctx context.Context, p telemetry.Partition, _ telemetry.Position) error {
		return p.Checkpoint(ctx, telemetry.Checkpoint{Position: first.event})
	})
	if second.resumed.Sequence != -1 || second.resumed.Generation == "" || second.resumed.Generation == first.event.Generation {
		t.Errorf("it resumed from %+v in another hub", second.resumed)
	}
	all, _, err := eventhubs.ReadCheckpoints(t.Context(), h.store, h.group())
	if c := all["0"]; err != nil || c.Sequence != -1 || c.Generation != second.resumed.Generation {
		t.Errorf("the checkpoint is %+v, %v", c, err)
	}
}
