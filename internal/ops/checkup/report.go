package checkup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"alertworker/internal/azure"
	"alertworker/internal/humanize"
	"alertworker/internal/lease"
	"alertworker/internal/ops/status"
)

// A step is one line of a check. do returns by the time ctx ends, with what it
// found or an error that says what to do. The error is undecided if there was nothing
// to try.
type step struct {
	name     string
	limit    time.Duration
	do       func(ctx context.Context) (summary string, err error)
	by       status.By // the service that it tries, if its errors are to be worded as the replicas do
	variable string    // that says where the service is; empty: its errors say enough
}

// explain returns an error of do with what is known of its service: if that did not answer, which variable to check. The
// lack of a token is reported once.
func (s step) explain(err error) error {
	if s.variable != "" && errors.Is(err, azure.ErrNoToken) {
		return noToken
	}

	if outcomeOf(err) != failed {
		return err
	}

	if s.by != "" {
		err = s.by.Failed(err)
	}
	if s.variable != "" {
		err = lease.AddHint(err, s.variable)
	}

	return err
}

// An opinion is the error of a step that has not failed.
type opinion struct {
	end  outcome
	text string
}

func (o opinion) Error() string { return o.text }

// undecided is the error of a step that neither passed nor failed.
func undecided(text string) error { return opinion{open, text} }

// statement is the error of a step that tries nothing: it says what is set.
func statement(text string) error { return opinion{stated, text} }

// warning is the error of a step that passed, but found what needs attention.
func warning(text string) error { return opinion{warned, text} }

// run runs all steps concurrently, prints them in order and reports whether none failed.
func run(ctx context.Context, out io.Writer, steps []step) bool {
	type result struct {
		summary string
		err     error
	}

	results := make([]chan result, len(steps))
	width := 0
	for i, s := range steps {
		width = max(width, utf8.RuneCountInString(s.name))
		results[i] = make(chan result, 1)
		go func() {
			ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("no answer within %v", s.limit))
			defer cancel()
			summary, err := s.do(ctx)
			results[i] <- result{summary, s.explain(err)}
		}()
	}

	count := map[outcome]int{}
	for i, s := range steps {
		r := <-results[i]
		count[outcomeOf(r.err)]++
		printLine(out, width, s.name, r.summary, r.err)
	}

	verdict := fmt.Sprintf("%d of %d checks passed", count[passed]+count[warned], len(steps)-count[stated])
	if n := count[warned]; n > 0 {
		verdict += ", " + humanize.Count(n, "warning")
	}

	if n := count[open]; n > 0 {
		verdict += fmt.Sprintf(", %d could not be tried", n)
	}

	fmt.Fprintf(out, "\n%s\n", verdict)

	return count[failed] == 0
}

// An outcome is how a step ended.
type outcome int

const (
	passed outcome = iota
	warned         // it passed, but found what needs attention
	open           // there was nothing to try
	stated         // it says what is set
	failed
)

// outcomeOf returns how a step ended that returned err.
func outcomeOf(err error) outcome {
	if o := (opinion{}); errors.As(err, &o) {
		return o.end
	}

	return map[bool]outcome{true: passed, false: failed}[err == nil]
}

// Fail prints the line of a step that failed before the check could begin.
func Fail(out io.Writer, name, why string) { printLine(out, 0, name, "", errors.New(why)) }

var marks = map[outcome]string{passed: "✓", warned: "!", open: "–", stated: "·", failed: "✗"}

// printLine prints what one step found.
func printLine(out io.Writer, width int, name, summary string, err error) {
	if err != nil {
		summary = err.Error()
	}

	fmt.Fprintf(out, "%s %-*s  %s\n", marks[outcomeOf(err)], width, name, humanize.OneLine(summary))
}
