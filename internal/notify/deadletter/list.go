package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/notify"
	"alertworker/internal/records"
)

const (
	pageSize  = 64      // letters, which are read concurrently
	maxLetter = 1 << 20 // bytes
)

// ErrNotFound means that there is no such letter, or no longer.
var ErrNotFound = errors.New("no such dead letter")

// A Letter is an alert that a receiver did not get. Its JSON is the content of a record in one of the folders. People and scripts
// read it: fields may be added, never renamed.
type Letter struct {
	ID       string          `json:"-"`
	Kind     Kind            `json:"-"`
	Kept     time.Time       `json:"kept"` // by the clock of the replica that kept it
	Receiver string          `json:"receiver"`
	Reason   string          `json:"reason"`
	Payload  json.RawMessage `json:"alert,omitempty"` // the alert as webhooks get it
	Log      string          `json:"log,omitempty"`   // that numbered its reading
	To       string          `json:"to,omitempty"`    // the receiver's recipients who did not get it; empty: none did
	Text     string          `json:"text,omitempty"`  // the alert, if it cannot be encoded

	// when it was sent again or discarded, by the clock of who did, who took it, and who did that, as they say
	Replayed   time.Time `json:"replayed,omitzero"`
	ReplayedTo string    `json:"replayedTo,omitempty"`
	Discarded  time.Time `json:"discarded,omitzero"`
	By         string    `json:"by,omitempty"`

	Alert notify.Alert `json:"-"`
	// if not nil, why the alert cannot be sent; other fields may be missing
	Broken error `json:"-"`

	etag string
}

// List yields the letters of a kind about what the hub got at or after since, in the
// order of those times, in pages of up to 64. It ends with the first error. Letters that
// are kept or deleted meanwhile may or may not be included.
func (s *Store) List(ctx context.Context, kind Kind, since time.Time) iter.Seq2[[]Letter, error] {
	from := utc(since).Format(timeLayout)
	return func(yield func([]Letter, error) bool) {
		for all, err := range records.Pages(ctx, s.records, folders[kind]) {
			if err != nil {
				yield(nil, err)
				return
			}

			var ids []string
			for _, r := range all {
				if id, ok := idOf(kind, r.Name); ok && id >= from {
					ids = append(ids, id)
				}
			}

			for page := range slices.Chunk(ids, pageSize) {
				letters := make([]Letter, len(page))
				var reading errgroup.Group
				for i, id := range page {
					reading.Go(func() (err error) {
						if letters[i], err = s.Get(ctx, kind, id); errors.Is(err, ErrNotFound) {
							return nil
						}
						return err
					})
				}

				err := reading.Wait()
				isGone := func(l Letter) bool { return l.ID == "" }
				if !yield(slices.DeleteFunc(letters, isGone), err) || err != nil {
					return
				}
			}
		}
	}
}

// Get returns one letter of a kind; ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, kind Kind, id string) (Letter, error) {
	if !idPattern.MatchString(id) {
		return Letter{}, fmt.Errorf(
			"%w: %q is not the id of one, which looks like 20060102T150405.000Z-0123456789abcdef",
			ErrNotFound,
			id,
		)
	}

	r, err := s.records.Read(ctx, blobName(kind, id), maxLetter)
	if err != nil {
		return Letter{}, gone(err)
	}

	l := Letter{Broken: fmt.Errorf("is larger than %d bytes", maxLetter)}
	if len(r.Content) <= maxLetter {
		l = decode(r.Content)
	}

	l.ID = id
	l.Kind = kind
	l.etag = r.ETag

	return l, nil
}

// Replay makes l, as Get or List returned it, one that has been replayed by somebody: to is the
// receiver that took it. Repeating a call that failed is safe. ErrNotFound if l is gone
// or has changed.
func (s *Store) Replay(ctx context.Context, l Letter, to, by string) error {
	c := l
	c.Replayed, c.ReplayedTo, c.By = utc(time.Now()), to, by
	return s.move(ctx, l, Replayed, c)
}

// Discard makes l one that somebody has discarded, likewise.
func (s *Store) Discard(ctx context.Context, l Letter, by string) error {
	c := l
	c.Discarded, c.By = utc(time.Now()), by
	if l.Broken != nil && c.Reason == "" {
		c.Reason = "the letter " + l.Broken.Error()
	}
	return s.move(ctx, l, Discarded, c)
}

// move makes l a letter of another kind, with the content of c.
func (s *Store) move(ctx context.Context, l Letter, kind Kind, c Letter) error {
	if err := s.put(ctx, blobName(kind, l.ID), encode(c)); err != nil {
		return fmt.Errorf("keep dead letter %s as %s: %w", l.ID, kind, err)
	}

	return s.Delete(ctx, l)
}

// Delete removes a letter as Get or List returned it. ErrNotFound if it is gone or has
// changed.
func (s *Store) Delete(ctx context.Context, l Letter) error {
	return gone(s.records.Delete(ctx, blobName(l.Kind, l.ID), l.etag))
}

// gone makes an error ErrNotFound if it says that there is no such record.
func gone(err error) error {
	if errors.Is(err, records.ErrNotFound) || errors.Is(err, records.ErrConflict) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
