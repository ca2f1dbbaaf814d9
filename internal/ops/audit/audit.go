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
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A Key is what the stores keep one last state of.
type Key struct {
	Receiver            int // index
	Device, Rule, Level string
	Shared              bool // the device is what devices share alerts by
}

// Expected has the latest notice of each key. Its method Add is the Notice of a worker.Observer.
type Expected map[Key]Latest

// A Latest is the last notice that should have been sent.
type Latest struct {
	worker.BacktestNotice
	Alerted time.Time // when the hub took the reading of the latest alert: this one, or that before a recovery
}

func (e Expected) Add(n worker.BacktestNotice) {
	key := Key{n.Receiver, n.About, n.Rule, n.Level, n.Shared}
	last := Latest{n, n.Enqueued}
	if n.Recovery {
		last.Alerted = e[key].Alerted
	}

	e[key] = last
}

// Stores are what is known of notices. All are read after the events.
type Stores struct {
	Gates       map[Key]*throttle.Gate        // without devices
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
	Rule      string    `json:"rule"`
	Level     string    `json:"level,omitempty"`
	Recovery  bool      `json:"recovery"`
	Value     float64   `json:"value"`
	Receiver  string    `json:"receiver"`
	Partition string    `json:"partition"`
	Sequence  int64     `json:"sequence"`
}

// Compare accounts for what was expected until a time: what comes later, at the end of a window, is not due. names
// are those of the receivers. It calls progress, never twice at once, with the share that is done.
func Compare(
	ctx context.Context,
	expected Expected,
	until time.Time,
	s Stores,
	names []string,
	progress func(share float64),
) (Report, error) {
	due, open := map[[3]string]bool{}, map[[3]string]ledger.Alarm{}
	for _, l := range s.Ledgers {
		for _, a := range l.Alarms {
			name := [3]string{string(a.Device), a.Rule, a.Level}
			if a.Due != nil {
				due[name] = true
			}

			if a.Open && !a.Silence {
				open[name] = a
			}
		}
	}

	r := Report{Counts: map[string]int{}, Missing: []Notice{}}
	var mu sync.Mutex
	done := 0
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(storeCalls)
	for key, n := range expected {
		if n.At.After(until) {
			continue
		}

		gate := s.Gates[Key{Receiver: key.Receiver, Rule: key.Rule, Level: key.Level, Shared: key.Shared}]
		reading.Go(func() error {
			proof, err := gate.Prove(ctx, throttle.Request{
				Device:   n.About,
				Enqueued: n.Enqueued,
				Log:      n.Log,
				Sequence: n.Sequence,
				Recovery: n.Recovery,
				Repeat:   n.Repeat,
				Opened:   opened(open[[3]string{n.Device, n.Rule, n.Level}], n),
			})
			if err != nil {
				return err
			}

			at, settled := s.Checkpoints[n.Partition]
			kind := Missing

			switch {
			case !s.Letters[key].Before(n.Enqueued): // which the throttle store may note, too
				kind = DeadLetter
			case proof == throttle.Proven:
				kind = Recorded
			case n.Recovery && due[[3]string{n.Device, n.Rule, n.Level}]:
				kind = Due
			case proof == throttle.Sends:
				kind = Sending
			case settled && at.Sequence < n.Sequence:
				kind = Unsettled
			case n.Alerted.Before(s.InForce[key.Rule]):
				kind = Before
			}

			mu.Lock()
			defer mu.Unlock()
			done++
			progress(float64(done) / float64(len(expected)))

			if r.Counts[kind]++; kind == Missing {
				r.Missing = append(
					r.Missing,
					Notice{n.At, n.Device, n.Rule, n.Level, n.Recovery, n.Value, names[n.Receiver], n.Partition, n.Sequence},
				)
			}

			return nil
		})
	}

	err := reading.Wait()
	slices.SortFunc(r.Missing, func(a, b Notice) int {
		return cmp.Or(
			a.Due.Compare(b.Due),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Level, b.Level),
			cmp.Compare(a.Receiver, b.Receiver),
		)
	})
	return r, err
}

// opened returns the number of the reading that opened the alarm of n: that in the ledger, if a is it, because it may
// have opened before what the hub holds.
func opened(a ledger.Alarm, n Latest) int64 {
	if a.Log == n.Log && a.Sequence < n.Opened {
		return a.Sequence
	}
	return n.Opened
}

// limits are what an audit does not prove.
const limits = "This is about the latest message of each device, rule, level and receiver, because the stores keep no " +
	"earlier ones; by the settings in force now.\n" +
	"It says nothing of readings over HTTP, of those that the hub no longer holds, and of what a receiver did with a " +
	"message that it accepted.\n"

// Print writes r for people.
func (r Report) Print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		if n := r.Counts[k.name]; n > 0 || k.name == Missing {
			fmt.Fprintf(out, "%d\t%s\n", n, k.text)
		}
	}

	if len(r.Missing) > 0 {
		fmt.Fprintln(out, "\nDUE (UTC)\tDEVICE\tRULE\tLEVEL\tMESSAGE\tVALUE\tRECEIVER\tPARTITION\tSEQUENCE")
		for _, n := range r.Missing {
			what := "alert"
			if n.Recovery {
				what = "recovery"
			}

			fmt.Fprintf(
				out,
				"%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\t%d\n",
				n.Due.Format(time.DateTime),
				humanize.Clean(n.Device),
				n.Rule,
				cmp.Or(n.Level, "-"),
				what,
				n.Value,
				n.Receiver,
				n.Partition,
				n.Sequence,
			)
		}
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
