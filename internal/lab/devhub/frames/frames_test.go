package frames_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub/frames"
	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/telemetry/amqpvalue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

var performatives = []frames.Performative{
	&frames.Open{ContainerID: "c", Hostname: "h", MaxFrameSize: 65536, ChannelMax: 7, IdleTimeout: time.Minute},
	&frames.Begin{RemoteChannel: ptr(uint16(3)), NextOutgoingID: 1, IncomingWindow: 2, OutgoingWindow: 300, HandleMax: 1 << 20},
	&frames.Attach{Name: "l", Handle: 300, Role: frames.Receiver, SenderSettleMode: ptr(frames.SenderSettled), ReceiverSettleMode: ptr(frames.ReceiverFirst),
		Source: &frames.Source{Address: "a", Filter: frames.Map{"f": "x > '1'"}},
		Target: &frames.Target{Address: strings.Repeat("t", 300)}, InitialDeliveryCount: 5, MaxMessageSize: 1 << 20,
		DesiredCapabilities: amqpvalue.Value("\xa3\x03one"),
		Properties:          frames.Map{"com.microsoft:epoch": int64(-2), "s": "text"}},
	&frames.Attach{Name: "", Role: frames.Sender},
	&frames.Flow{NextIncomingID: ptr(uint32(0)), IncomingWindow: 1, NextOutgoingID: 2, OutgoingWindow: 3, Handle: ptr(uint32(4)), DeliveryCount: 5, LinkCredit: 6, Drain: true, Echo: true},
	&frames.Flow{Echo: true},
	&frames.Transfer{Handle: 1, DeliveryID: ptr(uint32(2)), DeliveryTag: []byte("tag"), MessageFormat: 0x80013700, Settled: true, More: true, Aborted: true},
	&frames.Disposition{Role: frames.Receiver, First: 1, Last: 9, Settled: true},
	&frames.Detach{Handle: 1, Closed: true, Error: &frames.Error{Condition: "amqp:link:redirect", Description: "d", Info: frames.Map{"port": int64(5671)}}},
	&frames.Detach{},
	&frames.End{Error: &frames.Error{Condition: "c"}},
	&frames.Close{},
	&frames.Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00u\x00p")},
	&frames.Outcome{Code: frames.SASLAuth},
}

func decode(t testing.TB, b []byte) (frames.Frame, frames.Performative, []byte) {
	t.Helper()
	f, err := frames.Read(bytes.NewReader(b), uint32(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	p, payload, err := frames.Decode(f.Body)
	if err != nil {
		t.Fatal(err)
	}
	return f, p, payload
}

func TestRoundTrip(t *testing.T) {
	for _, want := range performatives {
		f, got, payload := decode(t, frames.Append(nil, frames.AMQP, 513, want))
		if f.Type != frames.AMQP || f.Channel != 513 || len(payload) != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%T came back as\n%+v, want\n%+v", want, got, want)
		}
	}
}

// Every performative has all fields of the standard, trailing nulls as well.
func TestAllFieldsAreSent(t *testing.T) {
	fields := map[byte]byte{
		0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1, 0x41: 3, 0x44: 2,
	}
	for _, p := range performatives {
		b := frames.Append(nil, frames.AMQP, 0, p)
		code, count := b[10], b[19] // of a list32
		if count != fields[code] {
			t.Errorf("%T has %d fields, want %d", p, count, fields[code])
		}
	}
	if count := frames.AppendDelivery(nil, 0, frames.Delivery{}, nil)[13]; count != fields[0x14] {
		t.Errorf("a delivery has %d fields", count)
	}
}

// Capabilities come as one symbol or as an array of them, and filters described by a number or a symbol.
func TestAttachAsClientsSendIt(t *testing.T) {
	attach := func(filter, capabilities string) []byte {
		list8 := func(code byte, fields string) string {
			return string([]byte{0x00, 0x53, code, 0xc0, byte(len(fields))}) + fields
		}
		source := list8(0x28, "\x0b\xa1\x01a\x40\x40\x40\x40\x40\x40"+filter+"\x40\x40\x40")
		return []byte(list8(0x12, "\x0e\xa1\x01l\x43\x41\x40\x40"+source+"\x40\x40\x40\x40\x40\x40"+capabilities+"\x40"))
	}
	filter := func(descriptor string) string {
		return "\xc1" + string([]byte{byte(8 + len(descriptor))}) + "\x02\xa3\x01f\x00" + descriptor + "\xa1\x01x"
	}
	for _, tt := range []struct {
		filter, capabilities string
		wants                bool
	}{
		{filter("\x53\x04"), "\x40", false},
		{filter("\xa3\x02ab"), "\xa3\x01c", true},
		{filter("\xb3\x00\x00\x00\x01a"), "\xe0\x06\x02\xa3\x01d\x01c", true},
		{filter("\xa1\x01a"), "\xf0\x00\x00\x00\x0a\x00\x00\x00\x01\xb3\x00\x00\x00\x01c", true},
		{filter("\xa1\x01a"), "\xa3\x01d", false},
	} {
		p, _, err := frames.Decode(attach(tt.filter, tt.capabilities))
		if err != nil {
			t.Errorf("%x: %v", tt.filter, err)
			continue
		}
		a := p.(*frames.Attach)
		if a.Source.Filter["f"] != "x" || a.Wants("c") != tt.wants {
			t.Errorf("got %v, and of %q that c is wanted: %v", a.Source.Filter, tt.capabilities, a.Wants("c"))
		}
	}
}

// What holds for a whole delivery is in its first transfer alone. A settled one has an empty tag.
func TestDelivery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		channel, payload := rapid.Uint16().Draw(t, "channel"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		d := frames.Delivery{
			Handle: rapid.Uint32().Draw(t, "handle"), ID: rapid.Uint32().Draw(t, "id"),
			First: rapid.Bool().Draw(t, "first"), More: rapid.Bool().Draw(t, "more"), Settled: rapid.Bool().Draw(t, "settled"),
		}
		prefix := []byte("before")
		b := frames.AppendDelivery(prefix, channel, d, payload)
		if len(b) > len(prefix)+frames.DeliveryOverhead+len(payload) {
			t.Fatalf("%d bytes", len(b))
		}
		f, err := frames.Read(bytes.NewReader(b[len(prefix):]), uint32(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		p, rest, err := frames.Decode(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := &frames.Transfer{Handle: d.Handle, More: d.More}
		if d.First {
			want.DeliveryID, want.DeliveryTag, want.Settled = &d.ID, []byte{}, d.Settled
			if !d.Settled {
				want.DeliveryTag = binary.LittleEndian.AppendUint32(nil, d.ID)
			}
		}
		if f.Channel != channel || !reflect.DeepEqual(p, frames.Performative(want)) || !bytes.Equal(rest, payload) {
			t.Fatalf("got %+v with %x on %d, want %+v with %x", p, rest, f.Channel, want, payload)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	if f, err := frames.Read(bytes.NewReader(frames.AppendHeartbeat(nil)), 8); err != nil || len(f.Body) != 0 {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":               "",
		"half a header":         "\x00\x00\x00\x08",
		"too large":             "\x00\x01\x00\x00\x02\x00\x00\x00",
		"smaller than a header": "\x00\x00\x00\x07\x02\x00\x00\x00",
		"body in the header":    "\x00\x00\x00\x08\x01\x00\x00\x00",
		"body after the end":    "\x00\x00\x00\x08\x03\x00\x00\x00",
		"unknown type":          "\x00\x00\x00\x08\x02\x02\x00\x00",
		"cut short":             "\x00\x00\x00\x0a\x02\x00\x00\x00x",
	} {
		if f, err := frames.Read(strings.NewReader(b), 512); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f, err := frames.Read(strings.NewReader("\x00\x00\x00\x0d\x03\x00\x00\x01extrA"), 512); err != nil || string(f.Body) != "A" {
		t.Errorf("an extended header: %+v, %v", f, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":               "",
		"no descriptor":         "\x45",
		"not a list":            "\x00\x53\x10\x40",
		"symbolic descriptor":   "\x00\xa3\x0eamqp:open:list\x45",
		"unknown":               "\x00\x53\x19\x45",
		"field of another type": "\x00\x53\x14\xc0\x03\x01\xa1\x00",
		"list cut short":        "\x00\x53\x14\xc0\x09\x01\x43",
		"more elements":         "\x00\x53\x14\xc0\x02\x09\x43",
		"huge count":            "\x00\x53\x14\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x43",
		"unknown type":          "\x00\x53\x14\xc0\x02\x01\x3f",
		"decimal":               "\x00\x53\x14\xc0\x06\x01\x74\x00\x00\x00\x00",
		"odd map":               "\x00\x53\x17\xc0\x04\x01\xc1\x02\x01\x43",
		"map keyed by a list":   "\x00\x53\x17\xc0\x06\x01\xc1\x03\x02\x45\x43",
		"source that is none":   "\x00\x53\x12\xc0\x0a\x06\xa1\x00\x43\x42\x40\x40\xa1\x00",
		"deep nesting":          strings.Repeat("\x00", 100_000),
		"deep lists":            "\x00\x53\x14" + nested(100),
	} {
		if p, _, err := frames.Decode([]byte(b)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// nested returns lists in lists.
func nested(depth int) string {
	b := []byte{0x45}
	for range depth {
		b = append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0xd0}, uint32(len(b)+4)), 1), b...)
	}
	return string(b)
}

// No input makes decoding panic, and what it allocates is in proportion to the input.
func FuzzDecode(f *testing.F) {
	for _, p := range performatives {
		f.Add(frames.Append(nil, frames.AMQP, 1, p))
	}
	f.Add(frames.AppendDelivery(nil, 1, frames.Delivery{Handle: 2, ID: 3, First: true, More: true}, []byte("payload")))
	f.Add([]byte("\x00\x00\x00\x20\x02\x00\x00\x00\x00\x53\x40\xc0\x0b\x01\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x41"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := frames.Read(bytes.NewReader(b), 64<<10)
		if err != nil {
			return
		}
		allocated := testing.AllocsPerRun(1, func() { frames.Decode(fr.Body) })
		if allocated > float64(100+3*len(fr.Body)) {
			t.Errorf("%v allocations for %d bytes", allocated, len(fr.Body))
		}
		p, _, err := frames.Decode(fr.Body)
		if err != nil {
			return
		}
		_ = fmt.Sprintf("%+v", p)
	})
}
