package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
)

// askTimeout is for the hub to answer all questions of one round.
const askTimeout = 10 * time.Second

// Ends want to know where partitions end.
type Ends interface {
	Wanted() []string                     // partitions to ask about; the hub need not have them
	Partitions(n int)                     // how many the hub has
	End(partition string, sequence int64) // of its last event
}

// FollowEnds asks the hub at once, and then every so often until ctx ends,
// and tells ends. It has a connection of its own and survives every failure: ends are
// told nothing then. It may run beside Run.
func (s *Source) FollowEnds(ctx context.Context, every time.Duration, ends Ends) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for ctx.Err() == nil {
		err := s.askEnds(ctx, tick.C, ends)
		if ctx.Err() != nil {
			return
		}
		if !failing {
			s.log.Warn("where partitions end is not known: no lag is shown until the hub answers", zap.Error(err))
		}
		failing = true
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
