package leader_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/ops/leader"
)

// On a real service: one replica of three leads and does its duty, another follows soon
// after it stopped, and the log goes on.
func TestOnBlobs(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	container := azurite.NewContainer()
	open := func() lease.Store {
		s, err := bloblease.OpenETag(t.Context(), azurite.Container(t, container, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	did := make(chan string, 100)
	replica := func(name string) (stop func()) {
		return run(open(), name, leader.Duty{Name: "tick", Every: time.Second, Do: func(_ context.Context, c *leader.Call) (string, error) {
			did <- name
			return fmt.Sprint("term ", c.Term), nil
		}})
	}
	stops := map[string]func(){"a": replica("a"), "b": replica("b"), "c": replica("c")}
	first := <-did
	stops[first]()
	delete(stops, first)
	second := first
	for second == first { // what the first did before it stopped
		second = <-did
	}
	for name, stop := range stops {
		if name != second {
			stop()
		}
	}
	if next := <-did; next != second {
		t.Errorf("%s has begun, while %s leads", next, second)
	}
	stops[second]()

	st, err := leader.ReadStatus(t.Context(), open(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Runs) != 1 || st.Runs[0].Replica != second || st.Runs[0].Outcome != leader.Done || st.Leader != "" {
		t.Errorf("after %s and %s: %+v", first, second, st)
	}
}
