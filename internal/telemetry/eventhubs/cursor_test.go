package eventhubs_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/poison"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// A message without a number is the first after the checkpoint; then the link is opened again. What is settled does not come again.
func TestGuessedNumberRereadsNothing(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	for i := range 20 {
		h.Publish(t, "0", strconv.Itoa(i))
	}
	var lost poison.Message
	for _, m := range poison.Messages() {
		if m.Name == "sequence number that is no number" {
			lost = m
		}
	}
	// the offset of event 19: read it from the hub
	snapshot, err := eventhubs.Probe(t.Context(), h.config(), 1)
	if err != nil {
		t.Fatal(err)
	}
	last := snapshot[0].Events[0]
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: last.Sequence, Offset: last.Offset, Time: last.Time}}})
	h.publishPoison(t, "0", lost)
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	<-bodies // the poison
	h.Detach("0")
	again := 0
	for end := time.After(3 * time.Second); ; {
		select {
		case b := <-bodies:
			if len(b) < 6 {
				again++
			}
			continue
		case <-end:
		}
		break
	}
	if again > 0 {
		t.Errorf("%d settled events came again", again)
	}
}

// The hub refuses the offset and the sequence number: what was rewound to is still read.
func TestRewindAfterAllAreRefused(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	for i, ago := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Hour, 0} {
		if _, err := h.Hub.Publish(devhub.Message{Partition: "0", Body: []byte(strconv.Itoa(i)), Enqueued: at.Add(-ago)}); err != nil {
			t.Fatal(err)
		}
	}
	h.RefuseOffsets()
	h.RefuseSequences()
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 3, Offset: "1", Time: at}}})
	config, _ := h.watched()
	s := h.source(t, config)
	bodies := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			p.Rewind(telemetry.Position{Sequence: 0, Offset: "0", Time: at.Add(-3 * time.Hour)})
			for {
				events, err := p.Receive(ctx)
				if err != nil {
					return err
				}
				for _, e := range events {
					bodies <- string(e.Body)
				}
			}
		})
	}()
	first := ""
	select {
	case first = <-bodies:
	case <-time.After(20 * time.Second):
	}
	if first != "0" && first != "1" {
		t.Errorf("reading began at %q, want 1 or before it", first)
	}
	cancel()
	<-done
}

// The last message of a partition cannot be decoded, and then nothing more comes. It was read, so the hub is not ahead.
func TestUndecodableLastEventIsNoStall(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, 200*time.Millisecond)
	bodies, _ := read(t, s)
	h.Publish(t, "0", "a")
	next(t, bodies, "0:a")
	// a valid AMQP message: its body is an AMQP list (amqp-sequence)
	if _, err := h.Hub.Publish(devhub.Message{Device: "d", Partition: "0", Sequence: [][]any{{"x"}}}); err != nil {
		t.Fatal(err)
	}
	<-bodies
	before := s.Stats() // on a busy machine what comes may be late
	time.Sleep(3 * time.Second)
	if stats := s.Stats(); stats.Stalled != before.Stalled || stats.Reopened != before.Reopened {
		t.Errorf("%+v: want no stalled link: everything that the hub has was read", stats)
	}
}

// Reading begins at a time after the last event, which was not asked for: the hub is not ahead.
func TestStartAtATimeIsNoStall(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "old")
	time.Sleep(10 * time.Millisecond)
	config := h.config()
	config.Start.Earliest, config.Start.Time = false, time.Now()
	s := h.source(t, config)
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, 200*time.Millisecond)
	bodies, _ := read(t, s)
	eventually(t, "it to be read", func() bool { return s.Stats().Reading == 1 })
	time.Sleep(3 * time.Second)
	if stats := s.Stats(); stats.Stalled != 0 || stats.Reopened != 0 {
		t.Errorf("%+v: want no stalled link", stats)
	}
	h.Publish(t, "0", "new")
	next(t, bodies, "0:new")
}

// Everything after the checkpoint has expired by the hub's retention: there is nothing to read, so nothing has stalled.
func TestExpiredPartitionIsNoStall(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "settled", "never read", "never read either")
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 0, Offset: "0", Time: time.Now().Add(-48 * time.Hour).UTC().Truncate(time.Second)}}})
	h.Expire("0")
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, 200*time.Millisecond)
	bodies, _ := read(t, s)
	eventually(t, "it to be read", func() bool { return s.Stats().Reading == 1 })
	time.Sleep(3 * time.Second)
	if stats := s.Stats(); stats.Stalled != 0 || stats.Expired != 2 {
		t.Errorf("%+v: want no stalled link: the hub has nothing more; and the two lost events to be counted", stats)
	}
	lag, err := s.Ownerships(t.Context(), true)
	t.Logf("%+v %v", lag, err)
	h.Publish(t, "0", "new")
	next(t, bodies, "0:new")
	t.Logf("%+v", s.Stats())
}

// A first start on a partition whose events have all expired reads it up to its end: else nothing would ever prove that
// nothing has come. What came before the first start is no loss.
func TestExpiredBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "never read", "never read either")
	h.Expire("0")
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, time.Minute)
	_, stop := readAndSettle(t, s)
	eventually(t, "a checkpoint at the end", func() bool { return h.checkpoints(t)["0"] == 1 })
	if stats := s.Stats(); stats.Expired != 0 {
		t.Errorf("%d events are counted as lost", stats.Expired)
	}
	stop()
}

// A hub that takes no receiver name that the .NET and Java clients refuse takes ours, also in a pod with a long name.
func TestLongOwnerIsTaken(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.RefuseLongNames()
	h.Publish(t, "0", "event")
	config := h.config()
	config.Owner = "alertworker-hall-3-5f6d8c9b7d-x2x4q"
	bodies, _ := read(t, h.source(t, config))
	next(t, bodies, "0:event")
}

// One answer of the hub about one partition that is some events old costs no other partition, and nothing is read again.
func TestOneStaleAnswer(t *testing.T) {
	t.Parallel()
	h := newHub(t, 4)
	s := h.source(t, h.config())
	s.SetLimits(200*time.Millisecond, 50*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	bodies, _ := readAndSettle(t, s)
	for _, id := range []string{"0", "1", "2", "3"} {
		h.Publish(t, id, "a", "b", "c")
		next(t, bodies, id+":a", id+":b", id+":c")
	}
	time.Sleep(300 * time.Millisecond)
	h.Stale("0", 1)
	again := 0
	for end := time.After(5 * time.Second); ; {
		select {
		case <-bodies:
			again++
			continue
		case <-end:
		}
		break
	}
	if stats := s.Stats(); stats.Lost > 0 || again > 0 {
		t.Errorf("%d events came again, %+v", again, stats)
	}
}
