package eventhubs

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A hubState is what a hub says about itself.
type hubState struct {
	at         endpoint
	created    time.Time
	partitions []string
	ends       map[string]azeventhubs.PartitionProperties // of the partitions that it was asked about

	// unanswered is why ends has not all partitions that the hub was asked about; nil if it has.
	unanswered error
}

func (state hubState) generation() string { return state.at.generation(state.created) }

func every(string) bool { return true }
func none(string) bool  { return false }

// query asks the hub about itself and those of its partitions that are wanted. It fails if the hub does not say what it
// is; see hubState.unanswered for its partitions.
func (s *Source) query(ctx context.Context, u urgency, wanted func(partition string) bool) (hubState, error) {
	state, err := s.ask(ctx, u, wanted)
	switch {
	case err == nil:
		s.hubAnswered()
	case ctx.Err() == nil:
		s.hubFailed(err)
	}

	return state, err
}

// ask is query without a record of the hub's failure.
func (s *Source) ask(ctx context.Context, u urgency, wanted func(partition string) bool) (hubState, error) {
	about := s.questions.put(u, aboutHub)
	if err := s.questions.await(ctx, about); err != nil {
		return hubState{}, err
	}

	state := about.hub
	state.ends = map[string]azeventhubs.PartitionProperties{}
	asked := map[string]*question{}
	for _, id := range state.partitions {
		if wanted(id) {
			asked[id] = s.questions.put(u, id)
		}
	}

	for id, q := range asked {
		switch err := s.questions.await(ctx, q); {
		case err != nil:
			state.unanswered = err
		case q.end.of != state.at:
			state.unanswered = fmt.Errorf("event hub %v has moved to %v", state.at, q.end.of)
		default:
			state.ends[id] = q.end.end
		}
	}

	return state, nil
}

// askAll is ask about every partition. It asks again about those whose end the hub did not report, as long as
// it says so of some.
func (s *Source) askAll(ctx context.Context, u urgency) (hubState, error) {
	state, err := s.ask(ctx, u, every)
	for err == nil && state.unanswered != nil && ctx.Err() == nil {
		before := state
		state, err = s.ask(ctx, u, func(id string) bool { _, known := before.ends[id]; return !known })
		isStuck := len(state.ends) == 0
		if isStuck || state.generation() != before.generation() {
			break
		}

		maps.Copy(state.ends, before.ends)
	}
	if err == nil {
		err = state.unanswered
	}

	return state, err
}

// readHub reads what a hub says about itself.
func readHub(answer any) (state hubState, ok bool) {
	about, _ := answer.(map[string]any)
	state.created, _ = about["created_at"].(time.Time)
	state.partitions, _ = about["partition_ids"].([]string)

	return state, len(state.partitions) > 0 && !state.created.IsZero()
}

// readEnd reads what a hub says about a partition. All of it is relied upon: of a partition whose last offset is not
// known, for one, the first start would begin at the earliest event.
func readEnd(answer any) (end azeventhubs.PartitionProperties, ok bool) {
	about, ok := answer.(map[string]any)
	has := func(found bool) { ok = ok && found }

	var found bool
	end.PartitionID, found = about["partition"].(string)
	has(found)
	end.BeginningSequenceNumber, found = integer(about["begin_sequence_number"])
	has(found)
	end.LastEnqueuedSequenceNumber, found = integer(about["last_enqueued_sequence_number"])
	has(found)
	end.LastEnqueuedOffset, found = about["last_enqueued_offset"].(string)
	has(found)
	end.LastEnqueuedOn, found = about["last_enqueued_time_utc"].(time.Time)
	has(found)
	end.IsEmpty, found = about["is_partition_empty"].(bool)
	has(found)

	return end, ok
}

// integer reads a number, which AMQP may send in any width.
func integer(value any) (n int64, ok bool) {
	switch value := value.(type) {
	case int64:
		return value, true
	case int32:
		return int64(value), true
	case int16:
		return int64(value), true
	case int8:
		return int64(value), true
	}

	return 0, false
}
