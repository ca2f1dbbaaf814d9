package eventhubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/backoff"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/transport"
)

// Defaults of a Config.
const (
	// DefaultPrefetch is the number of events that a partition may have on request, as long as
	// the buffer of the replica has room for them.
	DefaultPrefetch = 1000

	// DefaultBufferBytes has room for 1,024 events of the largest size that IoT Hub
	// accepts: 32 for each of 32 busy partitions. Consumers hold as many again.
	DefaultBufferBytes = 256 << 20

	// DefaultBalanceInterval is how often a replica writes its heartbeat and
	// looks for partitions to take: two storage operations.
	DefaultBalanceInterval = 3 * time.Second

	// DefaultOwnershipExpiry is how long a replica keeps its partitions without a
	// heartbeat: it allows for two missed ones and a store that is slow for some
	// seconds. With a store whose clock counts in seconds, the others take them
	// over within two more seconds.
	DefaultOwnershipExpiry = 8 * time.Second
)

// MaxPrefetch is as many as a session of go-amqp lets the hub send before it has seen any.
const MaxPrefetch = 5000

// maxName is how many characters the name of a receiver may have for clients in other languages.
const maxName = 64

// A Config says what to read and as whom. A zero field has its default, if it has one.
type Config struct {
	// Either a connection string, where UseDevelopmentEmulator=true means AMQP
	// without TLS, or the host name of a namespace and a credential.
	ConnectionString string
	Namespace        string
	Credential       azcore.TokenCredential

	// IoTHub and Resolve are for the endpoint of an IoT Hub, which moves in a
	// failover: the host name of the IoT Hub, and a function that asks it for the
	// endpoint's current connection string, EntityPath included. Resolve is called
	// at every restart and every few minutes; ConnectionString is its first result.
	// Both or neither are set.
	IoTHub  string
	Resolve func(context.Context) (string, error)

	Hub           string // default: the connection string's EntityPath
	ConsumerGroup string // default: $Default

	Transport transport.Transport // default: transport.AMQP
	Network   transport.Network   // default: the machine's own

	// Start is where partitions start while the consumer group has no checkpoint
	// at all. Once it has one, a partition without starts at its earliest event,
	// unless Start is a time, which always applies.
	Start Start

	// Prefetch bounds the events that one partition has on request. BufferBytes bounds those that
	// all partitions of this Source have on request or hand out, in bytes of messages as the hub
	// sends them, each counted as 256 KiB, the most that IoT Hub accepts. A partition may
	// always have some on request, and keeps what it has when the hub gets more partitions.
	Prefetch    int // 1 to MaxPrefetch
	BufferBytes int

	OwnershipExpiry time.Duration // at least 2 BalanceInterval
	BalanceInterval time.Duration

	// Owner labels this replica's ownerships for people. Characters other than
	// letters, digits and -._ are replaced, and only the last 27 are kept. A random suffix makes
	// every Source a different owner.
	Owner string

	// Report, if not nil, returns what Reports returns in the other replicas, at most 64 KiB of JSON. They see a new one
	// within some 15 s if Verdict has changed, else within a minute.
	Report  func() []byte
	Verdict func() string // what other replicas act on; nil: nothing

	// Records holds the checkpoints, and which replica owns which partition. Failures are retried.
	Records records.Store

	Logger *zap.Logger // default: none
}

// A Start is a place in all partitions. The zero Start is the latest event; Time
// takes precedence over Earliest.
type Start struct {
	Earliest bool
	Time     time.Time // the first event enqueued at this time or later
}

// UnmarshalText reads "latest", "earliest" or an RFC 3339 time.
func (s *Start) UnmarshalText(text []byte) error {
	switch v := string(text); strings.ToLower(v) {
	case "", "latest":
		*s = Start{}

	case "earliest":
		*s = Start{Earliest: true}

	default:
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return fmt.Errorf("start position %q: must be earliest, latest or a time such as 2006-01-02T15:04:05Z", v)
		}
		*s = Start{Time: at}
	}

	return nil
}

func (s Start) String() string {
	switch {
	case !s.Time.IsZero():
		return s.Time.Format(time.RFC3339)
	case s.Earliest:
		return "earliest"
	}

	return "latest"
}

// Source is a [telemetry.Source]. Run may be called once at a time.
type Source struct {
	config    Config   // its ConnectionString is guarded by mu
	at        endpoint // guarded by mu
	plain     bool     // AMQP without TLS
	owner     string
	log       *zap.Logger
	questions *questions
	record    func(partitions int, last map[string]int64) // see RecordEnds

	// Used by Run alone.
	latest  map[string]telemetry.Position // where a first start begins, until that is written down
	doubted bool                          // the hub was another one when it was last read

	// Limits that only tests shorten.
	firstStartGrace time.Duration // for another replica to write the first checkpoints
	checkInterval   time.Duration // between two checks of the hub
	openLimit       time.Duration // for a link to be attached
	closeLimit      time.Duration // for the hub to confirm that a link is closed
	queryLimit      time.Duration // for the hub to answer a question
	secondThought   time.Duration // between two answers that say that the hub is another one
	stallLimit      time.Duration // after which a link is opened again on which nothing comes although the hub is ahead

	hub atomic.Pointer[hub] // that is read; nil while there is none

	mu    sync.Mutex
	stats telemetry.SourceStats
}

// New connects to nothing. Its caller has checked config: New fails only if it cannot read the
// connection string.
func New(config Config) (*Source, error) {
	at, plain := endpoint{namespace: config.Namespace}, false
	if config.ConnectionString != "" {
		var err error
		if at, plain, err = parseEndpoint(config.ConnectionString); err != nil {
			return nil, fmt.Errorf("event hub source: %w", err)
		}
	}

	at.hub = cmp.Or(at.hub, config.Hub)
	config.ConsumerGroup = cmp.Or(config.ConsumerGroup, azeventhubs.DefaultConsumerGroup)
	config.Prefetch = cmp.Or(config.Prefetch, DefaultPrefetch)
	config.BufferBytes = cmp.Or(config.BufferBytes, DefaultBufferBytes)
	config.BalanceInterval = cmp.Or(config.BalanceInterval, DefaultBalanceInterval)
	config.OwnershipExpiry = cmp.Or(config.OwnershipExpiry, DefaultOwnershipExpiry)
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}

	owner := uuid.NewString()
	if config.Owner != "" {
		label := unaccepted.ReplaceAllString(config.Owner, "_")
		owner = label[max(0, len(label)+1+len(owner)-maxName):] + "-" + owner // the end tells pods apart
	}

	s := &Source{
		config: config,
		at:     at,
		plain:  plain,
		owner:  owner,
		log: config.Logger.With(
			zap.String("hub", cmp.Or(config.IoTHub, at.hub)),
			zap.String("group", config.ConsumerGroup),
		),
		record:          func(int, map[string]int64) {},
		firstStartGrace: 5 * time.Second,
		checkInterval:   15 * time.Second,
		openLimit:       time.Minute,
		closeLimit:      shortTimeout,
		queryLimit:      10 * time.Second,
		secondThought:   time.Second,
		stallLimit:      2 * time.Minute,
	}
	s.questions = newQuestions(s)

	return s, nil
}

// unaccepted is what Azure does not accept in metadata and names.
var unaccepted = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// Stats may be called concurrently with Run.
func (s *Source) Stats() telemetry.SourceStats {
	s.mu.Lock()
	stats := s.stats
	s.mu.Unlock()

	h := s.hub.Load()
	if h == nil {
		return stats
	}

	stats.Running = true
	stats.Owned = len(h.member.Owned())
	stats.Faults = map[string]telemetry.Fault{}
	stats.AtRisk = map[string]telemetry.Fault{}
	for _, p := range h.read() {
		p.mu.Lock()
		l, fault := p.link, p.fault
		if p.hasRival() {
			fault = p.rival
		}
		p.mu.Unlock()

		of := stats.Faults
		if l != nil {
			stats.Reading++
			of = stats.AtRisk
			if f := l.connection.unclaimed.Load(); f != nil {
				fault = *f
			}
		}

		if fault.Err != nil {
			of[p.id] = fault
		}
	}

	return stats
}

// add adds to one of the counters in s.stats.
func (s *Source) add(counter *int64, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter += n
}

// hubAnswered records that the hub answered.
func (s *Source) hubAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Hub = telemetry.Fault{}
}

// hubFailed records what an error of the hub means unless a partition is being read.
func (s *Source) hubFailed(err error) {
	stats := s.Stats()
	f := s.fault(stats.Hub, s.endpoint(), err)
	if stats.Reading == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats.Hub = f
	}
}

// fault returns what the failure before becomes by an error of the hub at an endpoint.
func (s *Source) fault(before telemetry.Fault, at endpoint, err error) telemetry.Fault {
	return telemetry.Fault{
		Since:   cmp.Or(before.Since, time.Now()),
		Err:     s.explain(context.Background(), at, err),
		Refused: unauthorized(err) || errors.Is(err, azure.ErrNoToken),
	}
}

// Close closes the connection for questions. Call it after Run has returned, when
// there are no more calls of other methods.
func (s *Source) Close() {
	q := s.questions
	q.end()
	q.running.Wait()
	q.hangUp()
	q.connections.running.Wait()
}

const (
	startMin = 500 * time.Millisecond
	startMax = 30 * time.Second

	// shortTimeout is for an answer that is not worth a long wait: that a link is
	// closed, or where the hub is.
	shortTimeout = 5 * time.Second
)

type consumer = func(context.Context, telemetry.Partition) error

// Run implements [telemetry.Source]. It always returns nil: a later attempt may
// succeed whatever the error was. It starts again only if the hub is another one.
func (s *Source) Run(ctx context.Context, consume func(context.Context, telemetry.Partition) error) error {
	for n := 1; ; n++ {
		log := s.log.Debug // what lasts is in Stats
		h, err := s.newHub(ctx)
		if err == nil {
			n, log = 1, s.log.Warn
			s.hub.Store(h)
			err = h.run(ctx, consume)
			s.doubted = errors.Is(err, errAnotherHub)
			s.hub.Store(nil)
		}

		if ctx.Err() != nil {
			return nil
		}

		pause := backoff.Delay(n, startMin, startMax)
		log("the hub is not read; starting again", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
		s.resolve(ctx)
	}
}
