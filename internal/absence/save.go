package absence

import (
	"context"
	"time"
)

const (
	saveEvery   = time.Minute // the roster is written at most so often, and at a hand-over
	saveTimeout = 20 * time.Second
)

// A Saved is what became of a Save.
type Saved struct {
	Err    error // why the roster was not written, nil if it was, or did not have to be
	Needed bool  // the next owner cannot go on from what is in the store: nothing else may be written before it
	Wrote  bool
}

// Save writes the roster, if it is time for that, or if this is the last time.
func (w *Watch) Save(ctx context.Context, last bool) Saved {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	isChanged := len(w.rules) > 0 && (w.changed || w.read != w.kept)
	isTime := last || !w.found || now.Sub(w.written) >= saveEvery // at once if the one in the store will not do
	if !isChanged || !isTime {
		return Saved{}
	}

	w.changed = false
	w.written = now
	wasFound := w.found
	w.found = w.found || !w.read.Time.IsZero() // unless a device is forgotten while it is written
	if w.read.Offset != "" && !w.read.NotAfter(w.roster.Position) {
		w.roster.Position = w.read
	}

	content, read, expected := w.roster.Encode(), w.read, w.roster.Expects()
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	w.mu.Unlock()
	err := w.file.Write(ctx, content, expected)
	w.mu.Lock()

	if err != nil {
		w.changed = true
		w.found = w.found && wasFound
		return Saved{Err: err, Needed: !w.found, Wrote: true}
	}

	w.kept = read

	return Saved{Needed: !w.found, Wrote: true}
}
