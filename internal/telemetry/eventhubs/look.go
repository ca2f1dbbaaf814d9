package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A look is a client that reads a hub beside those who share its partitions: it takes none from them, tries
// everything once and writes nothing.
type look struct {
	source *Source
	client *azeventhubs.ConsumerClient
	hub    hubState // when the look was opened
	close  func()   // disconnects, and does not block
}

// openLook asks the hub that config names for its partitions and their ends. The look ends with ctx, or when it is closed.
func openLook(ctx context.Context, config Config) (*look, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	client, at, err := s.newClient(once, filtered) // retries hide what is wrong
	if err != nil {
		return nil, err
	}
	l := &look{source: s, client: client, close: sync.OnceFunc(func() { _ = client.Close(context.Background()) })}
	context.AfterFunc(ctx, l.close) // GetPartitionProperties ignores its context
	if l.hub, err = ask(ctx, client, at, every, func() {}); err != nil {
		l.close()
		return nil, s.explain(ctx, at, err)
	}
	return l, nil
}

// lookBatch is how long a batch may take to be full.
const lookBatch = 250 * time.Millisecond

// errSilent means that nothing came.
var errSilent = errors.New("nothing came")

// read opens a link and gives take what comes, until that has enough. It fails with errSilent if nothing comes for so long.
//
// Without an owner level the link is refused where a worker reads, and gives way to a worker that comes.
func (l *look) read(ctx context.Context, id string, start azeventhubs.StartPosition, credit int, silence time.Duration, take func([]*azeventhubs.ReceivedEventData) (more bool)) error {
	partition, err := l.client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{StartPosition: start, Prefetch: int32(credit)})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = partition.Close(closing)
	}()
	// The first event, and the one after a pause, is waited for alone: for one a link is opened, which takes some round trips.
	for n, wait := 1, silence; ; {
		receiving, cancel := context.WithTimeout(ctx, wait)
		received, err := partition.ReceiveEvents(receiving, n, nil)
		late := receiving.Err() != nil
		cancel()
		switch {
		case len(received) > 0:
			if !take(received) {
				return nil
			}
			n, wait = credit, lookBatch
		case ctx.Err() != nil:
			return ctx.Err()
		case !late:
			return err
		case wait == silence:
			return fmt.Errorf("%w for %v, although the hub has more events", errSilent, silence)
		default:
			n, wait = 1, silence
		}
	}
}
