package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/poison"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

// publishPoison adds the message to a partition and returns it as it was sent.
func (h *hub) publishPoison(t *testing.T, partition string, m poison.Message) (devhub.Published, []byte) {
	t.Helper()
	var raw []byte
	pub, err := h.PublishRaw(partition, func(p devhub.Published) []byte {
		raw = m.Encode(p)
		return raw
	})
	if err != nil {
		t.Fatal(err)
	}
	return pub, raw
}

// A received event is a copy of one.
type receivedEvent struct {
	partition string
	telemetry.Event
}

// kept returns e with memory of its own: e is valid until the next Receive.
func kept(e telemetry.Event) telemetry.Event {
	e.Body, e.Properties = bytes.Clone(e.Body), bytes.Clone(e.Properties)
	return e
}

// receiveAll waits for n events of a Source.
func receiveAll(t *testing.T, run func(context.Context, func(context.Context, telemetry.Partition) error) error, n int) map[string][]telemetry.Event {
	t.Helper()
	received := make(chan receivedEvent, n)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			for {
				events, err := p.Receive(ctx)
				if err != nil {
					return err
				}
				for _, e := range events {
					received <- receivedEvent{p.ID(), kept(e)}
				}
				if err := p.Checkpoint(context.WithoutCancel(ctx), telemetry.Checkpoint{Position: events[len(events)-1].Position}); err != nil {
					return err
				}
			}
		})
	}()
	defer func() {
		cancel()
		<-done
	}()
	all := map[string][]telemetry.Event{}
	end := time.After(4 * waitLimit)
	for range n {
		select {
		case e := <-received:
			all[e.partition] = append(all[e.partition], e.Event)
		case <-end:
			t.Fatalf("got %d events of partition 0 and %d of partition 1, want %d in all", len(all["0"]), len(all["1"]), n)
		}
	}
	return all
}

// A message that the client library cannot take costs itself alone: the events around it
// arrive, on the connection that there was, and what came is kept.
func TestPoisonCostsItselfAlone(t *testing.T) { overBoth(t, poisonCostsItselfAlone) }

func poisonCostsItselfAlone(t *testing.T, over transport.Transport) {
	h := newHub(t, 2).over(over)
	logged, logs := observer.New(zap.WarnLevel)
	config := h.config()
	config.Logger = zap.New(logged)
	h.setCheckpoint(t, "0", -1, "-1")
	h.setCheckpoint(t, "1", -1, "-1")

	type sent struct {
		name string // of poison
		raw  []byte // of poison that is kept as it came
		body string // of other events
		pub  devhub.Published
		lost bool
	}
	var events []sent
	good := func(partition, body string) {
		pub, err := h.Hub.Publish(devhub.Message{Device: "device", Partition: partition, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		if partition == "0" {
			events = append(events, sent{body: body, pub: pub})
		}
	}
	kinds := poison.Messages()
	good("0", strings.Repeat("large ", 60_000)) // in several frames
	for i, m := range kinds {
		good("0", fmt.Sprint("before ", i))
		pub, raw := h.publishPoison(t, "0", m)
		if m.Readable {
			events = append(events, sent{name: m.Name, body: poison.Body, pub: pub})
		} else {
			events = append(events, sent{name: m.Name, raw: raw, pub: pub, lost: m.Lost})
		}
		good("0", fmt.Sprint("after ", i))
		good("1", fmt.Sprint("beside ", i))
	}

	s := h.source(t, config)
	got := receiveAll(t, s.Run, len(events)+len(kinds))
	for i, e := range got["0"] {
		want := events[i]
		// Of messages that lost their place, it follows from that of the one before.
		if e.Sequence != want.pub.Sequence {
			t.Errorf("%s%s has sequence number %d, want %d", want.name, want.body, e.Sequence, want.pub.Sequence)
		}
		switch {
		case want.raw == nil && !want.lost:
			if string(e.Body) != want.body || e.Undecodable != "" || e.Offset != want.pub.Offset {
				t.Errorf("%s: got %.40q at %q, %q; want %.40q at %q", want.name, e.Body, e.Offset, e.Undecodable, want.body, want.pub.Offset)
			}
		case e.Undecodable == "":
			t.Errorf("%s is not marked", want.name)
		case !bytes.Equal(e.Body, want.raw[:min(len(want.raw), 64<<10)]):
			t.Errorf("of %s %.40q was kept, want %.40q", want.name, e.Body, want.raw)
		case e.Offset == "":
			t.Errorf("%s has no offset", want.name)
		case !want.lost && (e.Offset != want.pub.Offset || e.Device != "poisoner" || !e.Enqueued.Equal(want.pub.Enqueued) && !strings.Contains(want.name, "enqueued")):
			t.Errorf("%s is %+v, want what it tells: %+v", want.name, e, want.pub)
		}
	}
	for i, e := range got["1"] {
		if want := fmt.Sprint("beside ", i); string(e.Body) != want {
			t.Errorf("partition 1: got %q, want %q", e.Body, want)
		}
	}
	if stats := s.Stats(); stats.Reopened != 0 || stats.Lost != 0 {
		t.Errorf("%+v: want no restart and nothing lost", stats)
	}
	if n := h.Accepted(); n != 2 { // one to ask, one to read
		t.Errorf("%d connections, want 2", n)
	}
	if last := events[len(events)-1].pub.Sequence; h.checkpoints(t)["0"] != last {
		t.Errorf("the checkpoint is %v, want %d", h.checkpoints(t), last)
	}
	for _, entry := range logs.FilterMessageSnippet("cannot be decoded").All() {
		fields := entry.ContextMap()
		if fields["partition"] != "0" || fields["sequence"] == nil || fields["cause"] == "" {
			t.Errorf("logged %v, want partition, sequence and cause", fields)
		}
	}
	if n := logs.FilterMessageSnippet("cannot be decoded").Len(); n == 0 || n > len(kinds) {
		t.Errorf("%d lines about %d messages", n, len(kinds))
	}
}

// Those who only look at a hub live too.
func TestProbeSeesPoison(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	kinds := poison.Messages()
	for _, m := range kinds {
		h.publishPoison(t, "0", m)
	}
	h.Publish(t, "0", "good")
	snapshot, err := eventhubs.Probe(t.Context(), h.config(), len(kinds)+1)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(eventsOf(snapshot)); n != len(kinds)+1 {
		t.Fatalf("%d events, want %d", n, len(kinds)+1)
	}
	for i, e := range eventsOf(snapshot) {
		if want := i == len(kinds) || kinds[i].Readable; (e.Undecodable == "") != want {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}

// Whatever bytes a hub delivers as a message, the next event arrives, on the same
// connection.
func FuzzMessage(f *testing.F) {
	at := devhub.Published{Sequence: 7, Offset: "7", Enqueued: time.UnixMilli(1767323045678)}
	for _, m := range poison.Messages() {
		if b := m.Encode(at); len(b) < 1<<10 {
			f.Add(bytes.ReplaceAll(b, []byte("sequence-number"), []byte("sequence-another")))
		}
	}
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 1, MaxBytes: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	s, err := eventhubs.New(eventhubs.Config{ConnectionString: h.ConnectionString(), Start: eventhubs.Start{Earliest: true}, Records: &records.Memory{}})
	if err != nil {
		f.Fatal(err)
	}
	events := make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			for {
				got, err := p.Receive(ctx)
				if err != nil {
					return err
				}
				for _, e := range got {
					select {
					case events <- string(e.Body):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		})
	}()
	f.Cleanup(func() {
		cancel()
		<-done
		_ = h.Close()
	})
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > 64<<10 || bytes.Contains(message, []byte("x-opt-sequence-number")) {
			t.Skip("a hub writes the position itself, and this one would lie about it")
		}
		if _, err := h.PublishRaw("0", func(devhub.Published) []byte { return message }); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Publish(devhub.Message{Device: "device", Body: []byte("next")}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"", "next"} {
			select {
			case got := <-events:
				if want != "" && got != want {
					t.Fatalf("after %x came %q", message, got)
				}
			case <-time.After(waitLimit):
				t.Fatalf("after %x came nothing", message)
			}
		}
		if n := h.Accepted(); n != 2 { // one to ask, one to read
			t.Fatalf("%x: %d connections", message, n)
		}
	})
}

// The largest event that a hub takes arrives, and also a larger one than the hub says that it sends. One that is
// larger than any that is read costs itself alone, and so does poison of any size.
func TestLargeMessages(t *testing.T) { overBoth(t, largeMessages) }

func largeMessages(t *testing.T, over transport.Transport) {
	h := newHub(t, 1).over(over)
	const largest = 1 << 20
	var want []bool // decodable
	good := func(size int, decodable bool) {
		if _, err := h.Hub.Publish(devhub.Message{Device: "device", Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		want = append(want, decodable)
	}
	bad := func(size int) {
		m := poison.Messages()[0]
		if _, err := h.PublishRaw("0", func(at devhub.Published) []byte {
			return append(m.Encode(at), make([]byte, size)...)
		}); err != nil {
			t.Fatal(err)
		}
		want = append(want, false)
	}
	good(largest, true)
	bad(largest - 500)
	bad(largest + 60_000)
	good(largest*3/2, true)
	good(largest*5/2, false)
	bad(3 * largest)
	good(10, true)

	got := receiveAll(t, h.source(t, h.config()).Run, len(want))["0"]
	for i, e := range got {
		if decodable := e.Undecodable == ""; decodable != want[i] || e.Sequence != int64(i) {
			t.Errorf("event %d has the sequence number %d, %d bytes and %q; want it decodable: %v", i, e.Sequence, len(e.Body), e.Undecodable, want[i])
		}
		if e.Undecodable != "" && len(e.Body) > 64<<10 {
			t.Errorf("of event %d %d bytes are kept", i, len(e.Body))
		}
	}
	if n := h.Accepted(); n != 2 { // one to ask, one to read
		t.Errorf("%d connections, want 2", n)
	}
}
