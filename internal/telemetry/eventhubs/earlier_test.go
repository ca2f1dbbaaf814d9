package eventhubs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/telemetry/ownership/blobownership"
)

// During an upgrade there are replicas that renew each of their partitions, and
// judge others by whether they do: a Processor on the checkpoint store of
// azeventhubs. Both kinds share the partitions, and keep their shares.
func TestBesideAnEarlierVersion(t *testing.T) {
	t.Parallel()
	served, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { served.Close() })
	h := &hub{Hub: served, store: newFaultyStore(), ownership: newFaultyOwnership()}
	azurite := emulators.StartAzurite(t)
	c := azurite.RetryingContainer(t, azurite.NewContainer(), nil)
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	config := h.config()
	config.Ownership = blobownership.New(c)
	config.BalanceInterval, config.OwnershipExpiry = 500*time.Millisecond, 3*time.Second
	s := h.source(t, config)
	records := func(owner string) (n int) {
		all, err := config.Ownership.List(t.Context(), h.scope())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all.Partitions {
			if r.Owner == owner {
				n++
			}
		}
		return n
	}
	// An earlier version that ends may leave a partition without giving it back,
	// which is then trusted for 30 s.
	within := func(what string, met func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !met(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited two minutes in vain for %s", what)
			}
		}
	}
	shared := func(owner string) {
		t.Helper()
		within("both to have a share for as long as ownerships last", func() bool {
			for end := time.Now().Add(2 * config.OwnershipExpiry); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if records(owner) != 4 || records(s.Owner()) != 4 {
					return false
				}
			}
			return true
		})
	}

	owner, stopEarlier := earlierVersion(t, h, c)
	within("the earlier one to have all", func() bool { return records(owner) == 8 })
	_, _ = read(t, s)
	shared(owner)
	stopEarlier()
	within("the new one to read all", func() bool { return s.Stats().Reading == 8 })
	time.Sleep(config.OwnershipExpiry + time.Second) // no record is renewed any more: to an earlier version all look dead
	owner, stopEarlier = earlierVersion(t, h, c)     // somebody goes back
	defer stopEarlier()
	shared(owner)
}

// earlierVersion reads as versions without heartbeats do, until it is stopped.
func earlierVersion(t *testing.T, h *hub, c *container.Client) (owner string, stop func()) {
	t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoints.NewBlobStore(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	processor, err := azeventhubs.NewProcessor(client, lowerCase{store, h}, &azeventhubs.ProcessorOptions{
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:        500 * time.Millisecond, PartitionExpirationDuration: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := processor.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		for {
			partition := processor.NextPartitionClient(ctx)
			if partition == nil {
				return
			}
			running.Go(func() {
				for ctx.Err() == nil {
					if _, err := partition.ReceiveEvents(ctx, 1, nil); err != nil && ctx.Err() == nil {
						_ = partition.Close(ctx) // lost
						return
					}
				}
			})
		}
	})
	return client.InstanceID(), sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = client.Close(context.Background())
	})
}

// lowerCase spells what a Processor asks for as its store once did.
type lowerCase struct {
	*checkpoints.BlobStore
	h *hub
}

func (l lowerCase) ListOwnership(ctx context.Context, _, _, _ string, o *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	return l.BlobStore.ListOwnership(ctx, l.h.Addr(), "telemetry", "$default", o)
}

func (l lowerCase) ClaimOwnership(ctx context.Context, claims []azeventhubs.Ownership, o *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	for i := range claims {
		claims[i].FullyQualifiedNamespace, claims[i].EventHubName, claims[i].ConsumerGroup = l.h.Addr(), "telemetry", "$default"
	}
	return l.BlobStore.ClaimOwnership(ctx, claims, o)
}
