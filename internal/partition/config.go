package partition

import (
	"context"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

const (
	maxMalformed    = 1024   // malformed events of a partition that are being kept
	checkpointEvery = 10_000 // events, unless CheckpointInterval ends first

	checkpointTimeout = 5 * time.Second
	ledgerTimeout     = 20 * time.Second // it may hold many alarms
)

// Config is what the partitions of a replica have in common. All fields but Malformed are required.
type Config struct {
	*Evaluator
	Dispatcher         *delivery.Dispatcher // to the receivers of Evaluator
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for attempts under way when a partition ends
	MaxChanges         int           // of alarms behind the watermark of a partition; beyond it reading pauses
	// Ledger takes over the ledger of a partition: see ledger.Open. It is called if a rule has state, or if the
	// partition's checkpoint says that one had.
	Ledger    func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error)
	Roster    func(partition string) *roster.File // where a partition's is kept
	Malformed MalformedEvents                     // nil: malformed events are only counted
	Log       *zap.Logger
}

// MalformedEvents keeps malformed events.
type MalformedEvents interface {
	// KeepMalformed returns nil once e is kept, or dropped because there are too
	// many. It may retain parts of e. Safe for concurrent use.
	KeepMalformed(ctx context.Context, e telemetry.MalformedEvent) error
}
