package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"alertworker/internal/humanize"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
)

// A meter says how far something is, and how long the rest takes: on a terminal in one line that is replaced every
// second, else in a line every 30 s. It is for one goroutine at a time.
type meter struct {
	to         io.Writer
	terminal   bool
	began, due time.Time
}

const (
	meterEvery = time.Second      // on a terminal
	meterLines = 30 * time.Second // elsewhere
)

func newMeter() *meter {
	m := &meter{to: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), began: time.Now()}
	m.due = m.began.Add(m.every())
	return m
}

func (m *meter) every() time.Duration {
	if m.terminal {
		return meterEvery
	}
	return meterLines
}

// say prints what is done and how long the rest takes, given the share that is done, if it is time to.
func (m *meter) say(share float64, done string) {
	now := time.Now()
	if now.Before(m.due) {
		return
	}

	m.due = now.Add(m.every())
	left := "?"
	if share > 0 {
		left = humanize.Span(time.Duration(float64(now.Sub(m.began)) * (1 - share) / share))
	}

	line := fmt.Sprintf("%s, %s left", done, left)

	if m.terminal {
		fmt.Fprintf(m.to, "\r\x1b[K%s", line)
		return
	}

	fmt.Fprintln(m.to, line)
}

// end takes the line away.
func (m *meter) end() {
	if m.terminal {
		fmt.Fprint(m.to, "\r\x1b[K")
	}
}

// progress is a source that says how far it has been read.
type progress struct {
	backtesting.Source
	*meter
	events int
}

func withProgress(s backtesting.Source) backtesting.Source {
	return &progress{Source: s, meter: newMeter()}
}

func (p *progress) Next(ctx context.Context) (partition string, events []telemetry.Event, err error) {
	partition, events, err = p.Source.Next(ctx)
	p.events += len(events)

	if err != nil {
		p.end()
		return partition, events, err
	}

	perSecond := float64(p.events) / max(time.Since(p.began), time.Millisecond).Seconds()
	p.say(p.Progress(), fmt.Sprintf("%d events, %.0f per second", p.events, perSecond))

	return partition, events, nil
}
