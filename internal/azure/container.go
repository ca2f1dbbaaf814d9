package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"alertworker/internal/lease"
)

// restoreEvery is the minimum time between two attempts to create a missing container.
const restoreEvery = 5 * time.Second

// A Container is created by its users when it is missing: at the start, or because it has
// been deleted since. Use NewContainer. It is safe for concurrent use.
type Container struct {
	// Created, if not nil, is called whenever the container has been created. It must not block. Set it before the
	// container has several users.
	Created func(name string)

	name    string
	missing func(error) bool
	create  func(context.Context) error

	turn  chan struct{} // holds one while somebody uses what follows
	tried time.Time     // the last attempt's end; zero if there was none
	err   error         // its result
}

// NewContainer returns the container that create creates. That it exists already is no
// error. name is for errors: its address without a signature. missing reports whether a
// call failed because the container does not exist.
func NewContainer(name string, missing func(error) bool, create func(context.Context) error) *Container {
	return &Container{name: name, missing: missing, create: create, turn: make(chan struct{}, 1)}
}

// Do calls call. If that fails because the container is missing Do creates it and,
// if it can, calls call again. Of concurrent calls one creates the container and the others
// wait; for five seconds after an attempt that failed none is made. The error is call's, ctx's, or why the container could
// not be created.
func (c *Container) Do(ctx context.Context, call func() error) error {
	start := time.Now()
	err := call()
	if err == nil || !c.missing(err) {
		return err
	}

	if err := c.restore(ctx, start); err != nil {
		return err
	}

	return call()
}

// restore creates the container, which was not there some time after missed.
func (c *Container) restore(ctx context.Context, missed time.Time) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}

	restored := c.err == nil && missed.Before(c.tried)
	failed := c.err != nil && time.Since(c.tried) < restoreEvery
	if restored || failed {
		return c.err
	}

	err := Explain(c.create(ctx))
	switch {
	case err == nil, Answer(err).ErrorCode == "ContainerAlreadyExists":
		c.err = nil
		if c.Created != nil {
			c.Created(c.name)
		}

	case lease.CauseOf(err) == lease.NoAnswer: // it may exist, or come to exist
		return fmt.Errorf("create container %q: %w", c.name, err)

	default:
		c.err = notCreated(c.name, err)
	}

	c.tried = time.Now()

	return c.err
}

// notCreated returns the Failure of whoever uses a container that does not exist and, because of err, was not created.
func notCreated(name string, err error) error {
	f := &lease.Failure{
		Text: fmt.Sprintf("container %q does not exist and could not be created; create it, or let the worker's key or identity "+
			"create it (it tries again every %v): %v", name, restoreEvery, err),
		Cause:  lease.Wrong,
		Status: http.StatusNotFound,
	}
	switch {
	case errors.Is(err, errReadOnly):
		f.Text = fmt.Sprintf("container %q: %v", name, err)
	case lease.IsRefused(err):
		f.Cause = lease.Refused
	}

	return f
}

// ContainerMissing reports whether err means that a blob container does not exist or is
// being deleted.
func ContainerMissing(err error) bool {
	return slices.Contains([]string{"ContainerNotFound", "ContainerBeingDeleted"}, Answer(err).ErrorCode)
}
