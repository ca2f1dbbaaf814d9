package partition

import (
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// A Stream is one partition while this replica owns it.
//
// Its register has what is decided, its reader decides. Beside them it holds what is written, and who waits for what.
type Stream struct {
	config    Config
	reader    reader
	partition telemetry.Partition
	log       *zap.Logger
	box       *delivery.Outbox
	owner     ownership
	ledger    *ledger.Ledger // that was taken over; without, there is nothing to write or to ask
	room      chan struct{}  // signals that something was settled, or the ledger written
	progress  chan struct{}  // signals that many events were read
	caughtUp  chan struct{}  // signals, while behind, that events were read
	hurry     chan struct{}  // signals that somebody waits for the ledger to be written
	work      sync.WaitGroup // what asks the ledger, and commits
	sinceMark int            // events since progress was signalled; the reader's

	ctx  context.Context
	stop context.CancelCauseFunc // ends ctx
	send context.Context         // of attempts and of what settles: it outlives ctx, until cut is called
	cut  context.CancelFunc

	// guarded by register.mu
	ledgers LedgerState
}

// newStream returns the stream of a partition. It must be drained after ctx has ended.
func newStream(ctx context.Context, c Config, p telemetry.Partition, logName string) *Stream {
	id := p.ID()
	s := &Stream{
		config:    c,
		partition: p,
		log:       c.Log.With(zap.String("partition", id)),
		room:      make(chan struct{}, 1),
		progress:  make(chan struct{}, 1),
		caughtUp:  make(chan struct{}, 1),
		hurry:     make(chan struct{}, 1),
	}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))

	s.owner = ownership{
		check:   func() error { return s.ledger.Check(s.send) },
		lost:    s.lose,
		answers: func() { s.box.Ask() },
		work:    &s.work,
	}

	reg := newRegister(c.Evaluator, id, logName, c.MaxChanges, countAlarm)
	reg.crowded = s.warnCrowded
	s.reader.init(reg, newWatch(reg, c.Roster, s.log), s.log, s.logUnread)
	s.box = c.Dispatcher.Open(s.ctx, s.send, delivery.Account{
		Owner:   s,
		Name:    id,
		IDs:     c.Evaluator.IDs(id),
		Log:     logName,
		FromHub: true,
		Logger:  s.log,
	})
	reg.out = s.box

	return s
}

// lose ends the stream because another replica owns the partition.
//
//planted:lost-partition-kept skip
func (s *Stream) lose() { s.stop(telemetry.ErrLost) }

// warn logs what may affect every partition at the same time, at most every 10 s.
func (s *Stream) warn(msg string, err error) { s.config.Dispatcher.Warn(s.log, msg, err) }

// warnCrowded logs that a device has too many sensors that are not normal.
func (s *Stream) warnCrowded(device, rule string) {
	s.warn(fmt.Sprintf("more than %d sensors of device %q are not normal by rule %s: alerts about more of them share the "+
		"device's own window, and have no recoveries", maxSensors, device, rule), nil)
}

// signal sends to c unless a signal is pending. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A Scattered is a device that sends to more than one partition of a hub.
type Scattered struct {
	Device     string
	Partitions [2]string
}

func (d Scattered) String() string {
	return fmt.Sprintf(
		"device %q is in the partitions %s and %s: durations, recoveries and silence need all of its readings in one; "+
			"read the IoT Hub's own endpoint, or have senders use the device as the partition key",
		d.Device,
		d.Partitions[0],
		d.Partitions[1],
	)
}
