package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
)

// A meter says how far something is, and how long the rest takes, in a line every 10 s. It is for one goroutine at a time.
type meter struct {
	to         io.Writer
	began, due time.Time
}

const meterEvery = 10 * time.Second

func newMeter() *meter {
	return &meter{to: os.Stderr, began: time.Now(), due: time.Now().Add(meterEvery)}
}

// say prints what is done and how long the rest takes, given the share that is done, if it is time to.
func (m *meter) say(share float64, done string) {
	now := time.Now()
	if now.Before(m.due) {
		return
	}

	m.due = now.Add(meterEvery)
	left := "?"
	if share > 0 {
		left = humanize.Span(time.Duration(float64(now.Sub(m.began)) * (1 - share) / share))
	}

	fmt.Fprintf(m.to, "%s, %s left\n", done, left)
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
	perSecond := float64(p.events) / max(time.Since(p.began), time.Millisecond).Seconds()
	p.say(p.Progress(), fmt.Sprintf("%d events, %.0f per second", p.events, perSecond))

	return partition, events, err
}
