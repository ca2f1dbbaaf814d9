package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
	"alertworker/internal/sensor"
)

const (
	maxAlerts     = 100  // on the status page
	maxDeliveries = 4096 // that a Recorder keeps
)

// A Recorder keeps the last deliveries of this replica, from 2,048 to 4,096. The zero Recorder is ready for use. It is safe
// for concurrent use.
type Recorder struct {
	Zone *time.Location // of times in texts, to be set before it is used; nil is UTC

	mu         sync.Mutex
	deliveries []pastDelivery // the latest last
}

// A pastDelivery is one that has ended: a receiver took an alert or a recovery, or that became a dead letter.
type pastDelivery struct {
	Receiver   string    `json:"receiver"`
	Device     string    `json:"device"`
	Sensor     string    `json:"sensor,omitempty"` // of the device; empty: its own readings
	Rule       string    `json:"rule"`
	Level      string    `json:"level,omitempty"`
	ID         string    `json:"id"`                 // of the alert
	At         time.Time `json:"at"`                 // when the delivery ended, by this replica's clock
	Resolved   bool      `json:"resolved,omitempty"` // a recovery
	Text       string    `json:"text"`               // what it says; older versions do not share it
	Enqueued   time.Time `json:"enqueuedTime"`
	Partition  string    `json:"partition"`
	Sequence   int64     `json:"sequence"`
	Suppressed int64     `json:"suppressed"`
	Shared     string    `json:"shared,omitempty"` // what the device shares the rule's alerts by; empty if nothing
	Reason     string    `json:"reason,omitempty"` // why it is a dead letter; empty if it is none
	Letter     string    `json:"letter,omitempty"` // the dead letter's id; empty if it is only in the log
}

// deliveryOf returns the delivery of an alert that has ended now. A dead letter needs more.
func deliveryOf(a notify.Alert, receiver string, zone *time.Location) pastDelivery {
	return pastDelivery{
		Receiver:   receiver,
		Device:     a.Device,
		Sensor:     a.Sensor,
		Rule:       a.Rule,
		Level:      a.Level,
		ID:         a.ID,
		At:         time.Now().UTC(),
		Resolved:   a.Resolved,
		Text:       wording.Style{Zone: zone}.Message(a),
		Enqueued:   a.Enqueued.UTC(),
		Partition:  a.Partition,
		Sequence:   a.Sequence,
		Suppressed: a.Suppressed,
		Shared:     a.PerValue,
	}
}

// window returns what the window after the alert is of.
func (d pastDelivery) window() sensor.ID {
	if d.Shared != "" {
		return sensor.Of(d.Shared)
	}
	return d.of()
}

// of returns what the alert was about, sharing aside.
func (d pastDelivery) of() sensor.ID { return sensor.ID{Device: d.Device, Name: d.Sensor} }

// DeadLetters returns next, whose letters r records. id returns the id of a letter, empty if it has none.
func (r *Recorder) DeadLetters(next delivery.DeadLetters, id func(notify.DeadLetter) string) delivery.DeadLetters {
	return &deadLetters{next, id, r}
}

type deadLetters struct {
	next     delivery.DeadLetters
	id       func(notify.DeadLetter) string
	recorder *Recorder
}

// Keep records a letter once it is kept.
func (l *deadLetters) Keep(ctx context.Context, d notify.DeadLetter) error {
	if err := l.next.Keep(ctx, d); err != nil {
		return err
	}

	e := deliveryOf(d.Alert, d.Name, l.recorder.Zone)
	e.Reason, e.Letter = d.Reason, l.id(d)
	l.recorder.add(e)
	return nil
}

// Receiver returns an observer that records the alerts that the named receiver takes.
func (r *Recorder) Receiver(name string) notify.Observer {
	return func(_ context.Context, a *notify.Alert) func(error) {
		return func(err error) {
			if err == nil {
				r.add(deliveryOf(*a, name, r.Zone))
			}
		}
	}
}

// add records a delivery, and drops the older half if there are too many.
func (r *Recorder) add(d pastDelivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.deliveries) == maxDeliveries {
		r.deliveries = slices.Delete(r.deliveries, 0, maxDeliveries/2)
	}

	r.deliveries = append(r.deliveries, d)
}

// last returns the deliveries that are like that, the latest first.
func (r *Recorder) last(is func(*pastDelivery) bool) (all []pastDelivery) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, d := range slices.Backward(r.deliveries) {
		if is(&d) {
			all = append(all, d)
		}
	}

	return all
}
