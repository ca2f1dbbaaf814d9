package checkup

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
)

// KEDA's azure-eventhub scaler computes its own lag from the checkpoints, and says nothing
// if it looks for them in the wrong place. These steps say where, and what it counts.

const (
	rateSample = 2 * time.Second // for which arriving events are counted

	kedaThreshold = 64     // KEDA's default unprocessedEventThreshold
	kedaStale     = 10_000 // how far ahead of the hub KEDA lets a checkpoint be: the hub's answer may be older
)

// kedaLag says what KEDA counts, and which threshold the present rate needs: events up to
// the next checkpoint are no backlog.
func (k *checkup) kedaLag(ctx context.Context, c config.Config, store records.Store) (string, error) {
	before, err := k.probe(ctx, k.config.EventHubConsumerGroup, 0)
	if err != nil {
		return "", noHub
	}

	start := time.Now()

	select {
	case <-time.After(rateSample):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}

	after, err := k.probe(ctx, k.config.EventHubConsumerGroup, 0)
	if err != nil {
		return "", noHub
	}

	took := time.Since(start)
	written, unreadable, err := eventhubs.ReadCheckpoints(ctx, store, groupOf(c))
	if err != nil || len(unreadable) > 0 {
		return "", noRecords
	}

	counted, ahead := kedaCount(after.Partitions, written)
	if ahead {
		return "scales to its maximum until a worker has written new checkpoints: there are some far ahead of the hub, " +
			"which was recreated or failed over", nil
	}

	return fmt.Sprintf(
		"counts %s as unprocessed; %s",
		humanize.Count(int(counted), "event"),
		kedaAdvice(newest(after)-newest(before), took, c.CheckpointInterval),
	), nil
}

// newest returns the sum of the partitions' newest sequence numbers, which grows by each event that arrives.
func newest(s eventhubs.Snapshot) (n int64) {
	for _, p := range s.Partitions {
		n += p.Last
	}
	return n
}

// kedaAdvice says which threshold is needed if so many events have arrived within took.
func kedaAdvice(arrived int64, took, interval time.Duration) string {
	if arrived <= 0 {
		return fmt.Sprintf(
			"no event arrived within %s: check at a busy time to see which unprocessedEventThreshold it needs",
			config.Plain(rateSample),
		)
	}

	rate := float64(arrived) / took.Seconds()
	threshold := max(kedaThreshold, math.Ceil(2*rate*interval.Seconds()))
	return fmt.Sprintf(
		"%v events/s arrive: set unprocessedEventThreshold to at least %.0f, divided by the replicas that should share them",
		math.Round(10*rate)/10,
		threshold,
	)
}

// kedaCount returns how many events KEDA counts as unprocessed, and whether a checkpoint is so far ahead of the hub
// that it counts without end.
func kedaCount(
	partitions []eventhubs.PartitionState,
	checkpoints map[string]eventhubs.StoredCheckpoint,
) (n int64, ahead bool) {
	for _, p := range partitions {
		c, ok := checkpoints[p.ID]
		switch {
		case p.Last < 0: // it has never had an event
		case !ok && p.First == p.Last && p.Last > 0: // KEDA takes it for empty
		case !ok:
			n += p.Last - p.First + 1
		case c.Sequence-p.Last >= kedaStale:
			ahead = true
		default:
			n += max(0, p.Last-c.Sequence)
		}
	}

	return n, ahead
}

// kedaTrigger says what to write into a trigger so that KEDA finds the checkpoints: the
// names are those of blobs, which are in lower case.
func (k *checkup) kedaTrigger(context.Context) (string, error) {
	c, err := k.resolved()
	if err != nil {
		return "", noEndpoint
	}

	hub := c.Hub()
	host, name := strings.ToLower(hub.Host), strings.ToLower(hub.Name)
	text := fmt.Sprintf(
		"checkpointStrategy blobMetadata, blobContainer %s, consumerGroup %s",
		c.CheckpointContainer,
		strings.ToLower(c.EventHubConsumerGroup),
	)

	if u, err := url.Parse(c.StorageAccountURL); err == nil && u.Host != "" {
		account, _, _ := strings.Cut(u.Host, ".")
		text += ", storageAccountName " + account
	}

	if c.EventHubNamespace != "" {
		namespace, _, _ := strings.Cut(host, ".")
		return text + fmt.Sprintf(", eventHubNamespace %s, eventHubName %s", namespace, name), nil
	}

	text += fmt.Sprintf(", connection with Endpoint=sb://%s/ and EntityPath=%s", host, name)
	if host != hub.Host || name != hub.Name {
		text += ", in lower case as here: with capitals KEDA finds no checkpoint"
	}

	return text, nil
}
