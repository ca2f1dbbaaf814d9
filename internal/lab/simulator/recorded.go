package simulator

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// settledEvery is how often a recording that waits asks whether readings are settled.
const settledEvery = 500 * time.Microsecond

// A recording is the time of a replay that does not run at the speed of real time: that of the reading
// published last, by the clocks of the hub, the store and the judge. It goes on only when every reading over the
// threshold is settled, so that the time that real parts take is none in the recording. It also keeps the
// records of the store that goes by it, one for each device. It is safe for concurrent use.
type recording struct {
	mu       sync.Mutex
	first    time.Time              // the time stamp of the first reading; zero before it
	start    time.Time              // what stands for it: times of long ago would look like a backlog
	at       time.Time              // the time now
	waiting  map[position]time.Time // readings that time waits for, and when they were published, in real time
	records  map[string]caslease.Record
	versions int64
}

// A position is that of a reading.
type position struct {
	partition string
	sequence  int64
}

func newRecording() *recording {
	start := time.Now().Truncate(time.Millisecond)
	return &recording{start: start, at: start, waiting: map[position]time.Time{}, records: map[string]caslease.Record{}}
}

// now returns the time.
func (r *recording) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// advance goes on to the time stamp of a reading, once settled reports of every position in wait
// that it is settled. Time never goes back. An error says that ctx ended first.
func (r *recording) advance(ctx context.Context, stamp time.Time, settled func(position) bool) error {
	r.mu.Lock()
	if r.first.IsZero() {
		r.first = stamp
	}
	at := r.start.Add(stamp.Sub(r.first)).Truncate(time.Millisecond)
	if !at.After(r.at) {
		r.mu.Unlock()
		return nil
	}
	waiting := make([]position, 0, len(r.waiting))
	for p := range r.waiting {
		waiting = append(waiting, p)
	}
	r.mu.Unlock()
	for _, p := range waiting {
		for !settled(p) {
			select {
			case <-time.After(settledEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = at
	clear(r.waiting)
	return nil
}

// wait has the time wait until the reading at p is settled, which was published just now.
func (r *recording) wait(p position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[p] = time.Now()
}

// since returns for how long the reading at p has waited, in real time; 0 if it does not wait.
func (r *recording) since(p position) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.waiting[p]; ok {
		return time.Since(at)
	}
	return 0
}

var errConflict = errors.New("the record has changed")

// Read implements caslease.Records.
func (r *recording) Read(_ context.Context, key string) (caslease.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[key]
	record.Now = r.at
	return record, nil
}

// Write implements caslease.Records.
func (r *recording) Write(_ context.Context, key string, prev, next caslease.Record) (version string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.records[key]; now.Exists != prev.Exists || now.Version != prev.Version {
		return "", errConflict
	}
	r.versions++
	next.Written, next.Exists, next.Version = r.at, true, strconv.FormatInt(r.versions, 10)
	r.records[key] = next
	return next.Version, nil
}

// leases returns the store that goes by the recording's time, for gates with this window.
func (r *recording) leases(window time.Duration) lease.Store {
	return recordedLeases{window: window, Store: caslease.New(r, caslease.Service{
		ShouldRetry: func(ctx context.Context, _ int, _ error) bool { return ctx.Err() == nil }, // all errors are conflicts
	})}
}

// recordedLeases are leases whose windows end in the recording's time, of which no clock of this machine
// can tell anything. Claims can be kept by it: the recording stands still as long as they last.
type recordedLeases struct {
	lease.Store
	window time.Duration
}

func (s recordedLeases) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, key, ttl, next)
	var held *lease.HeldError
	if errors.As(err, &held) {
		return l, &lease.HeldError{Key: held.Key, Record: held.Record}
	}
	return l, err
}

// Extend starts a whole window: what real time a gate has taken off it did not pass in the recording.
func (s recordedLeases) Extend(ctx context.Context, l lease.Lease, note string, _ time.Duration) (lease.Lease, error) {
	now := time.Now()
	l, err := s.Store.Extend(ctx, l, note, s.window)
	if err == nil {
		l.Until, l.Frees = now, now
	}
	return l, err
}
