package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// maxRate is the default of --rate: half of what a throughput unit lets out.
const maxRate = 2000

// historyFlags say how to read what the hub holds.
type historyFlags struct {
	since time.Duration
	group string
	rate  float64
}

// define defines the flags. The one called name says how far back to read, and has does as its help.
func (h *historyFlags) define(flags *flag.FlagSet, name, does string) {
	flags.DurationVar(&h.since, name, 0, does)
	flags.StringVar(&h.group, "group", "",
		"with --"+name+", read through this consumer `GROUP`, which the worker must not use (default $Default, "+
			"unless the worker uses it)")
	flags.Float64Var(&h.rate, "rate", maxRate,
		"with --"+name+", read at most this `NUMBER` of events a second, because the worker shares the hub's egress; 0: any")
}

// open opens the history of the hub that c names, which has been found (findHub). It is an error if the worker reads in the
// same consumer group. The caller closes it.
func (h *historyFlags) open(ctx context.Context, c config.Config, s stores) (*eventhubs.History, error) {
	group := cmp.Or(h.group, "$Default")
	if strings.EqualFold(group, c.EventHubConsumerGroup) {
		return nil, &usageError{
			fmt.Errorf("the worker reads in the consumer group %s: create another one, and name it with --group", group),
		}
	}

	c.EventHubConsumerGroup = group
	history, err := eventhubs.OpenHistory(ctx, sourceConfig(c, s, zap.NewNop()), time.Now().Add(-h.since), h.rate)
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("stopped before anything was read")
	case err != nil:
		return nil, fmt.Errorf("read what the hub holds: %w", err)
	}

	return history, nil
}

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
