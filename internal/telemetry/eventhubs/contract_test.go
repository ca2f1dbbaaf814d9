package eventhubs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/transport"
)

func TestContract(t *testing.T) {
	contract(t, func(t *testing.T) *hub { return newHub(t, 2) })
}

func TestContractOverWebSockets(t *testing.T) {
	contract(t, func(t *testing.T) *hub { return newHub(t, 2).over(transport.WebSocket) })
}

// contract is what a [telemetry.Source] promises; open is called once for every test in it, and returns
// a hub with empty partitions and a consumer group without checkpoints.
func contract(t *testing.T, open func(*testing.T) *hub) {
	for name, test := range map[string]func(*testing.T, *hub){
		"EveryEventInOrder":        everyEventInOrder,
		"ReceiveDoesNotWait":       receiveDoesNotWait,
		"ReceiveTakesTheBuffered":  receiveTakesTheBuffered,
		"ReceiveEndsWithContext":   receiveEndsWithContext,
		"LastIsTheHubs":            lastIsTheHubs,
		"NewestIsTheHubs":          newestIsTheHubs,
		"CheckpointResumes":        checkpointResumes,
		"RewindBeginsEarlier":      rewindBeginsEarlier,
		"CheckpointOnlyForward":    checkpointOnlyForward,
		"CheckpointNamesLedger":    checkpointNamesLedger,
		"CheckpointWhileReceiving": checkpointWhileReceiving,
		"PartitionsAreShared":      partitionsAreShared,
		"LossEndsReceive":          lossEndsReceive,
		"LossIsNoticedUnread":      lossIsNoticedUnread,
		"LostPartitionComesBack":   lostPartitionComesBack,
		"EndLetsConsumersSettle":   endLetsConsumersSettle,
		"FailedConsumerIsReplaced": failedConsumerIsReplaced,
		"SurvivesBreak":            survivesBreak,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// A replica is a Source that runs.
type replica struct {
	end  context.CancelFunc
	done chan struct{}
	err  error
}

func start(t *testing.T, h *hub, consume func(context.Context, telemetry.Partition) error) *replica {
	t.Helper()
	source := h.Source(t)
	ctx, end := context.WithCancel(context.Background())
	r := &replica{end: end, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = source.Run(ctx, consume)
	}()
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop ends the replica and waits for it.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	r.end()
	wait(t, r.done, "Run to return after its context ended")
	if r.err != nil {
		t.Errorf("Run: %v, want nil after its context ended", r.err)
	}
}

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitLimit):
		t.Fatalf("waited %v in vain for %s", waitLimit, what)
		panic("unreachable")
	}
}

// An arrival is an event that a consumer received, and where.
type arrival struct {
	partition telemetry.Partition
	position  telemetry.Position
	device    string
	body      string
}

// deliver is a consumer that sends what it receives to arrivals until its
// context ends. Whoever gets an arrival may checkpoint it.
func deliver(arrivals chan<- arrival) func(context.Context, telemetry.Partition) error {
	return func(ctx context.Context, p telemetry.Partition) error {
		for {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			for _, e := range events {
				select {
				case arrivals <- arrival{p, e.Position, e.Device, string(e.Body)}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}
}

func bodies(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`{"n":%d}`, i))
	}
	return all
}

// expect waits for these bodies, in this order, from one partition.
func expect(t *testing.T, arrivals <-chan arrival, want ...string) []arrival {
	t.Helper()
	var got []arrival
	for i, body := range want {
		a := wait(t, arrivals, "event "+body)
		if a.body != body {
			t.Fatalf("event %d is %s at %d, want %s", i, a.body, a.position.Sequence, body)
		}
		got = append(got, a)
	}
	return got
}

func everyEventInOrder(t *testing.T, h *hub) {
	const events = 500
	for _, id := range h.Partitions() {
		h.Publish(t, id, bodies(0, events)...)
	}
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	last := map[string]telemetry.Position{}
	next := map[string]int{}
	for range events * len(h.Partitions()) {
		a := wait(t, arrivals, "the next event")
		id := a.partition.ID()
		if want := fmt.Sprintf(`{"n":%d}`, next[id]); a.body != want || a.device != "device" {
			t.Fatalf("partition %s: got %s from %q, want %s from %q", id, a.body, a.device, want, "device")
		}
		if a.position.Offset == "" || next[id] > 0 && a.position.Sequence <= last[id].Sequence {
			t.Fatalf("partition %s: position %+v after %+v", id, a.position, last[id])
		}
		last[id] = a.position
		next[id]++
	}
}

func receiveDoesNotWait(t *testing.T, h *hub) {
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	for i := range 5 {
		one := bodies(i, i+1)
		h.Publish(t, h.Partitions()[0], one...)
		expect(t, arrivals, one...) // nothing else comes that could fill a batch
	}
}

func receiveTakesTheBuffered(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 400)...)
	calls, events := 0, 0
	done := make(chan struct{})
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() != id {
			<-ctx.Done()
			return nil
		}
		for {
			batch, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			if len(batch) == 0 {
				t.Error("Receive returned no event and no error")
			}
			calls, events = calls+1, events+len(batch)
			if events == 400 {
				close(done)
				<-ctx.Done()
				return nil
			}
			time.Sleep(time.Millisecond) // the consumer is the slow one: something is buffered
		}
	})
	wait(t, done, "400 events")
	if calls > 200 {
		t.Errorf("400 events took %d calls: Receive leaves the buffered ones", calls)
	}
}

func receiveEndsWithContext(t *testing.T, h *hub) {
	result := make(chan error, len(h.Partitions()))
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err := p.Receive(short)
		result <- err
		<-ctx.Done()
		return nil
	})
	if err := wait(t, result, "Receive to end with its context"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive: %v, want the context's error", err)
	}
}

// Last is what the hub holds, not what the consumer has read.
func lastIsTheHubs(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	owned := make(chan telemetry.Partition, 1)
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() == id {
			owned <- p
		}
		<-ctx.Done()
		return nil
	})
	p := wait(t, owned, "the partition")
	var enqueued time.Time
	for published, want := range []int64{-1, 0, 1} {
		last, at, err := p.Last(t.Context())
		if last != want || err != nil {
			t.Errorf("after %d events Last is %d, %v; want %d", published, last, err, want)
		}
		if published > 0 && !at.Equal(enqueued) {
			t.Errorf("after %d events the time of the last is %v; want that of the event, %v", published, at, enqueued)
		}
		h.Publish(t, id, bodies(published, published+1)...)
		events, err := p.Receive(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("received %d events, %v", len(events), err)
		}
		enqueued = events[0].Enqueued
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Last(done); err == nil {
		t.Error("Last with a context that has ended: no error")
	}
}

// Newest is what any partition of the hub holds, whoever reads it.
func newestIsTheHubs(t *testing.T, h *hub) {
	owned := make(chan telemetry.Partition, 2)
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		owned <- p
		<-ctx.Done()
		return nil
	})
	p := wait(t, owned, "the partition")
	another := wait(t, owned, "another partition")
	before := time.Now()
	if newest, asked, err := p.Newest(t.Context(), before); err != nil || !newest.IsZero() || asked.Before(before) {
		t.Errorf("of an empty hub Newest is %v, asked at %v, %v", newest, asked, err)
	}

	h.Publish(t, another.ID(), bodies(0, 1)...)
	events, err := another.Receive(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("received %d events, %v", len(events), err)
	}
	at := events[0].Enqueued
	if newest, _, err := p.Newest(t.Context(), at); err != nil || !newest.Equal(at) {
		t.Errorf("after an event of another partition Newest is %v, %v; want %v", newest, err, at)
	}

	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Newest(done, time.Now().Add(time.Hour)); err == nil {
		t.Error("Newest with a context that has ended: no error")
	}
}

func checkpointResumes(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 5)...)
	arrivals := make(chan arrival)
	first := start(t, h, deliver(arrivals))
	got := expect(t, arrivals, bodies(0, 5)...)
	checkpoint(t, got[2])
	first.stop(t)

	start(t, h, deliver(arrivals))
	expect(t, arrivals, bodies(3, 5)...)
}

// A consumer may have read again what comes before the checkpoint, which stays where it is.
func rewindBeginsEarlier(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 5)...)
	arrivals := make(chan arrival)
	first := start(t, h, deliver(arrivals))
	got := expect(t, arrivals, bodies(0, 5)...)
	checkpoint(t, got[3])
	first.stop(t)

	second := start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() == id {
			p.Rewind(got[0].position)
		}
		return deliver(arrivals)(ctx, p)
	})
	expect(t, arrivals, bodies(1, 5)...)
	second.stop(t)

	start(t, h, deliver(arrivals))
	expect(t, arrivals, bodies(4, 5)...)
}

func checkpoint(t *testing.T, a arrival) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := a.partition.Checkpoint(ctx, telemetry.Checkpoint{Position: a.position}); err != nil {
		t.Fatalf("Checkpoint %d: %v", a.position.Sequence, err)
	}
}

func checkpointOnlyForward(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 6)...)
	arrivals := make(chan arrival)
	first := start(t, h, deliver(arrivals))
	got := expect(t, arrivals, bodies(0, 6)...)
	checkpoint(t, got[3])
	checkpoint(t, got[1])
	if err := got[0].partition.Checkpoint(t.Context(), telemetry.Checkpoint{}); err != nil {
		t.Errorf("Checkpoint before the first event: %v, want nil", err)
	}
	first.stop(t)

	// A later owner has not seen what the earlier one wrote.
	second := start(t, h, deliver(arrivals))
	got = append(got[:4], expect(t, arrivals, bodies(4, 6)...)...)
	older := got[4]
	older.position = got[1].position
	checkpoint(t, older)
	second.stop(t)

	start(t, h, deliver(arrivals))
	expect(t, arrivals, bodies(4, 6)...)
}

// The ledger of a checkpoint is that of the last one at its position, and comes back with it.
func checkpointNamesLedger(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 3)...)
	arrivals := make(chan arrival)
	first := start(t, h, deliver(arrivals))
	got := expect(t, arrivals, bodies(0, 3)...)
	if c, over := got[0].partition.Resumed(); c.Offset != "" || c.Ledger != "" || over || c.Generation != got[0].position.Generation {
		t.Errorf("without a checkpoint it resumed from %+v", c)
	}
	first.stop(t)

	type checkpoint struct {
		event  int
		ledger string
	}
	var resumed telemetry.Checkpoint
	for _, owner := range []struct{ writes, want checkpoint }{
		{checkpoint{1, "a"}, checkpoint{1, "a"}},
		{checkpoint{1, "b"}, checkpoint{1, "b"}}, // another ledger
		{checkpoint{0, "c"}, checkpoint{1, "b"}}, // never back
		{checkpoint{1, ""}, checkpoint{1, ""}},   // none
		{checkpoint{2, ""}, checkpoint{2, ""}},
		{checkpoint{2, "b"}, checkpoint{2, "b"}},
	} {
		owned := make(chan telemetry.Partition, 100)
		r := start(t, h, func(ctx context.Context, p telemetry.Partition) error {
			if p.ID() == id {
				owned <- p
			}
			<-ctx.Done()
			return nil
		})
		p := wait(t, owned, "the partition")
		if c, over := p.Resumed(); over || c.Sequence != resumed.Sequence || c.Offset != resumed.Offset || !c.Time.Equal(resumed.Time) || c.Ledger != resumed.Ledger {
			t.Errorf("it resumed from %+v, want %+v", c, resumed)
		}
		// What it writes twice in a row replaces what it knows that it has written.
		for _, ledger := range []string{"first", owner.writes.ledger} {
			c := telemetry.Checkpoint{Position: got[owner.writes.event].position, Ledger: ledger}
			if err := p.Checkpoint(t.Context(), c); err != nil {
				t.Errorf("Checkpoint %+v: %v", c, err)
			}
		}
		resumed = telemetry.Checkpoint{Position: got[owner.want.event].position, Ledger: owner.want.ledger}
		r.stop(t)
	}
}

func checkpointWhileReceiving(t *testing.T, h *hub) {
	const events = 300
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, events)...)
	committed := make(chan error, 1)
	first := start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() != id {
			<-ctx.Done()
			return nil
		}
		settled := make(chan telemetry.Position, events)
		go func() {
			var failures []error
			for to := range settled {
				failures = append(failures, p.Checkpoint(ctx, telemetry.Checkpoint{Position: to}))
			}
			committed <- errors.Join(failures...)
		}()
		for n := 0; n < events; {
			received, err := p.Receive(ctx)
			if err != nil {
				close(settled)
				return err
			}
			for _, e := range received {
				settled <- e.Position
			}
			n += len(received)
		}
		close(settled)
		_, err := p.Receive(ctx)
		return err
	})
	if err := wait(t, committed, "all checkpoints"); err != nil {
		t.Errorf("Checkpoint: %v", err)
	}
	first.stop(t)
	h.Publish(t, id, "next")
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	expect(t, arrivals, "next")
}

// A census counts consumers by partition.
type census struct {
	mu      sync.Mutex
	running map[string]int
	changed chan struct{} // closed at each change
}

func newCensus() *census {
	return &census{running: map[string]int{}, changed: make(chan struct{})}
}

func (c *census) add(id string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[id] += n
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits for ok, which is called with the partitions that have a consumer.
func (c *census) until(t *testing.T, what string, ok func(ids []string) bool) {
	t.Helper()
	end := time.After(waitLimit)
	for {
		c.mu.Lock()
		var ids []string
		for id, n := range c.running {
			if n > 0 {
				ids = append(ids, id)
			}
		}
		changed := c.changed
		c.mu.Unlock()
		if ok(ids) {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("waited %v in vain for %s; consumers run for %v", waitLimit, what, ids)
		}
	}
}

// hold is a consumer that only waits to lose its partition.
func (c *census) hold(ctx context.Context, p telemetry.Partition) error {
	c.add(p.ID(), 1)
	defer c.add(p.ID(), -1)
	<-ctx.Done()
	return context.Cause(ctx)
}

func (c *census) all(t *testing.T, h *hub) {
	t.Helper()
	c.until(t, "consumers of all partitions", func(ids []string) bool { return len(ids) == len(h.Partitions()) })
}

func partitionsAreShared(t *testing.T, h *hub) {
	one, two := newCensus(), newCensus()
	start(t, h, one.hold)
	one.all(t, h)
	second := start(t, h, two.hold)
	two.until(t, "the second replica to get a partition", func(ids []string) bool { return len(ids) > 0 })
	half := (len(h.Partitions()) + 1) / 2
	one.until(t, "the first replica to give some up", func(ids []string) bool { return len(ids) <= half })
	second.stop(t)
	one.all(t, h)
}

// takeFrom starts a second replica, which takes a partition from the first.
func takeFrom(t *testing.T, h *hub) *replica {
	t.Helper()
	return start(t, h, newCensus().hold)
}

func lossEndsReceive(t *testing.T, h *hub) {
	type result struct{ receive, cause, checkpoint error }
	results := make(chan result, 100)
	owned := newCensus()
	unrelated, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		owned.add(p.ID(), 1)
		_, err := p.Receive(unrelated)
		<-ctx.Done()
		results <- result{err, context.Cause(ctx), p.Checkpoint(context.WithoutCancel(ctx), telemetry.Checkpoint{Position: telemetry.Position{Sequence: 1 << 40, Offset: "1"}})}
		return err
	})
	owned.all(t, h)
	other := takeFrom(t, h)
	r := wait(t, results, "Receive to end when the partition is lost")
	if !errors.Is(r.receive, telemetry.ErrLost) {
		t.Errorf("Receive: %v, want ErrLost", r.receive)
	}
	if !errors.Is(r.cause, telemetry.ErrLost) {
		t.Errorf("the consumer's context ended because of %v, want ErrLost", r.cause)
	}
	if !errors.Is(r.checkpoint, telemetry.ErrLost) {
		t.Errorf("Checkpoint: %v, want ErrLost", r.checkpoint)
	}
	cancel()
	first.stop(t)
	other.stop(t)
	// The one that was refused would hide everything there is.
	for _, id := range h.Partitions() {
		h.Publish(t, id, "after")
	}
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	wait(t, arrivals, "an event after a refused checkpoint")
}

func lossIsNoticedUnread(t *testing.T, h *hub) {
	causes := make(chan error, 100)
	owned := newCensus()
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		owned.add(p.ID(), 1)
		<-ctx.Done() // reading is paused
		causes <- context.Cause(ctx)
		return nil
	})
	owned.all(t, h)
	takeFrom(t, h)
	if cause := wait(t, causes, "the loss of a partition to be noticed"); !errors.Is(cause, telemetry.ErrLost) {
		t.Errorf("the consumer's context ended because of %v, want ErrLost", cause)
	}
}

func lostPartitionComesBack(t *testing.T, h *hub) {
	arrivals := make(chan arrival)
	owned := newCensus()
	consume := deliver(arrivals)
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		owned.add(p.ID(), 1)
		defer owned.add(p.ID(), -1)
		return consume(ctx, p)
	})
	owned.all(t, h)
	for round := range 2 {
		other := takeFrom(t, h)
		owned.until(t, "a partition to be lost", func(ids []string) bool { return len(ids) < len(h.Partitions()) })
		other.stop(t)
		owned.all(t, h)
		var want []string
		for _, id := range h.Partitions() {
			body := fmt.Sprintf("round %d of partition %s", round, id)
			h.Publish(t, id, body)
			want = append(want, body)
		}
		for len(want) > 0 { // without a checkpoint, earlier rounds come again
			a := wait(t, arrivals, fmt.Sprintf("events %q of partitions that came back", want))
			want = slices.DeleteFunc(want, func(body string) bool { return body == a.body })
		}
	}
}

func endLetsConsumersSettle(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 3)...)
	received, ended, settle := make(chan struct{}), make(chan error), make(chan struct{})
	var settled error
	r := start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() != id {
			<-ctx.Done()
			return nil
		}
		var last telemetry.Position
		for n := 0; n < 3; {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			n += len(events)
			last = events[len(events)-1].Position
		}
		close(received)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		<-settle
		settled = p.Checkpoint(context.WithoutCancel(ctx), telemetry.Checkpoint{Position: last})
		return nil
	})
	wait(t, received, "3 events")
	r.end()
	if cause := wait(t, ended, "the consumer's context to end"); errors.Is(cause, telemetry.ErrLost) {
		t.Errorf("the consumer's context ended with %v although the partition is kept", cause)
	}
	select {
	case <-r.done:
		t.Fatal("Run returned before its consumer")
	default:
	}
	close(settle)
	r.stop(t)
	if settled != nil {
		t.Errorf("Checkpoint after the end: %v, want nil", settled)
	}

	h.Publish(t, id, "next")
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	expect(t, arrivals, "next")
}

func failedConsumerIsReplaced(t *testing.T, h *hub) {
	id := h.Partitions()[0]
	h.Publish(t, id, bodies(0, 4)...)
	arrivals := make(chan arrival)
	failures := 0
	start(t, h, func(ctx context.Context, p telemetry.Partition) error {
		if p.ID() != id || failures == 2 {
			return deliver(arrivals)(ctx, p)
		}
		failures++
		events, err := p.Receive(ctx)
		if err != nil {
			return err
		}
		if err := p.Checkpoint(ctx, telemetry.Checkpoint{Position: events[0].Position}); err != nil {
			return err
		}
		return errors.New("consumer fails on purpose")
	})
	expect(t, arrivals, bodies(2, 4)...)
}

func survivesBreak(t *testing.T, h *hub) {
	arrivals := make(chan arrival)
	start(t, h, deliver(arrivals))
	for round := range 3 {
		var want []string
		for _, id := range h.Partitions() {
			body := fmt.Sprintf("round %d of partition %s", round, id)
			h.Publish(t, id, body)
			want = append(want, body)
		}
		for len(want) > 0 {
			a := wait(t, arrivals, fmt.Sprintf("events %q", want))
			checkpoint(t, a)
			want = slices.DeleteFunc(want, func(body string) bool { return body == a.body })
		}
		h.Reset() // they can connect again at once
	}
}
