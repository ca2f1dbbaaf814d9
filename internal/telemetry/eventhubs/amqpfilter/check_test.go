package amqpfilter_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	amqp "github.com/Azure/go-amqp"

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

var at = poison.Place{Sequence: 1234567, Offset: "98765432", Enqueued: time.UnixMilli(1767323045678).UTC()}

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

// accepts are the rules that hold for any message.
func accepts(t *testing.T, message []byte) {
	t.Helper()
	before := bytes.Clone(message)
	after, cause := amqpfilter.Message(message)
	if !bytes.Equal(message, before) {
		t.Fatalf("%x was changed in place", before)
	}

	// What goes on is what the library takes.
	m, err := library(after)
	if err != nil {
		t.Fatalf("%x became %x: %v", message, after, err)
	}
	annotation, marked := m.Annotations[amqpfilter.Annotation]
	if cause == nil {
		if !same(message, m, after) {
			t.Fatalf("%x became %x", message, after)
		}
		return
	}
	if !marked || annotation != cause.Error() || len(m.Data) != 1 || !bytes.Equal(m.Data[0], message[:min(len(message), amqpfilter.MaxKept)]) {
		t.Fatalf("%x became %+v because of %v", message, m, cause)
	}
	// Its place is the one that it tells.
	sequence, known, offset := amqpfilter.Found(message)
	if !known {
		sequence = 0
	}
	if got := m.Annotations["x-opt-sequence-number"]; got != sequence {
		t.Fatalf("%x has sequence number %v, want %d", message, got, sequence)
	}
	if got, _ := m.Annotations["x-opt-offset"].(string); got != offset && len(offset) <= 512 {
		t.Fatalf("%x has offset %q, want %q", message, got, offset)
	}

	// What is taken out is what the library cannot take, what goes beyond a bound of ours,
	// or what azeventhubs cannot take.
	err = amqpfilter.Check(message)
	if amqpfilter.Bounded(err) {
		return
	}
	decoded, failed := library(message)
	if (err != nil) != (failed != nil) {
		t.Fatalf("%x: the filter says %v, the library %v", message, err, failed)
	}
	if err == nil && event(decoded) {
		t.Fatalf("%x was taken out because of %v", message, cause)
	}
}

// same says whether the library gets a message as it came, or compact with all that the
// worker reads. m is what the library makes of after.
func same(message []byte, m amqp.Message, after []byte) bool {
	if len(m.Data) != 1 {
		return bytes.Equal(after, message)
	}
	c, compact := amqpfilter.Parse(m.Data[0])
	if !compact {
		return bytes.Equal(after, message)
	}
	original, err := library(message)
	if err != nil || len(m.Annotations) != 1 || len(original.Data) != 1 || original.Value != nil || original.Sequence != nil {
		return false
	}
	text := func(name string) string {
		s, _ := original.Annotations[name].(string)
		return s
	}
	contentType, contentEncoding := "", ""
	if p := original.Properties; p != nil {
		if p.ContentType != nil {
			contentType = *p.ContentType
		}
		if p.ContentEncoding != nil {
			contentEncoding = *p.ContentEncoding
		}
	}
	var properties amqp.Message
	if len(c.Properties) > 0 {
		if properties, err = library(append([]byte("\x00\x53\x74"), c.Properties...)); err != nil {
			return false
		}
	}
	enqueued, ok := original.Annotations["x-opt-enqueued-time"].(time.Time)
	return ok && time.UnixMilli(c.Enqueued).Equal(enqueued) &&
		fmt.Sprint(m.Annotations["x-opt-sequence-number"]) == fmt.Sprint(original.Annotations["x-opt-sequence-number"]) &&
		string(c.Offset) == text("x-opt-offset") &&
		string(c.Device) == text("iothub-connection-device-id") &&
		string(c.Source) == text("iothub-message-source") &&
		string(c.ContentType) == contentType && string(c.ContentEncoding) == contentEncoding &&
		fmt.Sprintf("%#v", properties.ApplicationProperties) == fmt.Sprintf("%#v", original.ApplicationProperties) &&
		bytes.Equal(c.Body, original.Data[0])
}

// What an IoT Hub sends is made compact; a message that has anything unusual is not.
func TestCompact(t *testing.T) {
	for i, want := range []bool{true, false, false, false, false, false} { // of the messages that the library writes
		m := usual(t)[i]
		after, cause := amqpfilter.Message(m)
		if compact := !bytes.Equal(after, m); compact != want || cause != nil {
			t.Errorf("%x became %x", m, after)
		}
	}
	if _, ok := amqpfilter.Parse([]byte(`{"temperature":21}`)); ok {
		t.Error("a body was taken for a compact message")
	}
}

// event says whether azeventhubs can make an event of a message.
func event(m amqp.Message) bool {
	switch m.Annotations["x-opt-sequence-number"].(type) {
	case int8, int16, int32, int64:
	default:
		return false
	}
	for name, ok := range map[string]func(any) bool{
		"x-opt-partition-key": func(v any) bool { _, ok := v.(string); return ok },
		"x-opt-offset":        func(v any) bool { _, ok := v.(string); return ok },
		"x-opt-enqueued-time": func(v any) bool { _, ok := v.(time.Time); return ok },
	} {
		if v, there := m.Annotations[name]; there && !ok(v) {
			return false
		}
	}
	return true
}

func TestUsualMessagesStay(t *testing.T) {
	for _, m := range usual(t) {
		_, failed := library(m)
		_, cause := amqpfilter.Message(m)
		if (failed != nil) != (cause != nil) {
			t.Errorf("%x: the filter says %v, the library %v", m, cause, failed)
		}
		accepts(t, m)
		for n := range m { // and what is left of them
			accepts(t, m[:n])
		}
	}
}

func TestPoisonIsReplaced(t *testing.T) {
	for _, p := range poison.Messages() {
		t.Run(p.Name, func(t *testing.T) {
			m := p.Encode(at)
			_, cause := amqpfilter.Message(m)
			if cause == nil {
				t.Fatal("it stays")
			}
			if len(m) > 1<<16 && amqpfilter.Bounded(cause) { // the library would not survive it
				return
			}
			accepts(t, m)
			if sequence, known, offset := amqpfilter.Found(m); known == p.Lost || known && sequence != at.Sequence || known && offset != at.Offset && p.Name != "offset that is no string" {
				t.Errorf("found sequence number %d, %v, and offset %q", sequence, known, offset)
			}
		})
	}
}

// Whatever bytes come as a message, the library can take what it gets, and gets all of
// what it can take.
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
	})
}

func TestCheckAllocatesNothing(t *testing.T) {
	m := usual(t)[2]
	if n := testing.AllocsPerRun(100, func() { _ = amqpfilter.Check(m) }); n > 1 { // the test's own
		t.Errorf("%v allocations", n)
	}
}
