package absence_test

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// Without rules about silence nobody is heard, nothing is asked, and there is no roster to read or write.
func TestNoRules(t *testing.T) {
	w := absence.New(nil, nil, whole, nil, zap.NewNop())
	if err := w.Load(t.Context()); err != nil {
		t.Fatal(err)
	}

	start := telemetry.Position{Sequence: 7, Offset: "7"}
	if from, ended := w.Begin(start, nil); from != start || ended != nil {
		t.Errorf("begins at %+v with %v", from, ended)
	}

	w.Lock()
	for n := range int64(100) {
		e := telemetry.Event{
			Position: telemetry.Position{Sequence: 8 + 1000*n, Offset: "8"},
			Device:   "oven",
			Enqueued: time.Now().Add(time.Duration(n) * time.Hour),
		}
		w.Take(&e)
		if !w.Hear(&e, roster.Hash(e.Device), nil, nil) {
			t.Error("there is no room")
		}
	}
	w.Unlock()

	if q := w.Look(time.Now(), false); q.Hub {
		t.Errorf("asks %+v", q)
	}
	if w.Forget(sensor.Of("oven")) {
		t.Error("a device is known")
	}
	if saved := w.Save(t.Context(), true); saved.Wrote {
		t.Errorf("saved %+v", saved)
	}
	w.View(func(r *roster.Roster) {
		if r.Len() != 0 {
			t.Errorf("%d devices", r.Len())
		}
	})
}
