package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"alertworker/internal/lab/console"
)

// stepTimeout is what a step of a check has, unless it needs longer.
const stepTimeout = 20 * time.Second

// check is `alertworker check`: it tries all that the environment names and
// says of each, in a line, whether it works. It leaves alone what workers
// share: it takes no partition, moves no checkpoint and, unless --notify asks
// for it, sends no alert.
func check(ctx context.Context, args []string) error {
	return checkTo(ctx, report{w: os.Stdout, color: console.Detect(os.Stdout, os.Getenv).Color}, args)
}

func checkTo(ctx context.Context, out report, args []string) error {
	flags := newFlags("check", "connect to all that the environment names and read a few events; exit 0 if it works, 1 if not")
	send := flags.Bool("notify", false, "also send every receiver an alert that is marked as a test")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	c, log, rs, err := configure()
	if err != nil {
		out.line("settings", "", errors.New("not valid, so nothing was tried"))
		return &checkError{err}
	}
	defer func() { _ = log.Sync() }()
	k, err := newCheckup(ctx, c, rs, log)
	if err != nil {
		return err
	}
	defer k.close()
	return out.run(ctx, k.steps(*send))
}

// A checkError is what a check found wrong with the configuration. To a check
// that is a finding like any other.
type checkError struct{ error }

func (*checkError) ExitCode() int { return exitFailed }

// A step is one line of a check. do returns by the time ctx ends, with what it
// found, or else with an error that says what to do: an undecided one if
// there was nothing to try.
type step struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context) (summary string, err error)
}

// undecided is the error of a step that neither works nor fails.
type undecided string

func (u undecided) Error() string { return string(u) }

// A report prints what steps find.
type report struct {
	w     io.Writer
	color bool
	width int // of the names; 0 for one line alone
}

// run does all steps side by side and prints them in order.
func (r report) run(ctx context.Context, steps []step) error {
	type result struct {
		summary string
		err     error
	}
	results := make([]chan result, len(steps))
	for i, s := range steps {
		r.width = max(r.width, utf8.RuneCountInString(s.name))
		results[i] = make(chan result, 1)
		go func() {
			ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("no answer within %v", s.limit))
			defer cancel()
			summary, err := s.do(ctx)
			results[i] <- result{summary, err}
		}()
	}

	works, open := 0, 0
	for i, s := range steps {
		got := <-results[i]
		r.line(s.name, got.summary, got.err)
		switch {
		case got.err == nil:
			works++
		case errors.As(got.err, new(undecided)):
			open++
		}
	}
	verdict := fmt.Sprintf("%d of %d checks passed", works, len(steps))
	if open > 0 {
		verdict += fmt.Sprintf(", %d could not be tried", open)
	}
	fmt.Fprintf(r.w, "\n%s\n", verdict)
	if works+open < len(steps) {
		return &silentError{exitFailed}
	}
	return nil
}

// line prints what one step found.
func (r report) line(name, summary string, err error) {
	const green, yellow, red, reset = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
	mark, color := "✓", green
	switch {
	case errors.As(err, new(undecided)):
		mark, color, summary = "–", yellow, err.Error()
	case err != nil:
		mark, color, summary = "✗", red, err.Error()
	}
	if r.color {
		mark = color + mark + reset
	}
	fmt.Fprintf(r.w, "%s %-*s  %s\n", mark, r.width, name, oneLine(summary))
}

// oneLine makes a line of text that services and devices may have had a hand in.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
