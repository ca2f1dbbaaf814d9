// Package recordstest has a network between a store of records and its user that misbehaves as told.
package recordstest

import (
	"context"
	"errors"
	"sync"

	"alertworker/internal/records"
)

// A Fault is what becomes of one call.
type Fault string

const (
	LostRequest Fault = "request lost"        // not executed
	LostAnswer  Fault = "answer lost"         // executed, and the answer is an error
	Repeated    Fault = "answer lost, repeat" // executed, and the answer is that to a repetition
	Late        Fault = "late"                // the answer is an error; a write is executed after the next call
)

// Faults are all of them.
var Faults = []Fault{LostRequest, LostAnswer, Repeated, Late}

// ErrReset is the error of a call whose answer is lost.
var ErrReset = errors.New("connection reset by peer")

// A Network carries calls to Next. Use Via. It is safe for concurrent use.
type Network struct {
	// Fail, if not nil, is asked before each call, which it makes fail. It is called concurrently.
	Fail func(op records.Op, name string) error

	mu     sync.Mutex
	fault  Fault
	in     int // calls until the fault; negative once it has been
	late   []func() error
	writes []func() error // all of them, to send again
}

// Via returns next behind n.
func (n *Network) Via(next records.Store) records.Store {
	return records.Around(
		next,
		func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			if n.Fail != nil {
				if err := n.Fail(op, name); err != nil {
					return err
				}
			}

			again := func() error { return call(context.WithoutCancel(ctx)) }
			var fault Fault
			n.mu.Lock()
			late := n.late
			n.late = nil
			if n.in == 0 {
				fault = n.fault
			}
			n.in--
			if op == records.OpWrite || op == records.OpDelete {
				n.writes = append(n.writes, again)
				if fault == Late {
					n.late = append(n.late, again)
				}
			}
			n.mu.Unlock()

			defer func() {
				for _, write := range late {
					_ = write()
				}
			}()

			switch fault {
			case LostRequest, Late:
				return ErrReset
			case LostAnswer:
				_ = call(ctx)
				return ErrReset
			case Repeated:
				_ = call(ctx)
			}

			return call(ctx)
		},
	)
}

// Arm lets the fault befall the call after the next in.
func (n *Network) Arm(fault Fault, in int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
	n.in = in
}

// Disarm ends the fault and reports whether it befell a call.
func (n *Network) Disarm() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = ""
	return n.in < 0
}

// Repeat sends every write so far again, as a network that delivers late would, and returns how many were executed.
func (n *Network) Repeat() (executed int) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, write := range n.writes {
		if err := write(); err == nil {
			executed++
		}
	}

	return executed
}

// RepeatOne sends one of the writes so far again, if there are any.
func (n *Network) RepeatOne(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.writes) > 0 {
		_ = n.writes[i%len(n.writes)]()
	}
}
