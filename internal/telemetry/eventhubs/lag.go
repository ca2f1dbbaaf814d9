package eventhubs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
)

// askTimeout is for the hub to answer one round of questions.
const askTimeout = 10 * time.Second

// Ends want to know where partitions end, to see how far behind a reader is.
type Ends interface {
	Wanted() []string                     // the partitions to ask about; the hub need not have them
	Partitions(n int)                     // how many the hub has
	End(partition string, sequence int64) // of its last event
}

// FollowEnds asks the hub now, and again every so often until ctx ends, and tells
// ends. While the hub does not answer it tells them nothing. It has a connection
// of its own, and may run beside Run.
func (s *Source) FollowEnds(ctx context.Context, every time.Duration, ends Ends) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := s.followEnds(ctx, tick.C, ends)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("the hub does not say where partitions end, so that their lag is not known; asking again", zap.Error(err))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// followEnds does so on one connection, until something fails or ctx ends.
func (s *Source) followEnds(ctx context.Context, tick <-chan time.Time, ends Ends) error {
	client, err := s.connect()
	if err != nil {
		return fmt.Errorf("event hub client: %w", err)
	}
	hangUp := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // only drops the connection
	defer hangUp()
	for {
		if err := s.askEnds(ctx, client, hangUp, ends); err != nil {
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Source) askEnds(ctx context.Context, client *azeventhubs.ConsumerClient, hangUp func(), ends Ends) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer within %v", askTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, hangUp)() // a question about a partition ignores its context
	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return fmt.Errorf("ask event hub %s for its partitions: %w", s.config.Hub, err)
	}
	ends.Partitions(len(hub.PartitionIDs))
	for _, id := range ends.Wanted() {
		if !slices.Contains(hub.PartitionIDs, id) {
			continue
		}
		properties, err := s.partition(ctx, client, id)
		if err != nil {
			return err
		}
		ends.End(id, properties.LastEnqueuedSequenceNumber)
	}
	return nil
}
