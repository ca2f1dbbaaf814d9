package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/ledger"
	"alertworker/internal/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) { ledgertest.Run(t, ledgertest.InMemory()) }

// stalled is a store that answers nothing; no real one can be made to on demand.
type stalled struct{}

func (stalled) Read(ctx context.Context, _ string) (ledger.Record, error) {
	<-ctx.Done()
	return ledger.Record{}, ctx.Err()
}

func (stalled) Owner(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (stalled) Write(ctx context.Context, _ string, _ ledger.Record) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// toggled is a store that stalls on demand.
type toggled struct {
	ledger.Store
}

// A store that does not answer stops nobody for longer than one answer may take.
func TestStalledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &toggled{&ledger.Memory{}}
		l, _, err := ledger.Open(t.Context(), store, "name")
		if err != nil {
			t.Fatal(err)
		}
		well := store.Store
		store.Store = stalled{}
		for what, call := range map[string]func() error{
			"read ledger name":  func() error { _, _, err := ledger.Open(t.Context(), store, "name"); return err },
			"ledger name":       func() error { return l.Write(t.Context(), full()) },
			"check ledger name": func() error { return l.Check(t.Context()) },
		} {
			start := time.Now()
			err := call()
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "no answer within 10s") || took != 10*time.Second {
				t.Errorf("%q after %v: %v", what, took, err)
			}
		}
		store.Store = well
		if err := l.Write(t.Context(), full()); err != nil {
			t.Errorf("after an outage: %v", err)
		}
	})
}

// What is too large is refused before it is written, and what was written before stays.
func TestTooLarge(t *testing.T) {
	store := &ledger.Memory{}
	l, _, err := ledger.Open(t.Context(), store, "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(t.Context(), full()); err != nil {
		t.Fatal(err)
	}
	c := full()
	c.Alarms[0].Device = strings.Repeat("x", ledger.MaxBytes)
	if err := l.Write(t.Context(), c); err == nil || !strings.Contains(err.Error(), "write ledger name: 4 alarms take 6710") {
		t.Errorf("%.200v", err)
	}
	if _, c, err := ledger.Open(t.Context(), store, "name"); err != nil || len(c.Alarms) != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}
