package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
)

// beforeFirst is the offset before the first event of any partition.
const beforeFirst = "-1"

// A beginning is what is known of a hub before it is read.
type beginning struct {
	at         endpoint
	partitions []string
	created    time.Time
	ends       map[string]azeventhubs.PartitionProperties // asked after the checkpoints were read: never before them in the same hub

	have       map[string]Checkpoint
	unreadable map[string]error

	positions azeventhubs.StartPositions // of partitions that have no checkpoint to go on from
	moved     map[string]bool            // those of them that go on from checkpoints at another place
}

// missing are the partitions that have no checkpoint, not even one that cannot be read.
func (b *beginning) missing() []string {
	return slices.DeleteFunc(slices.Clone(b.partitions), func(id string) bool {
		_, ok := b.have[id]
		return ok || b.unreadable[id] != nil
	})
}

// begin decides where partitions begin that have no checkpoint to go on from,
// before anything is read.
//
// "Latest" means another event every time it is asked for. So it is resolved
// and written down once, on the first start of the consumer group: otherwise a
// crash before the first checkpoint, or an idle partition, would lose what
// arrives until the next start. "Earliest" and a time need no such care.
//
// A checkpoint of another hub, one of the same name that was deleted or failed
// over, says nothing about this one but a time; and so do the checkpoints of a
// hub at another place that an IoT Hub has left.
func (s *Source) begin(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, g *guard) (*beginning, error) {
	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
	}
	g.checkpoints.created = hub.CreatedOn
	b := &beginning{
		at:         at,
		partitions: hub.PartitionIDs,
		created:    hub.CreatedOn,
		positions:  azeventhubs.StartPositions{PerPartition: map[string]azeventhubs.StartPosition{}},
		moved:      map[string]bool{},
	}
	last, err := s.lastRead(ctx)
	if err != nil {
		return nil, err
	}
	if b.have, b.unreadable, err = g.checkpoints.all(ctx); err != nil {
		return nil, err
	}
	if b.ends, err = askPartitions(ctx, client, at, b.partitions); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(b.unreadable)) {
		s.log.Error("a checkpoint cannot be read", zap.String("partition", id), zap.Error(b.unreadable[id]))
		b.positions.PerPartition[id] = Start{Earliest: true}.position()
	}
	if err := s.leaveOtherHub(ctx, g, b); err != nil {
		return nil, err
	}
	switch {
	case last.at != (endpoint{}) && last.at != at.lower():
		err = s.leaveOtherPlace(ctx, g, b, last.at)
	case s.config.Start == (Start{}):
		err = s.pinLatest(ctx, g, b)
	}
	if err != nil {
		return nil, err
	}

	start := s.config.Start
	if start == (Start{}) {
		start = Start{Earliest: true}
	}
	b.positions.Default = start.position()
	missing := b.missing()
	if fresh := slices.DeleteFunc(slices.Clone(missing), func(id string) bool { return b.moved[id] }); len(fresh) > 0 {
		s.log.Warn("partitions have no checkpoint: starting over", zap.Strings("partitions", fresh), zap.Stringer("at", start))
	}
	// Until every partition has a checkpoint here, those from before are needed.
	if last.at == (endpoint{}) || len(missing) == 0 {
		err = s.setLastRead(ctx, at.lower(), last)
	}
	return b, err
}

// leaveOtherHub starts partitions over whose checkpoints are of another hub of
// this name.
func (s *Source) leaveOtherHub(ctx context.Context, g *guard, b *beginning) error {
	another := map[string]Checkpoint{}
	var contradicted []string
	for id, c := range b.have {
		end, known := b.ends[id]
		switch {
		case g.checkpoints.distrusted(id, c):
			contradicted = append(contradicted, id)
		case g.checkpoints.isForeign(id, c):
			another[id] = c
		case known && c.Sequence > end.LastEnqueuedSequenceNumber:
			g.checkpoints.distrust(id, c)
			another[id] = c
		}
	}
	return errors.Join(
		s.startOver(ctx, g, b, contradicted, time.Time{}, "events contradict the checkpoint, so that the hub is not the one it was"),
		s.startOver(ctx, g, b, slices.Collect(maps.Keys(another)), resumeTime(another), "checkpoints are of another hub of this name, which was deleted or failed over"),
	)
}

// leaveOtherPlace starts partitions over that have no checkpoint here, because
// the IoT Hub's events were at another place before.
func (s *Source) leaveOtherPlace(ctx context.Context, g *guard, b *beginning, before endpoint) error {
	var there map[string]Checkpoint
	var unreadable map[string]error
	err := attempt(ctx, "list the checkpoints of "+before.String(), func(ctx context.Context) (err error) {
		there, unreadable, err = ReadCheckpoints(ctx, s.config.Checkpoints, NewGroup(before.namespace, before.hub, s.config.ConsumerGroup))
		return err
	})
	if err != nil || len(there)+len(unreadable) == 0 {
		return err
	}
	resume := resumeTime(there)
	if len(unreadable) > 0 {
		resume = time.Time{}
	}
	missing := b.missing()
	for _, id := range missing {
		b.moved[id] = true
	}
	return s.startOver(ctx, g, b, missing, resume, fmt.Sprintf("the events of %s were at %v before", s.config.IoTHub, before))
}

// startOver has partitions begin at a time, or at the earliest event if that is
// zero. One that is empty gets its checkpoint at once: it may stay idle for long.
func (s *Source) startOver(ctx context.Context, g *guard, b *beginning, ids []string, at time.Time, why string) error {
	start := Start{Earliest: at.IsZero(), Time: at}
	var told []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		end, ok := b.ends[id]
		switch {
		case !ok: // the hub has fewer partitions than that one had
		case end.IsEmpty:
			c, err := g.checkpoints.write(ctx, id, endOf(end), b.have[id])
			if err != nil && !errors.Is(err, ErrConflict) { // another replica was first
				return err
			}
			b.have[id] = c
		default:
			b.positions.PerPartition[id] = start.position()
			told = append(told, id)
		}
	}
	if len(told) > 0 {
		s.log.Error(why+": starting over where nothing is missed; what was settled is not told again", zap.Strings("partitions", told), zap.Stringer("at", start))
	}
	return nil
}

// position is where the Processor begins; not for the latest event.
func (s Start) position() azeventhubs.StartPosition {
	if !s.Time.IsZero() {
		return azeventhubs.StartPosition{EnqueuedTime: &s.Time, Inclusive: true}
	}
	return azeventhubs.StartPosition{Earliest: &s.Earliest}
}

// pinLatest makes the present end of every partition its checkpoint if this is
// the first start. What another replica wrote stays, and is waited for; what a
// failure left unwritten is written the next time.
func (s *Source) pinLatest(ctx context.Context, g *guard, b *beginning) (err error) {
	if len(b.have)+len(b.unreadable) == 0 && s.latest == nil {
		s.latest = make(map[string]telemetry.Position, len(b.ends))
		for id, end := range b.ends {
			s.latest[id] = endOf(end)
		}
		s.log.Warn("first start of this consumer group: events from before now are not read", zap.Any("positions", s.latest))
	}
	for id, p := range s.latest {
		if b.unreadable[id] != nil {
			continue
		}
		if _, err := g.checkpoints.write(ctx, id, p, Checkpoint{}); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
	}
	if s.latest != nil {
		s.latest = nil
		if b.have, b.unreadable, err = g.checkpoints.all(ctx); err != nil {
			return err
		}
	}
	// Another replica may be about to write the rest.
	for end := time.Now().Add(s.firstStartGrace); len(b.missing()) > 0 && time.Now().Before(end); {
		backoff.Sleep(ctx, s.firstStartGrace/20)
		if b.have, b.unreadable, err = g.checkpoints.all(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endOf is the position of a partition's last event.
func endOf(end azeventhubs.PartitionProperties) telemetry.Position {
	if end.IsEmpty || end.LastEnqueuedOffset == "" {
		return telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: beforeFirst}
	}
	return telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: end.LastEnqueuedOffset, Time: end.LastEnqueuedOn}
}

// maxQuestions is how many partitions the hub is asked about at a time.
const maxQuestions = 8

// askPartitions asks the hub about partitions, several at a time. It does not
// end with ctx but with the connection.
func askPartitions(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, ids []string) (map[string]azeventhubs.PartitionProperties, error) {
	answers := make([]azeventhubs.PartitionProperties, len(ids))
	errs := make([]error, len(ids))
	places := make(chan struct{}, maxQuestions)
	var asking sync.WaitGroup
	for i, id := range ids {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				answers[i], errs[i] = client.GetPartitionProperties(ctx, id, nil)
			}
		})
	}
	asking.Wait()
	all := make(map[string]azeventhubs.PartitionProperties, len(ids))
	for i, id := range ids {
		if errs[i] != nil {
			return nil, fmt.Errorf("ask event hub %s for partition %s: %w", at.hub, id, errs[i])
		}
		all[id] = answers[i]
	}
	return all, nil
}
