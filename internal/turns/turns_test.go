package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/turns"
)

// replicas returns the turns of several replicas at one receiver.
func replicas(n int, store records.Store) (all []*turns.Turns) {
	for range n {
		all = append(all, &turns.Turns{Store: store, Name: "turns/slack", Nearest: time.Second, Farthest: 30 * time.Second})
	}
	return all
}

// Replicas that all want to send as often as they may send together what one of them would: a message at once, and then at
// distances that double. After a quiet time they begin anew.
func TestTurns(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			all := replicas(n, &records.Memory{})
			start := time.Now()
			var sent []time.Duration
			want := func() {
				for _, one := range all {
					if wait, err := one.Take(t.Context()); err != nil {
						t.Fatal(err)
					} else if wait == 0 {
						sent = append(sent, time.Since(start).Truncate(time.Second))
					}
				}
			}
			for time.Since(start) < 2*time.Minute {
				want()
				time.Sleep(100 * time.Millisecond)
			}
			if len(sent) != 8 || sent[0] != 0 || sent[1] > 2*time.Second || sent[7] > 95*time.Second {
				t.Errorf("%d replicas send at %v", n, sent)
			}
			time.Sleep(time.Minute)
			sent = nil
			want()
			time.Sleep(3 * time.Second)
			want()
			if len(sent) != 2 {
				t.Errorf("after a quiet time %d replicas send at %v", n, sent)
			}
		})
	}
}

// rival is a store in which another replica takes each turn first.
type rival struct{ records.Store }

func (r rival) Write(ctx context.Context, one records.Record) (string, error) {
	there, _ := r.Stat(ctx, one.Name)
	if _, err := r.Store.Write(ctx, records.Record{Name: one.Name, ETag: there.ETag, Values: one.Values}); err != nil {
		return "", err
	}
	return r.Store.Write(ctx, one)
}

// Of two replicas that ask at the same time one has the turn.
func TestTurnOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := replicas(1, rival{&records.Memory{}})[0]
		if wait, err := one.Take(t.Context()); err != nil || wait <= 0 {
			t.Errorf("another replica has taken the turn, and this one may ask again after %v, %v", wait, err)
		}
	})
}

// What the record says is bounded, whoever has written it.
func TestTurnsOfAStrangeRecord(t *testing.T) {
	for _, distance := range []string{"", "x", "-1s", "9000h"} {
		synctest.Test(t, func(t *testing.T) {
			store := &records.Memory{}
			_, err := store.Write(t.Context(), records.Record{Name: "turns/slack", Values: map[string]string{"distance": distance}})
			if err != nil {
				t.Fatal(err)
			}
			one := replicas(1, store)[0]
			if wait, err := one.Take(t.Context()); err != nil || wait > 30*time.Second {
				t.Errorf("with distance %q: %v, %v", distance, wait, err)
			}
		})
	}
}

// A store that does not answer is an error, and no turn.
func TestTurnsWithoutAStore(t *testing.T) {
	one := replicas(1, &records.Memory{})[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if wait, err := one.Take(ctx); !errors.Is(err, context.Canceled) || wait != 0 {
		t.Errorf("%v, %v", wait, err)
	}
}
