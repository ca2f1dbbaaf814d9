package checkup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

const (
	lookEvery = 200 * time.Millisecond // between two looks at the windows
	// after sending, besides what deliveries and windows take: a partition may be taken over
	followFor   = 40 * time.Second
	maxRecovery = 5 * time.Minute // longest window after which the recovery is waited for
)

// A Test is `alertworker test`: a reading of a device that goes the whole way.
type Test struct {
	Device  string
	Rule    rules.Rule // see TestRule. If it is Resolved, the recovery is followed too
	Skipped []string   // receivers that get no alerts of a device without properties
	// of those that get its alerts. None: windows are in the worker's memory, and Send says what became of it
	Gates []Gate

	// Send hands a reading to a worker or its hub, and returns what they say.
	Send    func(ctx context.Context, body []byte) (string, error)
	Timeout time.Duration // for one delivery
}

// A Gate is one receiver's for a rule and level, whose windows are in the store that workers share.
type Gate struct {
	Name string // of the receiver
	*throttle.Gate
}

// TestRule returns the first rule of set that alerts on a single reading, whatever else its message has.
func TestRule(set rules.Set) (rules.Rule, error) {
	for _, r := range set.Rules {
		plain := len(r.Only) == 0 && r.Base() == "" && !r.Silence()
		if plain && r.Levels[0].For == 0 {
			return r, nil
		}
	}

	return rules.Rule{}, errors.New(
		"no rule alerts on a single reading, because each has a duration, looks only at some messages, counts its limits " +
			"from a number in them, or is about silence: to test an alert's whole way, start a worker with a simpler rule",
	)
}

// body is a reading at the rule's first limit, or one that ends an alarm of that: a word, or a number beyond its clear. It
// is nil if no valid reading does.
func body(r *rules.Rule, over bool) []byte {
	clear := r.Levels[0].Clear
	number := clear - 1
	if r.Below {
		number = clear + 1
	}
	if r.Valid != nil {
		number = min(max(number, r.Valid.From), r.Valid.To)
	}

	value := any(number)
	switch {
	case len(r.Is) > 0 && over:
		value = r.Is[0]
	case len(r.Is) > 0:
		value = "normal again"
	case over:
		value = r.Levels[0].Limit
	case !r.Cleared(number, clear):
		return nil
	}

	path, _, _ := strings.Cut(r.Field, ",")
	for _, part := range slices.Backward(strings.Split(path, ".")) {
		value = map[string]any{part: value}
	}

	text, _ := json.Marshal(value) // numbers and words: cannot fail

	return text
}

// A printer prints the line of a step, and reports whether that passed.
type printer func(name, summary string, err error) bool

// A progress says of a gate, the i-th, whether what is followed was claimed, and whether it is done.
type progress func(s throttle.State, i int) (claimed, done bool)

// Run sends the reading, follows it to the receivers, sends one that is normal, and follows the recovery. It prints how
// long each step took, and reports whether all went well.
func (t *Test) Run(ctx context.Context, out io.Writer) bool {
	const width = 24 // of the names of most receivers
	passed := true
	step := func(name, summary string, err error) bool {
		printLine(out, width, name, summary, err)
		passed = passed && outcomeOf(err) != failed
		return err == nil
	}
	for _, name := range t.Skipped {
		step(name, "", undecided("not tested: where= asks for a property, which the test's messages do not have"))
	}

	before := make([]int64, len(t.Gates)) // tokens
	for i, g := range t.Gates {
		state, err := g.Inspect(ctx, sensor.Of(t.Device))
		if err == nil && state.Phase != throttle.Open {
			err = fmt.Errorf(
				"%s had an alert already, and its window lasts another %s: wait, or use another --device",
				t.Device, humanize.Span(state.Until.Sub(state.Now)),
			)
		}
		if err != nil {
			return step(g.Name, "", err)
		}
		before[i] = state.Token
	}

	found := t.send(ctx, step, "sent", true, followFor, func(s throttle.State, i int) (claimed, done bool) {
		claimed = s.Token > before[i]
		return claimed, claimed && s.Quiet.After(s.Claimed) // the window, which may have been over before this look
	})
	window := humanize.Plain(t.Rule.Window)
	switch {
	case !found, !t.Rule.Resolved: // there is no recovery to follow

	case body(&t.Rule, false) == nil:
		step("recovery", "", undecided("not tested: no valid reading of the rule is normal"))

	case t.Rule.Window > maxRecovery:
		step("recovery", "", undecided("not tested: it comes when the window is over, in "+window))

	default:
		fmt.Fprintf(out, "waiting for the recovery: it comes when the window is over, in %s\n", window)
		t.send(ctx, step, "recovery", false, t.Rule.Window+followFor, func(s throttle.State, _ int) (claimed, done bool) {
			return s.Recovery || !s.Notified, !s.Notified
		})
	}

	return passed
}

// send sends a reading and follows it until every gate is done, as look says. It reports whether all are.
func (t *Test) send(
	ctx context.Context,
	step printer,
	name string,
	over bool,
	limit time.Duration,
	look progress,
) bool {
	ctx, cancel := context.WithTimeout(ctx, limit+t.Timeout)
	defer cancel()

	start := time.Now()
	texts, errs := make([]string, len(t.Gates)), make([]error, len(t.Gates))
	var following sync.WaitGroup
	for i := range t.Gates {
		following.Go(func() { texts[i], errs[i] = t.follow(ctx, i, start, look) })
	}

	said, err := t.Send(ctx, body(&t.Rule, over))
	if !step(name, fmt.Sprintf("%s in %s", said, milliseconds(time.Since(start))), err) {
		cancel()
		following.Wait()
		return false
	}

	following.Wait()
	ok := true
	for i, g := range t.Gates {
		ok = step(g.Name, texts[i], errs[i]) && ok
	}

	return ok
}

// follow waits until the i-th gate is done, and says how long that took since start.
func (t *Test) follow(ctx context.Context, i int, start time.Time, look progress) (string, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()

	var claimedAfter time.Duration // 0 until then
	var by string                  // the replica that has claimed
	for {
		s, failed := t.Gates[i].Inspect(ctx, sensor.Of(t.Device))
		took := time.Since(start)
		if failed == nil {
			claimed, done := look(s, i)
			if claimed && claimedAfter == 0 {
				claimedAfter, by = took, s.Replica
			}
			if done {
				return fmt.Sprintf("claimed by %s after %s, accepted after %s", by, seconds(claimedAfter), seconds(took)), nil
			}
		}

		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}

		switch waited := humanize.Span(took); {
		case errors.Is(ctx.Err(), context.Canceled):
			return "", undecided("not followed")
		case claimedAfter > 0:
			return "", fmt.Errorf(
				"claimed by %s after %s, and not accepted within %s: the worker's log says why; an alert that is rejected "+
					"becomes a dead letter",
				by, seconds(claimedAfter), waited,
			)
		case failed != nil && !errors.Is(failed, context.DeadlineExceeded):
			return "", failed
		default:
			return "", fmt.Errorf(
				"no worker has claimed it within %s: is one running with these settings, and reading? See its status page", waited,
			)
		}
	}
}

// seconds shows how long something took, to the tenth of a second.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
