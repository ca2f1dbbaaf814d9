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

// undecided is the error of a step that neither passed nor failed.
type undecided string

func (u undecided) Error() string { return string(u) }

// warning is the error of a step that passed, but found what needs attention.
type warning string

func (w warning) Error() string { return string(w) }

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
	type result struct {
		summary string
		err     error
	}

	results, width := make([]chan result, len(steps)), 0
	for i, s := range steps {
		width = max(width, utf8.RuneCountInString(s.name))
		results[i] = make(chan result, 1)
		go func() {
			ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("no answer within %v", s.limit))
			defer cancel()
			summary, err := s.do(ctx)
			results[i] <- result{summary, err}
		}()
	}

	passed := 0
	open := 0
	warned := 0
	silent := map[string]string{} // services: the step that has told it
	for i, s := range steps {
		got := <-results[i]
		var no *unanswered
		if errors.As(got.err, &no) {
			if first := silent[no.service]; first != "" {
				got.err = undecided(fmt.Sprintf("not checked: %s does not answer, see %s", no.service, first))
			} else {
				silent[no.service] = s.name
			}
		}

		o.line(width, s.name, got.summary, got.err)
		switch {
		case got.err == nil:
			passed++
		case errors.As(got.err, new(warning)):
			passed++
			warned++
		case errors.As(got.err, new(undecided)):
			open++
		}
	}

	verdict := fmt.Sprintf("%d of %d checks passed", passed, len(steps))
	if warned > 0 {
		verdict += ", " + humanize.Count(warned, "warning")
	}

	if open > 0 {
		verdict += fmt.Sprintf(", %d could not be tried", open)
	}

	fmt.Fprintf(o.W, "\n%s\n", verdict)

	return passed+open == len(steps)
}

// Fail prints the line of a step that failed before the check could begin.
func (o Output) Fail(name, why string) { o.line(0, name, "", errors.New(why)) }

// line prints what one step found.
func (o Output) line(width int, name, summary string, err error) {
	const green, yellow, red, reset = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
	mark, color := "✓", green

	switch {
	case errors.As(err, new(undecided)):
		mark = "–"
		color = yellow
		summary = err.Error()
	case errors.As(err, new(warning)):
		mark = "!"
		color = yellow
		summary = err.Error()
	case err != nil:
		mark = "✗"
		color = red
		summary = err.Error()
	}

	if o.Color {
		mark = color + mark + reset
	}

	fmt.Fprintf(o.W, "%s %-*s  %s\n", mark, width, name, humanize.OneLine(summary))
}
