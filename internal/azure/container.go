package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// restoreEvery is the minimum time between two attempts to create a missing container.
const restoreEvery = 5 * time.Second

// A Container is created by its users when it is missing: at the start, or because it has
// been deleted since. Use NewContainer. It is safe for concurrent use.
type Container struct {
	name    string
	missing func(error) bool
	create  func(context.Context) error

	mu      sync.Mutex
	trying  chan struct{} // closed when the attempt under way has ended; nil if there is none
	tried   time.Time     // the last attempt's end; zero if there was none
	err     error         // its result
	lost    *MissingError // since the last call that found the container; nil if it is there
	created func(name string)
}

// NewContainer returns the container that create creates. That it exists already is no
// error. name is for errors: its address without a signature. missing reports whether a
// call failed because the container does not exist.
func NewContainer(name string, missing func(error) bool, create func(context.Context) error) *Container {
	return &Container{name: name, missing: missing, create: create}
}

// OnCreate makes c call f whenever it has created the container from now on. f must
// not block.
func (c *Container) OnCreate(f func(name string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created = f
}

// Do calls call. If that fails because the container is missing Do creates it and,
// if it can, calls call again. Of concurrent calls one creates the container and the others
// wait; for five seconds after an attempt that failed none is made. The error is call's, a
// *MissingError, or ctx's.
func (c *Container) Do(ctx context.Context, call func() error) error {
	start := time.Now()
	err := call()
	if err == nil || !c.missing(err) {
		if err == nil {
			c.found()
		}
		return err
	}
	if err := c.restore(ctx, start); err != nil {
		return err
	}
	return call()
}

// found records that the container is there.
func (c *Container) found() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = nil
}

// Missing returns why the container, which calls have found missing, could not be created;
// nil if it could, or a call has found it since.
func (c *Container) Missing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		return nil
	}
	return c.lost
}

// restore creates the container, which was not there some time after missed.
func (c *Container) restore(ctx context.Context, missed time.Time) error {
	for {
		c.mu.Lock()
		trying := c.trying
		if trying == nil {
			switch {
			case c.tried.IsZero():
			case c.err == nil && missed.Before(c.tried), c.err != nil && time.Since(c.tried) < restoreEvery:
				defer c.mu.Unlock()
				return c.err
			}
			c.trying = make(chan struct{})
			c.mu.Unlock()
			return c.attempt(ctx)
		}
		c.mu.Unlock()
		select {
		case <-trying:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Container) attempt(ctx context.Context) error {
	err := c.create(ctx)
	if code(err) == "ContainerAlreadyExists" {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.trying)
	c.trying = nil
	if err != nil && ctx.Err() != nil { // that says nothing about the container
		return fmt.Errorf("create container %q: %w", c.name, ctx.Err())
	}
	if err != nil {
		c.lost = &MissingError{c.name, Explain(err)}
		err = c.lost
	} else {
		c.lost = nil
		if c.created != nil {
			c.created(c.name)
		}
	}
	c.tried, c.err = time.Now(), err
	return err
}

// A MissingError means that a container does not exist and could not be created.
type MissingError struct {
	Container string
	Err       error // why not
}

func (e *MissingError) Error() string {
	if errors.As(e.Err, new(readOnlyError)) {
		return fmt.Sprintf("container %q: %v", e.Container, e.Err)
	}
	return fmt.Sprintf("container %q does not exist and could not be created; create it, or allow the worker's key or identity to, which tries again every %v: %v", e.Container, restoreEvery, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// HTTPStatus returns what the service answers to whoever uses the container.
func (e *MissingError) HTTPStatus() int { return http.StatusNotFound }

// ContainerMissing reports whether err means that a blob container does not exist or is
// being deleted.
func ContainerMissing(err error) bool {
	var resp *azcore.ResponseError
	return errors.As(err, &resp) && (resp.ErrorCode == "ContainerNotFound" || resp.ErrorCode == "ContainerBeingDeleted")
}
