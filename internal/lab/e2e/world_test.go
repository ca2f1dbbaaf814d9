//go:build unix

package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	randv2 "math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/records"
	"alertworker/internal/throttle"
)

const (
	hubName   = "telemetry"
	threshold = 30

	startWithin  = 3 * time.Minute // for anything that must happen
	readyWithin  = time.Minute     // for workers to read all partitions, in a first attempt
	drainTimeout = 10 * time.Second

	// bound is how long after its reading an alert may come, in a first attempt. What a
	// scenario breaks delays alerts for as long as it is broken, until a dead replica's
	// partitions and claims have expired, and by backoff; and so does a busy machine.
	bound = time.Minute
	proof = 30 * time.Second // and of silence so much later, because it has to be proven

	settleWithin = 5 * time.Minute // everything published

	// How long a dead replica keeps its partitions, in a first attempt. A machine too
	// slow to renew what is owned has partitions change hands for ever.
	ownershipExpiry = 4 * time.Second
	balanceInterval = time.Second
)

// settings differ between worlds. Zero fields have their defaults.
type settings struct {
	hub           string        // connection string; default: a hub of this world
	partitions    int           // that this hub has; 8
	store         string        // THROTTLE_STORE; blob
	window        time.Duration // 3 s; all times are for a first attempt
	notifyTimeout time.Duration // 1 s

	// slack is how much longer than the window an alert may keep its device
	// quiet; 4 s, for one call that records the window and the store's clock, which
	// counts in seconds. A window that was recorded late, in a second or later
	// call, suppresses until claim + window after its claim, which is what is promised.
	slack time.Duration

	env []string // on top

	// rules are those of env, as the judge has them; none: the threshold alone.
	rules []verify.Rule

	// command makes a worker's process from its environment; nil: the command as built.
	command func(env []string) *exec.Cmd
}

// A world is workers with all that they need, and a verify.Log of what goes in and
// what comes out.
type world struct {
	t   *busytest.Attempt
	rng *randv2.Rand
	settings

	devhub   *devhub.Hub // nil if another process serves the hub
	receiver *notifytest.Receiver

	namespace   string // as the checkpoints spell it
	checkpoints azeventhubs.CheckpointStore
	workers     map[string]*process
	sites       map[string]string // addresses at which workers serve HTTP, by name

	mu        sync.Mutex
	verifyLog *verify.Log
	seen      int              // deliveries in verifyLog
	unknown   []string         // devices as in verify.Rules
	last      map[string]int64 // sequence number of each partition's last event, if the world has the hub
}

// newWorld returns a world without workers on a storage account.
func newWorld(t *busytest.Attempt, storage string, s settings) *world {
	t.Helper()
	w := &world{t: t, rng: random(t.T), settings: s, workers: map[string]*process{}, sites: map[string]string{}, last: map[string]int64{}, verifyLog: verify.NewLog(s.rules...)}
	defaults(&w.partitions, 8)
	if w.hub == "" {
		w.devhub = listen(t.T, w.partitions)
		w.hub = w.devhub.ConnectionString()
	}
	defaults(&w.store, "blob")
	defaults(&w.window, 3*time.Second)
	defaults(&w.notifyTimeout, time.Second)
	defaults(&w.slack, 4*time.Second)
	for _, d := range []*time.Duration{&w.window, &w.notifyTimeout, &w.slack} {
		*d = t.Time(*d)
	}
	if w.store == "blob-lease" {
		w.window = min(w.window, time.Minute) // they last no longer
	}

	properties, err := azeventhubs.ParseConnectionString(w.hub)
	if err != nil {
		t.Fatal(err)
	}
	w.namespace = strings.ToLower(properties.FullyQualifiedNamespace)
	id := uuid.NewString()
	w.checkpoints = openCheckpoints(t.T, storage, "checkpoints-"+id)

	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	signing := "whsec_" + base64.StdEncoding.EncodeToString(key)
	secret, err := webhook.ParseSecret(signing)
	if err != nil {
		t.Fatal(err)
	}
	w.receiver = notifytest.NewReceiver(t.T, secret)

	w.env = append([]string{
		"EVENTHUB_CONNECTION_STRING=" + w.hub,
		"EVENTHUB_START=earliest",
		fmt.Sprint("TEMPERATURE_THRESHOLD=", threshold),
		"THROTTLE_WINDOW=" + w.window.String(),
		"THROTTLE_STORE=" + w.store,
		"THROTTLE_CONTAINER=throttle-" + id,
		"STORAGE_CONNECTION_STRING=" + storage,
		"CHECKPOINT_CONTAINER=checkpoints-" + id,
		"CHECKPOINT_INTERVAL=1s",
		"NOTIFY_URLS=" + w.receiver.URL,
		"NOTIFY_WEBHOOK_SECRET=" + signing,
		"NOTIFY_TIMEOUT=" + w.notifyTimeout.String(),
		"OWNERSHIP_EXPIRY=" + t.Time(ownershipExpiry).String(),
		"BALANCE_INTERVAL=" + t.Time(balanceInterval).String(),
		"DRAIN_TIMEOUT=" + drainTimeout.String(),
		"LOG_FORMAT=console", "LOG_LEVEL=debug",
	}, s.env...)
	return w
}

func defaults[T comparable](value *T, to T) {
	if *value == *new(T) {
		*value = to
	}
}

// listen serves a hub in this process.
func listen(t *testing.T, partitions int) *devhub.Hub {
	t.Helper()
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: hubName, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	return hub
}

func openCheckpoints(t *testing.T, storage, name string) azeventhubs.CheckpointStore {
	t.Helper()
	store, err := checkpoints.NewBlobStore(openContainer(t, storage, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func openContainer(t *testing.T, storage, name string) *container.Client {
	t.Helper()
	client := azure.NewHTTPClient()
	t.Cleanup(client.CloseIdleConnections)
	c, err := container.NewClientFromConnectionString(storage, name, &container.ClientOptions{ClientOptions: policy.ClientOptions{Transport: client}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// records returns what is kept in the container that a variable names.
func (w *world) records(variable string) records.Store {
	w.t.Helper()
	store, err := records.OpenBlobs(w.t.Context(), openContainer(w.t.T, w.setting("STORAGE_CONNECTION_STRING"), w.setting(variable)), func(string) {})
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

// setting returns what a variable is set to.
func (w *world) setting(name string) string {
	for _, entry := range w.env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// start starts workers under these names, with HTTP if they have a site. It does not wait for them.
func (w *world) start(names ...string) {
	w.t.Helper()
	for _, name := range names {
		env := append(slices.Clone(w.env), "REPLICA_NAME="+name, "HTTP_ADDR="+w.sites[name])
		if w.command != nil {
			w.workers[name] = run(w.t.T, name, w.command(env))
		} else {
			w.workers[name] = alertworker(w.t.T, name, env)
		}
	}
}

// kill ends a worker without asking.
func (w *world) kill(name string) {
	w.t.Logf("%s kill -9 %s", time.Now().Format("15:04:05.000"), name)
	w.workers[name].kill()
	delete(w.workers, name)
}

// stop asks workers to end and waits until they have handed everything over.
func (w *world) stop(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.t.Logf("%s SIGTERM %s", time.Now().Format("15:04:05.000"), name)
		w.workers[name].signal(syscall.SIGTERM)
	}
	for _, name := range names {
		w.workers[name].wait(drainTimeout+exitWithin, 0)
		delete(w.workers, name)
	}
}

// ready waits until every worker owns a partition and all partitions are read.
func (w *world) ready() {
	w.t.Helper()
	if limit := w.t.Time(readyWithin); !eventually(limit, func() bool {
		w.alive()
		if w.devhub != nil && w.devhub.Readers("") != w.partitions {
			return false
		}
		owned := w.owned()
		for name := range w.workers {
			if owned[name] == 0 {
				return false
			}
		}
		return true
	}) {
		w.t.Missed("not within %v: every worker owns a partition and all are read", limit)
	}
}

// alive fails the test if a worker has ended by itself.
func (w *world) alive() {
	w.t.Helper()
	for name, p := range w.workers {
		if !p.running() {
			w.t.Fatalf("%s ended by itself: %v", name, p.cmd.ProcessState)
		}
	}
}

// owned returns how many partitions each replica owns, by name, as the storage
// account tells; nil if it does not answer.
func (w *world) owned() map[string]int {
	all, err := w.checkpoints.ListOwnership(w.t.Context(), w.namespace, hubName, "$default", nil)
	if err != nil {
		return nil
	}
	owned := map[string]int{}
	for _, o := range all {
		name, _, _ := strings.Cut(o.OwnerID, "-") // and a random part
		owned[name]++
	}
	return owned
}

// checkpointed returns how far the checkpoints are; nil if the storage account
// does not answer.
func (w *world) checkpointed() map[string]int64 {
	all, err := w.checkpoints.ListCheckpoints(w.t.Context(), w.namespace, hubName, "$default", nil)
	if err != nil {
		return nil
	}
	at := map[string]int64{}
	for _, c := range all {
		at[c.PartitionID] = *c.SequenceNumber
	}
	return at
}

// pass lets time pass: how long something lasts is part of a scenario.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
	w.alive()
}

// between returns a random duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

// body is what a device sends. Not a number: something that cannot be read.
func body(temperature float64) []byte {
	if math.IsNaN(temperature) {
		return []byte(`{"temperature":"`)
	}
	return fmt.Appendf(nil, `{"temperature":%v}`, temperature)
}

// publish sends one reading to the world's hub.
func (w *world) publish(device string, temperature float64) {
	w.publishWith(device, temperature, nil)
}

// publishWith sends one reading with application properties, and returns its partition.
func (w *world) publishWith(device string, temperature float64, properties map[string]string) (partition string) {
	message := devhub.Message{Device: device, Body: body(temperature), Properties: map[string]any{}}
	for name, value := range properties {
		message.Properties[name] = value
	}
	taken, _ := time.Parse(time.RFC3339, properties["created"])
	return w.post(message, verify.Reading{Taken: taken, Temperature: temperature, Over: temperature >= threshold, Properties: properties}).Partition
}

// post sends a message, and returns where it is. readings are what the judge has to know of it besides: one, or each of
// its measurements as they stand in it.
func (w *world) post(message devhub.Message, readings ...verify.Reading) devhub.Published {
	w.mu.Lock() // the judge needs them in the hub's order
	defer w.mu.Unlock()
	at, err := w.devhub.Publish(message)
	if err != nil {
		w.t.Error(err)
		return at
	}
	w.last[at.Partition] = max(w.last[at.Partition], at.Sequence)
	for i := range readings {
		r := &readings[i]
		r.Device, r.At, r.Partition, r.Sequence = message.Device, at.Enqueued, at.Partition, at.Sequence
	}
	w.verifyLog.PublishedTogether(readings...)
	return at
}

// publishing has devices publish, a hundred readings a second, until the
// returned function is called.
func (w *world) publishing(publish func(device string, temperature float64)) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	rng := randv2.New(randv2.NewPCG(w.rng.Uint64(), 0))
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			device := fmt.Sprintf("line %d/oven#%d", rng.IntN(4), rng.IntN(6))
			switch n := rng.IntN(100); {
			case n < 30:
				publish(device, threshold+float64(rng.IntN(10)))
			case n < 32:
				publish(device, math.NaN())
			default:
				publish(device, threshold-1-float64(rng.IntN(10)))
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// report checks everything recorded until now.
func (w *world) report() verify.Report {
	return w.judged(verify.Rules{Window: w.window, Bound: w.t.Time(bound), Proof: w.t.Time(proof), Slack: w.slack})
}

// promise is what report says if the machine is not asked to be quick: every reading has
// an alert at some time, and a window lasts no longer than claim + window.
func (w *world) promise() verify.Report {
	return w.judged(verify.Rules{Window: w.window, Bound: time.Hour, Slack: max(w.slack, throttle.ClaimTTL(w.notifyTimeout))})
}

func (w *world) judged(rules verify.Rules) verify.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	deliveries := w.receiver.Deliveries()
	for _, d := range deliveries[w.seen:] {
		delivery := verify.Delivery{Device: d.Alert.About(), ID: d.Alert.ID, Token: d.Alert.Token, At: d.At, Until: d.At.Add(d.Alert.Remember)}
		if w.rules != nil {
			delivery.Sensor = d.Alert.Sensor
			delivery.Rule, delivery.Level, delivery.Recovery = d.Alert.Rule, d.Alert.Level, d.Alert.Resolved
			delivery.Excluded, delivery.Repeated = d.Alert.Excluded != "", d.Alert.Ambiguous
			delivery.Partition, delivery.Sequence, delivery.Deadline = d.Alert.Partition, d.Alert.Sequence, d.Alert.Enqueued
		}
		w.verifyLog.Delivered(delivery)
	}
	w.seen, rules.Unknown = len(deliveries), w.unknown
	return w.verifyLog.Check(rules)
}

// settle waits until everything published is settled: every reading has been
// heard of, the end of every alarm as well, and every checkpoint has reached its partition's last event.
func (w *world) settle() {
	w.t.Helper()
	eventually(settleWithin, func() bool { w.alive(); return w.promise().Settled() })
	w.mu.Lock()
	last := maps.Clone(w.last)
	w.mu.Unlock()
	var at map[string]int64
	if !eventually(settleWithin, func() bool {
		w.alive()
		at = w.checkpointed()
		for partition, sequence := range last {
			if at[partition] < sequence {
				return false
			}
		}
		return at != nil
	}) {
		w.t.Errorf("the checkpoints stay at %v, want %v; the replicas own %v", at, last, w.owned())
	}
}

// finish settles, has the workers hand over, and judges.
func (w *world) finish() verify.Report {
	w.t.Helper()
	w.settle()
	w.stop(slices.Sorted(maps.Keys(w.workers))...)

	r := w.report()
	if !r.Settled() && w.promise().Settled() {
		w.t.Missed("nothing is lost, but alerts came later than %v, or windows lasted longer by %v: %v %v", r.Rules.Bound, r.Rules.Slack, r.Lost, r.Stale)
	}
	found(w, "lost", r.Lost)
	found(w, "too close", r.TooClose)
	found(w, "stale", r.Stale)
	found(w, "wrong", r.Wrong)
	dropped, slowest := 0, time.Duration(0)
	for _, d := range w.receiver.Deliveries() {
		if d.Dropped {
			dropped++
		} else if !d.Alert.Resolved { // which waits for the window
			slowest = max(slowest, d.At.Sub(d.Alert.Enqueued))
		}
	}
	if dropped != r.Dropped {
		w.t.Errorf("the receiver dropped %d alerts, but should have dropped %d", dropped, r.Dropped)
	}
	if r.Alerts == 0 {
		w.t.Error("there was no alert at all")
	}
	w.t.Logf("%d readings, %d over the threshold, %d alarms, %d alerts, the slowest %v after its reading, %d suppressed, %d recoveries, %d dropped by the receiver",
		r.Readings, r.Over, r.Opened, r.Alerts, slowest.Round(time.Millisecond), r.Suppressed, r.Recoveries, r.Dropped)
	return r
}

// found fails the test if there is anything that must not be.
func found(w *world, kind string, all []verify.Violation) {
	w.t.Helper()
	for _, one := range all[:min(5, len(all))] {
		w.t.Errorf("one of %d %s: %v", len(all), kind, one)
	}
}
