// Package eventhubs reads telemetry from an Event Hub, or from the Event
// Hub-compatible endpoint of an IoT Hub: a [telemetry.Source] on the Processor
// of azeventhubs.
//
// A Processor shares the partitions of a hub among replicas and dies of the
// first thing that goes wrong. What this package adds is what it takes to live
// with that: a supervisor that starts another one (run.go), a guard in front of
// the checkpoint store (guard.go), balancing of its own (owning.go), checkpoints
// that know their hub and only move forward (checkpoints.go), a start position
// that is written down before anything is read (begin.go), a buffer that is
// bounded in bytes (budget.go), and a connection that messages cannot break (dial.go).
package eventhubs

import (
	"cmp"
	"context"
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
	"alertworker/internal/telemetry/ownership"
)

// Defaults of a Config.
const (
	// DefaultPrefetch is the number of events that may be buffered per
	// partition, as long as the buffer of the replica has room for them.
	DefaultPrefetch = 1000

	// DefaultBufferBytes is for 1,024 events of the largest size that IoT Hub
	// takes: 32 for each of 32 partitions that are all busy.
	DefaultBufferBytes = 256 << 20

	// DefaultBalanceInterval is how often a replica writes its heartbeat and
	// looks for partitions to take: two storage operations.
	DefaultBalanceInterval = 3 * time.Second

	// DefaultOwnershipExpiry is how long a replica that shows no sign of life
	// keeps its partitions: two missed heartbeats and a store that is slow for
	// some seconds. With a store whose clock counts in seconds the others take
	// them over within two seconds more.
	DefaultOwnershipExpiry = 8 * time.Second
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

	// IoTHub and Resolve are for the endpoint of an IoT Hub, which is elsewhere
	// after a fail-over: the host name of the IoT Hub, and what asks it for the
	// endpoint's present connection string, EntityPath included. Resolve is
	// called whenever reading starts again and every few minutes; ConnectionString
	// is what it said first. Give both or neither.
	IoTHub  string
	Resolve func(context.Context) (string, error)

	Hub           string // default: the connection string's EntityPath
	ConsumerGroup string // default: $Default

	// Start is where partitions begin when the consumer group has no
	// checkpoint at all. Once it has one, a partition without begins at its
	// earliest event, except that a Start at a time always holds.
	Start Start

	// Prefetch bounds what is buffered for one partition, in events.
	// BufferBytes bounds what is buffered for all partitions of this Source, in
	// bytes of messages as they come from the hub: whatever is asked for counts as
	// 256 KiB, the most that IoT Hub takes. One event for each partition is
	// always allowed.
	Prefetch    int
	BufferBytes int

	OwnershipExpiry time.Duration // at least 2 BalanceInterval
	BalanceInterval time.Duration

	// Owner labels this replica's ownerships for people. What is not a letter, a
	// digit or one of -._ is replaced. A random part is added: two Sources are never
	// the same owner.
	Owner string

	// Checkpoints holds checkpoints. Its answers are trusted, its failures are
	// retried. It is safe for concurrent use.
	Checkpoints Records

	// Ownership is where replicas settle who owns which partition.
	Ownership ownership.Store

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

// Source is a [telemetry.Source]. Run may be called once at a time.
type Source struct {
	config    Config // the endpoint in it is guarded by mu
	namespace string // host name; guarded by mu
	owner     string
	log       *zap.Logger
	inquirer  inquirer
	foreign   foreign

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
	stats telemetry.SourceStats
}

// New checks config; it connects to nothing. The error names everything that
// is wrong.
func New(config Config) (*Source, error) {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }

	namespace := config.Namespace
	switch {
	case config.ConnectionString != "" && namespace != "":
		complain("both a connection string and a namespace are given: give one")
	case config.ConnectionString != "":
		at, err := parseEndpoint(config.ConnectionString)
		if err != nil {
			complain("%w", err)
			break
		}
		namespace = at.namespace
		if at.hub != "" {
			if config.Hub != "" && config.Hub != at.hub {
				complain("the connection string's EntityPath is %q and the hub is %q: drop one", at.hub, config.Hub)
			}
			config.Hub = at.hub
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
	if config.Ownership == nil {
		complain("no ownership store is given")
	}
	if (config.IoTHub == "") != (config.Resolve == nil) {
		complain("an IoT Hub needs both its host name and what resolves it")
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
		owner = strings.Map(plain, config.Owner) + "-" + owner
	}
	s := &Source{
		config:          config,
		namespace:       namespace,
		owner:           owner,
		log:             config.Logger.With(zap.String("hub", cmp.Or(config.IoTHub, config.Hub)), zap.String("group", config.ConsumerGroup)),
		inquirer:        inquirer{places: make(chan struct{}, maxInquiries)},
		beginTimeout:    time.Minute,
		firstStartGrace: 5 * time.Second,
		recheck:         5 * time.Minute,
		closing:         closeTimeout,
	}
	s.patience = s.unreadAfter()
	s.silence = storeTimeout + s.patience
	return s, nil
}

// plain makes r a character that Azure takes in metadata and names.
func plain(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' || r == '_' {
		return r
	}
	return '_'
}

// unreadAfter is how long a partition may be owned without a reader before the
// Processor is replaced: opening a link takes up to 7 s while the hub fails.
func (s *Source) unreadAfter() time.Duration { return 4 * s.config.OwnershipExpiry }

// Owner is the id under which this Source owns partitions.
func (s *Source) Owner() string { return s.owner }

// Stats may be called at any time.
func (s *Source) Stats() telemetry.SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Source) count(change func(*telemetry.SourceStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// connect makes a client; it connects when it is first used.
func (s *Source) connect() (*azeventhubs.ConsumerClient, error) {
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID: "alertworker",
		InstanceID:    s.owner,

		NewWebSocketConn: s.dialer().dial,
		// A Processor opens no other link while it retries to open one: all attempts
		// together take 7 s.
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
