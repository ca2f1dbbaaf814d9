package worker

import (
	"time"

	"alertworker/internal/telemetry"
)

// A PartitionState is where one partition stands.
type PartitionState struct {
	Partition  string
	Read       telemetry.Position // the last event read
	ReadUntil  time.Time          // when the hub took it
	Settled    telemetry.Position // up to here
	Committed  telemetry.Position // the last checkpoint this replica wrote
	Unsettled  int                // events that hold the checkpoint
	Oldest     time.Time          // when the hub took the oldest of them; zero if there is none
	Delivering int                // alerts under way, one for each hot device and receiver
}

// A ReceiverState is how a receiver does.
type ReceiverState struct {
	Name  string
	Down  bool
	Retry time.Time // when down: the next attempt, at the earliest; zero if one is under way
	Taken int64     // alerts, since the worker started
}

// Partitions returns the state of each partition that is being consumed, in no order.
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

func (r *receiver) state() ReceiverState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ReceiverState{Name: r.Name, Down: r.health.down, Taken: r.health.taken}
	if state.Down && r.wake > 0 && !r.probing {
		state.Retry = r.worker.started.Add(r.wake)
	}
	return state
}

func (s *stream) state() PartitionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := PartitionState{
		Partition: s.id,
		Read:      s.mark.last,
		ReadUntil: s.readUntil,
		Settled:   s.mark.position(),
		Committed: s.committed,
		Unsettled: s.mark.unsettled(),
		Oldest:    s.mark.oldest(),
	}
	for _, q := range s.queues {
		p.Delivering += len(q.byDevice)
	}
	return p
}

func (w *Worker) track(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[s] = struct{}{}
}

func (w *Worker) untrack(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, s)
}
