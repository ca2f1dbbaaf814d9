package amqpfilter_test

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	amqp "github.com/Azure/go-amqp"

	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/poison"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// library decodes a message as the library does, with a panic for an error.
func library(message []byte) (m amqp.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	err = m.UnmarshalBinary(message)
	return m, err
}

var at = devhub.Published{Sequence: 1234567, Offset: "98765432", Enqueued: time.UnixMilli(1767323045678).UTC()}

// usual returns messages that are in order, with every type that the library knows.
func usual(t testing.TB) [][]byte {
	t.Helper()
	text := "text"
	when := at.Enqueued
	annotations := amqp.Annotations{"x-opt-sequence-number": at.Sequence, "x-opt-offset": at.Offset, "x-opt-enqueued-time": at.Enqueued, "x-opt-partition-key": "device", int64(7): nil}
	everything := []any{
		nil, true, false, uint8(1), int8(-1), uint16(1), int16(-1), uint32(0), uint32(1), uint32(1 << 20), int32(-1), int32(1 << 20), uint64(0), uint64(1), uint64(1 << 40),
		int64(-1), int64(1 << 40), float32(1), 1.5, "s", string(make([]byte, 300)), []byte{1}, make([]byte, 300), when, amqp.UUID{1}, []any{}, []any{1, "a"}, map[string]any{"a": int32(1)}, map[any]any{int64(1): "a"},
		[]int8{1}, []uint16{1}, []int16{1}, []uint32{1}, []uint32{1 << 20}, []int32{1}, []int32{1 << 20}, []uint64{1}, []uint64{1 << 40}, []int64{1}, []int64{1 << 40}, []float32{1}, []float64{1}, []bool{true},
		[]string{"a", string(make([]byte, 300))}, []string{"a"}, [][]byte{{1}}, [][]byte{make([]byte, 300)}, []time.Time{when}, []amqp.UUID{{1}}, []map[any]any{{"a": int32(1)}},
		&amqp.Error{Condition: "amqp:internal-error", Description: "d", Info: map[string]any{"a": int32(1)}},
	}
	var all [][]byte
	iotHub := amqp.Message{
		Header:      &amqp.MessageHeader{Durable: true},
		Annotations: amqp.Annotations{"iothub-connection-device-id": "oven/7", "iothub-message-source": "Telemetry", "iothub-enqueuedtime": at.Enqueued},
		Properties:  &amqp.MessageProperties{MessageID: "m", ContentType: &text, ContentEncoding: &text}, ApplicationProperties: map[string]any{"a": "b"},
		Data: [][]byte{[]byte(`{"temperature":21}`)},
	}
	maps.Copy(iotHub.Annotations, annotations)
	for _, m := range []amqp.Message{
		iotHub,
		{Annotations: annotations, Data: [][]byte{{}, make([]byte, 300)}},
		{
			Header: &amqp.MessageHeader{Durable: true, Priority: 3, TTL: time.Hour, FirstAcquirer: true, DeliveryCount: 2}, DeliveryAnnotations: amqp.Annotations{"a": "b"}, Annotations: annotations,
			Properties:            &amqp.MessageProperties{MessageID: "m", UserID: []byte("u"), To: &text, Subject: &text, ReplyTo: &text, CorrelationID: uint64(5), ContentType: &text, ContentEncoding: &text, AbsoluteExpiryTime: &when, CreationTime: &when, GroupID: &text, GroupSequence: new(uint32), ReplyToGroupID: &text},
			ApplicationProperties: map[string]any{"a": "b", "c": int32(3)}, Value: everything, Footer: amqp.Annotations{"f": int64(1)},
		},
		{Annotations: annotations, Sequence: [][]any{everything, {}}},
		{Annotations: annotations, Value: amqp.Null{}},
		{Annotations: amqp.Annotations{"x-opt-sequence-number": at.Sequence}, Data: iotHub.Data},
	} {
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	// What the library does not write itself.
	a := all[0][:bytes.Index(all[0], []byte{0x00, 0x53, 0x75})]
	for _, rest := range []string{
		"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01x",                    // a wide descriptor
		"\x00\x53\x70\x45\x00\x53\x73\x40",                                     // no: properties that are null
		"\x00\x53\x70\xc0\x05\x03\x40\x40\x60\x00\x01",                         // header with nulls
		"\x00\x53\x77\x00\xa3\x01d\x45",                                        // described by a symbol
		"\x00\x53\x77\x00\x80\x00\x00\x01\x37\x00\x00\x00\x01\x40",             // described by a large number
		"\x00\x53\x77\x00\x53\x24\x45",                                         // outcomes
		"\x00\x53\x77\x00\x53\x25\xc0\x08\x01\x00\x53\x1d\xc0\x03\x01\xa3\x00", //
		"\x00\x53\x77\x00\x53\x27\xc0\x04\x03\x41\x42\x40",                     //
		"\x00\x53\x77\x00\x53\x23\xc0\x03\x02\x43\x44",                         //
		"\x00\x53\x77\x00\x53\x2b\x45",                                         // a lifetime policy
		"\x00\x53\x77\x56\x01\x00\x53\x78\x40\x00\x53\x71\x40\x00\x53\x74\x40", // null sections
		"\x00\x53\x77\xe0\x03\x02\x41\x41\x00\x53\x76\x45",
		"\x00\x53\x77\xc1\x05\x03\x43\x40\x44\x40", // an odd count
		"\x00\x53\x77\xe0\x06\x01\xc1\x02\x02\x43\x40",
	} {
		all = append(all, append(bytes.Clone(a), rest...))
	}
	a = all[1][:bytes.Index(all[1], []byte{0x00, 0x53, 0x75})] // nothing but annotations
	for _, rest := range []string{
		"\x00\x53\x73\xc0\x12\x08@@@@@@\xa1\x01t\xa1\x01e\x00\x53\x75\xa0\x01x",                // properties of a wrong size
		"\x00\x53\x73\xc0\x0f\x08\xc0\x08\x01\x40@@@@@\xa1\x01t\xa1\x01e\x00\x53\x75\xa0\x01x", // a property of a wrong size
		"\x00\x53\x74\xc1\x0c\x02\xa1\x01a\xa1\x01b\x00\x53\x75\xa0\x01x",                      // application properties of a wrong size
		"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xc0\x06\x01\x40\x00\x53\x75\xa0\x01x",               // an application property of a wrong size
	} {
		all = append(all, append(bytes.Clone(a), rest...))
	}
	return all
}

// parseAll returns the Events for which the library gets a message that has passed the filter.
func parseAll(t rapid.TB, c *amqpfilter.Conn, after []byte) (all []amqpfilter.Event) {
	t.Helper()
	m, err := library(after)
	if err != nil {
		t.Fatalf("%.1000x: %v", after, err)
	}
	if len(m.Data) != 1 || len(m.Annotations) != 0 || m.Header != nil || m.Properties != nil || m.ApplicationProperties != nil || m.Value != nil || m.Sequence != nil {
		t.Fatalf("%+v has more than an event", m)
	}
	messages, ok := c.Take(m.Data[0])
	if !ok || len(messages) == 0 {
		t.Fatalf("%+v has no event", m)
	}
	if _, again := c.Take(m.Data[0]); again {
		t.Fatalf("%+v comes twice", m)
	}
	for len(messages) > 0 {
		var e amqpfilter.Event
		e, messages = messages.Next()
		all = append(all, e)
	}
	return all
}

// accepts are the rules that hold for any message.
func accepts(t testing.TB, message []byte) {
	t.Helper()
	before := bytes.Clone(message)
	e := amqpfilter.EventOf(message)
	if !bytes.Equal(message, before) {
		t.Fatalf("%x was changed in place", before)
	}
	read, err := amqpfilter.Read(message)
	if (err != nil) != (len(e.Undecodable) > 0) {
		t.Fatalf("%.1000x is read with %v, and became %+v", message, err, e)
	}
	if err == nil {
		if e.Sequence == amqpfilter.Unnumbered || fmt.Sprint(e) != fmt.Sprint(read) {
			t.Fatalf("%.1000x became %+v, want %+v", message, e, read)
		}
		return
	}
	// It carries the message, and what was found of its place.
	if e.Undecodable != err.Error() || !bytes.Equal(e.Body, message[:min(len(message), amqpfilter.MaxKept)]) {
		t.Fatalf("%.1000x became %+v because of %v", message, e, err)
	}
	if e.Sequence != read.Sequence || !bytes.Equal(e.Offset, read.Offset) {
		t.Fatalf("%.1000x became %+v, and has the place of %+v", message, e, read)
	}
}

// same are the rules that hold for a message that the library can write: the filter reads
// what the library does, or the worker has no use for the message.
func same(t testing.TB, m amqp.Message) {
	t.Helper()
	message, err := write(m)
	if err != nil {
		return
	}
	accepts(t, message)
	e, err := amqpfilter.Read(message)
	if event(m) != (err == nil) {
		t.Fatalf("%+v is read with %v", m, err)
	}
	if err != nil {
		return
	}
	text := func(name string) string {
		s, _ := m.Annotations[name].(string)
		return s
	}
	body := bytes.Join(m.Data, nil)
	switch v := m.Value.(type) {
	case string:
		body = []byte(v)
	case []byte:
		body = v
	}
	var properties amqp.Message
	if len(e.Properties) > 0 {
		if properties, err = library(append([]byte("\x00\x53\x74"), e.Properties...)); err != nil {
			t.Fatalf("%+v has the properties %x: %v", m, e.Properties, err)
		}
	}
	enqueued, ok := m.Annotations["x-opt-enqueued-time"].(time.Time)
	if fmt.Sprint(e.Sequence) != fmt.Sprint(m.Annotations["x-opt-sequence-number"]) ||
		ok && !e.Enqueued.Equal(enqueued.Truncate(time.Millisecond)) || !ok && !e.Enqueued.IsZero() ||
		string(e.Offset) != text("x-opt-offset") ||
		string(e.Device) != text("iothub-connection-device-id") ||
		string(e.Source) != text("iothub-message-source") ||
		fmt.Sprintf("%#v", properties.ApplicationProperties) != fmt.Sprintf("%#v", m.ApplicationProperties) ||
		!bytes.Equal(e.Body, body) {
		t.Fatalf("%+v became %+v", m, e)
	}
}

// write encodes a message, with a panic for an error.
func write(m amqp.Message) (message []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return m.MarshalBinary()
}

// event says whether a message has a place, and a body that is bytes or text.
func event(m amqp.Message) bool {
	switch m.Annotations["x-opt-sequence-number"].(type) {
	case int8, int16, int32, int64:
	default:
		return false
	}
	if fmt.Sprint(m.Annotations["x-opt-sequence-number"]) == fmt.Sprint(amqpfilter.Unnumbered) {
		return false
	}
	if v := m.Annotations["x-opt-offset"]; v != nil {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	if v := m.Annotations["x-opt-enqueued-time"]; v != nil {
		if _, ok := v.(time.Time); !ok {
			return false
		}
	}
	switch m.Value.(type) {
	case nil, amqp.Null:
		return len(m.Sequence) == 0
	case string, []byte:
		return len(m.Data) == 0 && len(m.Sequence) == 0
	}
	return false
}

// What a publisher wrote cannot pass for what the filter says: neither with the names of
// annotations, nor with a body that was taken from the filter, nor with a section too many.
func TestForgery(t *testing.T) {
	place := amqp.Annotations{"x-opt-sequence-number": at.Sequence, "x-opt-offset": at.Offset, "x-opt-enqueued-time": at.Enqueued}
	p := &peer{}
	p.attachAlone(events)
	p.deliver(0, 0, false, false, []byte("noise"))
	stream, c, _ := through(p, 4096)
	made, err := library(messages(t, stream)[[2]uint32{}][0])
	if err != nil {
		t.Fatal(err)
	}
	annotations := maps.Clone(place)
	for _, name := range []string{"x-opt-alertworker-sequence-guessed", "x-opt-alertworker-undecodable"} {
		annotations[name] = true
	}
	for name, m := range map[string]amqp.Message{
		"annotations of an earlier filter":  {Annotations: annotations, Value: "body"},
		"the filter's own data":             {Annotations: place, Data: made.Data},
		"the filter's own data, as a value": {Annotations: place, Value: made.Data[0]},
	} {
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		e := amqpfilter.EventOf(b)
		if len(e.Undecodable) > 0 || e.Sequence != at.Sequence || !e.Enqueued.Equal(at.Enqueued) || string(e.Offset) != at.Offset {
			t.Errorf("%s: got %+v", name, e)
		}
		if want := map[bool]string{true: "body", false: string(made.Data[0])}[m.Value == "body"]; string(e.Body) != want {
			t.Errorf("%s: the body is %q, want %q", name, e.Body, want)
		}
	}
	before, err := (&amqp.Message{Annotations: place, Data: [][]byte{[]byte("body")}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	more, err := (&amqp.Message{Annotations: amqp.Annotations{"x-opt-sequence-number": int64(7)}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if e := amqpfilter.EventOf(append(before, more...)); e.Sequence != at.Sequence || len(e.Undecodable) == 0 {
		t.Errorf("a second section with annotations: got %+v", e)
	}
	for _, body := range []string{`{"temperature":21}`, "12345678", ""} {
		if _, ok := c.Take([]byte(body)); ok {
			t.Errorf("the body %q was taken for an event", body)
		}
	}
}

func TestUsualMessages(t *testing.T) {
	for _, message := range usual(t) {
		if m, err := library(message); err == nil {
			same(t, m)
		}
		accepts(t, message)
		for n := range message { // and what is left of them
			accepts(t, message[:n])
		}
	}
}

// Poison that nobody reads hides nothing; any other message is kept as it came.
func TestPoison(t *testing.T) {
	for _, p := range poison.Messages() {
		t.Run(p.Name, func(t *testing.T) {
			m := p.Encode(at)
			accepts(t, m)
			e := amqpfilter.EventOf(m)
			if p.Readable != (len(e.Undecodable) == 0) || p.Readable && string(e.Body) != poison.Body {
				t.Errorf("got %+v", e)
			}
			if !p.Lost && (e.Sequence != at.Sequence || string(e.Offset) != at.Offset) ||
				p.Lost && e.Sequence != amqpfilter.Unnumbered && len(e.Offset) > 0 {
				t.Errorf("got the place of %+v", e)
			}
		})
	}
}

// However hostile a message is, what the filter and the library make of it takes memory in
// proportion to its size.
func TestMemoryIsBounded(t *testing.T) {
	hostile := map[string][]byte{}
	for _, p := range poison.Messages() {
		hostile[p.Name] = p.Encode(at)
	}
	head := usual(t)[1]
	head = head[:bytes.Index(head, []byte{0x00, 0x53, 0x75})]
	hostile["many sections of data"] = append(bytes.Clone(head), bytes.Repeat([]byte("\x00\x53\x75\xa0\x01x"), 100_000)...)
	for name, m := range hostile {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = amqpfilter.EventOf(m)
		runtime.ReadMemStats(&after)
		// What is built grows by a quarter at a time.
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(m)+8<<10); used > most {
			t.Errorf("%s: %d bytes of %d, want at most %d", name, used, len(m), most)
		}
	}
}

// Whatever bytes come as a message, the library can take what it gets, and the filter reads
// what the library would.
func FuzzMessage(f *testing.F) {
	for _, m := range usual(f) {
		f.Add(m)
	}
	for _, p := range poison.Messages() {
		if m := p.Encode(at); len(m) < 1<<10 {
			f.Add(m)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > 1<<16 {
			return
		}
		accepts(t, message)
		if m, err := library(message); err == nil {
			same(t, m)
		}
	})
}

func TestReadingAllocatesNothing(t *testing.T) {
	m := usual(t)[0]
	if n := testing.AllocsPerRun(100, func() {
		if _, err := amqpfilter.Read(m); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
