package partition

import (
	"context"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
)

const (
	checkpointEvery = 10_000 // events, unless CheckpointInterval ends first

	checkpointTimeout = 15 * time.Second
	lastTimeout       = 25 * time.Second // for the last checkpoint and ledger
	ledgerTimeout     = 20 * time.Second // it may hold many alarms
)

// Config is what the partitions of a replica have in common. All fields are required.
type Config struct {
	Evaluator          *Evaluator
	Dispatcher         *delivery.Dispatcher // to the receivers of Evaluator
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for attempts under way when a partition ends
	MaxChanges         int           // of alarms behind the watermark of a partition; beyond it reading pauses
	// Ledger takes over the ledger of a partition: see ledger.Open. It is called if a rule has state, or if the
	// partition's checkpoint says that one had.
	Ledger    func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error)
	Incidents IncidentBook                        // the records of groups that alarms are members of
	Roster    func(partition string) *roster.File // where a partition's is kept
	Log       *zap.Logger
}
