package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
)

const (
	// perPartition is how many of a partition's newest events a check reads.
	perPartition = 5

	// checkKey is the throttle key that checks take and give back. Keys of
	// devices have slashes.
	checkKey = "alertworker check"
	checkTTL = 15 * time.Second // the shortest that every store takes

	maxCounted = 1000 // dead letters

	// identityTimeout is for tokens, which developers' tools take long to fetch.
	identityTimeout = time.Minute

	// checkGroup is the consumer group in whose name checks write a checkpoint,
	// to see that they may. Nobody reads in it.
	checkGroup = "alertworker-check"

	// checkDevice is whom test alerts are about.
	checkDevice = "alertworker-check"
)

// A checkup is one run of `alertworker check`. Its methods are the steps.
type checkup struct {
	config    config.Config
	stores    stores
	receivers []receivers.Receiver

	resolved func() (config.Config, error)      // with the IoT Hub's endpoint
	snapshot func() (eventhubs.Snapshot, error) // of the hub
}

// newCheckup prepares a checkup and connects to nothing. The caller closes it.
func newCheckup(ctx context.Context, c config.Config, rs []receivers.Receiver, log *zap.Logger) (*checkup, error) {
	k := &checkup{config: c, receivers: rs}
	var err error
	if k.stores, err = newStores(c); err != nil {
		k.close()
		return nil, err
	}
	k.resolved = sync.OnceValues(func() (config.Config, error) { return resolveHub(ctx, c, log) })
	k.snapshot = sync.OnceValues(func() (eventhubs.Snapshot, error) {
		return k.probe(ctx)
	})
	return k, nil
}

func (k *checkup) close() {
	k.stores.Close()
	for _, r := range k.receivers {
		r.Close()
	}
}

// steps returns what there is to check. Those after the first few need nothing
// of each other.
func (k *checkup) steps(send bool) []step {
	steps := []step{{"settings", stepTimeout, func(context.Context) (string, error) { return "valid", nil }}}
	if k.config.IoTHubConnectionString.IsSet() {
		steps = append(steps, step{"IoT Hub", stepTimeout, k.iotHub})
	}
	limit := stepTimeout
	if k.config.Keyless() {
		limit += identityTimeout
		steps = append(steps, step{"identity", identityTimeout, k.identity})
	}
	steps = append(steps,
		step{"hub", limit, k.hub},
		step{"events", limit, k.events},
		step{"checkpoints", limit, k.checkpoints},
		step{"throttle store", limit, k.throttleStore},
	)
	if k.config.CheckpointStore != config.StoreMemory { // else this is the only one
		steps = append(steps, step{"replicas", limit, k.replicas})
	}
	if k.config.HasStorage() {
		steps = append(steps, step{"dead letters", limit, k.deadLetters})
	}
	for i, raw := range k.config.NotifyURLs.Reveal() {
		name := "receiver"
		if len(k.receivers) > 1 {
			name = fmt.Sprint("receiver ", i+1)
		}
		steps = append(steps, step{name, stepTimeout + k.config.NotifyTimeout, func(ctx context.Context) (string, error) {
			return k.receiver(ctx, raw, k.receivers[i], send)
		}})
	}
	return steps
}

func (k *checkup) iotHub(context.Context) (string, error) {
	c, err := k.resolved()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("its endpoint is event hub %s at %s", c.Hub().Name, c.Hub().Host), nil
}

// identity gets a token for everything that is used without a key.
func (k *checkup) identity(ctx context.Context) (string, error) {
	var requests []policy.TokenRequestOptions
	var names []string
	need := func(name string, r policy.TokenRequestOptions) {
		names, requests = append(names, name), append(requests, r)
	}
	if k.config.EventHubNamespace != "" {
		need("Event Hubs", azure.EventHubsScope)
	}
	if k.config.StorageAccountURL != "" {
		need("Azure Storage", azure.StorageScope)
	}
	if k.config.ThrottleStore == config.StoreCosmos && k.config.CosmosEndpoint != "" {
		need("Cosmos DB", azure.CosmosScope(k.config.CosmosEndpoint))
	}
	if err := k.stores.identity.Warm(ctx, requests...); err != nil {
		return "", err
	}
	return "has a token for " + strings.Join(names, ", "), nil
}

// withoutToken makes what failed for want of a token something that was not tried: why is
// said once, under "identity".
func withoutToken(err error) error {
	var none *azure.IdentityError
	if errors.As(err, &none) {
		return undecided("not tried: the Azure identity has no token for it")
	}
	return err
}

// probe looks at the hub.
func (k *checkup) probe(ctx context.Context) (eventhubs.Snapshot, error) {
	c, err := k.resolved()
	if err != nil {
		return eventhubs.Snapshot{}, undecided("not tried: the IoT Hub does not tell where it is")
	}
	config := eventhubs.Config{
		ConnectionString: c.EventHubConnectionString.Reveal(),
		Namespace:        c.EventHubNamespace,
		Hub:              c.EventHubName,
		ConsumerGroup:    c.EventHubConsumerGroup,
	}
	if c.EventHubNamespace != "" {
		if err := k.stores.identity.Warm(ctx, azure.EventHubsScope); err != nil {
			return eventhubs.Snapshot{}, withoutToken(err)
		}
		config.Credential = k.stores.identity
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return eventhubs.Probe(ctx, config, perPartition)
}

func (k *checkup) hub(context.Context) (string, error) {
	snapshot, err := k.snapshot()
	if err != nil {
		return "", err
	}
	c, err := k.resolved()
	if err != nil {
		return "", err
	}
	var newest time.Time
	busy := 0
	for _, p := range snapshot.Partitions {
		if !p.Empty && p.Enqueued.After(newest) {
			newest = p.Enqueued
		}
		if p.Busy {
			busy++
		}
	}
	text := fmt.Sprintf("%s at %s: %s", c.Hub().Name, c.Hub().Host, count(len(snapshot.Partitions), "partition"))
	if newest.IsZero() {
		text += ", no events yet"
	} else {
		text += fmt.Sprintf(", newest event %s ago", roughly(time.Since(newest)))
	}
	if busy > 0 {
		text += fmt.Sprintf(", a worker reads %d of them", busy)
	}
	return text, nil
}

func (k *checkup) events(context.Context) (string, error) {
	snapshot, err := k.snapshot()
	if err != nil {
		return "", undecided("not tried: the hub cannot be read")
	}
	if len(snapshot.Events) == 0 {
		for _, p := range snapshot.Partitions {
			if p.Busy {
				return "", undecided("not read: a worker is reading them in this consumer group; its metrics tell what it can decode")
			}
		}
		return "", undecided("there are none yet: send some telemetry, then check again whether TEMPERATURE_FIELD fits")
	}
	s, err := newSample(k.config.TemperatureField.String())
	if err != nil {
		return "", err
	}
	for i := range snapshot.Events {
		s.add(&snapshot.Events[i])
	}
	return s.verdict(k.config.TemperatureThreshold)
}

func (k *checkup) checkpoints(ctx context.Context) (string, error) {
	store, err := k.stores.openCheckpoints(ctx, k.config, zap.NewNop())
	if err != nil {
		return "", k.storageError(err)
	}
	if k.config.CheckpointStore == config.StoreMemory {
		return fmt.Sprintf("in memory: every start begins at %v", k.config.EventHubStart), nil
	}
	c, err := k.resolved()
	if err != nil {
		return "", undecided("the store answers; whose checkpoints to look for the IoT Hub does not tell")
	}
	written, unreadable, err := eventhubs.ReadCheckpoints(ctx, store, eventhubs.NewGroup(c.Hub().Host, c.Hub().Name, c.EventHubConsumerGroup))
	if err != nil {
		return "", k.storageError(fmt.Errorf("list checkpoints in container %q: %w", c.CheckpointContainer, azure.Explain(err)))
	}
	name := eventhubs.NewGroup(c.Hub().Host, c.Hub().Name, checkGroup).Checkpoint("0")
	present, err := store.Read(ctx, name)
	if err == nil || errors.Is(err, eventhubs.ErrNoRecord) {
		_, err = store.Write(ctx, name, eventhubs.Checkpoint{Position: telemetry.Position{Offset: "0"}}.Values(), present.ETag)
	}
	if err != nil && !errors.Is(err, eventhubs.ErrConflict) { // another check is as good
		return "", k.storageError(fmt.Errorf("write a checkpoint into container %q: %w", c.CheckpointContainer, azure.Explain(err)))
	}
	for _, partition := range slices.Sorted(maps.Keys(unreadable)) {
		return "", unreadable[partition]
	}
	return fmt.Sprintf("container %q: reads and writes; %s", c.CheckpointContainer, k.progress(written)), nil
}

// progress says how far the workers are.
func (k *checkup) progress(written map[string]eventhubs.Checkpoint) string {
	if len(written) == 0 {
		return fmt.Sprintf("no checkpoint yet, the first start begins at %v", k.config.EventHubStart)
	}
	text := count(len(written), "checkpoint")
	snapshot, err := k.snapshot()
	if err != nil {
		return text
	}
	last := map[string]int64{}
	for _, p := range snapshot.Partitions {
		last[p.ID] = p.Last
	}
	behind, others := int64(0), 0
	for id, c := range written {
		if !c.HubCreated.IsZero() && !c.HubCreated.Equal(snapshot.Created) {
			others++
			continue
		}
		behind += max(0, last[id]-c.Sequence) // workers go on while we look
	}
	text = fmt.Sprintf("%s, %s behind", text, count(int(behind), "event"))
	if others > 0 {
		are := "are"
		if others == 1 {
			are = "is"
		}
		text += fmt.Sprintf("; %d %s of another hub of this name, deleted or failed over: workers start over there", others, are)
	}
	return text
}

func (k *checkup) throttleStore(ctx context.Context) (string, error) {
	c := k.config
	fail := k.storageError
	name := "in memory, for one replica"
	switch c.ThrottleStore {
	case config.StoreBlob:
		name = fmt.Sprintf("container %q, ETags", c.ThrottleContainer)
	case config.StoreBlobLease:
		name = fmt.Sprintf("container %q, native leases", c.ThrottleContainer)
	case config.StoreCosmos:
		name, fail = fmt.Sprintf("Cosmos DB %s/%s", c.CosmosDatabase, c.CosmosContainer), k.cosmosError
	}
	store, err := k.stores.openLeases(ctx, c, zap.NewNop())
	if err != nil {
		return "", fail(err)
	}
	start := time.Now()
	l, err := store.Acquire(ctx, checkKey, checkTTL, func(lease.Record) (string, error) { return "", nil })
	switch {
	case errors.Is(err, lease.ErrHeld):
		return name + ": answers; another check holds the key that checks try", nil
	case err != nil:
		return "", fail(fmt.Errorf("take a lease: %w", azure.Explain(err)))
	}
	if err := store.Release(ctx, l, ""); err != nil {
		return "", fail(fmt.Errorf("give a lease back: %w", azure.Explain(err)))
	}
	return fmt.Sprintf("%s: a lease taken and given back in %s", name, milliseconds(time.Since(start))), nil
}

// replicas compares settings with those of the replicas that run.
func (k *checkup) replicas(ctx context.Context) (string, error) {
	c, err := k.resolved()
	if err != nil {
		return "", undecided("not tried: the IoT Hub does not tell where it is")
	}
	member, err := k.stores.member(ctx, c, zap.NewNop())
	if err != nil {
		return "", k.storageError(err)
	}
	reason, err := member.Look(ctx)
	switch {
	case err != nil:
		return "", k.storageError(err)
	case reason != "":
		return "", undecided(reason)
	}
	return "none is active with other settings", nil
}

func (k *checkup) deadLetters(ctx context.Context) (string, error) {
	store, err := k.stores.openDeadLetters(ctx, k.config, zap.NewNop())
	if err != nil {
		return "", k.storageError(err)
	}
	if err := store.Try(ctx); err != nil {
		return "", k.storageError(err)
	}
	today, err := store.Count(ctx, time.Now().UTC(), maxCounted)
	if err != nil {
		return "", k.storageError(err)
	}
	more := ""
	if today == maxCounted {
		more = " or more"
	}
	return fmt.Sprintf("container %q: writes and lists; %s%s of today's readings", k.config.DeadLetterContainer, count(today, "letter"), more), nil
}

// storageError adds to an error of Azure Storage what to do if it did not answer.
func (k *checkup) storageError(err error) error {
	if k.config.StorageConnectionString.IsSet() {
		return unlessAnswered(err, "STORAGE_CONNECTION_STRING")
	}
	return unlessAnswered(err, "STORAGE_ACCOUNT_URL")
}

// cosmosError does so for Cosmos DB.
func (k *checkup) cosmosError(err error) error {
	if k.config.CosmosConnectionString.IsSet() {
		return unlessAnswered(err, "COSMOS_CONNECTION_STRING")
	}
	return unlessAnswered(err, "COSMOS_ENDPOINT")
}

// unlessAnswered adds what to do to an error that is not a service's answer,
// which says so itself.
func unlessAnswered(err error, variable string) error {
	var answer *azcore.ResponseError
	var none *azure.IdentityError
	switch {
	case errors.As(err, &none):
		return withoutToken(err)
	case errors.As(err, &answer):
		return err
	}
	return fmt.Errorf("%w: check the address in %s, and that this machine may connect to it", err, variable)
}

// receiver connects to the receiver at raw and, if asked to, sends it a test alert.
func (k *checkup) receiver(ctx context.Context, raw string, r receivers.Receiver, send bool) (string, error) {
	site := strings.TrimSuffix(config.RedactURL(raw), ":")
	found, err := reach(ctx, raw)
	if err != nil {
		return "", fmt.Errorf("%s: %w", site, err)
	}
	if !send {
		return fmt.Sprintf("%s: %s", site, found), nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.NotifyTimeout)
	defer cancel()
	start := time.Now()
	if err := r.Notifier.Notify(ctx, k.testAlert()); err != nil {
		return "", err // it names the receiver
	}
	return fmt.Sprintf("%s: took a test alert in %s", site, milliseconds(time.Since(start))), nil
}

// testAlert is an alert at the limit, about a device that no hub has.
func (k *checkup) testAlert() notify.Alert {
	c, source := k.config, "/check"
	if resolved, err := k.resolved(); err == nil {
		source = "/" + resolved.Origin()
	}
	now := time.Now()
	return notify.Alert{
		ID:          strings.TrimPrefix(source, "/") + "/check/" + uuid.NewString(),
		Source:      source,
		Device:      checkDevice,
		Temperature: c.TemperatureThreshold,
		Threshold:   c.TemperatureThreshold,
		Enqueued:    now.UTC(),
		Partition:   "check",
		Window:      c.ThrottleWindow,
		Token:       now.UnixMilli(),
		Expires:     now.Add(throttle.ClaimTTL(c.NotifyTimeout)).UTC(),
		Replica:     c.ReplicaName,
		Test:        true,
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
}

// roughly shows a duration to the second, or to the minute if it is long.
func roughly(d time.Duration) string {
	if d >= time.Hour {
		return config.Plain(d.Round(time.Minute))
	}
	return config.Plain(max(0, d).Round(time.Second))
}
