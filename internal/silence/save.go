package silence

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
	Needed bool  // there is none in the store: without it, nobody would know who was heard before a checkpoint
	Wrote  bool
}

// Save writes the roster, if it is time for that, or if this is the last time.
func (w *Watch) Save(ctx context.Context, last bool) Saved {
	w.mu.Lock()
	now := time.Now()
	proven := int64(0) // unless others need to know
	if w.shares() {
		proven = w.provenUntil(now, maxFresh)
	}

	nothing := w.read == w.kept && !w.changed && proven-w.roster.Proven < saveEvery.Milliseconds()
	if nothing || !last && w.found && now.Sub(w.written) < saveEvery {
		w.mu.Unlock()
		return Saved{}
	}

	w.roster.Proven = max(w.roster.Proven, proven)
	w.changed = false
	read := w.read
	if r := w.roster; read.Offset != "" && !read.NotAfter(r.Position) {
		r.Position = read
	}
	content := w.roster.Encode()
	w.written = now
	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	err := w.file.Write(ctx, content)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.kept = read
		w.found = w.found || read.Offset != "" // until then the next owner cannot go on from it
	} else {
		w.changed = true
	}
	return Saved{Err: err, Needed: !w.found, Wrote: true}
}
