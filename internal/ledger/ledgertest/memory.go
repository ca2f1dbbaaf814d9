package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"alertworker/internal/ledger"
)

// InMemory is the harness of [ledger.Memory].
func InMemory() Harness {
	return Harness{New: func(testing.TB) Backend {
		m := &deletable{deleted: map[string]int{}}
		return Backend{Open: func() ledger.Store { return m }, Delete: m.delete}
	}}
}

// A deletable store is one in memory in which a record that is deleted is one of another name.
type deletable struct {
	ledger.Memory
	mu      sync.Mutex
	deleted map[string]int
}

func (d *deletable) delete(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted[name]++
	return nil
}

func (d *deletable) name(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(name, " ", d.deleted[name])
}

func (d *deletable) Read(ctx context.Context, name string) (ledger.Record, error) {
	return d.Memory.Read(ctx, d.name(name))
}

func (d *deletable) Owner(ctx context.Context, name string) (string, error) {
	return d.Memory.Owner(ctx, d.name(name))
}

func (d *deletable) Write(ctx context.Context, name string, r ledger.Record) (string, error) {
	return d.Memory.Write(ctx, d.name(name), r)
}
