// Package checkup tries everything that a worker's configuration names, for `alertworker
// check`, and says of each in a line whether it works. It leaves alone what workers
// share: it takes no partition, moves no checkpoint of theirs and sends no alert unless it is
// asked to.
package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/status"
	"alertworker/internal/peers"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
	"alertworker/internal/throttle"
)

const (
	stepTimeout     = 20 * time.Second // for a step, unless it needs longer
	storeTimeout    = time.Minute      // for one that asks a store, which may be slow, several times
	identityTimeout = time.Minute      // for tokens, which developers' tools take long to fetch

	eventsPerPartition = 20 // that a check reads, the newest

	// testKey is the throttle key that checks acquire and release. Keys of devices
	// have slashes.
	testKey = "alertworker check"

	// testGroup is the consumer group for which checks write a checkpoint, to see
	// that they may. No worker reads in it, so that checks can where it exists.
	testGroup    = "alertworker-check"
	defaultGroup = "$Default" // which every hub has

	// testDevice is the device of test alerts.
	testDevice = "alertworker-check"
)

// Why a step had nothing to try: another one says more.
var (
	noEndpoint = undecided("not checked: the IoT Hub's endpoint is not known")
	noHub      = undecided("not checked: the hub cannot be read")
	noToken    = undecided("not checked: no token from the Azure identity")
	noRecords  = undecided("not checked: see checkpoints")
)

// Services opens what a worker with the configuration uses. Its functions may be called
// concurrently.
type Services struct {
	Identity    *azure.Credential             // nil if everything has a key
	Resolve     func() (config.Config, error) // the configuration with the IoT Hub's endpoint
	Source      func(resolved config.Config) eventhubs.Config
	Records     func(context.Context) (records.Store, error)
	Leases      func(context.Context) (lease.Store, error)
	DeadLetters func(context.Context) (*deadletter.Store, error)
	Member      func(ctx context.Context, resolved config.Config, rs records.Store) (*peers.Peer, error)
}

// Run checks everything that c names, concurrently, prints what it finds to out and
// reports whether nothing failed. With send every receiver gets a test alert.
func Run(ctx context.Context, out io.Writer, c config.Config, rs []receivers.Receiver, s Services, send bool) bool {
	k := &checkup{config: c, receivers: rs, services: s, resolved: sync.OnceValues(s.Resolve), limit: stepTimeout}
	if c.Keyless() {
		k.limit += identityTimeout
	}
	k.storeLimit = k.limit + storeTimeout - stepTimeout
	k.snapshot = sync.OnceValues(func() ([]eventhubs.PartitionState, error) { return k.probe(ctx, c.EventHubConsumerGroup) })
	k.reading = sync.OnceValues(func() (reading, error) { return k.read(ctx) })
	k.records = sync.OnceValues(func() (records.Store, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, k.storeLimit, fmt.Errorf("no answer within %v", k.storeLimit))
		defer cancel()
		return s.Records(ctx)
	})

	return run(ctx, out, k.steps(send))
}

// A checkup is one run of `alertworker check`. Its methods are the steps.
type checkup struct {
	config    config.Config
	services  Services
	receivers []receivers.Receiver

	limit      time.Duration // for a step that uses a service of Azure
	storeLimit time.Duration // for one that uses a store

	resolved func() (config.Config, error)              // with the IoT Hub's endpoint
	snapshot func() ([]eventhubs.PartitionState, error) // of the hub
	reading  func() (reading, error)                    // of its events
	records  func() (records.Store, error)
}

// steps returns what there is to check, in the order in which it is printed.
func (k *checkup) steps(send bool) []step {
	set := k.config.Rules()
	steps := k.settings(set)
	add := func(isUsed bool, s step) {
		if isUsed {
			steps = append(steps, s)
		}
	}

	add(k.config.IoTHubConnectionString.IsSet(), step{name: "IoT Hub", limit: stepTimeout + portTimeout, do: k.iotHub})
	add(k.config.Keyless(), step{name: "identity", limit: identityTimeout, do: k.identity})
	add(true, step{name: "hub", limit: k.limit + portTimeout, do: k.hub, by: status.ByHub})

	steps = append(steps, k.events(set)...)

	storage, store := k.config.StorageVariable(), k.config.Store().Variable(k.config)
	isShared := k.config.CheckpointStore != config.StoreMemory // else this process has the only one
	add(true, step{"checkpoints", k.storeLimit, k.checkpoints, status.ByCheckpoints, storage})
	add(true, step{"throttle store", k.storeLimit, k.throttleStore, status.ByStore, store})
	add(isShared, step{"replicas", k.storeLimit, k.sharing(k.replicas), "", storage})
	add(isShared, step{"alerts", k.storeLimit, k.sharing(k.alerts), "", storage})
	add(k.config.HasStorage(), step{"dead letters", k.storeLimit, k.deadLetters, status.ByDeadLetters, storage})

	for i, r := range k.receivers {
		name := "receiver"
		if len(k.receivers) > 1 {
			name = fmt.Sprint("receiver ", i+1)
		}

		try := func(ctx context.Context) (string, error) { return k.receiver(ctx, r, send) }
		add(true, step{name: name, limit: stepTimeout + k.config.NotifyTimeout, do: try})
	}

	return steps
}

// settings returns the steps that say what is set.
func (k *checkup) settings(set rules.Set) (steps []step) {
	say := func(name, text string, err error) {
		do := func(context.Context) (string, error) { return text, err }
		steps = append(steps, step{name: name, limit: stepTimeout, do: do})
	}

	say("settings", "valid", nil)
	if err := malformedProxy(); err != nil {
		say("proxy", "", err)
	}
	if err := azure.CertFile(); err != nil {
		say("certificates", "", err)
	}

	for _, e := range k.config.Endings() {
		switch now := time.Now().In(k.config.Zone()); {
		case !now.Before(e.At):
			say("credential", "", errors.New(e.Line(now)))
		case e.Soon(now):
			say("credential", "", warning(e.Line(now)))
		}
	}

	for i := range set.Rules {
		say("rule "+set.Rules[i].Name, "", statement(set.Rules[i].Facts()))
	}
	for i := range set.Mutes {
		say(fmt.Sprint("mute ", i+1), "", statement(set.Mutes[i].When()))
	}

	return steps
}

// events returns the steps that look at events. If there are none, the first one says why.
func (k *checkup) events(set rules.Set) (steps []step) {
	look := func(name string, verdict func(reading) (string, error)) {
		isFirst := len(steps) == 0
		do := func(context.Context) (string, error) {
			r, err := k.reading()
			switch {
			case err != nil && isFirst:
				return "", err
			case err != nil:
				return "", undecided("not checked: see " + steps[0].name)
			}

			return verdict(r)
		}
		steps = append(steps, step{name: name, limit: k.limit + stepTimeout, do: do})
	}

	for i := range set.Rules {
		name := "events for " + set.Rules[i].Name
		if len(set.Rules) == 1 {
			name = "events"
		}
		look(name, func(r reading) (string, error) { return r.samples[i].verdict() })
	}

	look("partitions", func(r reading) (string, error) { return partitions(r.partitions) })
	if set.Time != "" {
		look("device time", func(r reading) (string, error) { return r.deviceTimes(set.Time) })
	}

	return steps
}

// sharing makes a step of one that looks at what replicas share.
func (k *checkup) sharing(
	do func(ctx context.Context, resolved config.Config, store records.Store) (string, error),
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		c, err := k.resolved()
		if err != nil {
			return "", noEndpoint
		}

		store, err := k.records()
		if err != nil {
			return "", noRecords
		}

		return do(ctx, c, store)
	}
}

// iotHub asks the IoT Hub for its Event Hubs endpoint.
func (k *checkup) iotHub(ctx context.Context) (string, error) {
	c, err := k.resolved()
	if err != nil {
		return "", withOtherPort(ctx, err)
	}
	return fmt.Sprintf("Event Hubs endpoint: %s at %s", c.Hub().Name, c.Hub().Host), nil
}

// identity gets a token for everything that is used without a key.
func (k *checkup) identity(ctx context.Context) (string, error) {
	var requests []policy.TokenRequestOptions
	var names []string
	for _, service := range []struct {
		name  string
		used  bool
		scope policy.TokenRequestOptions
	}{
		{"Event Hubs", k.config.EventHubNamespace != "", azure.EventHubsScope},
		{"Azure Storage", k.config.StorageAccountURL != "", azure.StorageScope},
		{"Cosmos DB", k.config.CosmosKeyless(), azure.CosmosScope(k.config.CosmosEndpoint)},
		{"Event Grid", k.config.EventGridKeyless(), azure.EventGridScope},
		{"Exchange Online", k.config.MailKeyless(), azure.MailScope},
	} {
		if service.used {
			names = append(names, service.name)
			requests = append(requests, service.scope)
		}
	}

	if err := k.services.Identity.Prefetch(ctx, requests...); err != nil {
		return "", err
	}

	return "has tokens for " + strings.Join(names, ", "), nil
}

// probe looks at the hub and, in a consumer group, at the newest events of each partition.
func (k *checkup) probe(ctx context.Context, group string) ([]eventhubs.PartitionState, error) {
	c, err := k.resolved()
	if err != nil {
		return nil, noEndpoint
	}

	if c.EventHubNamespace != "" && k.services.Identity.Prefetch(ctx, azure.EventHubsScope) != nil {
		return nil, noToken
	}

	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	c.EventHubConsumerGroup = group

	return eventhubs.Probe(ctx, k.services.Source(c), eventsPerPartition)
}

// hub says what the hub has. It is a warning that another program reads in the consumer group, which a worker would stop.
func (k *checkup) hub(ctx context.Context) (string, error) {
	snapshot, err := k.snapshot()
	if err != nil {
		return "", withOtherPort(ctx, err)
	}

	c, _ := k.resolved() // the snapshot is of what it returns
	owners := k.owners(ctx, c)
	var newest time.Time
	isRead, others := 0, 0 // partitions that are read, and those by none of our replicas
	for _, p := range snapshot {
		if !p.Empty && p.Enqueued.After(newest) {
			newest = p.Enqueued
		}
		if p.Busy {
			isRead++
			if owners != nil && owners[p.ID] == "" {
				others++
			}
		}
	}

	text := fmt.Sprintf("%s at %s: %s", c.Hub().Name, c.Hub().Host, humanize.Count(len(snapshot), "partition"))
	if newest.IsZero() {
		text += ", no events yet"
	} else {
		text += fmt.Sprintf(", newest event %s ago", humanize.Span(max(time.Second, time.Since(newest))))
	}

	if isRead > 0 {
		text += fmt.Sprintf(", %d being read in this consumer group", isRead)
	}
	if others > 0 {
		return "", warning(fmt.Sprintf(
			"%s; of these %d by none that shares these checkpoints: another program reads the consumer group %s: give each program one of its own",
			text, others, c.EventHubConsumerGroup,
		))
	}

	return text, nil
}

// owners returns which replicas own the partitions; nil if the store does not say.
func (k *checkup) owners(ctx context.Context, c config.Config) map[string]string {
	store, err := k.records()
	if err != nil || k.config.CheckpointStore == config.StoreMemory {
		return nil
	}

	owned, err := ownership.List(ctx, store, string(groupOf(c)))
	if err != nil {
		return nil
	}

	return owned.Owners(c.OwnershipExpiry)
}

// groupOf returns the names of what replicas with a configuration share.
func groupOf(c config.Config) eventhubs.Group {
	return eventhubs.NewGroup(c.Hub().Host, c.Hub().Name, c.EventHubConsumerGroup)
}

// read takes the newest events through the rules. Its error is undecided.
func (k *checkup) read(ctx context.Context) (reading, error) {
	snapshot, err := k.snapshot()
	if err != nil {
		return reading{}, noHub
	}

	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, group := range []string{testGroup, defaultGroup} { // beside a worker that reads
		if busy(snapshot) && !strings.EqualFold(group, k.config.EventHubConsumerGroup) {
			if s, err := k.probe(ctx, group); err == nil {
				snapshot = s
			}
		}
	}

	if busy(snapshot) {
		return reading{}, undecided(fmt.Sprintf(
			"not read: a worker is reading them in the consumer group %s; "+
				"to see them, add a consumer group %s to the hub, in which checks can read",
			k.config.EventHubConsumerGroup,
			testGroup,
		))
	}

	if !slices.ContainsFunc(snapshot, func(p eventhubs.PartitionState) bool { return len(p.Events) > 0 }) {
		return reading{}, undecided(
			"no events yet: send some telemetry, then run the check again to see what the rules find in it",
		)
	}

	return newReading(k.config.Rules(), k.config.HasRules(), snapshot)
}

// busy reports whether a worker reads a partition: the hub admits nobody beside it in its consumer group.
func busy(snapshot []eventhubs.PartitionState) bool {
	return slices.ContainsFunc(snapshot, func(p eventhubs.PartitionState) bool { return p.Busy })
}

// checkpoints reads the checkpoints of all partitions, and writes one for a group in which nobody reads.
func (k *checkup) checkpoints(ctx context.Context) (string, error) {
	store, err := k.records()
	if err != nil {
		return "", err
	}

	if k.config.CheckpointStore == config.StoreMemory {
		return fmt.Sprintf("in memory: every start begins at %v", k.config.EventHubStart), nil
	}

	c, err := k.resolved()
	if err != nil {
		return "", undecided(
			"the store answers, but without the IoT Hub's endpoint it is not known which checkpoints to look for",
		)
	}

	written, unreadable, err := eventhubs.ReadCheckpoints(ctx, store, groupOf(c))
	if err != nil {
		return "", err
	}

	tried := c
	tried.EventHubConsumerGroup = testGroup
	checkpoint := eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Offset: "0"}}}
	_, err = store.Write(ctx, records.Record{Name: groupOf(tried).Checkpoint("0"), Values: checkpoint.Values(), ETag: records.Any})
	if err != nil {
		return "", fmt.Errorf("write a checkpoint: %w", err)
	}

	for _, partition := range slices.Sorted(maps.Keys(unreadable)) {
		const text = "%s is not a checkpoint: its metadata has no number: the worker reads partition %s from its earliest event, and " +
			"replaces it: if it is another program's, name another container in CHECKPOINT_CONTAINER"
		return "", fmt.Errorf(text, groupOf(c).Checkpoint(partition), partition)
	}

	progress := humanize.Count(len(written), "checkpoint")
	if len(written) == 0 {
		progress = fmt.Sprintf("no checkpoints yet: the first start begins at %v", k.config.EventHubStart)
	}

	return fmt.Sprintf("container %q: readable and writable; %s", c.CheckpointContainer, progress), nil
}

// throttleStore acquires and releases a lease whose key no device has.
func (k *checkup) throttleStore(ctx context.Context) (string, error) {
	store, err := k.services.Leases(ctx)
	if err != nil {
		return "", err
	}

	name := k.config.Store().Place(k.config)
	start := time.Now()
	err = status.Try(ctx, store, testKey)
	if errors.Is(err, lease.ErrHeld) {
		return name + ": answers; another check is using the test key", nil
	}

	return fmt.Sprintf("%s: acquired and released a lease in %s", name, milliseconds(time.Since(start))), err
}

// alerts asks the replicas that are running whether alerts go out.
func (k *checkup) alerts(ctx context.Context, c config.Config, store records.Store) (string, error) {
	reports, err := ownership.Reports(ctx, store, string(groupOf(c)), "", c.OwnershipExpiry)
	if err != nil {
		return "", err
	}

	members := status.Statements(reports)
	if len(members) == 0 {
		return "", undecided("no replica is running that could tell whether alerts go out")
	}

	if why := status.Trouble(time.Now().In(k.config.Zone()), members); why != "" {
		return "", errors.New(why)
	}
	if why := status.Warning(time.Now().In(k.config.Zone()), members); why != "" {
		return "", warning("going out, but " + why)
	}

	return "going out, by the report of " + humanize.Count(len(members), "running replica"), nil
}

// replicas compares settings with those of the replicas that are running.
func (k *checkup) replicas(ctx context.Context, c config.Config, store records.Store) (string, error) {
	member, err := k.services.Member(ctx, c, store)
	if err != nil {
		return "", err
	}

	reason, err := member.Look(ctx)
	if err != nil {
		return "", err
	}
	if reason != "" {
		return "", undecided(reason)
	}

	reports, err := ownership.Reports(ctx, store, string(groupOf(c)), "", c.OwnershipExpiry)
	if err != nil {
		return "", err
	}

	set := c.Rules()
	if what := status.Differing(status.Statement{Rules: set.Facts()}, status.Statements(reports)); what != "" {
		return "", warning(what + ": each replica decides by its own rules about the partitions that it reads")
	}

	return "no replicas with other settings or rules are active", nil
}

// deadLetters writes to the container of dead letters.
func (k *checkup) deadLetters(ctx context.Context) (string, error) {
	store, err := k.services.DeadLetters(ctx)
	if err == nil {
		err = store.Try(ctx)
	}
	return fmt.Sprintf("container %q: can be written", k.config.DeadLetterContainer), err
}

// receiver connects to r and, if asked to, sends it a test alert and its recovery.
func (k *checkup) receiver(ctx context.Context, r receivers.Receiver, send bool) (string, error) {
	found, err := reach(ctx, r.Reach)
	if outcomeOf(err) == failed {
		return "", status.ReceiverFailed(r.Name, err)
	}

	switch {
	case !send && err != nil:
		return "", opinion{outcomeOf(err), r.Name + ": " + err.Error() + wants(r.Filters)}
	case !send:
		return r.Name + ": " + found + wants(r.Filters), nil
	}

	ctx, cancel := context.WithTimeout(ctx, k.config.NotifyTimeout)
	defer cancel()

	start := time.Now()
	alert, recovery := k.testMessages()
	if err := r.Notifier.Notify(ctx, alert); err != nil {
		return "", status.ReceiverFailed(r.Name, err)
	}

	took := milliseconds(time.Since(start))
	time.Sleep(min(r.Limits.Rate.Every, maxWait)) // Slack hides what comes faster

	if err := r.Notifier.Notify(ctx, recovery); err != nil {
		return "", fmt.Errorf("%s: accepted a test alert, but not its recovery: %w", r.Name, err)
	}

	return fmt.Sprintf("%s: accepted a test alert in %s, and its recovery", r.Name, took), nil
}

// wants says which alerts a receiver gets, by the attributes of its URLs, to follow what it is; empty if it gets all.
func wants(filters notify.Filters) string {
	var any []string
	for _, f := range filters {
		var all []string
		for _, of := range []struct {
			attribute string
			values    []string
		}{{"rule=", f.Rules}, {"level=", f.Levels}, {"where=" + f.Property + ":", f.Values}} {
			if len(of.values) > 0 {
				all = append(all, of.attribute+strings.Join(of.values, "|"))
			}
		}
		any = append(any, strings.Join(all, " "))
	}

	if len(any) == 0 {
		return ""
	}

	return "; gets alerts of " + strings.Join(any, ", or ")
}

// maxWait is how long a test's recovery waits at most for the rate of its receiver.
const maxWait = 2 * time.Second

// testMessages returns an alert at the first limit, for a device that no hub has, and its recovery, which closes what that
// opened.
func (k *checkup) testMessages() (alert, recovery notify.Alert) {
	c, source := k.config, "/check"
	if resolved, err := k.resolved(); err == nil {
		source = "/" + resolved.Origin()
	}

	now := time.Now()
	rule := c.Rules().Rules[0]
	level, field := rule.Levels[0], rule.Field
	if rule.Name == rules.DefaultName {
		field = ""
	}

	alert = notify.Alert{
		ID:          strings.TrimPrefix(source, "/") + "/check/" + uuid.NewString(),
		Source:      source,
		Device:      testDevice,
		Rule:        rule.Name,
		Level:       level.Name,
		Below:       rule.Below,
		Field:       field,
		Title:       rule.Title,
		Unit:        rule.Unit,
		Runbook:     rule.Runbook,
		Temperature: level.Limit,
		Threshold:   level.Limit,
		Enqueued:    now.UTC(),
		Partition:   "check",
		Window:      rule.Window,
		Token:       now.UnixMilli(),
		Expires:     now.Add(throttle.ClaimTTL(c.NotifyTimeout)).UTC(),
		Replica:     c.ReplicaName,
		Test:        true,
	}

	switch {
	case rule.Silence():
		alert.Silent = rule.Silent
		alert.Since = alert.Enqueued.Add(-rule.Silent)
		alert.LastHeard = alert.Since

	case len(rule.Is) > 0:
		alert.Word = rule.Is[0]
	}

	recovery = alert
	recovery.ID += "/resolved"
	recovery.Resolved = true
	recovery.Since = cmp.Or(alert.Since, alert.Enqueued)
	recovery.Enqueued = alert.Enqueued.Add(time.Millisecond)
	recovery.Token++

	return alert, recovery
}

// milliseconds shows how long something took, at least 1 ms.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
}
