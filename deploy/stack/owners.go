package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/telemetry/blobownership"
)

// checkpointContainer is where the workers keep checkpoints and ownerships.
const checkpointContainer = "alertworker-checkpoints"

const (
	lookEvery  = 500 * time.Millisecond
	lookWithin = 2 * time.Second
)

// owners looks up who owns which partition, where the workers settle it among themselves.
type owners struct {
	http  *http.Client
	store *blobownership.Store
	scope string
}

func newOwners(storage, hub string) (*owners, error) {
	where, err := azeventhubs.ParseConnectionString(hub)
	if err != nil {
		return nil, fmt.Errorf("the hub's connection string: %w", err)
	}
	client := azure.NewHTTPClient()
	blobs, err := container.NewClientFromConnectionString(storage, checkpointContainer, &container.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: client, Retry: azure.Retry()},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to Azurite: %w", err)
	}
	scope := strings.ToLower(where.FullyQualifiedNamespace + "/" + *where.EntityPath + "/" + azeventhubs.DefaultConsumerGroup)
	return &owners{client, blobownership.New(blobs), scope}, nil
}

// watch tells the owner's name of every owned partition, again and again until
// ctx ends. A look that fails is left out.
func (o *owners) watch(ctx context.Context, tell func(owners map[string]string)) {
	for tick := time.Tick(lookEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if found, err := o.look(ctx); err == nil {
			tell(found)
		}
	}
}

func (o *owners) look(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	records, err := o.store.List(ctx, o.scope)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for partition, owner := range records.Owners(ownershipExpiry) {
		// An owner's id is the worker's name, then a random part.
		found[partition], _, _ = strings.Cut(owner, "-")
	}
	return found, nil
}

// Close gives the connections back.
func (o *owners) Close() { o.http.CloseIdleConnections() }
