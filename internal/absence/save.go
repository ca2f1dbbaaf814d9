package absence

import (
	"context"
	"time"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

const (
	saveEvery   = time.Minute // the roster is written at most so often, and at a hand-over
	saveTimeout = 20 * time.Second
)

// A Saved is what became of a Save.
type Saved struct {
	Err    error // why the roster was not written, nil if it was, or did not have to be
	Needed bool  // there is none in the store: without it, nobody would know who was heard before a checkpoint
	Wrote  bool
}

// Save writes the roster, if it is time for that, or if this is the last time.
func (w *Watch) Save(ctx context.Context, last bool) Saved {
	content, read, expected := w.toSave(last)
	if content == nil {
		return Saved{}
	}

	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	err := w.file.Write(ctx, content, expected)

	w.mu.Lock()
	defer w.mu.Unlock()

	if err != nil {
		w.changed = true
		return Saved{Err: err, Needed: !w.found, Wrote: true}
	}

	w.kept = read
	w.found = w.found || !read.Time.IsZero() // until then the next owner cannot go on from it

	return Saved{Needed: !w.found, Wrote: true}
}

// toSave returns what Save writes, up to where that was read, and what others look at; nil if nothing is to be written.
func (w *Watch) toSave(last bool) (content []byte, read telemetry.Position, expected roster.Expected) {
	w.mu.Lock()
	defer w.mu.Unlock()

	now := time.Now()
	isChanged := len(w.rules) > 0 && (w.changed || w.read != w.kept)
	isTime := last || !w.found || now.Sub(w.written) >= saveEvery // at once if there is none in the store
	if !isChanged || !isTime {
		return nil, read, expected
	}

	w.changed = false
	w.written = now
	if w.read.Offset != "" && !w.read.NotAfter(w.roster.Position) {
		w.roster.Position = w.read
	}

	return w.roster.Encode(), w.read, w.roster.Expects()
}
