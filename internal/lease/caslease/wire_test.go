package caslease_test

import (
	"context"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/lease/leasetest"
)

// A wire is a leasetest.Wire between a store and a service in memory.
type wire struct {
	*service

	mu           sync.Mutex
	fault        leasetest.Fault
	at, requests int
	began        time.Time
	ahead, dated time.Duration // the clock of who answers, and of who dated records
	writes       []func(context.Context) error
	delayed      func(context.Context) error // of writes the one that is late
}

func (w *wire) Open() (lease.Store, error) {
	service := caslease.Service{Clock: clock}
	if w.lags {
		service.Latest = func(ctx context.Context, key string) (caslease.Record, error) { return w.read(ctx, key, w.latest) }
	}
	return caslease.New(w, service), nil
}

func (w *wire) Arm(f leasetest.Fault, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.at, w.requests = f, at, 0
}

func (w *wire) Disarm() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = leasetest.Fault{}
	return w.requests
}

func (w *wire) Last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began
}

func (w *wire) Skew(now, written time.Duration) { w.ahead, w.dated = now, written }

func (w *wire) Repeat(ctx context.Context) (n int, err error) {
	w.mu.Lock()
	writes := w.writes
	w.mu.Unlock()
	for _, again := range writes {
		_ = again(ctx) // a conflict, as a rule
	}
	return len(writes), nil
}

// Read implements caslease.Records.
func (w *wire) Read(ctx context.Context, key string) (caslease.Record, error) {
	return w.read(ctx, key, w.service.Read)
}

func (w *wire) read(
	ctx context.Context, key string, send func(context.Context, string) (caslease.Record, error),
) (r caslease.Record, err error) {
	err = w.request(ctx, nil, func(ctx context.Context) error {
		r, err = send(ctx, key)
		return err
	})
	r.Now = time.Now().Add(w.ahead).Truncate(time.Second)
	if !r.Written.IsZero() {
		r.Written = r.Written.Add(w.dated)
	}
	return r, err
}

// Write implements caslease.Records.
func (w *wire) Write(ctx context.Context, key string, prev, next caslease.Record) (version string, err error) {
	again := func(ctx context.Context) error {
		_, err := w.service.Write(ctx, key, prev, next)
		return err
	}
	err = w.request(ctx, again, func(ctx context.Context) error {
		version, err = w.service.Write(ctx, key, prev, next)
		return err
	})
	return version, err
}

// request sends a request, or has the fault befall it. again sends a write once more.
func (w *wire) request(ctx context.Context, again, send func(context.Context) error) error {
	w.mu.Lock()
	w.began = time.Now()
	var f leasetest.Fault
	if w.at < 0 || w.requests == w.at {
		f = w.fault
	}
	w.requests++
	var delayed func(context.Context) error
	if again != nil {
		w.writes = append(w.writes, again)
		delayed, w.delayed = w.delayed, nil
		if f.Late {
			w.delayed = again
		}
	}
	w.mu.Unlock()

	if delayed != nil {
		_ = delayed(ctx)
	}
	if f == (leasetest.Fault{}) {
		return send(ctx)
	}
	if f.Executed {
		_ = send(ctx)
	}
	switch {
	case f.Stalled:
		<-ctx.Done()
		return ctx.Err()
	case f.Answer != leasetest.AnswerNone:
		return &lease.Failure{Text: "busy", Cause: lease.Busy, Again: true, After: f.Wait}
	}
	return errLost
}
