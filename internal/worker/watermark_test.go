package worker

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/telemetry"
)

// Against a model that remembers every event: the watermark is the last
// position before which all are settled, and never moves back.
func TestWatermark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var mark watermark
		var last, highest int64
		unsettled := map[int64]*entry{} // by sequence
		at := func(sequence int64) telemetry.Position { return telemetry.Position{Sequence: sequence} }
		t.Repeat(map[string]func(*rapid.T){
			"settled": func(*rapid.T) {
				last++
				mark.read(at(last))
			},
			"admitted": func(t *rapid.T) {
				e := mark.admit(at(last), last)
				e.pending = rapid.Int32Range(1, 3).Draw(t, "receivers")
				last++
				unsettled[last] = e
				mark.read(at(last))
			},
			"one receiver settles": func(t *rapid.T) {
				if len(unsettled) == 0 {
					t.Skip("none is unsettled")
				}
				sequence := rapid.SampledFrom(slices.Sorted(maps.Keys(unsettled))).Draw(t, "event")
				e := unsettled[sequence]
				mark.settle(e)
				if e.pending == 0 {
					delete(unsettled, sequence)
				}
			},
			"": func(t *rapid.T) {
				want := last
				for sequence := range unsettled {
					want = min(want, sequence-1)
				}
				got := mark.position().Sequence
				if got != want {
					t.Fatalf("watermark at %d, want %d", got, want)
				}
				if got < highest {
					t.Fatalf("watermark moved back from %d to %d", highest, got)
				}
				highest = got
				if mark.unsettled() != len(unsettled) {
					t.Fatalf("%d events are unsettled, want %d", mark.unsettled(), len(unsettled))
				}
				if len(mark.entries) > 2*len(unsettled) {
					t.Fatalf("%d entries for %d unsettled events", len(mark.entries), len(unsettled))
				}
			},
		})
	})
}

// An entry gives back the position that it was made of, with its time or without one.
func TestWatermarkKeepsPositions(t *testing.T) {
	for _, at := range []time.Time{{}, time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)} {
		var w watermark
		want := telemetry.Position{Sequence: 7, Offset: "4096", Time: at}
		w.admit(want, 1)
		if got := w.position(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
