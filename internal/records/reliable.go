package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"alertworker/internal/azure"
)

// CallLimit is for one call of a reliable store, with all its tries: a slow store answers a second
// or third one, and may be asked twice.
const CallLimit = 20 * time.Second

// Reliable returns next so that a call is tried up to six times within CallLimit, as azure.ShouldRetry decides.
// A write succeeds if the record has become what was to be written: an earlier try did that, and its answer was
// lost, or another writer wrote the same. A conflict costs one call more.
func Reliable(next Store) Store { return reliable{Around(next, retry), next} }

type reliable struct {
	Store
	once Store
}

// Write implements [Store].
func (s reliable) Write(ctx context.Context, r Record) (etag string, err error) {
	err = retry(ctx, OpWrite, r.Name, func(ctx context.Context) (err error) {
		etag, err = s.once.Write(ctx, r)
		if !errors.Is(err, ErrConflict) {
			return err
		}

		conflict := err
		var there Record
		if r.Content == nil {
			there, err = s.once.Stat(ctx, r.Name)
		} else {
			there, err = s.once.Read(ctx, r.Name, len(r.Content))
		}

		switch {
		case errors.Is(err, ErrNotFound):
			return conflict
		case err != nil:
			return err
		case there.ETag == r.ETag, !maps.Equal(there.Values, r.Values), !bytes.Equal(there.Content, r.Content):
			return conflict
		}

		etag = there.ETag // it is there already
		return nil
	})
	return etag, err
}

// Delete implements [Store].
func (s reliable) Delete(ctx context.Context, name, etag string) error {
	tried := false
	return retry(ctx, OpDelete, name, func(ctx context.Context) error {
		err := s.once.Delete(ctx, name, etag)
		if tried && errors.Is(err, ErrConflict) {
			if _, there := s.once.Stat(ctx, name); errors.Is(there, ErrNotFound) {
				return nil
			}
		}

		tried = true
		return err
	})
}

func retry(ctx context.Context, _ Op, _ string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, CallLimit, fmt.Errorf("no answer within %v", CallLimit))
	defer cancel()

	for try := 0; ; try++ {
		err := call(ctx)
		switch {
		case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict):
			return err
		case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case !azure.ShouldRetry(ctx, try, err):
			return err
		}
	}
}
