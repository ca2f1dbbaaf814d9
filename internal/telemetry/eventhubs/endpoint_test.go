package eventhubs_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// An iotHub is a hub that can move.
type iotHub struct {
	mu  sync.Mutex
	at  string // connection string of its endpoint
	err error
}

func (i *iotHub) move(connectionString string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.err = connectionString, err
}

func (i *iotHub) resolve(context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at, i.err
}

func (i *iotHub) config(h *hub) eventhubs.Config {
	config, _ := h.watched()
	config.IoTHub, config.Resolve = "Factory.azure-devices.net", i.resolve
	config.ConnectionString, _ = i.resolve(context.Background())
	return config
}

// elsewhere is another hub, as after a fail-over: it has more partitions, and
// events from before anybody knew of it.
func elsewhere(t *testing.T, h *hub) *hub {
	t.Helper()
	other, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry-paired", Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return &hub{Hub: other, store: h.store}
}

// An IoT Hub fails over: reading goes on in the new place, not at its latest
// event, also in partitions that the old place did not have.
func TestIoTHubMoves(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	iot := &iotHub{at: h.ConnectionString()}
	config := iot.config(h)
	s := h.source(t, config)
	s.SetLimits(200*time.Millisecond, 50*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	bodies, _ := readAndSettle(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "b")
	next(t, bodies, "0:a", "1:b")
	eventually(t, "both checkpoints", func() bool { c := h.checkpoints(t); return c["0"] == 0 && c["1"] == 0 })

	iot.move("", errors.New("no answer on purpose")) // which changes nothing
	to := elsewhere(t, h)
	to.Publish(t, "0", "c")
	to.Publish(t, "2", "d", "e")
	iot.move(to.ConnectionString(), nil)
	next(t, bodies, "0:c", "2:d", "2:e")
	to.Publish(t, "1", "f")
	next(t, bodies, "1:f")
	if got := s.Stats().Moves; got != 1 {
		t.Errorf("it moved %d times, want once", got)
	}
}

// It fails over while no replica runs: where it was is on record.
func TestIoTHubMovesWhileNobodyReads(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	iot := &iotHub{at: h.ConnectionString()}
	s := h.source(t, iot.config(h))
	bodies, stop := readAndSettle(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "b")
	next(t, bodies, "0:a", "1:b")
	eventually(t, "both checkpoints", func() bool { c := h.checkpoints(t); return c["0"] == 0 && c["1"] == 0 })
	stop()

	to := elsewhere(t, h)
	to.Publish(t, "0", "c")
	iot.move(to.ConnectionString(), nil)
	bodies, stop = readAndSettle(t, h.source(t, iot.config(h)))
	next(t, bodies, "0:c")
	stop()

	// The next start has checkpoints there, also in partitions that were idle.
	to.Publish(t, "1", "d")
	to.Publish(t, "2", "e")
	s = h.source(t, iot.config(h))
	bodies, stop = readAndSettle(t, s)
	next(t, bodies, "1:d", "2:e")
	if got := s.Stats().StartedOver; got != 0 {
		t.Errorf("%d partitions were started over, want none", got)
	}
	stop()

	// And back: on from where reading ended there.
	h.Publish(t, "1", "late")
	iot.move(h.ConnectionString(), nil)
	bodies, _ = readAndSettle(t, h.source(t, iot.config(h)))
	next(t, bodies, "1:late")
}

// A checkpoint beyond the end is no lag of 0.
func TestOwnershipsOfAnotherHub(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	h.setCheckpoint(t, "0", 1000, "1000")
	got, err := h.source(t, h.config()).Ownerships(t.Context(), true)
	if want := (telemetry.PartitionStatus{Partition: "0", Checkpoint: 1000, Last: -1}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// People look at a status page for days: that leaves nothing behind.
func TestLooksLeaveNothingBehind(t *testing.T) {
	h := newHub(t, 4)
	s := h.source(t, h.config())
	t.Cleanup(s.Close)
	look := func(ctx context.Context) {
		if _, err := s.Ownerships(ctx, true); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
	}
	look(t.Context())
	before := renewers()
	if before == 0 {
		t.Fatal("no goroutine renews a claim: this test does not know its name any more")
	}
	for range 50 {
		look(t.Context())
	}
	var many sync.WaitGroup
	for range 20 { // at once, and some give up
		many.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			_, _ = s.Ownerships(ctx, true)
		})
	}
	many.Wait()
	h.Reset() // the connection breaks
	look(t.Context())
	if after := renewers(); after > before+1 {
		t.Errorf("%d goroutines renew claims after 71 looks, %d did after the first", after, before)
	}
}

// renewers counts the goroutines that renew claims.
func renewers() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*connection).run(")
}

// Close ends what a silent hub would keep open.
func TestCloseWithASilentHub(t *testing.T) {
	h := newHub(t, 1)
	s := h.source(t, h.config())
	if _, err := s.Ownerships(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	h.Stall()
	t.Cleanup(h.Resume)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if all, err := s.Ownerships(ctx, true); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v; want what the store knows", all, err)
	}
	s.Close()
}
