package ledgertest

import (
	"context"
	"errors"
	"sync"

	"alertworker/internal/ledger"
)

// A fault is what becomes of one call to a store.
type fault string

const (
	lostRequest fault = "request lost"        // not executed
	lostAnswer  fault = "answer lost"         // executed, and the answer is an error
	repeated    fault = "answer lost, repeat" // executed, and the answer is that to a repetition
	late        fault = "late"                // the answer is an error; a write is executed after the next call to the store
)

var errReset = errors.New("connection reset by peer")

// A faulty is a store with a network that misbehaves as told.
type faulty struct {
	ledger.Store

	mu     sync.Mutex
	fault  fault
	in     int      // calls until the fault
	fired  bool     //
	delays []func() // writes that are late
	writes []write  // all of them
}

type write struct {
	name   string
	record ledger.Record
}

// arm lets the fault befall the call after the next n.
func (f *faulty) arm(what fault, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.in, f.fired = what, n, false
}

// disarm ends the fault and reports whether it befell a call.
func (f *faulty) disarm() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = ""
	return f.fired
}

// next returns the fault of this call, and executes what is late after it.
func (f *faulty) next() (what fault, after func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delays := f.delays
	f.delays = nil
	after = func() {
		for _, late := range delays {
			late()
		}
	}
	if f.fault == "" || f.fired {
		return "", after
	}
	if f.in > 0 {
		f.in--
		return "", after
	}
	f.fired = true
	return f.fault, after
}

func (f *faulty) Read(ctx context.Context, name string) (ledger.Record, error) {
	what, after := f.next()
	defer after()
	if what != "" && what != repeated {
		return ledger.Record{}, errReset
	}
	return f.Store.Read(ctx, name)
}

func (f *faulty) Owner(ctx context.Context, name string) (string, error) {
	what, after := f.next()
	defer after()
	if what != "" && what != repeated {
		return "", errReset
	}
	return f.Store.Owner(ctx, name)
}

func (f *faulty) Write(ctx context.Context, name string, r ledger.Record) (string, error) {
	what, after := f.next()
	defer after()
	f.mu.Lock()
	f.writes = append(f.writes, write{name, r})
	f.mu.Unlock()
	switch what {
	case lostRequest:
		return "", errReset
	case late:
		f.mu.Lock()
		f.delays = append(f.delays, func() { _, _ = f.Store.Write(context.WithoutCancel(ctx), name, r) })
		f.mu.Unlock()
		return "", errReset
	case lostAnswer:
		_, _ = f.Store.Write(ctx, name, r)
		return "", errReset
	case repeated:
		_, _ = f.Store.Write(ctx, name, r)
	}
	return f.Store.Write(ctx, name, r)
}

// repeat sends every write so far again, as a network that delivers late would.
func (f *faulty) repeat(ctx context.Context) (landed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.writes {
		if _, err := f.Store.Write(ctx, w.name, w.record); !errors.Is(err, ledger.ErrConflict) {
			landed++
		}
	}
	return landed
}
