package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/backoff"
	"alertworker/internal/config"
	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/peers"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry/eventhubs"
)

// opening returns a context for connecting to one store, or for writing to it. One that has to be created, and is slow, needs most of it.
func opening(ctx context.Context) (context.Context, context.CancelFunc) {
	const limit = time.Minute
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
}

// stores are what replicas share. Close closes their connections.
type stores struct {
	leases      lease.Store
	records     records.Store     // checkpoints, ledgers and ownerships
	deadLetters *deadletter.Store // nil without Azure Storage
	http        *http.Client
	closeIdle   func() // its connections
	network     network
	// tries carry the requests to each container, and to Cosmos DB: they limit them, and remember how long they take, however
	// often stores are opened.
	tries    *sync.Map
	identity *azure.Credential // nil if everything has a key
	memory   *memory
}

// memory is what stores in memory hold: it lasts for as long as the process.
type memory struct {
	leases  lease.Store
	records records.Store
}

func (s stores) Close() {
	s.closeIdle()
	if s.identity != nil {
		s.identity.Close()
	}
}

// transport returns what carries the requests to a container, or to Cosmos DB.
func (s stores) transport(name string) policy.Transporter {
	carries, _ := s.tries.LoadOrStore(name, azure.LimitTries(s.http))
	return carries.(policy.Transporter)
}

// A network is how everything is reached. The zero value is this machine's.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error) // hubs, as a net.Dialer does
	http http.RoundTripper                                                    // stores and receivers

	clock *azure.Clock // that stores show; nil: one of its own
}

// newStores returns what is needed to open stores, which are reached by n. It does not connect.
func newStores(c config.Config, n network) (stores, error) {
	n.clock = cmp.Or(n.clock, &azure.Clock{})
	base := azure.NewHTTPClient()
	if n.http != nil {
		base = &http.Client{Transport: n.http}
	}

	s := stores{
		http:      &http.Client{Transport: n.clock.Through(base.Transport)},
		closeIdle: base.CloseIdleConnections,
		tries:     &sync.Map{},
		network:   n,
		memory:    &memory{},
	}

	if c.Keyless() {
		if os.Getenv("AZURE_CLIENT_ID") == "" {
			// Templates pass empty values for what is not set; azidentity would ask for
			// the managed identity with this ID.
			_ = os.Unsetenv("AZURE_CLIENT_ID")
		}

		source, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return s, fmt.Errorf("find an Azure identity: %w", err)
		}

		s.identity = azure.NewCredential(source)
	}

	return s, nil
}

// open finds the hub, connects to the stores that c names, creates containers that are missing and,
// for what has no key, waits for a token; or does only some of that. With write it also writes to the checkpoint store
// and to the throttle store what a replica writes, so that one whose role is too small is never ready and does not
// replace others. It returns c reading from where the hub is. Its error is an *openError, around a *usageError if no
// retry can help.
func (s stores) open(
	ctx context.Context, c config.Config, log *zap.Logger, write bool, only ...status.By,
) (config.Config, stores, error) {
	storage := c.StorageVariable()
	for _, part := range []struct {
		by       status.By
		what     string
		variable string // that says where it is
		writes   bool
		do       func() error
	}{
		{status.ByHub, "", "", false, func() (err error) {
			c, err = s.findHub(ctx, c, log)
			return err
		}},
		{status.ByCheckpoints, fmt.Sprintf("open CHECKPOINT_STORE=%s: ", c.CheckpointStore), storage, false, func() (err error) {
			s.records, err = s.openRecords(ctx, c, log)
			return err
		}},
		{status.ByStore, fmt.Sprintf("open THROTTLE_STORE=%s: ", c.ThrottleStore), c.Store().Variable(c), false, func() (err error) {
			s.leases, err = s.openLeases(ctx, c, log)
			return err
		}},
		{status.ByDeadLetters, fmt.Sprintf("open DEAD_LETTER_CONTAINER=%s: ", c.DeadLetterContainer), storage, false, func() (err error) {
			if c.HasStorage() {
				s.deadLetters, err = s.openDeadLetters(ctx, c, log)
			}
			return err
		}},
		{status.ByCheckpoints, fmt.Sprintf("write to CHECKPOINT_STORE=%s: ", c.CheckpointStore), storage, true, func() error {
			ctx, cancel := opening(ctx)
			defer cancel()
			probe := records.Record{Name: groupName(c) + "/probe", Values: map[string]string{"by": "start"}, ETag: records.Any}
			_, err := s.records.Write(ctx, probe)
			return err
		}},
		{status.ByStore, fmt.Sprintf("write to THROTTLE_STORE=%s: ", c.ThrottleStore), c.Store().Variable(c), true, func() error {
			ctx, cancel := opening(ctx)
			defer cancel()
			for {
				err := status.Try(ctx, s.leases, status.ProbeKey(c.Scope()))
				if !errors.Is(err, lease.ErrHeld) || !backoff.Sleep(ctx, time.Second) { // another replica is trying
					return err
				}
			}
		}},
	} {
		if part.writes && !write || len(only) > 0 && !slices.Contains(only, part.by) {
			continue
		}
		err := part.do()
		if part.variable != "" {
			err = lease.AddHint(err, part.variable)
		}
		if err != nil {
			return c, s, &openError{part.by, fmt.Errorf("%s%w", part.what, err)}
		}
	}

	return c, s, nil
}

func (s stores) openRecords(ctx context.Context, c config.Config, log *zap.Logger) (records.Store, error) {
	if c.CheckpointStore == config.StoreMemory {
		if s.memory.records == nil {
			s.memory.records = &records.Memory{}
		}
		return s.memory.records, nil
	}

	return s.openBlobs(ctx, c, c.CheckpointContainer, func(container string) {
		log.Error(
			"the checkpoint container was missing and has been created again: partitions that no replica is reading start "+
				"over, and open alarms are forgotten; alerts already settled are not sent again",
			zap.String("container", container),
		)
	})
}

// openDeadLetters opens the dead letters alone.
func (s stores) openDeadLetters(ctx context.Context, c config.Config, log *zap.Logger) (*deadletter.Store, error) {
	rs, err := s.openBlobs(ctx, c, c.DeadLetterContainer, nil)
	if err != nil {
		return nil, err
	}
	return deadletter.New(rs, log), nil
}

// openBlobs opens the records in a container.
func (s stores) openBlobs(
	ctx context.Context,
	c config.Config,
	name string,
	created func(container string),
) (records.Store, error) {
	client, err := s.container(ctx, c, name)
	if err != nil {
		return nil, err
	}

	ctx, cancel := opening(ctx)
	defer cancel()
	blobs, err := records.OpenBlobs(ctx, client, created)
	if err != nil {
		return nil, err
	}

	return records.Reliable(blobs), nil
}

// A leaseStore is how one of config.Stores is opened.
type leaseStore struct {
	// open opens it. It calls created whenever what holds the windows has gone and was created again.
	open func(s stores, ctx context.Context, c config.Config, created func(container string)) (lease.Store, error)
	// place returns its address, whichever credentials are used; empty: it is in memory.
	place func(s stores, ctx context.Context, c config.Config) (string, error)
}

var leaseStores = map[config.Choice]leaseStore{
	config.StoreMemory: {
		open: func(s stores, _ context.Context, c config.Config, _ func(string)) (lease.Store, error) {
			if s.memory.leases == nil {
				s.memory.leases = memlease.Keeping(c.LeaseRetention)
			}
			return s.memory.leases, nil
		},
		place: func(stores, context.Context, config.Config) (string, error) { return "", nil },
	},
	config.StoreBlob:      inContainer(bloblease.OpenETag),
	config.StoreBlobLease: inContainer(bloblease.OpenNative),
	config.StoreCosmos: {
		open: func(s stores, ctx context.Context, c config.Config, created func(string)) (lease.Store, error) {
			account, err := s.cosmosAccount(ctx, c)
			if err != nil {
				return nil, err
			}

			ctx, cancel := opening(ctx)
			defer cancel()
			return cosmoslease.Open(ctx, cosmoslease.Config{
				Account:   account,
				Database:  c.CosmosDatabase,
				Container: c.CosmosContainer,
				Retention: c.LeaseRetention,
				Client:    s.transport("cosmos"),
				Created:   created,
			})
		},
		place: func(s stores, ctx context.Context, c config.Config) (string, error) {
			account, err := s.cosmosAccount(ctx, c)
			if err != nil {
				return "", err
			}

			path := "/" + url.PathEscape(c.CosmosDatabase) + "/" + url.PathEscape(c.CosmosContainer)
			return strings.TrimRight(account.Endpoint, "/") + path, nil
		},
	},
}

// inContainer is a store that opens in a container of the storage account.
func inContainer[S lease.Store](open func(context.Context, *container.Client, func(string)) (S, error)) leaseStore {
	return leaseStore{
		open: func(s stores, ctx context.Context, c config.Config, created func(string)) (lease.Store, error) {
			client, err := s.container(ctx, c, c.ThrottleContainer)
			if err != nil {
				return nil, err
			}

			ctx, cancel := opening(ctx)
			defer cancel()
			return open(ctx, client, created)
		},
		place: func(s stores, ctx context.Context, c config.Config) (string, error) {
			client, err := s.container(ctx, c, c.ThrottleContainer)
			if err != nil {
				return "", err
			}
			return client.URL(), nil
		},
	}
}

func (s stores) openLeases(ctx context.Context, c config.Config, log *zap.Logger) (lease.Store, error) {
	return leaseStores[c.Store().Name].open(s, ctx, c, func(container string) {
		log.Error(
			"the throttle container was missing and has been created again: the windows in it are gone, and devices may "+
				"alert again within theirs",
			zap.String("container", container),
		)
	})
}

func (s stores) cosmosAccount(ctx context.Context, c config.Config) (cosmoslease.Account, error) {
	if c.CosmosConnectionString.IsSet() {
		account, err := cosmoslease.WithKey(c.CosmosConnectionString.Reveal())
		if err != nil {
			return account, &usageError{fmt.Errorf("COSMOS_CONNECTION_STRING: %w", err)}
		}
		return account, nil
	}

	if err := s.identity.Prefetch(ctx, azure.CosmosScope(c.CosmosEndpoint)); err != nil {
		return cosmoslease.Account{}, err
	}

	return cosmoslease.WithCredential(c.CosmosEndpoint, s.identity)
}

// container returns a client for a container of the storage account. Without a key it
// waits for a token, because the gate's requests have no time for that.
func (s stores) container(ctx context.Context, c config.Config, name string) (*container.Client, error) {
	options := &azblob.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: s.transport(name), Retry: azure.Once()},
	}
	var client *azblob.Client
	var err error
	if c.StorageConnectionString.IsSet() {
		client, err = azblob.NewClientFromConnectionString(c.StorageConnectionString.Reveal(), options)
	} else {
		if err := s.identity.Prefetch(ctx, azure.StorageScope); err != nil {
			return nil, err
		}

		options.PerCallPolicies = []policy.Policy{azure.TokenFirst(s.identity, azure.StorageScope)}
		client, err = azblob.NewClient(c.StorageAccountURL, s.identity, options)
	}

	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", c.StorageVariable(), azure.Explain(err))}
	}

	return client.ServiceClient().NewContainerClient(name), nil
}

// member returns this replica as a member of its consumer group. Resolve IOTHUB_CONNECTION_STRING first.
func (s stores) member(ctx context.Context, c config.Config, rs records.Store, log *zap.Logger) (*peers.Peer, error) {
	address, err := leaseStores[c.Store().Name].place(s, ctx, c)
	if err != nil {
		return nil, err
	}

	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the throttle store's address is not a URL")
	}

	// It is the same whichever credentials are used.
	place := cmp.Or(strings.TrimSuffix(strings.ToLower(u.Host), ":443")+u.Path, "memory")

	return peers.Open(rs, groupName(c), peers.Settings{
		Format: peers.Format,
		Store:  string(c.ThrottleStore),
		Place:  place,
		Scope:  c.Scope(),
		Rules:  peers.Rules(c.Rules()),
	}, log), nil
}

// groupName returns the folder of what the consumer group's replicas share, wherever the hub
// is: an IoT Hub's namespace and hub change in a failover.
func groupName(c config.Config) string {
	if iotHub := c.IoTHub(); iotHub != "" {
		return iotHub + "/" + strings.ToLower(c.EventHubConsumerGroup)
	}
	return string(eventhubs.NewGroup(c.Hub().Host, c.Hub().Name, c.EventHubConsumerGroup))
}

// ledgerName returns the name of a partition's ledger.
func ledgerName(c config.Config, partition string) string {
	//planted:partitions-share-ledger partition = ""
	return groupName(c) + "/ledger/" + partition
}

// rosterName returns the name of a partition's roster.
func rosterName(c config.Config, partition string) string {
	return groupName(c) + "/roster/" + partition
}

// incidents returns the records of groups whose alarms share a value.
func incidents(c config.Config, shared records.Store) *incident.Book {
	return &incident.Book{Store: shared, Prefix: groupName(c) + "/incidents/", IDs: c.Origin() + "/incidents/"}
}

// sharedOf returns what replicas keep of devices in s.
func sharedOf(c config.Config, s stores, rs []receivers.Receiver) admin.Shared {
	shared := admin.Shared{DeadLetters: s.deadLetters, Name: func(id string) string {
		if r := receivers.WithID(rs, id); r != nil {
			return r.Name
		}
		return "that was removed (" + id + ")"
	}}
	if set := c.Rules(); set.Stateful() {
		shared.Records, shared.Ledgers = s.records, ledgerName(c, "")
		if slices.ContainsFunc(set.Rules, func(r rules.Rule) bool { return r.Silence() }) {
			shared.Rosters = rosterName(c, "")
		}
	}
	return shared
}
