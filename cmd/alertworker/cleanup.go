package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// closeLimit is for a step of a cleanup that has nothing to finish.
const closeLimit = 10 * time.Second

// A cleanup is a stack of named steps that end what was opened or started: last
// in, first out. The zero value is empty. It is for one goroutine.
type cleanup struct{ steps []cleanupStep }

type cleanupStep struct {
	name  string
	limit time.Duration
	do    func() error
}

// add puts a step on the stack. One that has not returned after limit is abandoned.
func (c *cleanup) add(name string, limit time.Duration, do func()) {
	c.steps = append(c.steps, cleanupStep{name, limit, func() error {
		do()
		return nil
	}})
}

// background calls do in a goroutine of its own. Its step cancels do's context and
// waits for do. If ctx ends first, do stops and its step only waits.
func (c *cleanup) background(ctx context.Context, name string, limit time.Duration, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	c.steps = append(c.steps, cleanupStep{name, limit, func() error {
		cancel()
		return <-done
	}})
}

// run takes every step off the stack, also after errors, and returns all errors.
func (c *cleanup) run() error {
	var errs []error
	for n := len(c.steps); n > 0; n = len(c.steps) {
		step := c.steps[n-1]
		c.steps = c.steps[:n-1]
		done := make(chan error, 1)
		go func() { done <- step.do() }()

		select {
		case err := <-done:
			errs = append(errs, err)
		case <-time.After(step.limit):
			errs = append(errs, fmt.Errorf("%s did not stop within %v", step.name, step.limit))
		}
	}

	return errors.Join(errs...)
}

// running makes a background step of a Run method that returns when its context ends.
func running(f func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		f(ctx)
		return nil
	}
}
