package ownership_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/ownership"

	"go.uber.org/zap"
)

// What the store has of a scope, and of no other that begins like it.
func TestStore(t *testing.T) {
	store, ctx := &records.Memory{}, t.Context()
	list := func(scope string) ownership.Records {
		t.Helper()
		listed, err := ownership.List(ctx, store, scope)
		if err != nil {
			t.Fatal(err)
		}
		return listed
	}
	claim := func(partition, owner, version string, want bool) {
		t.Helper()
		if ok, err := ownership.Claim(ctx, store, scope, ownership.Record{Partition: partition, Owner: owner, Version: version}); ok != want || err != nil {
			t.Errorf("%q claims partition %s at version %q: %t, %v", owner, partition, version, ok, err)
		}
	}
	for _, scope := range []string{scope, scope + "er"} {
		if err := ownership.Beat(ctx, store, scope, "Replica-a.b_1", scope == "ns/hub/group", nil); err != nil {
			t.Fatal(err)
		}
	}
	claim("0", "a", "", true)
	claim("0", "b", "", false)
	claim("1", "b", "unknown", false)
	for _, owner := range []string{"a", "b", "", "c"} { // renew, steal, give back, take
		before := list(scope).Partitions[0]
		claim("0", owner, before.Version, true)
		claim("0", "late", before.Version, false)
		if after := list(scope).Partitions[0]; after.Owner != owner || after.Version == before.Version {
			t.Errorf("%q owns it as %+v, before that it was %+v", owner, after, before)
		}
	}
	if got := list(scope); len(got.Partitions) != 1 || len(got.Heartbeats) != 1 || got.Heartbeats[0].Owner != "Replica-a.b_1" || !got.Heartbeats[0].Leaving {
		t.Errorf("it has %+v", got)
	}
	if got := list(scope + "er"); len(got.Partitions) != 0 || len(got.Heartbeats) != 1 || got.Heartbeats[0].Leaving {
		t.Errorf("another scope has %+v", got)
	}
}

// What three replicas with 32 partitions ask of the service once they have their
// shares: a heartbeat and a listing per interval each, and nothing else.
func TestRequests(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	counter := &counter{next: azurite.Transport()}
	blobs, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), counter), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := records.Reliable(blobs)
	var ids []string
	for i := range 32 {
		ids = append(ids, fmt.Sprint(i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var members []*ownership.Member
	for _, name := range []string{"a", "b", "c"} {
		member := ownership.New(ownership.Config{Store: store, Scope: scope, Owner: name, Partitions: ids, Interval: time.Second, Expiry: time.Minute, Logger: zap.NewNop()})
		members = append(members, member)
		running.Go(func() { member.Run(ctx) })
	}
	wait := func(what string, met func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !met(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	wait("everyone has its share", func() bool {
		sum := 0
		for _, member := range members {
			n := len(member.Owned())
			if n < 10 || n > 11 {
				return false
			}
			sum += n
		}
		return sum == 32
	})
	counter.reset()
	wait("a few intervals", func() bool { return counter.get("beat") >= 12 })
	stop()
	running.Wait()
	// Each partition is given back at the end, and a listing comes with each heartbeat, one is under way, and one is for giving
	// back. A busy emulator drops requests now and then, and they are made again.
	const again = 12
	if beats, lists, other := counter.get("beat"), counter.get("list"), counter.get("other"); other < 32 || other > 32+again || lists < beats-3-again || lists > beats+3+3+again {
		t.Errorf("%v", counter.requests)
	}
}

// A counter counts requests by what they are for.
type counter struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	what := "other"
	switch {
	case r.URL.Query().Get("comp") == "list":
		what = "list"
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/owner/"):
		what = "beat"
	case r.Method == http.MethodDelete:
		what = "forget"
	}
	c.mu.Lock()
	if c.requests == nil {
		c.requests = map[string]int{}
	}
	c.requests[what]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.requests)
}

func (c *counter) get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[what]
}
