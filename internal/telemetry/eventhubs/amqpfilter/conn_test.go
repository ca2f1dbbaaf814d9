package amqpfilter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub/frames"
	"alertworker/internal/lab/devhub/poison"
	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A pieces connection delivers its bytes in pieces of these sizes, in turn, and then
// ends.
type pieces struct {
	net.Conn
	stream []byte
	sizes  []int
	reads  int
	sent   []byte // what was written last
}

func (c *pieces) Write(p []byte) (int, error) {
	c.sent = bytes.Clone(p)
	return len(p), nil
}

func (c *pieces) Read(p []byte) (int, error) {
	if len(c.stream) == 0 {
		return 0, io.EOF
	}
	n := len(c.stream)
	if len(c.sizes) > 0 {
		n = c.sizes[c.reads%len(c.sizes)]
		c.reads++
	}
	n = copy(p[:min(n, len(p))], c.stream)
	c.stream = c.stream[n:]
	return n, nil
}

// filtered returns a connection on which the library has asked for what p answers.
func filtered(p *peer, from net.Conn) *amqpfilter.Conn {
	c := amqpfilter.New(from)
	for _, frame := range p.asked {
		_, _ = c.Write(frame)
	}
	return c
}

// through returns what a reader gets that reads at most size bytes at once of what a peer sends.
func through(from *peer, size int, sizes ...int) ([]byte, *amqpfilter.Conn, error) {
	c := filtered(from, &pieces{stream: bytes.Clone(from.stream), sizes: sizes})
	var got []byte
	p := make([]byte, size)
	for {
		n, err := c.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			return got, c, err
		}
	}
}

// A peer writes a stream as a hub does.
type peer struct {
	stream   []byte
	asked    [][]byte          // frames of the library that it answers
	own      map[uint16]uint16 // the library's number of a session, by the peer's
	delivery uint32
}

func (p *peer) write(channel uint16, performatives ...frames.Performative) {
	for _, f := range performatives {
		p.stream = frames.Append(p.stream, frames.AMQP, channel, f)
	}
}

// open is how every connection begins.
func (p *peer) open() {
	p.stream = append(p.stream, "AMQP\x03\x01\x00\x00"...)
	p.stream = frames.Append(p.stream, frames.SASL, 0, &frames.Mechanisms{Names: []frames.Symbol{"ANONYMOUS"}})
	p.stream = frames.Append(p.stream, frames.SASL, 0, &frames.Outcome{})
	p.stream = append(p.stream, "AMQP\x00\x01\x00\x00"...)
	p.write(0, &frames.Open{ContainerID: "peer"})
}

const events = "Telemetry/ConsumerGroups/$Default/Partitions/0"

// attachAlone makes a session and a link on it on which the peer sends.
func (p *peer) attachAlone(address string) {
	p.begin(0, 0)
	p.attach(0, 0, address, 0)
}

// begin makes a session that has the number own for the library.
func (p *peer) begin(channel, own uint16) {
	if p.own == nil {
		p.own = map[uint16]uint16{}
	}
	p.own[channel] = own
	begin := &frames.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 9}
	p.asked = append(p.asked, frames.Append(nil, frames.AMQP, own, begin))
	begin.RemoteChannel = &own
	p.write(channel, begin)
}

// attach makes a link on which the peer sends messages of up to max bytes.
func (p *peer) attach(channel uint16, handle uint32, address string, max int) {
	source := &frames.Source{Address: address}
	link := &frames.Attach{Name: "link", Role: frames.Receiver, Source: source, Target: &frames.Target{}}
	p.asked = append(p.asked, frames.Append(nil, frames.AMQP, p.own[channel], link))
	link.Handle, link.Role, link.MaxMessageSize = handle, frames.Sender, uint64(max)
	p.write(channel, link)
}

// deliver sends part of a message in a frame.
func (p *peer) deliver(channel uint16, handle uint32, more, aborted bool, part []byte) {
	first := frames.Append(nil, frames.AMQP, channel, &frames.Transfer{Handle: handle, DeliveryID: &p.delivery, DeliveryTag: []byte("tag"), Settled: true, More: more, Aborted: aborted})
	binary.BigEndian.PutUint32(first, uint32(len(first)+len(part)))
	p.stream = append(append(p.stream, first...), part...)
	if !more || aborted {
		p.delivery++
	}
}

// messages reads a stream as the library does, and returns the messages per link.
func messages(t rapid.TB, stream []byte) (all map[[2]uint32][][]byte) {
	t.Helper()
	all = map[[2]uint32][][]byte{}
	partial := map[[2]uint32][]byte{}
	count := 0
	for r := bytes.NewReader(stream); r.Len() > 0; count++ {
		if rest := stream[len(stream)-r.Len():]; bytes.HasPrefix(rest, []byte("AMQP")) {
			_, _ = r.Seek(8, io.SeekCurrent)
			continue
		}
		f, err := frames.Read(r, 4<<20)
		if err != nil {
			t.Fatalf("after %d frames: %v", count, err)
		}
		if len(f.Body) == 0 {
			continue
		}
		performative, payload, err := frames.Decode(f.Body)
		if err != nil {
			t.Fatalf("frame %d: %v", count, err)
		}
		transfer, ok := performative.(*frames.Transfer)
		if !ok {
			continue
		}
		link := [2]uint32{uint32(f.Channel), transfer.Handle}
		switch {
		case transfer.Aborted:
			delete(partial, link)
		case transfer.More:
			partial[link] = append(partial[link], payload...)
		default:
			all[link] = append(all[link], append(partial[link], payload...))
			delete(partial, link)
		}
	}
	return all
}

// However a connection cuts its bytes, and however a hub cuts its messages: the
// library gets the same events.
func TestFragmentation(t *testing.T) {
	good, bad := usual(t), poison.Messages()
	rapid.Check(t, func(t *rapid.T) {
		p := &peer{}
		p.open()
		links := [][2]uint32{{0, 0}, {1, 0}, {70, 5}}
		for _, channel := range []uint16{0, 1, 70} {
			p.begin(channel, channel+3)
		}
		for _, l := range links {
			p.attach(uint16(l[0]), l[1], events, 0)
		}
		waiting := map[[2]uint32][]byte{} // of messages that have begun
		want := map[[2]uint32][][]byte{}
		var message = map[[2]uint32][]byte{}
		for range rapid.IntRange(0, 60).Draw(t, "frames") {
			l := rapid.SampledFrom(links).Draw(t, "link")
			channel, handle := uint16(l[0]), l[1]
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				p.stream = frames.AppendHeartbeat(p.stream)
			case 1:
				p.write(channel, &frames.Flow{NextIncomingID: new(uint32), Handle: &handle})
			case 2:
				if rest, ok := waiting[l]; ok {
					p.deliver(channel, handle, false, true, rest[:min(len(rest)/2, 60_000)])
					delete(waiting, l)
				}
			default:
				rest, begun := waiting[l]
				if !begun {
					if rapid.Bool().Draw(t, "poison") {
						rest = rapid.SampledFrom(bad).Draw(t, "kind").Encode(at)
					} else {
						rest = rapid.SampledFrom(good).Draw(t, "message")
					}
					message[l] = rest
				}
				n := min(len(rest), 60_000) // the library takes no larger frames
				if rapid.Bool().Draw(t, "more") {
					n = rapid.IntRange(0, n).Draw(t, "part")
				}
				// An empty last frame is allowed, too.
				more := n < len(rest) || rapid.IntRange(0, 9).Draw(t, "empty") == 0
				p.deliver(channel, handle, more, false, rest[:n])
				waiting[l] = rest[n:]
				if !more {
					delete(waiting, l)
					want[l] = append(want[l], message[l])
				}
			}
		}

		whole, c, err := through(p, 1<<20)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 5).Draw(t, "sizes")
		cut, cutC, err := through(p, rapid.IntRange(1, 5000).Draw(t, "buffer"), sizes...)
		if !errors.Is(err, io.EOF) {
			t.Fatalf("cut into %v: %v", sizes, err)
		}
		got, inPieces := messages(t, whole), messages(t, cut)
		for _, l := range links {
			for i, stream := range []map[[2]uint32][][]byte{got, inPieces} {
				var events []amqpfilter.Event
				for _, m := range stream[l] {
					events = append(events, parseAll(t, []*amqpfilter.Conn{c, cutC}[i], m)...)
				}
				if len(events) != len(want[l]) {
					t.Fatalf("link %v has %d events, want %d", l, len(events), len(want[l]))
				}
				for i, e := range events {
					alone := amqpfilter.EventOf(want[l][i])
					if !bytes.Equal(e.Body, alone.Body) || e.Undecodable != alone.Undecodable {
						t.Fatalf("%.100x became %.100x", want[l][i], e.Body)
					}
				}
			}
		}
	})
}

// A library that gets several events in one message still tells the hub how many it has received, and how many it has
// asked for.
func TestFlowIsCorrected(t *testing.T) {
	own, uncorrected := uint16(3), uint16(4)
	p := &peer{}
	p.begin(7, own)
	p.begin(8, uncorrected)
	p.attach(7, 0, events, 0)
	for range 5 {
		p.deliver(7, 0, false, false, usual(t)[0])
	}
	written := &pieces{stream: p.stream}
	c := filtered(p, written)
	if _, err := c.Read(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	number := func(n uint32) *uint32 { return &n }
	flow := func(received, count, credit uint32) *frames.Flow {
		return &frames.Flow{
			NextIncomingID: number(received), IncomingWindow: 5000, NextOutgoingID: 1, OutgoingWindow: 5000,
			Handle: number(0), DeliveryCount: count, LinkCredit: credit,
		}
	}
	write := func(channel uint16, f *frames.Flow) frames.Performative {
		frame := frames.Append(nil, frames.AMQP, channel, f)
		written.sent = nil
		if n, err := c.Write(frame); n != len(frame) || err != nil {
			t.Fatalf("%d bytes were written, %v", n, err)
		}
		got, err := frames.Read(bytes.NewReader(written.sent), 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		performative, _, err := frames.Decode(got.Body)
		if err != nil || got.Channel != channel {
			t.Fatalf("channel %d, %v", got.Channel, err)
		}
		return performative
	}
	// Five events came with one transfer: the library counts one, and has asked for four more than the hub may send.
	if got, want := write(own, flow(1, 1, 1004)), flow(5, 5, 1000); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := write(uncorrected, flow(1, 1, 1004)), flow(1, 1, 1004); !reflect.DeepEqual(got, want) {
		t.Errorf("another session: got %+v, want %+v", got, want)
	}
}

// What the hub says that it has sent is what the library can know of. It drains no link, because the library never asks
// for that: the library would forget how much is on request.
func TestFlowOfTheHub(t *testing.T) {
	p := &peer{}
	p.attachAlone(events)
	for range 5 {
		p.deliver(0, 0, false, false, usual(t)[0])
	}
	handle := uint32(0)
	flow := &frames.Flow{NextIncomingID: &handle, NextOutgoingID: 5, Handle: &handle, DeliveryCount: 5, Drain: true, Echo: true}
	p.write(0, flow)
	stream, _, _ := through(p, 64<<10)
	last := stream[bytes.LastIndex(stream, []byte{0x00, 0x53, 0x13})-8:]
	f, err := frames.Read(bytes.NewReader(last), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := frames.Decode(f.Body)
	flow.NextOutgoingID, flow.Drain = 1, false
	if err != nil || !reflect.DeepEqual(got, frames.Performative(flow)) {
		t.Errorf("got %+v, %v; want %+v", got, err, flow)
	}
}

// Frames that carry no events stay as they are, bit for bit, whatever is in them.
func TestOtherFramesStay(t *testing.T) {
	p := &peer{}
	p.open()
	p.begin(0, 0)
	for handle, address := range []string{"$cbs", "$management", "amqps://namespace/$cbs", "hub", ""} {
		p.attach(0, uint32(handle), address, 0)
		p.deliver(0, uint32(handle), false, false, []byte("\x00\x53\x73\x45\x00\x53\x77\x41"))
		p.deliver(0, uint32(handle), true, false, usual(t)[0][:20])
		p.deliver(0, uint32(handle), false, false, usual(t)[0][20:])
		p.deliver(0, uint32(handle), false, false, poison.Messages()[0].Encode(at))
	}
	p.write(0, &frames.Detach{Handle: 0, Closed: true}, &frames.End{}, &frames.Close{})
	got, _, _ := through(p, 4096)
	if !bytes.Equal(got, p.stream) {
		t.Errorf("%d bytes became %d, %x became %x", len(p.stream), len(got), p.stream, got)
	}
}

// Whatever the form of a partition's address is, events come from it.
func TestAddresses(t *testing.T) {
	for _, address := range []string{events, strings.ToLower(events), "amqps://namespace:5671/" + events, "$hub/" + events} {
		p := &peer{}
		p.attachAlone(address)
		p.deliver(0, 0, false, false, usual(t)[0])
		stream, c, _ := through(p, 4096)
		all := messages(t, stream)
		if n := len(parseAll(t, c, all[[2]uint32{}][0])); n != 1 {
			t.Errorf("%s: %d events, want one", address, n)
		}
	}
}

// A message that is larger than any is replaced, and not held in memory.
func TestTooLarge(t *testing.T) {
	head, next := poison.Messages()[0].Encode(at), usual(t)[0]
	p := &peer{}
	p.attachAlone(events)
	p.deliver(0, 0, true, false, head)
	for range 100 {
		p.deliver(0, 0, true, false, make([]byte, 60_000))
	}
	p.deliver(0, 0, false, false, nil)
	p.deliver(0, 0, false, false, next)
	stream, c, _ := through(p, 4096)
	all := messages(t, stream)
	var got []amqpfilter.Event
	for _, m := range all[[2]uint32{}] {
		got = append(got, parseAll(t, c, m)...)
	}
	if len(got) != 2 {
		t.Fatalf("got %d events, want 2", len(got))
	}
	if e := got[1]; e.Sequence != at.Sequence || len(e.Undecodable) > 0 {
		t.Errorf("%x became %+v", next, e)
	}
	if e := got[0]; e.Undecodable != "message too large" || e.Sequence != at.Sequence || len(e.Body) > amqpfilter.MaxKept || !bytes.HasPrefix(e.Body, head) {
		t.Errorf("got %+v", e)
	}
}

// What the peer announces to be the largest message does not matter, because the library gets no message of the peer's.
func TestSmallLimit(t *testing.T) {
	p := &peer{}
	p.begin(0, 0)
	p.attach(0, 0, events, 20)
	p.deliver(0, 0, false, false, usual(t)[0])
	stream, c, _ := through(p, 4096)
	got := messages(t, stream)[[2]uint32{}][0]
	if all := parseAll(t, c, got); len(got) > 20 || len(all) != 1 || all[0].Sequence != at.Sequence {
		t.Errorf("%d bytes, %+v", len(got), all)
	}
}

// What was not taken when a session ends is dropped.
func TestEndDropsWhatIsLeft(t *testing.T) {
	p := &peer{}
	p.attachAlone(events)
	p.deliver(0, 0, false, false, usual(t)[0])
	p.write(0, &frames.End{})
	stream, c, _ := through(p, 4096)
	m, err := library(messages(t, stream)[[2]uint32{}][0])
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Take(m.Data[0]); ok {
		t.Error("it is still there")
	}
}

// What was taken stays as it is until it is taken back, whatever comes, and then others come in its memory.
func TestReuse(t *testing.T) {
	p := &peer{}
	p.attachAlone(events)
	var want [][]byte
	for i := range 200 {
		message := bytes.Repeat([]byte{0xf0 | byte(i%16)}, []int{30, 9_000, 20_000, 50_000}[i/8%4])
		if want = append(want, message); i%8 == 7 { // in two frames
			p.deliver(0, 0, true, false, message[:len(message)/2])
			message = message[len(message)/2:]
		}
		p.deliver(0, 0, false, false, message)
	}

	c := filtered(p, &pieces{stream: p.stream, sizes: []int{70_000, 1, 30_000}})
	var got, before []byte // of the connection; of the batch before
	var taken amqpfilter.Messages
	batches, reused := 0, 0
	seen := map[*byte]bool{} // where batches were that were taken back
	for buffer := make([]byte, 1<<16); len(want) > 0; {
		n, err := c.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buffer[:n]...)
		for _, ticket := range messages(t, got)[[2]uint32{}][batches:] {
			m, err := library(ticket)
			if err != nil {
				t.Fatal(err)
			}
			now, ok := c.Take(m.Data[0])
			if !ok {
				t.Fatal("not there")
			}
			if !bytes.Equal(taken, before) {
				t.Fatal("what was taken has changed")
			}
			if len(taken) > 0 {
				seen[&taken[0]] = true
				c.Reuse(taken)
			}
			if seen[&now[0]] {
				reused++
			}
			taken, before, batches = now, bytes.Clone(now), batches+1
			for len(now) > 0 {
				var e amqpfilter.Event
				e, now = now.Next()
				if !bytes.Equal(e.Body, want[0]) {
					t.Fatalf("event %d from the end is not what was sent", len(want))
				}
				want = want[1:]
			}
		}
	}
	if reused == 0 {
		t.Error("no memory was used again")
	}
}

// Frames that nobody could read end the connection.
func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		send func(*peer)
		want string
	}{
		"short frame":     {func(p *peer) { p.stream = append(p.stream, 0, 0, 0, 7, 2, 0, 0, 0) }, "frame of 7 bytes"},
		"large frame":     {func(p *peer) { p.stream = append(p.stream, 1, 0, 0, 0, 2, 0, 0, 0) }, "frame of 16777216 bytes"},
		"broken transfer": {func(p *peer) { p.stream = append(p.stream, 0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x14, 0xc0) }, "transfer"},
	} {
		p := &peer{}
		p.open()
		p.attachAlone(events)
		good := len(p.stream)
		tt.send(p)
		got, _, err := through(p, 4096)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if len(got) < good {
			t.Errorf("%s: %d bytes came before it, want at least %d", name, len(got), good)
		}
	}
}

// No bytes at all make it panic, take more memory than they should, or end differently if they come in pieces.
func FuzzStream(f *testing.F) {
	p := &peer{}
	p.open()
	p.attachAlone(events)
	good := usual(f)[0]
	p.deliver(0, 0, false, false, good)
	p.deliver(0, 0, true, false, good[:20])
	p.deliver(0, 0, false, false, good[20:])
	p.deliver(0, 0, false, false, []byte("noise"))
	p.write(0, &frames.Detach{Handle: 0, Closed: true}, &frames.End{}, &frames.Close{})
	f.Add(p.stream, uint16(7), uint16(512))
	f.Fuzz(func(t *testing.T, stream []byte, piece, buffer uint16) {
		sending := &peer{stream: stream, asked: p.asked}
		whole, _, err := through(sending, 1<<16)
		cut, _, err2 := through(sending, int(buffer)+1, int(piece)+1)
		if err.Error() != err2.Error() {
			t.Fatalf("%x became %x, %v; in pieces %x, %v", stream, whole, err, cut, err2)
		}
	})
}
