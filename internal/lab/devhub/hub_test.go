package devhub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/goleak"

	"alertworker/internal/lab/devhub"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// ConsumerClient.Close forgets the claim of its $management link; what renews
		// that ends at its next turn.
		goleak.IgnoreTopFunction("github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/internal.(*Namespace).startNegotiateClaimRenewer.func3"))
}

// listen starts a hub that ends with the test.
func listen(t testing.TB, c devhub.Config) *devhub.Hub {
	t.Helper()
	h, err := devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

var (
	noRetries    = azeventhubs.RetryOptions{MaxRetries: -1}
	quickRetries = azeventhubs.RetryOptions{MaxRetries: 100, RetryDelay: time.Millisecond, MaxRetryDelay: 10 * time.Millisecond}
)

func consumer(t testing.TB, h *devhub.Hub, r azeventhubs.RetryOptions) *azeventhubs.ConsumerClient {
	t.Helper()
	c, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", "$Default", &azeventhubs.ConsumerClientOptions{RetryOptions: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func reader(t testing.TB, c *azeventhubs.ConsumerClient, partition string, o azeventhubs.PartitionClientOptions) *azeventhubs.PartitionClient {
	t.Helper()
	p, err := c.NewPartitionClient(partition, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func producer(t testing.TB, h *devhub.Hub) *azeventhubs.ProducerClient {
	t.Helper()
	p, err := azeventhubs.NewProducerClientFromConnectionString(h.ConnectionString(), "", &azeventhubs.ProducerClientOptions{RetryOptions: noRetries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func publish(t testing.TB, h *devhub.Hub, m devhub.Message) devhub.Published {
	t.Helper()
	p, err := h.Publish(m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// publishNumbers publishes messages from and below to partition 0.
func publishNumbers(t testing.TB, h *devhub.Hub, from, to int) (pubs []devhub.Published) {
	t.Helper()
	for i := from; i < to; i++ {
		pubs = append(pubs, publish(t, h, devhub.Message{Device: "d", Partition: "0", Body: fmt.Append(nil, i)}))
	}
	return pubs
}

func receive(t testing.TB, p *azeventhubs.PartitionClient, n int) (events []*azeventhubs.ReceivedEventData) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(events) < n {
		e, err := p.ReceiveEvents(ctx, n-len(events), nil)
		if err != nil {
			t.Fatalf("receiving %d events, after %q: %v", n, bodies(events), err)
		}
		events = append(events, e...)
	}
	return events
}

func bodies(events []*azeventhubs.ReceivedEventData) string {
	var s []string
	for _, e := range events {
		s = append(s, string(e.Body))
	}
	return strings.Join(s, " ")
}

func expect(t testing.TB, p *azeventhubs.PartitionClient, want string) {
	t.Helper()
	if got := bodies(receive(t, p, len(strings.Fields(want)))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func ptr[T any](v T) *T { return &v }

var earliest = azeventhubs.StartPosition{Earliest: ptr(true)}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestStartPositions(t *testing.T) {
	t0 := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	time1 := t0.Add(time.Second)
	tests := []struct {
		name string
		pos  func(p []devhub.Published) azeventhubs.StartPosition
		want string
	}{
		{"earliest", func([]devhub.Published) azeventhubs.StartPosition { return earliest }, "0 1 2 3 last"},
		{"latest", func([]devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{Latest: ptr(true)}
		}, "last"},
		{"latest inclusive", func([]devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{Latest: ptr(true), Inclusive: true}
		}, "3 last"},
		{"sequence", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{SequenceNumber: &p[1].Sequence}
		}, "2 3 last"},
		{"sequence inclusive", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{SequenceNumber: &p[1].Sequence, Inclusive: true}
		}, "1 2 3 last"},
		{"last sequence", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{SequenceNumber: &p[3].Sequence}
		}, "last"},
		{"before the first sequence", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{SequenceNumber: ptr(int64(-1))}
		}, "0 1 2 3 last"},
		{"offset", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{Offset: &p[1].Offset}
		}, "2 3 last"},
		{"offset inclusive", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{Offset: &p[1].Offset, Inclusive: true}
		}, "1 2 3 last"},
		{"last offset", func(p []devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{Offset: &p[3].Offset}
		}, "last"},
		{"time", func([]devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{EnqueuedTime: &time1}
		}, "2 3 last"},
		{"time inclusive", func([]devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{EnqueuedTime: &time1, Inclusive: true}
		}, "1 2 3 last"},
		{"time after all", func([]devhub.Published) azeventhubs.StartPosition {
			return azeventhubs.StartPosition{EnqueuedTime: ptr(t0.Add(time.Minute))}
		}, "last"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := listen(t, devhub.Config{Partitions: 1})
			var pubs []devhub.Published
			for i := range 4 {
				pubs = append(pubs, publish(t, h, devhub.Message{Body: fmt.Append(nil, i), Enqueued: t0.Add(time.Duration(i) * time.Second)}))
			}
			p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: tt.pos(pubs)})
			var wg sync.WaitGroup
			wg.Go(func() { expect(t, p, tt.want) })
			eventually(t, "the reader is there", func() bool { return h.Readers("0") == 1 })
			publish(t, h, devhub.Message{Body: []byte("last")})
			wg.Wait()
		})
	}
}

// A position that the log has never reached, as after the hub was made anew, is refused as
// the service refuses it.
func TestStartBeyondTheEnd(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 3)
	for _, pos := range []azeventhubs.StartPosition{{SequenceNumber: ptr(int64(99))}, {Offset: ptr("99999")}} {
		p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: pos})
		_, err := p.ReceiveEvents(t.Context(), 1, nil)
		if err == nil || !strings.Contains(err.Error(), "in the system is") {
			t.Errorf("%+v: %v", pos, err)
		}
	}
}

func TestTelemetry(t *testing.T) {
	h := listen(t, devhub.Config{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, tt := range []struct {
		name   string
		m      devhub.Message
		system map[string]any
		check  func(*azeventhubs.ReceivedEventData) bool
	}{
		{"all of it", devhub.Message{
			Device: "a/b", Annotations: map[string]any{"dt-subject": "thermostat1"}, Source: "twinChangeEvents", Body: []byte("{}"), Enqueued: at,
			MessageID: "id", ContentType: "application/json", ContentEncoding: "utf-8", Properties: map[string]any{"k": "v"},
		}, map[string]any{
			"iothub-connection-device-id": "a/b", "dt-subject": "thermostat1",
			"iothub-message-source": "twinChangeEvents",
		}, func(e *azeventhubs.ReceivedEventData) bool {
			system := e.SystemProperties["iothub-enqueuedtime"].(time.Time)
			return string(e.Body) == "{}" && system.Equal(at) && e.EnqueuedTime.Equal(at) && *e.MessageID == "id" &&
				*e.ContentType == "application/json" && *e.RawAMQPMessage.Properties.ContentEncoding == "utf-8" && e.Properties["k"] == "v" &&
				*e.PartitionKey == "a/b"
		}},
		{"defaults", devhub.Message{Device: "d"}, map[string]any{"iothub-message-source": "Telemetry", "iothub-connection-device-id": "d", "dt-subject": nil}, nil},
		{"no device", devhub.Message{Body: []byte("x")}, map[string]any{"iothub-connection-device-id": nil, "iothub-message-source": nil, "iothub-enqueuedtime": nil}, nil},
		{"odd annotations", devhub.Message{Device: "d", Annotations: map[string]any{"iothub-enqueuedtime": int64(12), "iothub-message-source": nil, "x": "y"}},
			map[string]any{"iothub-enqueuedtime": int64(12), "iothub-message-source": nil, "x": "y"}, nil},
		{"a value", devhub.Message{Device: "d", Value: "text"}, nil, func(e *azeventhubs.ReceivedEventData) bool {
			return e.Body == nil && e.RawAMQPMessage.Body.Value == "text"
		}},
		{"a sequence", devhub.Message{Device: "d", Sequence: [][]any{{int64(1), "b"}}}, nil, func(e *azeventhubs.ReceivedEventData) bool {
			return e.Body == nil && fmt.Sprint(e.RawAMQPMessage.Body.Sequence) == "[[1 b]]"
		}},
		{"nothing", devhub.Message{Device: "d"}, nil, func(e *azeventhubs.ReceivedEventData) bool { return len(e.Body) == 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pub := publish(t, h, tt.m)
			p := reader(t, consumer(t, h, noRetries), pub.Partition, azeventhubs.PartitionClientOptions{
				StartPosition: azeventhubs.StartPosition{SequenceNumber: &pub.Sequence, Inclusive: true}})
			e := receive(t, p, 1)[0]
			if e.SequenceNumber != pub.Sequence || e.Offset != pub.Offset || !e.EnqueuedTime.Equal(pub.Enqueued) {
				t.Errorf("got %d, %s, %v, want %+v", e.SequenceNumber, e.Offset, e.EnqueuedTime, pub)
			}
			for k, want := range tt.system {
				if got := e.SystemProperties[k]; got != want {
					t.Errorf("%s is %v, want %v", k, got, want)
				}
			}
			if tt.check != nil && !tt.check(e) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestPublishRefuses(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 2})
	if _, err := h.Publish(devhub.Message{Partition: "2"}); err == nil {
		t.Error("a partition that is not there was taken")
	}
	if _, err := h.Publish(devhub.Message{Properties: map[string]any{"k": struct{}{}}}); err == nil {
		t.Error("a property that cannot be encoded was taken")
	}
	if pub := publish(t, h, devhub.Message{Device: "d"}); pub.Sequence != 0 {
		t.Errorf("what was refused left a gap: %+v", pub)
	}
}

func TestProperties(t *testing.T) {
	h := listen(t, devhub.Config{Hub: "Hub", Partitions: 3})
	c := consumer(t, h, noRetries)
	props, err := c.GetEventHubProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if props.Name != "Hub" || fmt.Sprint(props.PartitionIDs) != "[0 1 2]" || time.Since(props.CreatedOn).Abs() > time.Minute {
		t.Errorf("hub: %+v", props)
	}
	empty, err := c.GetPartitionProperties(t.Context(), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !empty.IsEmpty || empty.BeginningSequenceNumber != 0 || empty.LastEnqueuedSequenceNumber != -1 || empty.LastEnqueuedOffset != "-1" {
		t.Errorf("empty partition: %+v", empty)
	}
	last := publishNumbers(t, h, 0, 5)[4]
	full, err := c.GetPartitionProperties(t.Context(), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if full.IsEmpty || full.LastEnqueuedSequenceNumber != 4 || full.LastEnqueuedOffset != last.Offset || !full.LastEnqueuedOn.Equal(last.Enqueued) {
		t.Errorf("partition: %+v, want %+v", full, last)
	}
	if _, err := c.GetPartitionProperties(t.Context(), "7", nil); err == nil {
		t.Error("a partition that is not there has properties")
	}
}

func TestBoundedLog(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    devhub.Config
		want int64 // the oldest event kept
	}{
		{"events", devhub.Config{Partitions: 1, MaxEvents: 10}, 90},
		{"bytes", devhub.Config{Partitions: 1, MaxBytes: 1}, 99},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := listen(t, tt.c)
			publishNumbers(t, h, 0, 100)
			c := consumer(t, h, noRetries)
			props, err := c.GetPartitionProperties(t.Context(), "0", nil)
			if err != nil {
				t.Fatal(err)
			}
			if props.BeginningSequenceNumber != tt.want || props.LastEnqueuedSequenceNumber != 99 {
				t.Errorf("got %+v", props)
			}
			p := reader(t, c, "0", azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{SequenceNumber: ptr(int64(3))}})
			if e := receive(t, p, 1)[0]; e.SequenceNumber != tt.want {
				t.Errorf("first is %d", e.SequenceNumber)
			}
		})
	}
}

// A reader that is slower than the log is short goes on at the log's start.
func TestFallingBehind(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, MaxEvents: 3})
	publishNumbers(t, h, 0, 1)
	p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: -1})
	expect(t, p, "0")
	publishNumbers(t, h, 1, 10)
	expect(t, p, "7 8 9")
}

// Credit of one at a time, and none beyond it.
func TestCredit(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 500)
	for _, prefetch := range []int32{-1, 1, 7, 300, 5000} {
		p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: prefetch})
		for i := range 50 {
			expect(t, p, fmt.Sprint(i))
		}
		events := receive(t, p, 450)
		if first, last := events[0].SequenceNumber, events[449].SequenceNumber; first != 50 || last != 499 {
			t.Errorf("prefetch %d: the rest is %d to %d", prefetch, first, last)
		}
	}
}

// Messages larger than a frame come in several transfers, both ways.
func TestLargeMessages(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	prod := producer(t, h)
	for _, size := range []int{65_000, 65_536, 200_000, 1_000_000} {
		body := []byte(strings.Repeat("0123456789", size/10))
		publish(t, h, devhub.Message{Device: "d", Body: body})
		b, err := prod.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: ptr("0")})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.AddEventData(&azeventhubs.EventData{Body: body}, nil); err != nil {
			t.Fatal(err)
		}
		if err := prod.SendEventDataBatch(t.Context(), b, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range receive(t, p, 2) {
			if string(e.Body) != string(body) {
				t.Errorf("%d bytes came back as %d others", size, len(e.Body))
			}
		}
	}
}

func TestProduce(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 4})
	prod := producer(t, h)
	send := func(o azeventhubs.EventDataBatchOptions, bodies ...string) {
		t.Helper()
		b, err := prod.NewEventDataBatch(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range bodies {
			if err := b.AddEventData(&azeventhubs.EventData{Body: []byte(body), Properties: map[string]any{"k": int64(1)}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := prod.SendEventDataBatch(t.Context(), b, nil); err != nil {
			t.Fatal(err)
		}
	}
	ends := func() (n []int64) {
		for i := range 4 {
			p, err := prod.GetPartitionProperties(t.Context(), fmt.Sprint(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			n = append(n, p.LastEnqueuedSequenceNumber+1)
		}
		return n
	}

	for range 8 {
		send(azeventhubs.EventDataBatchOptions{}, "turn")
	}
	if got := fmt.Sprint(ends()); got != "[2 2 2 2]" {
		t.Errorf("messages without a key went to %s", got)
	}
	send(azeventhubs.EventDataBatchOptions{PartitionID: ptr("2")}, "a", "b", "c")
	if got := fmt.Sprint(ends()); got != "[2 2 5 2]" {
		t.Errorf("messages to 2 went to %s", got)
	}
	before := ends()
	for range 3 {
		send(azeventhubs.EventDataBatchOptions{PartitionKey: ptr("key")}, "x", "y")
	}
	home := publish(t, h, devhub.Message{Device: "key"}).Partition // a device's messages are keyed by it
	for i, n := range ends() {
		if n != before[i] && (n != before[i]+7 || fmt.Sprint(i) != home) {
			t.Errorf("partition %d grew by %d, the key belongs to %s", i, n-before[i], home)
		}
	}

	p := reader(t, consumer(t, h, noRetries), "2", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	e := receive(t, p, 5)
	if bodies(e) != "turn turn a b c" || e[4].SequenceNumber != 4 || e[4].Properties["k"] != int64(1) || e[4].SystemProperties != nil {
		t.Errorf("got %q, the last is %+v", bodies(e), e[4])
	}
	if _, err := prod.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: ptr("4")}); err == nil {
		t.Error("a link to a partition that is not there was attached")
	}
}

// A sender is granted credit again and again.
func TestManySends(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	prod := producer(t, h)
	for range 1200 {
		b, err := prod.NewEventDataBatch(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.AddEventData(&azeventhubs.EventData{}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = prod.SendEventDataBatch(ctx, b, nil)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func isCode(err error, code azeventhubs.ErrorCode) bool {
	var e *azeventhubs.Error
	return errors.As(err, &e) && e.Code == code
}

func TestEpochs(t *testing.T) {
	open := func(h *devhub.Hub, epoch *int64) *azeventhubs.PartitionClient {
		return reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: epoch})
	}
	for _, tt := range []struct {
		name          string
		first, second *int64
		stolen        bool // or else the second is refused
	}{
		{"higher", ptr(int64(1)), ptr(int64(2)), true},
		{"equal", ptr(int64(1)), ptr(int64(1)), true},
		{"lower", ptr(int64(2)), ptr(int64(1)), false},
		{"with, over without", nil, ptr(int64(0)), true},
		{"without, over with", ptr(int64(0)), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := listen(t, devhub.Config{Partitions: 1})
			publishNumbers(t, h, 0, 2)
			first, second := open(h, tt.first), open(h, tt.second)
			expect(t, first, "0 1")
			if tt.stolen {
				expect(t, second, "0 1")
				_, err := first.ReceiveEvents(t.Context(), 1, nil)
				if !isCode(err, azeventhubs.ErrorCodeOwnershipLost) {
					t.Errorf("the first got %v", err)
				}
			} else {
				_, err := second.ReceiveEvents(t.Context(), 1, nil)
				if err == nil || !strings.Contains(err.Error(), "amqp:link:stolen") {
					t.Errorf("the second got %v", err)
				}
				publishNumbers(t, h, 2, 3)
				expect(t, first, "2")
			}
			if n := h.Readers(""); n != 1 {
				t.Errorf("%d readers are left", n)
			}
		})
	}
}

func TestReadersWithoutEpoch(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 1)
	for range 5 {
		expect(t, reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest}), "0")
	}
	sixth := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	if _, err := sixth.ReceiveEvents(t.Context(), 1, nil); err == nil || !strings.Contains(err.Error(), "which is 5") {
		t.Errorf("the sixth got %v", err)
	}
	other, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	p := reader(t, other, "0", azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: ptr(int64(1))})
	expect(t, p, "0")
	if n := h.Readers("0"); n != 6 {
		t.Errorf("%d readers", n)
	}
}

func TestWrongKey(t *testing.T) {
	h := listen(t, devhub.Config{})
	s := strings.Replace(h.ConnectionString(), ";SharedAccessKey=", ";SharedAccessKey=x", 1)
	c, err := azeventhubs.NewConsumerClientFromConnectionString(s, "", "$Default", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	p := reader(t, c, "0", azeventhubs.PartitionClientOptions{})
	if _, err := p.ReceiveEvents(t.Context(), 1, nil); !isCode(err, azeventhubs.ErrorCodeUnauthorizedAccess) {
		t.Errorf("got %v", err)
	}
}
