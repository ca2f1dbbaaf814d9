package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"alertworker/internal/backoff"
)

// A hubState is what a hub says about itself.
type hubState struct {
	at         endpoint
	created    time.Time
	partitions []string
	ends       map[string]azeventhubs.PartitionProperties // of the partitions that it was asked about
}

func (state hubState) generation() string { return state.at.generation(state.created) }

func every(string) bool { return true }
func none(string) bool  { return false }

// query asks the hub about itself and those of its partitions that are wanted, and once more if that fails: the
// connection, which is kept between questions, may have been lost.
func (s *Source) query(ctx context.Context, wanted func(partition string) bool) (state hubState, err error) {
	for range 2 {
		if state, err = s.questions.ask(ctx, wanted); err == nil {
			s.hubAnswered()
			return state, nil
		}

		if ctx.Err() != nil {
			return hubState{}, context.Cause(ctx)
		}
	}

	s.hubFailed(err)

	return hubState{}, err
}

// queryAgain is query, some time after an answer that may have been stale: one answer proves nothing.
func (s *Source) queryAgain(ctx context.Context, wanted func(partition string) bool) (hubState, error) {
	backoff.Sleep(ctx, s.secondThought)
	return s.query(ctx, wanted)
}

// ask asks the hub once about itself and those of its partitions that are wanted.
func (cs *connections) ask(ctx context.Context, wanted func(partition string) bool) (state hubState, err error) {
	opening, cancel := context.WithTimeout(ctx, cs.source.queryLimit)
	defer cancel()

	c, err := cs.acquire(opening)
	if err != nil {
		return hubState{}, expired(opening, err)
	}
	defer cs.release(c)
	defer func() {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) { // the connection may be lost without a word
			c.end()
		}
	}()

	t, err := c.config.token(opening, c.audience)
	if err != nil {
		return hubState{}, expired(opening, err)
	}

	question := func(kind, partition string) *amqp.Message {
		return &amqp.Message{ApplicationProperties: map[string]any{
			"operation": "READ", "type": "com.microsoft:" + kind, "name": c.at.hub, "partition": partition,
			"security_token": t.text,
		}}
	}

	const node = "$management"
	state = hubState{at: c.at, ends: map[string]azeventhubs.PartitionProperties{}}
	err = c.request(ctx, node, []*amqp.Message{question("eventhub", "")}, func(answer *amqp.Message) bool {
		about, _ := answer.Value.(map[string]any)
		state.created, _ = about["created_at"].(time.Time)
		state.partitions, _ = about["partition_ids"].([]string)
		return len(state.partitions) > 0 && !state.created.IsZero()
	})
	if err != nil {
		return hubState{}, fmt.Errorf("ask event hub %s for its partitions: %w", c.at.hub, err)
	}

	var questions []*amqp.Message
	for _, id := range state.partitions {
		if wanted(id) {
			questions = append(questions, question("partition", id))
		}
	}

	if len(questions) == 0 {
		return state, nil
	}

	err = c.request(ctx, node, questions, func(answer *amqp.Message) bool {
		end, ok := partitionEnd(answer.Value)
		state.ends[end.PartitionID] = end
		return ok
	})
	if err != nil {
		return hubState{}, fmt.Errorf("ask event hub %s for %d of its partitions: %w", c.at.hub, len(questions), err)
	}

	return state, nil
}

// partitionEnd reads what a hub says about a partition.
func partitionEnd(answer any) (end azeventhubs.PartitionProperties, ok bool) {
	about, _ := answer.(map[string]any)
	end.PartitionID, _ = about["partition"].(string)
	end.BeginningSequenceNumber, _ = about["begin_sequence_number"].(int64)
	end.LastEnqueuedOffset, _ = about["last_enqueued_offset"].(string)
	end.LastEnqueuedOn, _ = about["last_enqueued_time_utc"].(time.Time)
	end.IsEmpty, _ = about["is_partition_empty"].(bool)
	end.LastEnqueuedSequenceNumber, ok = about["last_enqueued_sequence_number"].(int64)

	return end, ok
}
