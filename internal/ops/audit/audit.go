// Package audit compares what receivers should have got, by the readings that a hub still holds, with what the stores
// say became of it: for `alertworker audit`.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/humanize"
	"alertworker/internal/ledger"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A Key is what the stores keep one last state of.
type Key struct {
	Receiver    int // index
	Of          sensor.ID
	Rule, Level string
	Shared      bool // Of is what devices share alerts by
}

// Expected has the latest notice of each key. Its method Add is the Notice of a partition.Observer.
type Expected map[Key]Latest

// A Latest is the last notice that should have been sent.
type Latest struct {
	partition.BacktestNotice
	Alerted time.Time // when the hub took the reading of the latest alert: this one, or that before a recovery
}

func (e Expected) Add(n partition.BacktestNotice) {
	key := Key{n.Receiver, n.About, n.Rule, n.Level, n.Shared}
	last := Latest{n, n.Enqueued}
	if n.Recovery {
		last.Alerted = e[key].Alerted
	}

	e[key] = last
}

// Stores are what is known of notices. All are read after the events.
type Stores struct {
	Names       []string                      // of the receivers
	Gates       map[Key]*throttle.Gate        // without what they are of
	Letters     map[Key]time.Time             // when the hub took the latest reading of which a dead letter is kept
	Checkpoints map[string]telemetry.Position // by partition
	Ledgers     []ledger.Content
	InForce     map[string]time.Time // by rule: since when, as far as that is known
}

// storeCalls is how many records are read at a time.
const storeCalls = 16

// How a notice is accounted for.
const (
	Recorded   = "recorded"    // the throttle store proves that it was sent, or covered
	DeadLetter = "dead letter" // it was given up
	Due        = "due"         // a recovery that the ledger keeps
	Sending    = "sending"     // a claim is in force
	Unsettled  = "unsettled"   // the checkpoint has not passed its reading
	Before     = "before rule" // its alarm opened before the rule was in force
	Missing    = "missing"
)

// kinds are all of them, as they are shown, with what they say.
var kinds = []struct{ name, text string }{
	{Recorded, "recorded: sent, or covered by a window or a later message"},
	{DeadLetter, "kept as a dead letter"},
	{Due, "recoveries that are due"},
	{Sending, "being sent"},
	{Unsettled, "not settled yet: the checkpoint has not passed them"},
	{Before, "not expected: the rule was not in force yet"},
	{Missing, "missing"},
}

// A Report is the result.
type Report struct {
	Counts  map[string]int `json:"counts"`
	Missing []Notice       `json:"missing"` // by time
}

// A Notice is one that is missing.
type Notice struct {
	Due       time.Time `json:"due"`
	Device    string    `json:"device"`
	Sensor    string    `json:"sensor,omitempty"`
	Rule      string    `json:"rule"`
	Level     string    `json:"level,omitempty"`
	Recovery  bool      `json:"recovery"`
	Value     float64   `json:"value"`
	Receiver  string    `json:"receiver"`
	Partition string    `json:"partition"`
	Sequence  int64     `json:"sequence"`
}

// Compare accounts for what was expected until a time: what comes later, at the end of a window, is not due. It calls progress, never twice at once, with the share that is done.
func Compare(
	ctx context.Context,
	expected Expected,
	until time.Time,
	s Stores,
	progress func(share float64),
) (Report, error) {
	known := alarmsOf(s.Ledgers)
	r := Report{Counts: map[string]int{}, Missing: []Notice{}}

	var mu sync.Mutex
	done := 0
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(storeCalls)

	for key, n := range expected {
		if n.At.After(until) {
			continue
		}

		reading.Go(func() error {
			kind, err := s.account(ctx, key, n, known)
			if err != nil {
				return err
			}

			mu.Lock()
			defer mu.Unlock()

			done++
			progress(float64(done) / float64(len(expected)))
			r.Counts[kind]++
			if kind == Missing {
				r.Missing = append(r.Missing, Notice{
					Due:       n.At,
					Device:    n.Device,
					Sensor:    n.Sensor,
					Rule:      n.Rule,
					Level:     n.Level,
					Recovery:  n.Recovery,
					Value:     n.Value,
					Receiver:  s.Names[n.Receiver],
					Partition: n.Partition,
					Sequence:  n.Sequence,
				})
			}

			return nil
		})
	}

	err := reading.Wait()
	slices.SortFunc(r.Missing, func(a, b Notice) int { // those of one time by what they are about
		return cmp.Or(
			a.Due.Compare(b.Due),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Sensor, b.Sensor),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Level, b.Level),
			cmp.Compare(a.Receiver, b.Receiver),
		)
	})

	return r, err
}

// alarms are those of all ledgers.
type alarms struct {
	due  map[alarmKey]bool // that have a recovery to be sent
	ends map[alarmKey]bool // of incidents, by what devices share
	open map[alarmKey]ledger.Alarm
}

type alarmKey struct {
	of          sensor.ID
	rule, level string
}

// alarmsOf returns the alarms of ledgers, but for those of silences that are open.
func alarmsOf(ledgers []ledger.Content) alarms {
	all := alarms{
		due:  map[alarmKey]bool{},
		ends: map[alarmKey]bool{},
		open: map[alarmKey]ledger.Alarm{},
	}

	for _, l := range ledgers {
		for _, e := range l.Ends {
			all.ends[alarmKey{sensor.Of(string(e.Value)), e.Rule, e.Level}] = true
		}

		for _, a := range l.Alarms {
			key := alarmKey{a.Of(), a.Rule, a.Level}
			if a.Due != nil {
				all.due[key] = true
			}

			if a.Open && !a.Silence {
				all.open[key] = a
			}
		}
	}

	return all
}

// alarm returns the key of the alarm that n is about.
func (n Latest) alarm() alarmKey {
	return alarmKey{sensor.ID{Device: n.Device, Name: n.Sensor}, n.Rule, n.Level}
}

// account returns how a notice is accounted for: by what its gate proves, and else by what else is known. The reading that
// opened its alarm is that in the ledger, if that has the alarm, because it may have opened before what the hub holds. When
// a silence was found differs from replica to replica.
func (s Stores) account(ctx context.Context, key Key, n Latest, all alarms) (kind string, err error) {
	gate := s.Gates[Key{
		Receiver: key.Receiver,
		Rule:     key.Rule,
		Level:    key.Level,
		Shared:   key.Shared,
	}]

	proof := throttle.Unproven
	if n.Incident != "" {
		proof, err = proveIncident(ctx, gate, key.Of, n.Recovery)
	} else {
		r, a := n.Request, all.open[n.alarm()]
		r.At = time.Time{}
		if a.Log == r.Log && a.Sequence < r.OpenedBy {
			r.OpenedBy, r.OpenedByElement = a.Sequence, a.Element
		}

		proof, err = gate.Prove(ctx, r)
	}

	at, settled := s.Checkpoints[n.Partition]

	switch {
	case err != nil:
		return "", err
	case !s.Letters[key].Before(n.Enqueued): // which the throttle store may note, too
		return DeadLetter, nil
	case proof == throttle.Proven:
		return Recorded, nil
	case n.Recovery && (all.due[n.alarm()] || all.ends[alarmKey{key.Of, n.Rule, n.Level}]):
		return Due, nil
	case proof == throttle.Sends:
		return Sending, nil
	case settled && at.Sequence < n.Sequence:
		return Unsettled, nil
	case n.Alerted.Before(s.InForce[key.Rule]):
		return Before, nil
	}

	return Missing, nil
}

// proveIncident asks a gate what proves that the latest alert about an incident of what devices share was sent, or its end.
// The gate knows the incident by another name.
func proveIncident(ctx context.Context, gate *throttle.Gate, of sensor.ID, end bool) (throttle.Proof, error) {
	state, err := gate.Inspect(ctx, of)
	switch {
	case err != nil || state.Token == 0:
		return throttle.Unproven, err
	case end && !state.Notified, !end && state.Incident != "":
		return throttle.Proven, nil
	case state.Phase == throttle.Sending:
		return throttle.Sends, nil
	}

	return throttle.Unproven, nil
}

// limits are what an audit does not prove.
const limits = "This is about the latest message of each device, rule, level and receiver, because the stores keep " +
	"no earlier ones; by the settings in force now.\n" +
	"It says nothing of readings over HTTP, of those that the hub no longer holds, and of what a receiver did with a " +
	"message that it accepted.\n"

// Print writes r for people, with times in zone.
func (r Report) Print(w io.Writer, zone *time.Location) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		if n := r.Counts[k.name]; n > 0 || k.name == Missing {
			fmt.Fprintf(out, "%d\t%s\n", n, k.text)
		}
	}

	if len(r.Missing) > 0 {
		fmt.Fprintln(out, "\nDUE ("+zone.String()+")\tDEVICE\tRULE\tLEVEL\tMESSAGE\tVALUE\tRECEIVER\tPARTITION\tSEQUENCE")
	}

	for _, n := range r.Missing {
		what := "alert"
		if n.Recovery {
			what = "recovery"
		}

		fmt.Fprintf(
			out,
			"%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\t%d\n",
			n.Due.In(zone).Format(time.DateTime),
			humanize.Clean(sensor.ID{Device: n.Device, Name: n.Sensor}.String()),
			n.Rule,
			cmp.Or(n.Level, "-"),
			what,
			n.Value,
			n.Receiver,
			n.Partition,
			n.Sequence,
		)
	}

	fmt.Fprint(out, "\n", limits)

	return out.Flush()
}

// PrintJSON writes r as one JSON object.
func (r Report) PrintJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
