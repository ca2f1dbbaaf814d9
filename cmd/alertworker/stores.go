package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/deadletter"
	"alertworker/internal/lease"
	"alertworker/internal/lease/blobetag"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/tally"
	"alertworker/internal/telemetry/eventhubs"
)

// openTimeout is for connecting to one store at start.
const openTimeout = 30 * time.Second

// stores are what replicas share. Close gives back their connections.
type stores struct {
	leases      lease.Store
	checkpoints azeventhubs.CheckpointStore
	deadLetters *deadletter.Store // nil without Azure Storage
	tallies     tally.Store       // beside the dead letters, or in memory
	http        *http.Client
}

func (s stores) Close() {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// openStores connects to the stores that c names and creates the containers that are missing.
func openStores(ctx context.Context, c config, log *zap.Logger) (stores, error) {
	s := stores{http: azure.NewHTTPClient(), tallies: &tally.Memory{}}
	var err error
	if s.checkpoints, err = s.openCheckpoints(ctx, c); err != nil {
		return s, fmt.Errorf("open CHECKPOINT_STORE=%s: %w", c.CheckpointStore, err)
	}
	if s.leases, err = s.openLeases(ctx, c); err != nil {
		return s, fmt.Errorf("open THROTTLE_STORE=%s: %w", c.ThrottleStore, err)
	}
	if blobs, ok := s.leases.(interface{ PlainNames() bool }); ok && blobs.PlainNames() {
		log.Warn("the throttle container's blobs have the names of an earlier version, which the next one will not read: to give it new ones, stop all replicas, wait for THROTTLE_WINDOW and a minute, and start them with another THROTTLE_CONTAINER",
			zap.String("container", c.ThrottleContainer))
	}
	if c.hasStorage() {
		if s.deadLetters, err = s.openDeadLetters(ctx, c, log); err != nil {
			return s, fmt.Errorf("open DEAD_LETTER_CONTAINER=%s: %w", c.DeadLetterContainer, err)
		}
		beside, err := s.deadLetterContainer(c)
		if err != nil {
			return s, fmt.Errorf("open DEAD_LETTER_CONTAINER=%s: %w", c.DeadLetterContainer, err)
		}
		s.tallies = tally.Blobs{Container: beside}
	}
	return s, nil
}

func (s stores) openCheckpoints(ctx context.Context, c config) (azeventhubs.CheckpointStore, error) {
	if c.CheckpointStore == storeMemory {
		return &eventhubs.MemoryCheckpoints{}, nil
	}
	client, err := s.container(c, c.CheckpointContainer, policy.RetryOptions{TryTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	if _, err := client.GetProperties(ctx, nil); bloberror.HasCode(err, bloberror.ContainerNotFound) {
		if _, err := client.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil, fmt.Errorf("create container %q: %w", c.CheckpointContainer, azure.Explain(err))
		}
	} else if err != nil {
		return nil, fmt.Errorf("look at container %q: %w", c.CheckpointContainer, azure.Explain(err))
	}
	return checkpoints.NewBlobStore(client, nil)
}

func (s stores) openDeadLetters(ctx context.Context, c config, log *zap.Logger) (*deadletter.Store, error) {
	client, err := s.deadLetterContainer(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	return deadletter.Open(ctx, client, log)
}

func (s stores) deadLetterContainer(c config) (*container.Client, error) {
	retry := azure.Retry()
	retry.TryTimeout = 5 * time.Second // a page of names or a large letter takes longer than a record
	return s.container(c, c.DeadLetterContainer, retry)
}

func (s stores) openLeases(ctx context.Context, c config) (lease.Store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	switch c.ThrottleStore {
	case storeBlob, storeBlobLease:
		client, err := s.container(c, c.ThrottleContainer, azure.Retry())
		if err != nil {
			return nil, err
		}
		if c.ThrottleStore == storeBlobLease {
			return bloblease.Open(ctx, client)
		}
		return blobetag.Open(ctx, client)
	case storeCosmos:
		account, err := cosmosAccount(c)
		if err != nil {
			return nil, err
		}
		return cosmoslease.Open(ctx, account, c.CosmosDatabase, c.CosmosContainer, c.LeaseRetention, s.http)
	default:
		return memlease.Keeping(c.LeaseRetention), nil
	}
}

func cosmosAccount(c config) (cosmoslease.Account, error) {
	if c.CosmosConnectionString.IsSet() {
		return cosmoslease.WithKey(c.CosmosConnectionString.Reveal())
	}
	identity, err := credential("COSMOS_ENDPOINT")
	if err != nil {
		return cosmoslease.Account{}, err
	}
	return cosmoslease.WithCredential(c.CosmosEndpoint, identity)
}

// container returns a client for one container of the storage account.
func (s stores) container(c config, name string, retry policy.RetryOptions) (*container.Client, error) {
	options := &azblob.ClientOptions{ClientOptions: policy.ClientOptions{Transport: s.http, Retry: retry}}
	var client *azblob.Client
	var err error
	if c.StorageConnectionString.IsSet() {
		client, err = azblob.NewClientFromConnectionString(c.StorageConnectionString.Reveal(), options)
	} else {
		var identity azcore.TokenCredential
		if identity, err = credential("STORAGE_ACCOUNT_URL"); err != nil {
			return nil, err
		}
		client, err = azblob.NewClient(c.StorageAccountURL, identity, options)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to Azure Storage: %w", azure.Explain(err))
	}
	return client.ServiceClient().NewContainerClient(name), nil
}

// credential finds an identity for what a variable names without a key.
func credential(variable string) (azcore.TokenCredential, error) {
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("find an Azure identity for %s: %w", variable, err)
	}
	return identity, nil
}
