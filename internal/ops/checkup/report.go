package checkup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"alertworker/internal/humanize"
)

// A step is one line of a check. do returns by the time ctx ends, with what it
// found or an error that says what to do. The error is undecided if there was nothing
// to try.
type step struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context) (summary string, err error)
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

// unanswered is the error of a service that did not answer. It is reported once.
type unanswered struct {
	service string
	error
}

func (u *unanswered) Unwrap() error { return u.error }

// An Output is where a check prints.
type Output struct {
	W     io.Writer
	Color bool
}

// run runs all steps concurrently, prints them in order and reports whether none failed.
func (o Output) run(ctx context.Context, steps []step) bool {
	results := make([]func() (string, error), len(steps))
	width := 0
	for i, s := range steps {
		width = max(width, utf8.RuneCountInString(s.name))
		results[i] = s.start(ctx)
	}

	count := map[outcome]int{}
	told := map[string]string{} // services that do not answer: the step that has said so
	for i, s := range steps {
		summary, err := results[i]()
		err = tellOnce(told, s.name, err)
		count[outcomeOf(err)]++
		o.line(width, s.name, summary, err)
	}

	verdict := fmt.Sprintf("%d of %d checks passed", count[passed]+count[warned], len(steps)-count[stated])
	if n := count[warned]; n > 0 {
		verdict += ", " + humanize.Count(n, "warning")
	}

	if n := count[open]; n > 0 {
		verdict += fmt.Sprintf(", %d could not be tried", n)
	}

	fmt.Fprintf(o.W, "\n%s\n", verdict)

	return count[failed] == 0
}

// start begins a step, and returns what waits for its end.
func (s step) start(ctx context.Context) (wait func() (string, error)) {
	type result struct {
		summary string
		err     error
	}

	done := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("no answer within %v", s.limit))
		defer cancel()
		summary, err := s.do(ctx)
		done <- result{summary, err}
	}()

	return func() (string, error) {
		r := <-done
		return r.summary, r.err
	}
}

// tellOnce returns the error of a step, or, if it is about a service of which told names a step that said so, which
// step that is.
func tellOnce(told map[string]string, step string, err error) error {
	var silent *unanswered
	if !errors.As(err, &silent) {
		return err
	}

	if first, ok := told[silent.service]; ok {
		return undecided(fmt.Sprintf("not checked: %s does not answer, see %s", silent.service, first))
	}

	told[silent.service] = step

	return err
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
func (o Output) Fail(name, why string) { o.line(0, name, "", errors.New(why)) }

// The marks of outcomes, with and without a colour.
var (
	plainMarks = map[outcome]string{passed: "✓", warned: "!", open: "–", stated: "·", failed: "✗"}
	colorMarks = map[outcome]string{
		passed: "\x1b[32m✓\x1b[0m", // green
		warned: "\x1b[33m!\x1b[0m", // yellow
		open:   "\x1b[33m–\x1b[0m",
		stated: "·",
		failed: "\x1b[31m✗\x1b[0m", // red
	}
)

// clause returns what to add to a text about n things, whose number begins args; "" if there is none.
func clause(n int, format string, args ...any) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, append([]any{n}, args...)...)
}

// line prints what one step found.
func (o Output) line(width int, name, summary string, err error) {
	marks := plainMarks
	if o.Color {
		marks = colorMarks
	}

	if err != nil {
		summary = err.Error()
	}

	fmt.Fprintf(o.W, "%s %-*s  %s\n", marks[outcomeOf(err)], width, name, humanize.OneLine(summary))
}
