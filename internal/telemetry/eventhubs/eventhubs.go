// Package eventhubs reads telemetry from an Event Hub, or from the Event
// Hub-compatible endpoint of an IoT Hub: a [telemetry.Source] on the Processor
// of azeventhubs.
//
// A Processor shares the partitions of a hub among replicas and dies of the
// first thing that goes wrong. What this package adds is what it takes to live
// with that: a supervisor that starts another one (run.go), a guard in front of
// the checkpoint store (guard.go), a start position that is written down before
// anything is read (begin.go), a buffer that is bounded in bytes
// (partition.go), and a connection that messages cannot break (dial.go).
package eventhubs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// Defaults of a Config.
const (
	// DefaultPrefetch is the number of events that may be buffered per
	// partition. With a round trip of 20 ms it allows some 40,000 events a
	// second and partition.
	DefaultPrefetch = 1000

	// DefaultBufferBytes is what these events may weigh. Only events of more
	// than about 14 KiB meet this bound before DefaultPrefetch.
	DefaultBufferBytes = 16 << 20

	// DefaultBalanceInterval is how often a replica looks for partitions to
	// take, and renews its own.
	DefaultBalanceInterval = 5 * time.Second

	// DefaultOwnershipExpiry is how long a replica that was killed keeps its
	// partitions. Another one reads them at most 1.3 intervals later, after
	// 30 to 37 s: sooner than a window of 60 s ends.
	DefaultOwnershipExpiry = 30 * time.Second
)

// MaxPrefetch is the most that azeventhubs allows.
const MaxPrefetch = 5000

// A Config says what to read and as whom. A zero field has its default.
type Config struct {
	// Either a connection string, whose key UseDevelopmentEmulator=true means
	// AMQP without TLS, or the host name of a namespace and a credential.
	ConnectionString string
	Namespace        string
	Credential       azcore.TokenCredential

	Hub           string // default: the connection string's EntityPath
	ConsumerGroup string // default: $Default

	// Start is where partitions begin when the consumer group has no
	// checkpoint at all. Once it has one, a partition without begins at its
	// earliest event, except that a Start at a time always holds.
	Start Start

	// Prefetch and BufferBytes bound what is buffered for one partition, in
	// events and in bytes. The bytes are bounded by the size that events had
	// so far: one burst of up to Prefetch larger events can exceed them.
	Prefetch    int
	BufferBytes int

	OwnershipExpiry time.Duration // at least 2 BalanceInterval
	BalanceInterval time.Duration

	// Owner labels this replica's ownerships for people. A random part is
	// added: two Sources are never the same owner.
	Owner string

	// Checkpoints holds ownerships and checkpoints. Its answers are trusted,
	// its failures are retried. It is safe for concurrent use.
	Checkpoints azeventhubs.CheckpointStore

	Logger *zap.Logger // default: none
}

// A Start is a place in all partitions: the latest event if it is zero. Time
// beats Earliest.
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
			return fmt.Errorf("start position %q: want earliest, latest or a time like 2006-01-02T15:04:05Z", v)
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

// Stats is what a Source did and has.
type Stats struct {
	Running bool // a Processor runs: hub and checkpoint store have answered

	Owned   int // partitions this replica owns
	Reading int // partitions a consumer runs for

	Lost     int64 // consumers that lost their partition: to another replica, or because the Processor was replaced
	Unread   int64 // Processors replaced because a partition was owned and nobody read it
	Restarts int64 // Processors replaced for any reason
}

// Source is a [telemetry.Source]. Run may be called once at a time.
type Source struct {
	config    Config
	namespace string // for the checkpoint store
	plain     bool   // AMQP without TLS
	owner     string
	log       *zap.Logger

	// Run's own.
	patience time.Duration                 // how long an owned partition may go unread; grows while a new Processor does not help
	latest   map[string]telemetry.Position // where a first start begins, until that is written down

	tls *tls.Config // set by tests only

	// Bounds that only tests shorten.
	beginTimeout    time.Duration // to find out where to begin
	firstStartGrace time.Duration // for another replica to write the first checkpoints
	recheck         time.Duration // between two looks at the number of partitions
	silence         time.Duration // after which a Processor that renews nothing hangs
	closing         time.Duration // for the hub to confirm that a link is closed

	mu    sync.Mutex
	stats Stats
}

// New checks config; it connects to nothing. The error names everything that
// is wrong.
func New(config Config) (*Source, error) {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }

	namespace, plain := config.Namespace, false
	switch {
	case config.ConnectionString != "" && namespace != "":
		complain("both a connection string and a namespace are given: give one")
	case config.ConnectionString != "":
		properties, err := azeventhubs.ParseConnectionString(config.ConnectionString)
		if err != nil {
			complain("connection string: %w", err)
			break
		}
		namespace, plain = properties.FullyQualifiedNamespace, properties.Emulator
		if path := properties.EntityPath; path != nil && *path != "" {
			if config.Hub != "" && config.Hub != *path {
				complain("the connection string's EntityPath is %q and the hub is %q: drop one", *path, config.Hub)
			}
			config.Hub = *path
		}
	case namespace == "":
		complain("neither a connection string nor a namespace is given")
	case config.Credential == nil:
		complain("namespace %s is given without a credential", namespace)
	}
	if config.Hub == "" {
		complain("no hub is given, and the connection string has no EntityPath")
	}
	if config.Checkpoints == nil {
		complain("no checkpoint store is given")
	}

	if config.ConsumerGroup == "" {
		config.ConsumerGroup = azeventhubs.DefaultConsumerGroup
	}
	if config.Prefetch == 0 {
		config.Prefetch = DefaultPrefetch
	}
	if config.Prefetch < 1 || config.Prefetch > MaxPrefetch {
		complain("prefetch is %d: want 1 to %d events", config.Prefetch, MaxPrefetch)
	}
	if config.BufferBytes == 0 {
		config.BufferBytes = DefaultBufferBytes
	}
	if config.BufferBytes < 0 {
		complain("buffer is %d bytes: want more than 0", config.BufferBytes)
	}
	if config.BalanceInterval == 0 {
		config.BalanceInterval = DefaultBalanceInterval
	}
	if config.OwnershipExpiry == 0 {
		config.OwnershipExpiry = DefaultOwnershipExpiry
	}
	if config.BalanceInterval < 0 {
		complain("balance interval is %v: want more than 0", config.BalanceInterval)
	}
	if config.OwnershipExpiry < 2*config.BalanceInterval {
		complain("ownership expiry is %v: want at least twice the balance interval of %v, or partitions change hands for nothing", config.OwnershipExpiry, config.BalanceInterval)
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("event hub source: %w", errors.Join(wrong...))
	}

	owner := uuid.NewString()
	if config.Owner != "" {
		owner = config.Owner + "-" + owner
	}
	return &Source{
		config:          config,
		namespace:       namespace,
		plain:           plain,
		owner:           owner,
		log:             config.Logger.With(zap.String("hub", config.Hub), zap.String("group", config.ConsumerGroup)),
		patience:        config.OwnershipExpiry,
		beginTimeout:    time.Minute,
		firstStartGrace: 5 * time.Second,
		recheck:         5 * time.Minute,
		silence:         storeTimeout + config.OwnershipExpiry,
		closing:         closeTimeout,
	}, nil
}

// Scope names what this Source reads, as namespace/hub/group, the way the
// checkpoint store spells it: in lower case.
func (s *Source) Scope() string {
	return strings.ToLower(s.namespace + "/" + s.config.Hub + "/" + s.config.ConsumerGroup)
}

// Owner is the id under which this Source owns partitions.
func (s *Source) Owner() string { return s.owner }

// Stats may be called at any time.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Source) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// connect makes a client; it connects when it is first used.
func (s *Source) connect() (*azeventhubs.ConsumerClient, error) {
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID: "alertworker",
		InstanceID:    s.owner,

		NewWebSocketConn: s.dial,
		// A Processor renews no ownership while it retries to open a link: all
		// attempts together, 7 s, stay well below the expiry.
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: 3, RetryDelay: 500 * time.Millisecond, MaxRetryDelay: 5 * time.Second},
	}
	if s.config.ConnectionString == "" {
		return azeventhubs.NewConsumerClient(s.config.Namespace, s.config.Hub, s.config.ConsumerGroup, s.config.Credential, options)
	}
	hub := s.config.Hub
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil && properties.EntityPath != nil {
		hub = "" // azeventhubs refuses a hub that is named twice
	}
	return azeventhubs.NewConsumerClientFromConnectionString(s.config.ConnectionString, hub, s.config.ConsumerGroup, options)
}
