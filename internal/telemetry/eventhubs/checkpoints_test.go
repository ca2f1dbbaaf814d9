package eventhubs_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

var testGroup = eventhubs.NewGroup("NS.example", "Hub", "$Default")

// monotonic sees every write, in the order in which the store took them.
type monotonic struct {
	records.Memory
	mu   sync.Mutex
	last int64
	back bool
}

func (m *monotonic) Write(ctx context.Context, r records.Record) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	etag, err := m.Memory.Write(ctx, r)
	if n, _ := strconv.ParseInt(r.Values["sequencenumber"], 10, 64); err == nil {
		m.back = m.back || n < m.last
		m.last = n
	}
	return etag, err
}

// However many write at once, a checkpoint only moves forward.
func TestRacingCheckpointsMoveForward(t *testing.T) {
	m := &monotonic{}
	var racers sync.WaitGroup
	for racer := range 8 {
		racers.Go(func() {
			for i := range 200 {
				p := telemetry.Position{Sequence: int64(i*8 + (racer*37+i*11)%97), Offset: "1"}
				if err := eventhubs.Advance(t.Context(), m, testGroup, "0", p); err != nil && !errors.Is(err, records.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	racers.Wait()
	if m.back || m.last == 0 {
		t.Errorf("it moved back: %t; it is at %d", m.back, m.last)
	}
}

// Whatever stands where a checkpoint belongs is read or refused, and what was read is
// written the same.
func FuzzCheckpoint(f *testing.F) {
	f.Add("7", "700", "2026-01-02T03:04:05.678Z", "4f1c09ab37e2d680", "A7Q2")
	f.Add("-1", "-1", "", "", "")
	f.Add("", "", "x", "y", "z")
	f.Add("9223372036854775808", "@latest", "0000-00-00T00:00:00Z", "", "")
	f.Fuzz(func(t *testing.T, sequence, offset, enqueued, generation, ledger string) {
		ctx := t.Context()
		read := func(values map[string]string) (c eventhubs.StoredCheckpoint, ok bool) {
			store := &records.Memory{}
			if _, err := store.Write(ctx, records.Record{Name: testGroup.Checkpoint("0"), Values: values}); err != nil {
				t.Fatal(err)
			}
			readable, unreadable, err := eventhubs.ReadCheckpoints(ctx, store, testGroup)
			if err != nil || len(readable)+len(unreadable) != 1 {
				t.Fatal(readable, unreadable, err)
			}
			c, ok = readable["0"]
			return c, ok
		}
		c, ok := read(map[string]string{"sequencenumber": sequence, "offset": offset, "enqueuedtime": enqueued, "generation": generation, "ledger": ledger})
		if !ok {
			return
		}
		again, ok := read(c.Values())
		same := func(a, b time.Time) bool { return a.Equal(b) || a.UTC().Year() > 9999 || a.UTC().Year() < 0 }
		if !ok || again.Sequence != c.Sequence || again.Offset != c.Offset || !same(c.Time, again.Time) || again.Generation != generation || again.Ledger != ledger {
			t.Errorf("%+v came back as %+v, %t", c, again, ok)
		}
	})
}

// A checkpoint without a ledger has no value of that name: it is what earlier versions wrote.
func TestCheckpointWithoutLedger(t *testing.T) {
	c := eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 7, Offset: "700"}}}
	if values := c.Values(); !maps.Equal(values, map[string]string{"sequencenumber": "7", "offset": "700"}) {
		t.Errorf("its values are %v", values)
	}
	c.Ledger = "A7Q2"
	if values := c.Values(); values["ledger"] != "A7Q2" || len(values) != 3 {
		t.Errorf("its values are %v", values)
	}
}
