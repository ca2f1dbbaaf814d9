package worker

import (
	"time"

	"alertworker/internal/telemetry"
)

// A PartitionState is where one partition stands.
type PartitionState struct {
	Partition string
	Read      telemetry.Position // the last event read
	ReadUntil time.Time          // when the hub took it
	Settled   telemetry.Position // up to here
	Committed telemetry.Position // the last checkpoint this replica wrote
	Unsettled int                // events that hold the checkpoint
	Oldest    time.Time          // when the hub took the oldest of them; zero if there is none
	Flights   int
}

// A ReceiverState is how a receiver does.
type ReceiverState struct {
	Name  string
	Down  bool
	Retry time.Time // when down: the next attempt
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
		h := &r.health
		h.mu.Lock()
		all = append(all, ReceiverState{Name: r.Name, Down: !h.retry.IsZero(), Retry: h.retry, Taken: h.taken})
		h.mu.Unlock()
	}
	return all
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
		Unsettled: len(s.mark.unsettled),
	}
	if p.Unsettled > 0 {
		p.Oldest = s.mark.unsettled[0].enqueued
	}
	for _, of := range s.flights {
		p.Flights += len(of)
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
