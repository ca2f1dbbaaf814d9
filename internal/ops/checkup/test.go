package checkup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

const (
	lookEvery = 200 * time.Millisecond // between two looks at the windows
	// after sending, besides what deliveries and windows take: a partition may be taken over
	followFor   = 40 * time.Second
	maxRecovery = 5 * time.Minute // longest window after which the recovery is waited for
	cleanUpIn   = 10 * time.Second
)

// A Test is `alertworker test`: a reading of a device that goes the whole way.
type Test struct {
	Device  string
	Rule    rules.Rule // see TestRule
	Skipped []string   // receivers that get no alerts of a device without properties
	// of those that get its alerts. None: windows are in the worker's memory, and Send says what became of it
	Gates []Gate

	// Send hands a reading to a worker or its hub, and returns what they say; nil if somebody else sends it.
	Send       func(ctx context.Context, body []byte) (string, error)
	Recoveries bool          // of readings that come this way
	Timeout    time.Duration // for one delivery
}

// A Gate is one receiver's for a rule and level, whose windows are in the store that workers share.
type Gate struct {
	Name string // of the receiver
	*throttle.Gate
}

// TestRule returns the first rule of set that alerts on a single reading, whatever else its message has.
func TestRule(set rules.Set) (rules.Rule, error) {
	for _, r := range set.Rules {
		if r.Levels[0].For == 0 && len(r.Only) == 0 && r.Base == "" && !r.Silence() {
			return r, nil
		}
	}

	return rules.Rule{}, errors.New(
		"no rule alerts on a single reading, because each has a duration, looks only at some messages, counts its limits " +
			"from a number in them, or is about silence: to test an alert's whole way, start a worker with a simpler rule",
	)
}

// body is a reading at the rule's first limit, or one that is normal. It is nil if no valid reading is normal.
func body(r *rules.Rule, over bool) []byte {
	var value any = r.Levels[0].Limit
	switch {
	case len(r.Is) > 0 && over:
		value = r.Is[0]

	case len(r.Is) > 0:
		value = "normal again"

	case !over:
		normal, ok := normalValue(r)
		if !ok {
			return nil
		}
		value = normal
	}

	path, _, _ := strings.Cut(r.Field, ",")
	parts := strings.Split(path, ".")
	for _, part := range slices.Backward(parts) {
		value = map[string]any{part: value}
	}

	text, _ := json.Marshal(value) // numbers and words: cannot fail

	return text
}

// normalValue returns a valid reading that ends an alarm of the rule's first level: one beyond its clear, or if that
// is not valid, one half way to the end of what is.
func normalValue(r *rules.Rule) (value float64, ok bool) {
	clear, valid := r.Levels[0].Clear, r.Valid
	value = clear - 1
	if r.Below {
		value = clear + 1
	}

	switch {
	case valid == nil:
	case value < valid.From:
		value = (clear + valid.From) / 2
	case value > valid.To:
		value = (clear + valid.To) / 2
	}

	return value, r.Cleared(value, clear)
}

// Run sends the reading, follows it to the receivers, sends one that is normal, follows the recovery, and ends the
// device's windows. It prints how long each step took, and reports whether all went well.
func (t *Test) Run(ctx context.Context, out Output) bool {
	width := len("recovery")
	for _, g := range t.Gates {
		width = max(width, len(g.Name))
	}

	for _, name := range t.Skipped {
		width = max(width, len(name))
	}

	passed := true
	step := func(name, summary string, err error) bool {
		out.line(width, name, summary, err)
		passed = passed && (err == nil || errors.As(err, new(undecided)))
		return err == nil
	}
	for _, name := range t.Skipped {
		step(name, "", undecided("not tested: where= asks for a property, which the test's messages do not have"))
	}

	before := make([]int64, len(t.Gates)) // tokens
	for i, g := range t.Gates {
		state, err := g.Inspect(ctx, t.Device)
		if err == nil && state.Phase != throttle.Open {
			err = fmt.Errorf(
				"%s had an alert already, and its window lasts another %s: wait, or use another --device",
				t.Device,
				humanize.Span(state.Until.Sub(state.Now)),
			)
		}

		if err != nil {
			return step(g.Name, "", err)
		}

		before[i] = state.Token
	}
	defer func() {
		if len(t.Gates) > 0 {
			step("clean-up", "ended the device's windows", t.cleanUp(ctx))
		}
	}()

	found := t.send(ctx, step, "sent", true, followFor, func(s throttle.State, g int) (claimed, done bool) {
		return s.Token > before[g], s.Token > before[g] && s.Phase == throttle.Closed
	})
	if !found || !t.Rule.Resolved || t.Send == nil {
		return passed
	}

	switch {
	case !t.Recoveries:
		step("recovery", "", undecided("not tested: readings that come over HTTP have none"))

	case body(&t.Rule, false) == nil:
		step("recovery", "", undecided("not tested: no valid reading of the rule is normal"))

	case t.Rule.Window > maxRecovery:
		step("recovery", "", undecided("not tested: it comes when the window is over, in "+config.Plain(t.Rule.Window)))

	default:
		fmt.Fprintf(out.W, "waiting for the recovery: it comes when the window is over, in %s\n", config.Plain(t.Rule.Window))
		t.send(ctx, step, "recovery", false, t.Rule.Window+followFor, func(s throttle.State, _ int) (claimed, done bool) {
			return s.Recovery || !s.Notified, !s.Notified
		})
	}

	return passed
}

// send sends a reading and follows it until every gate is done, as look says. It reports whether all are.
func (t *Test) send(
	ctx context.Context,
	step func(name, summary string, err error) bool,
	name string,
	over bool,
	limit time.Duration,
	look func(throttle.State, int) (claimed, done bool),
) bool {
	ctx, cancel := context.WithTimeout(ctx, limit+t.Timeout)
	defer cancel()
	start := time.Now()
	texts, errs := make([]string, len(t.Gates)), make([]error, len(t.Gates))
	var following sync.WaitGroup
	for i := range t.Gates {
		following.Go(func() { texts[i], errs[i] = t.follow(ctx, i, start, look) })
	}

	if t.Send != nil {
		said, err := t.Send(ctx, body(&t.Rule, over))
		if !step(name, fmt.Sprintf("%s in %s", said, milliseconds(time.Since(start))), err) {
			cancel()
			following.Wait()
			return false
		}
	}

	following.Wait()
	ok := true
	for i, g := range t.Gates {
		ok = step(g.Name, texts[i], errs[i]) && ok
	}

	return ok
}

// follow waits until the i-th gate is done, and says how long that took.
func (t *Test) follow(
	ctx context.Context,
	i int,
	start time.Time,
	look func(throttle.State, int) (claimed, done bool),
) (string, error) {
	var claimed time.Duration
	by := ""
	var last error
	for tick := time.NewTicker(lookEvery); ; {
		s, err := t.Gates[i].Inspect(ctx, t.Device)
		if err != nil && ctx.Err() == nil {
			last = err
		}

		if err == nil {
			last = nil
			took := time.Since(start)
			begun, done := look(s, i)
			if begun && claimed == 0 {
				claimed, by = took, s.Replica
			}

			switch {
			case done && claimed < took:
				return fmt.Sprintf("claimed by %s after %s, accepted after %s", by, seconds(claimed), seconds(took)), nil
			case done:
				return fmt.Sprintf("accepted after %s, from %s", seconds(took), by), nil
			}
		}

		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}

		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return "", undecided("not followed")

		case last != nil:
			return "", last

		case claimed > 0:
			return "", fmt.Errorf(
				"claimed by %s after %s, and not accepted within %s: the worker's log says why; an alert that is rejected "+
					"becomes a dead letter",
				by,
				seconds(claimed),
				humanize.Span(time.Since(start)),
			)
		}

		return "", fmt.Errorf(
			"no worker has claimed it within %s: is one running with these settings, and reading? See its status page",
			humanize.Span(time.Since(start)),
		)
	}
}

// cleanUp ends the windows of the device.
func (t *Test) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpIn)
	defer cancel()
	var errs []error
	for _, g := range t.Gates {
		errs = append(errs, g.Reopen(ctx, t.Device))
	}

	return errors.Join(errs...)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
