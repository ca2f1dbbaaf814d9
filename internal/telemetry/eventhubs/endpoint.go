package eventhubs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/records"
)

// An endpoint is where a hub is: a namespace's host name, and the hub in it.
type endpoint struct{ namespace, hub string }

func (at endpoint) String() string { return at.namespace + "/" + at.hub }

// lower is at in lower case, as records have it.
func (at endpoint) lower() endpoint {
	return endpoint{strings.ToLower(at.namespace), strings.ToLower(at.hub)}
}

// generation identifies the hub that was created there at a time: see [telemetry.Position].
func (at endpoint) generation(created time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v/%d", at.lower(), created.UnixMilli()))
	return hex.EncodeToString(sum[:8])
}

// parseEndpoint reads a connection string. Its hub is empty if there is no EntityPath. plain is AMQP without TLS.
func parseEndpoint(connectionString string) (at endpoint, plain bool, err error) {
	properties, err := azeventhubs.ParseConnectionString(connectionString)
	if err != nil {
		return endpoint{}, false, fmt.Errorf("connection string: %w", err)
	}

	at.namespace = properties.FullyQualifiedNamespace
	if properties.EntityPath != nil {
		at.hub = *properties.EntityPath
	}

	return at, properties.Emulator, nil
}

// endpoint is where the hub is at present.
func (s *Source) endpoint() endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// resolve asks where the hub is, if it can move, and reports whether it has moved.
// Without an answer it is taken to be where it was.
func (s *Source) resolve(ctx context.Context) (moved bool) {
	if s.config.Resolve == nil {
		return false
	}

	asking, cancel := context.WithTimeoutCause(ctx, shortTimeout, fmt.Errorf("no answer within %v", shortTimeout))
	defer cancel()
	connectionString, err := s.config.Resolve(asking)
	if ctx.Err() != nil {
		return false
	}

	var to endpoint
	if err == nil {
		to, _, err = parseEndpoint(connectionString)
	}
	if err != nil {
		s.log.Warn("cannot look up the IoT Hub's endpoint; continuing at the last known one", zap.Error(err))
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.at
	s.at = to
	s.config.ConnectionString = connectionString
	if from.lower() == to.lower() {
		return false
	}

	s.latest = nil // of the old endpoint
	s.stats.Moves++
	s.log.Error("the IoT Hub's endpoint has changed, as after a failover: continuing at the new one",
		zap.Stringer("from", from), zap.Stringer("to", to))

	return true
}

// Names of a lastRead record's values.
const (
	namespaceValue = "namespace"
	hubValue       = "hub"
)

// A lastRead is the record of where this consumer group last read an IoT Hub's
// events. It shows a move that happened while no replica was running.
type lastRead struct {
	name string   // of the record; empty if the hub cannot move
	at   endpoint // zero if it was never read
	etag string
}

// lastRead returns the record, a zero one if the hub cannot move or was never read.
func (s *Source) lastRead(ctx context.Context) (lastRead, error) {
	if s.config.IoTHub == "" {
		return lastRead{}, nil
	}

	name := strings.ToLower(s.config.IoTHub + "/" + s.config.ConsumerGroup + "/endpoint")
	r, err := s.config.Records.Stat(ctx, name)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return lastRead{}, fmt.Errorf("checkpoint store: %w", err)
	}

	return lastRead{name, endpoint{r.Values[namespaceValue], r.Values[hubValue]}, r.ETag}, nil
}

// setLastRead writes the record, unless another replica was first.
func (s *Source) setLastRead(ctx context.Context, at endpoint, last lastRead) error {
	if last.name == "" || last.at == at {
		return nil
	}

	_, err := s.config.Records.Write(ctx, records.Record{
		Name:   last.name,
		Values: map[string]string{namespaceValue: at.namespace, hubValue: at.hub},
		ETag:   last.etag,
	})
	if err != nil && !errors.Is(err, records.ErrConflict) {
		return fmt.Errorf("checkpoint store: %w", err)
	}

	return nil
}

// resumeMargin is how far before the last settled event reading resumes in another
// hub: far longer than it takes to notice a change of hub, and far more than clocks differ.
const resumeMargin = 10 * time.Minute

// resumeTime is the time from which to read another hub than the one of these
// checkpoints so that nothing is missed: its partitions may hold other events. It
// is zero, for the earliest event, if one of the checkpoints has no time, or there is none.
func resumeTime(all map[string]StoredCheckpoint) time.Time {
	times := []time.Time{}
	for _, c := range all {
		times = append(times, c.Time)
	}

	if len(times) == 0 || slices.ContainsFunc(times, time.Time.IsZero) {
		return time.Time{}
	}

	return slices.MinFunc(times, time.Time.Compare).Add(-resumeMargin)
}
