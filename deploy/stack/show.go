package main

import (
	"context"
	"os/signal"
	"time"

	"alertworker/internal/audit"
)

// tickEvery is how often the screen is drawn and processes are looked after.
const tickEvery = 200 * time.Millisecond

// A show is what happens while everything runs.
type show struct {
	options
	team     *team
	services []*service
	screen   *view
	judge    *audit.Log
	rules    audit.Rules
	keys     <-chan byte

	stopPublishing func()
	published      <-chan error // why publishing ended

	silent   bool      // publishing has ended
	settling time.Time // until when to wait for the last alerts; zero while devices publish
}

// run shows the workers until told to stop, and then waits until every reading
// that needs an alert has one, or too long, or it is told again.
func (s *show) run(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	over, kills := after(s.duration), every(s.kill)
	told := ctx.Done()

	for {
		var err error
		stop := false
		select {
		case <-ticker.C:
			if err = s.tick(); err == nil && s.settled() {
				return nil
			}
		case <-kills:
			if s.settling.IsZero() {
				err = s.team.pressAny()
			}
		case key := <-s.keys:
			stop = key == 'q' || key == ctrlC
			if key >= '1' && key <= '9' {
				err = s.team.press(int(key - '1'))
			}
		case <-over:
			stop = true
		case <-told:
			stop = true
			again, restore := signal.NotifyContext(context.WithoutCancel(ctx), stopSignals...)
			defer restore()
			told = again.Done()
		case err = <-s.published: // comes once
			s.silent = true
		}
		if err != nil {
			return err
		}
		if stop {
			if !s.settling.IsZero() {
				return nil
			}
			s.stopPublishing()
			s.settling = time.Now().Add(s.rules.Bound)
			s.screen.Settling()
			over = nil
		}
	}
}

// tick looks after the processes and draws the screen.
func (s *show) tick() error {
	for _, service := range s.services {
		if service.ended() {
			return service.unexpected()
		}
	}
	if err := s.team.tend(); err != nil {
		return err
	}
	return s.screen.Draw()
}

// settled reports whether there is nothing left to wait for.
func (s *show) settled() bool {
	if s.settling.IsZero() {
		return false
	}
	return time.Now().After(s.settling) || s.silent && len(s.judge.Check(s.rules).Lost) == 0
}

// after is time.After, or never for 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// every is time.Tick, or never for 0.
func every(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.Tick(d)
}
