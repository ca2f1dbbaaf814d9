package blobownership_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/telemetry/ownership"
	"alertworker/internal/telemetry/ownership/blobownership"
	"alertworker/internal/telemetry/ownership/ownershiptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const scope = "ns/hub/$default"

// newContainer returns a container that exists.
func newContainer(t *testing.T, azurite *emulators.Azurite, via http.RoundTripper) *container.Client {
	t.Helper()
	c := azurite.RetryingContainer(t, azurite.NewContainer(), via)
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStore(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	ownershiptest.Run(t, func(t *testing.T) ownership.Store { return blobownership.New(newContainer(t, azurite, nil)) })
}

// The checkpoint store of azeventhubs, which earlier versions used, sees the same
// owners, and no heartbeats; and this store sees its.
func TestLayout(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	c := newContainer(t, azurite, nil)
	store := blobownership.New(c)
	earlier, err := checkpoints.NewBlobStore(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := func() map[string]string {
		all, err := earlier.ListOwnership(t.Context(), "ns", "hub", "$default", nil)
		if err != nil {
			t.Fatal(err)
		}
		owners := map[string]string{}
		for _, o := range all {
			owners[o.PartitionID] = o.OwnerID
		}
		return owners
	}
	version := func(partition string) string {
		records, err := store.List(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		return records.Partitions[slices.IndexFunc(records.Partitions, func(r ownership.Record) bool { return r.Partition == partition })].Version
	}
	claim := func(partition, owner, version string) {
		if ok, err := store.Claim(t.Context(), scope, partition, owner, version); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}

	if err := store.Beat(t.Context(), scope, "new", true); err != nil {
		t.Fatal(err)
	}
	claim("0", "new", "")
	claim("1", "new", "")
	claim("1", "", version("1"))
	if got, want := seen(), map[string]string{"0": "new", "1": ""}; !maps.Equal(got, want) {
		t.Errorf("the earlier store sees %v, want %v", got, want)
	}
	all, err := earlier.ListOwnership(t.Context(), "ns", "hub", "$default", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].OwnerID = "earlier"
	}
	if got, err := earlier.ClaimOwnership(t.Context(), append(all, azeventhubs.Ownership{
		FullyQualifiedNamespace: "ns", EventHubName: "hub", ConsumerGroup: "$default", PartitionID: "2", OwnerID: "earlier",
	}), nil); err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	records, err := store.List(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := records.Owners(time.Minute), map[string]string{"0": "earlier", "1": "earlier", "2": "earlier"}; !maps.Equal(got, want) {
		t.Errorf("this store sees %v, want %v", got, want)
	}
	claim("2", "new", version("2"))
	if got := seen()["2"]; got != "new" {
		t.Errorf("partition 2 belongs to %q", got)
	}
}

// An error says what was attempted, on what, and nothing secret.
func TestErrors(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	store := blobownership.New(azurite.RetryingContainer(t, azurite.NewContainer(), nil)) // it does not exist
	_, list := store.List(t.Context(), scope)
	_, claim := store.Claim(t.Context(), scope, "7", "a", "")
	for what, err := range map[string]error{
		"list ownerships of ns/hub/$default":           list,
		"claim partition 7 of ns/hub/$default":         claim,
		"write the heartbeat of a in ns/hub/$default":  store.Beat(t.Context(), scope, "a", false),
		"remove the heartbeat of a in ns/hub/$default": store.Forget(t.Context(), scope, "a", ""),
	} {
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "ContainerNotFound") || strings.Contains(err.Error(), emulators.AzuriteKey) {
			t.Errorf("%v: want %q and ContainerNotFound", err, what)
		}
	}
}

// What three replicas with 32 partitions ask of the service once they have their
// shares: a heartbeat and a listing per interval each, and nothing else.
func TestRequests(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	counter := &counter{next: azurite.Transport()}
	store := blobownership.New(newContainer(t, azurite, counter))
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
		member := ownership.New(ownership.Config{Store: store, Scope: scope, Owner: name, Interval: time.Second, Expiry: time.Minute})
		members = append(members, member)
		running.Go(func() { member.Run(ctx, ids) })
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
			n := len(member.Held())
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
	if beats, lists := counter.get("beat"), counter.get("list"); counter.get("other") != 32 || // given back at the end
		lists < beats-3 || lists > beats+3+3 { // one of each is under way, and one listing for giving back
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
