package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// peekTTL is one that every store accepts. No lease of it is ever granted.
const peekTTL = 30 * time.Second

var errPeeked = errors.New("seen")

// Peek returns the record of key and takes nothing: it declines a free key, and
// a held one's refusal carries the record. It costs what a refused Acquire does.
func Peek(ctx context.Context, s Store, key string) (Record, error) {
	var seen Record
	_, err := s.Acquire(ctx, key, peekTTL, func(r Record) (string, error) {
		seen = r
		return "", errPeeked
	})
	var held *HeldError
	switch {
	case errors.Is(err, errPeeked):
		return seen, nil
	case errors.As(err, &held):
		return held.Record, nil
	default:
		return Record{}, fmt.Errorf("read the record of lease %q: %w", key, err)
	}
}
