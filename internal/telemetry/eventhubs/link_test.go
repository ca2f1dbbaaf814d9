package eventhubs_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// far puts a source at a distance from its hub.
func far(s *eventhubs.Source, roundTrip time.Duration) {
	s.Connect(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return atDistance(c, roundTrip), nil
	})
}

// Links are opened side by side, so that the start does not grow with their number times the
// round trip. Run with -v, it says how long that took; the bound is for a machine that is busy
// with other tests.
func TestLinksAreOpenedSideBySide(t *testing.T) {
	for _, c := range []struct {
		name       string
		partitions int
		roundTrip  time.Duration
		first      bool // the group's first start, with the store as far away as the hub
	}{
		{"32, far", 32, 280 * time.Millisecond, false},
		{"32, far, first start", 32, 280 * time.Millisecond, true},
		{"200", 200, 40 * time.Millisecond, false},
		{"1024, near", 1024, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("opens many links")
			}
			served, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Partitions: c.partitions})
			if err != nil {
				t.Fatal(err)
			}
			h := &hub{Hub: served, store: newFaultyStore()}
			t.Cleanup(func() { _ = served.Close() })
			config := h.config()
			if c.first {
				config = h.latest()
				config.Records = records.Around(h.store, func(
					ctx context.Context, _ records.Op, _ string, call func(context.Context) error,
				) error {
					time.Sleep(c.roundTrip)
					return call(ctx)
				})
			}
			// Nothing takes too long, however busy the machine is.
			config.BalanceInterval = 0
			config.OwnershipExpiry = 10 * time.Minute
			s := h.source(t, config)
			s.SetLimits(200*time.Millisecond, time.Hour, 10*time.Minute, 10*time.Minute, time.Hour)
			s.SetQueryLimit(10 * time.Minute)
			far(s, c.roundTrip)
			began := time.Now()
			_, stop := read(t, s)
			eventually(t, "all partitions to be read", func() bool { return s.Stats().Reading == c.partitions })
			t.Logf("%d partitions at a round trip of %v are read after %v, over %d connections", c.partitions, c.roundTrip, time.Since(began).Round(10*time.Millisecond), h.Accepted())
			if stats := s.Stats(); stats.Reopened != 0 || stats.Lost != 0 {
				t.Errorf("%+v: want every link to be opened once", stats)
			}
			stop()
		})
	}
}

// The hub closes links without an error, ends sessions, or is geo-replicated, whose offsets have another form. All is read
// once, and nothing is refused.
func TestHubThatIsOdd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config devhub.Config
		does   func(h *hub)
	}{
		"links end without an error": {devhub.Config{}, func(h *hub) { h.DetachWithoutError("0") }},
		"geo-replicated":             {devhub.Config{GeoReplicated: true}, func(h *hub) { h.Detach("0") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.config.Partitions = 1
			h := newHubOf(t, tt.config)
			h.Publish(t, "0", "before")
			core, logs := observer.New(zap.WarnLevel)
			config := h.latest()
			config.Logger = zap.New(core)
			s := h.source(t, config)
			bodies, stop := readAndSettle(t, s)
			eventually(t, "it to be read", func() bool { return s.Stats().Reading == 1 })
			for _, body := range []string{"a", "b", "c"} {
				h.Publish(t, "0", body)
				next(t, bodies, "0:"+body)
				tt.does(h)
			}
			stop()
			bodies, _ = read(t, h.source(t, config))
			h.Publish(t, "0", "d")
			next(t, bodies, "0:d")
			if n := logs.FilterMessageSnippet("rejects the position").Len(); n > 0 {
				t.Errorf("the hub refused a position: %v", logs.All())
			}
		})
	}
}

// A partition that cannot be opened disturbs no other. Why it cannot is said once in the log, in
// the hub's words, and as long as it lasts in Stats.
func TestPartitionThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.RefuseLinks("0", 4, "The partition is being moved. TrackingId:8031_G4, Timestamp:2026-02-21T19:12:41")
	core, logs := observer.New(zap.WarnLevel)
	config := h.config()
	config.Logger = zap.New(core)
	s := h.source(t, config)
	bodies, _ := read(t, s)
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a", "b")
	next(t, bodies, "1:a", "1:b")
	eventually(t, "the failure to be reported", func() bool {
		f := s.Stats().Faults["0"]
		return f.Err != nil && strings.Contains(f.Err.Error(), "The partition is being moved.")
	})
	next(t, bodies, "0:a")
	if stats := s.Stats(); len(stats.Faults) != 0 || stats.Reopened != 4 || stats.Lost != 0 {
		t.Errorf("%+v: want 4 failures that are over, and nothing lost", stats)
	}
	if n := logs.FilterMessageSnippet("cannot be read").FilterField(zap.String("partition", "0")).Len(); n != 1 {
		t.Errorf("the log says it %d times: %v", n, logs.All())
	}
}

// Another tool's checkpoint, or one from before geo-replication: the hub refuses its offset. The
// sequence number is still good.
func TestOffsetThatTheHubRefuses(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(h *hub){
		"another form":      func(h *hub) { h.RefuseOffsets(); h.setCheckpoint(t, "0", 0, "0") },
		"none of this hub":  func(h *hub) { h.setCheckpoint(t, "0", 0, "none") },
		"only the sequence": func(h *hub) { h.setCheckpoint(t, "0", 0, "") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, 1)
			h.Publish(t, "0", "settled", "open")
			prepare(h)
			config, logs := h.watched()
			s := h.source(t, config)
			bodies, _ := readAndSettle(t, s)
			next(t, bodies, "0:open")
			eventually(t, "the checkpoint to advance", func() bool { return h.checkpoints(t)["0"] == 1 })
			if n := logs.FilterMessageSnippet("rejects the position").Len(); n > 1 {
				t.Errorf("the log says it %d times: %v", n, logs.All())
			}
		})
	}
}

// The hub has no sequence number after which to begin either: the time is left, and then the
// beginning.
func TestPositionsAfterAllAreRefused(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	for i, ago := range []time.Duration{time.Hour, 30 * time.Minute, 5 * time.Minute, 0, -time.Minute} {
		if _, err := h.Hub.Publish(devhub.Message{Partition: "0", Body: []byte(strconv.Itoa(i)), Enqueued: at.Add(-ago)}); err != nil {
			t.Fatal(err)
		}
	}
	h.RefuseOffsets()
	h.RefuseSequences()
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 3, Offset: "1", Time: at}}})
	config, _ := h.watched()
	bodies, _ := read(t, h.source(t, config))
	next(t, bodies, "0:2", "0:3", "0:4") // 10 minutes before the checkpoint, and what follows
}

// A relay drops what comes on one link. Nothing else shows it than that the hub is ahead.
func TestStalledLink(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, 200*time.Millisecond)
	bodies, _ := read(t, s)
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a")
	next(t, bodies, "0:a", "1:a")
	before := s.Stats().Stalled // on a busy machine what is not muted may be late, too
	if n := h.Mute("0"); n != 1 {
		t.Fatalf("%d links were muted", n)
	}
	h.Publish(t, "0", "b")
	next(t, bodies, "0:b")
	if stats := s.Stats(); stats.Stalled != before+1 || stats.Lost != 0 {
		t.Errorf("%+v: want one link that stalled, and nothing lost", stats)
	}
	h.Publish(t, "1", "b")
	next(t, bodies, "1:b")
}

// Links that the hub detaches, one after another and all the time, cost none of the others: no
// session ends that was never begun, for which the hub would close the connection.
func TestDetachedLinksKeepTheConnection(t *testing.T) {
	t.Parallel()
	h := newHub(t, 4)
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	eventually(t, "all partitions to be read", func() bool { return s.Stats().Reading == 4 })
	times := 200
	if testing.Short() {
		times = 30
	}

	for i := range times {
		body := strconv.Itoa(i)
		h.Publish(t, "0", body, body+"+")
		h.Publish(t, "1", body)
		h.Detach(strconv.Itoa(i % 2))
		next(t, bodies, "0:"+body, "0:"+body+"+", "1:"+body)
	}
	if n := h.Accepted(); n != 2 {
		t.Errorf("%d connections, want 2: one to ask and one to read", n)
	}
}

// A replica whose heartbeat is overdue may own nothing any more: it reads what it has open, and
// opens nothing.
func TestOverdueReplicaOpensNothing(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(h *hub){
		"link":       func(h *hub) { h.Detach("0") },
		"connection": func(h *hub) { h.Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, 1)
			s := h.source(t, h.config())
			bodies, _ := read(t, s)
			h.Publish(t, "0", "a")
			next(t, bodies, "0:a")
			h.store.failWith(func(string) error { return errOnPurpose })
			time.Sleep(1200 * time.Millisecond) // longer than a heartbeat lasts
			h.Publish(t, "0", "b")
			next(t, bodies, "0:b")
			lose(h)
			eventually(t, "the hub to notice", func() bool { return h.Readers("0") == 0 })
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if h.Readers("0") > 0 {
					t.Fatal("it reads again although another replica may own the partition")
				}
			}
			h.store.failWith(func(string) error { return nil })
			h.Publish(t, "0", "c")
			next(t, bodies, "0:c")
			if stats := s.Stats(); stats.Lost != 0 {
				t.Errorf("%+v: want nothing lost", stats)
			}
		})
	}
}

// A link that another reader took is not taken back before the owners have been listed: that reader may be the new owner.
func TestStolenLinkWaitsForAListing(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	config := h.config()
	config.OwnershipExpiry = time.Minute // only the listing fails
	s := h.source(t, config)
	bodies, _ := read(t, s)
	h.Publish(t, "0", "a")
	next(t, bodies, "0:a")
	h.store.failWith(func(method string) error {
		if method == "ListOwnership" {
			return errOnPurpose
		}
		return nil
	})
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, &azeventhubs.ConsumerClientOptions{InstanceID: "successor"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	successor, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{OwnerLevel: new(int64)})
	if err != nil {
		t.Fatal(err)
	}
	receiving, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _, _ = successor.ReceiveEvents(receiving, 100, nil) }()
	eventually(t, "the link to be taken", func() bool { return s.Stats().Faults["0"].Err != nil })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if owner := h.Owners()["0"]; owner != "successor" {
			t.Fatalf("%s reads again although another replica may own the partition", owner)
		}
	}
	h.store.failWith(func(string) error { return nil })
	h.Publish(t, "0", "b")
	next(t, bodies, "0:b")
}

// Somebody reads a partition with a higher epoch. He keeps it, the status has the hub's words, and the consumers of all
// partitions go on.
func TestForeignReader(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	var started atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			started.Add(1)
			_, err := p.Receive(ctx)
			return err
		})
	}()
	eventually(t, "both to be read", func() bool { return s.Stats().Reading == 2 })

	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, &azeventhubs.ConsumerClientOptions{InstanceID: "foreigner"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	epoch := int64(7)
	thief, err := client.NewPartitionClient("1", &azeventhubs.PartitionClientOptions{OwnerLevel: &epoch})
	if err != nil {
		t.Fatal(err)
	}
	stealing, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _, _ = thief.ReceiveEvents(stealing, 1, nil) }()
	eventually(t, "the foreigner to read", func() bool { return h.Owners()["1"] == "foreigner" })
	eventually(t, "the hub's own words", func() bool {
		f := s.Stats().Faults["1"]
		return f.Err != nil && strings.Contains(f.Err.Error(), "foreigner")
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if h.Owners()["1"] != "foreigner" {
			t.Fatal("the foreigner was disconnected")
		}
	}
	cancel()
	<-done
	if n := started.Load(); n != 2 {
		t.Errorf("%d consumers were started, want one for each partition", n)
	}
}

// Another program takes partitions again and again. It is named while it has one and between, and the log says so once. Replicas
// that share the partitions are not taken for one.
func TestAnotherProgram(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	core, logs := observer.New(zap.WarnLevel)
	config := h.config()
	config.OwnershipExpiry = time.Minute // a machine that is busy makes no replica late
	config.Logger = zap.New(core)
	s := h.source(t, config)
	read(t, s)
	eventually(t, "it to be read", func() bool { return s.Stats().Reading == 1 })
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, &azeventhubs.ConsumerClientOptions{InstanceID: "foreigner"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	for range 3 {
		thief, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{OwnerLevel: new(int64)})
		if err != nil {
			t.Fatal(err)
		}
		stealing, stop := context.WithCancel(t.Context())
		go func() { _, _ = thief.ReceiveEvents(stealing, 1, nil) }()
		named := func(of map[string]telemetry.Fault) bool {
			return of["0"].Err != nil && strings.Contains(of["0"].Err.Error(), `another program reads the consumer group $Default: its receiver "foreigner"`)
		}
		eventually(t, "the other program to be named", func() bool { return named(s.Stats().Faults) || named(s.Stats().AtRisk) })
		stop()
		eventually(t, "the partition to be taken back, and to be at risk", func() bool { return s.Stats().Reading == 1 && named(s.Stats().AtRisk) })
		_ = thief.Close(t.Context())
	}
	if n := logs.FilterMessageSnippet("another reader keeps taking over").Len(); n != 1 {
		t.Errorf("the log says it %d times: %v", n, logs.All())
	}
	for range 2 {
		other := h.source(t, config)
		_, stop := read(t, other)
		eventually(t, "partitions to be shared", func() bool { return len(h.Owners()) == 1 })
		stop()
		if stats := other.Stats(); len(stats.AtRisk)+len(stats.Faults) > 0 {
			t.Errorf("%+v", stats)
		}
	}
}
