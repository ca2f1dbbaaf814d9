package worker

import (
	"time"

	"alertworker/internal/telemetry"
)

// A PartitionState is the progress of one partition.
type PartitionState struct {
	Partition  string
	First      int64              // sequence number of the first event read
	Read       telemetry.Position // the last event read
	ReadUntil  time.Time          // when the hub took it
	Settled    telemetry.Position // every event up to here is settled
	Committed  telemetry.Position // the last checkpoint this replica wrote
	Unsettled  int                // events that hold the checkpoint back
	Oldest     time.Time          // when the hub took the first of them; zero if there is none
	Delivering int                // deliveries, one for each hot device and receiver
}

// A ReceiverState is the health of one receiver.
type ReceiverState struct {
	Name    string
	Down    bool
	Since   time.Time // of the first failure in a row; zero unless it is down
	Err     error     // the last failure, which holds no secret; nil unless it is down
	Retry   time.Time // earliest time of the next attempt while it is down; zero if one is under way
	Taken   int64     // alerts taken since the worker started
	Waiting int       // alerts that have not been sent yet: they wait, for whatever reason, or are being tried
}

// Partitions returns the state of each partition being consumed, in no particular
// order. It includes Intakes.
func (w *Worker) Partitions() []PartitionState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []PartitionState
	for s := range w.streams {
		all = append(all, s.state())
	}
	return all
}

// Receivers returns the state of each receiver, in the order of Config.
func (w *Worker) Receivers() []ReceiverState {
	var all []ReceiverState
	for _, r := range w.receivers {
		all = append(all, r.state())
	}
	return all
}
