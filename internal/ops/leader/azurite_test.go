package leader_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/ops/leader"
)

// On a real service: one replica of three leads and does its duty, another follows soon
// after it stopped, and the note goes on.
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
		return run(open(), leader.Duty{Name: "tick", Every: time.Second, Do: func(context.Context, string) (string, string, error) {
			did <- name
			return "", "", nil
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

	r, err := open().Read(t.Context(), key)
	if err != nil || r.Now.Before(r.Written.Add(r.Hold)) || !strings.Contains(r.Note, `{"tick":{"last":`) {
		t.Errorf("after %s and %s: %+v, %v", first, second, r, err)
	}
}
