// Package tally counts, for the daily summary, the alerts that receivers take.
//
// Each replica counts in memory, and writes the counts of each hour to a
// record of its own, once a minute while they change. So an alert costs no
// call, and a summary reads one record per hour and replica with alerts,
// however many devices there are:
//
//	tallies/<scope>/2026-03-01/13-<random name of the process>.json
//
// A replica that is killed loses up to a minute's counts; one that stops loses none.
package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/notify"
	"alertworker/internal/records"
)

const (
	writeEvery   = time.Minute
	writeTimeout = 10 * time.Second
	lastTimeout  = 5 * time.Second // for the last write, when the replica stops

	hourLayout = "2006-01-02/15-" // sorts as time does

	maxDevices = 10_000 // counted individually per hour, each once per receiver
	maxUnsaved = 6      // hours that could not be written and are kept for a retry
)

// A Count is about one device or several, in some period.
type Count struct {
	Alerts     int64 // taken by the receiver
	Suppressed int64 // readings suppressed before these alerts, as far as their senders knew
}

func (c Count) plus(d Count) Count { return Count{c.Alerts + d.Alerts, c.Suppressed + d.Suppressed} }

// A Tally counts what one replica's receivers take. It is safe for concurrent
// use. Of a nil one only Receiver may be called.
type Tally struct {
	store   records.Store
	folder  string
	process string
	log     *zap.Logger

	writing sync.Mutex // one writer at a time: an older state must not replace a newer one

	mu    sync.Mutex
	hours map[int64]*hour // by Unix hour: the current one, and those that have not been written
}

// An hour has the counts of an hour, as they are stored.
type hour struct {
	Devices map[string]map[string]Count `json:"devices"`         // by receiver and device
	Others  map[string]Count            `json:"others,omitzero"` // by receiver: devices beyond the limit, together

	entries int // in Devices
	version int // grows with each count
	written int // the version in the store
}

// New returns the Tally of this process for the gates of scope.
func New(s records.Store, scope string, log *zap.Logger) *Tally {
	return &Tally{store: s, folder: folder(scope), process: uuid.NewString(), log: log, hours: map[int64]*hour{}}
}

func folder(scope string) string { return "tallies/" + azure.Name(scope) + "/" }

// Receiver returns an observer that counts the alerts that the named receiver takes, without those
// that say that a device is normal again; nil if t is.
func (t *Tally) Receiver(name string) notify.Observer {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, a notify.Attempt) (context.Context, func(error)) {
		if a.Alert == nil || a.Alert.Resolved {
			return ctx, nil
		}
		return ctx, func(err error) {
			if err == nil {
				t.count(time.Now(), name, a.Alert.Device, Count{1, a.Alert.Suppressed})
			}
		}
	}
}

func (t *Tally) count(now time.Time, receiver, device string, c Count) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now.Unix() / 3600
	h := t.hours[at]
	if h == nil {
		h = &hour{Devices: map[string]map[string]Count{}, Others: map[string]Count{}}
		t.hours[at] = h
		t.bound()
	}
	h.version++
	devices := h.Devices[receiver]
	had, known := devices[device]
	if !known && h.entries >= maxDevices {
		h.Others[receiver] = h.Others[receiver].plus(c)
		return
	}
	if devices == nil {
		devices = map[string]Count{}
		h.Devices[receiver] = devices
	}
	if !known {
		h.entries++
		device = strings.Clone(device) // it may be a part of an event
	}
	devices[device] = had.plus(c)
}

// bound drops the oldest of too many hours. The caller holds mu.
func (t *Tally) bound() {
	if len(t.hours) <= maxUnsaved+1 {
		return
	}
	delete(t.hours, slices.Min(slices.Collect(maps.Keys(t.hours))))
	t.log.Warn("dropped an hour of counts for the daily summary: could not be written in time", zap.Int("hours_kept", maxUnsaved))
}

// Run writes the counts every minute until ctx ends, and then once more, for at most 5 s.
func (t *Tally) Run(ctx context.Context) {
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.write(ctx, writeTimeout)
		case <-ctx.Done():
			t.write(context.WithoutCancel(ctx), lastTimeout)
			return
		}
	}
}

// write is Write for at most limit. It logs an error, since Run retries in a minute.
func (t *Tally) write(ctx context.Context, limit time.Duration) {
	try, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no response within %v", limit))
	defer cancel()
	if err := t.Write(try); err != nil && ctx.Err() == nil {
		t.log.Warn("counts for the daily summary could not be written; retrying every minute", zap.Error(err))
	}
}

// Write writes the counts that have changed since the last Write.
func (t *Tally) Write(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	var errs []error
	for _, u := range t.unwritten() {
		if _, err := t.store.Write(ctx, u.Record); err != nil {
			errs = append(errs, err)
			continue
		}
		t.mu.Lock()
		u.hour.written = u.version
		t.mu.Unlock()
	}
	return errors.Join(errs...)
}

// An unwritten is the record of an hour, and what it has.
type unwritten struct {
	records.Record
	hour    *hour
	version int
}

// unwritten returns the hours to write, the first one first, and drops those that are over and written.
func (t *Tally) unwritten() (all []unwritten) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(t.hours)) {
		switch h := t.hours[at]; {
		case h.version > h.written:
			content, _ := json.Marshal(h) // strings and integers: cannot fail
			name := t.folder + time.Unix(at*3600, 0).UTC().Format(hourLayout) + t.process + ".json"
			all = append(all, unwritten{records.Record{Name: name, Content: content, Type: "application/json", ETag: records.Any}, h, h.version})
		case at < time.Now().Unix()/3600:
			delete(t.hours, at)
		}
	}
	return all
}
