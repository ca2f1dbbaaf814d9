package frames

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	"alertworker/internal/telemetry/amqpvalue"
)

// A Performative is what a frame says: a pointer to one of the types below.
type Performative interface{ list }

// Roles of a link's end.
const (
	Sender   = false
	Receiver = true
)

// Settlement modes.
const (
	SenderSettled uint8 = 1 // the sender settles every delivery as it sends it
	ReceiverFirst uint8 = 0 // the receiver settles without waiting for the sender
)

// Open negotiates a connection.
type Open struct {
	ContainerID  string
	Hostname     string
	MaxFrameSize uint32 // 0 stands for no limit
	ChannelMax   uint16
	IdleTimeout  time.Duration // the sender of the Open wants a frame at least so often; 0 if it does not care
}

// Begin opens a session.
type Begin struct {
	RemoteChannel  *uint16 // set in an answer: the channel of the session that the peer began
	NextOutgoingID uint32
	IncomingWindow uint32
	OutgoingWindow uint32
	HandleMax      uint32
}

// Attach opens a link.
type Attach struct {
	Name                 string
	Handle               uint32
	Role                 bool
	SenderSettleMode     *uint8
	ReceiverSettleMode   *uint8
	Source               *Source
	Target               *Target
	InitialDeliveryCount uint32
	MaxMessageSize       uint64
	DesiredCapabilities  amqpvalue.Value // as they came: see Wants
	Properties           Map
}

// Wants reports whether a capability is among the desired ones: one symbol, or an array of them.
func (a *Attach) Wants(capability Symbol) bool {
	return bytes.Contains(a.DesiredCapabilities, []byte(capability))
}

// A Source is where the messages of a link come from.
type Source struct {
	Address string
	Filter  Map
}

// A Target is where they go.
type Target struct{ Address string }

// Flow updates windows and, if Handle is set, the credit of a link.
type Flow struct {
	NextIncomingID *uint32
	IncomingWindow uint32
	NextOutgoingID uint32
	OutgoingWindow uint32
	Handle         *uint32
	DeliveryCount  uint32
	LinkCredit     uint32
	Drain          bool
	Echo           bool
}

// Transfer carries a message or a part of it: the rest of its frame.
type Transfer struct {
	Handle        uint32
	DeliveryID    *uint32 // may be left out after a delivery's first transfer
	DeliveryTag   []byte
	MessageFormat uint32
	Settled       bool
	More          bool
	Aborted       bool
}

// Disposition reports the state of deliveries.
type Disposition struct {
	Role    bool
	First   uint32
	Last    uint32
	Settled bool
	Error   *Error // rejected; nil stands for accepted. It is not read.
}

type accepted struct{}

type rejected struct{ err *Error }

// Detach closes a link.
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// End closes a session.
type End struct{ Error *Error }

// Close closes a connection.
type Close struct{ Error *Error }

// Mechanisms is what a SASL server offers. It is not read.
type Mechanisms struct{ Names []Symbol }

// Init is what a SASL client chose.
type Init struct {
	Mechanism       Symbol
	InitialResponse []byte
}

// Outcome ends SASL.
type Outcome struct{ Code uint8 }

// SASL outcome codes.
const (
	SASLOK   uint8 = 0
	SASLAuth uint8 = 1
)

// An Error is why something was refused or closed.
type Error struct {
	Condition   Symbol
	Description string
	Info        Map
}

func (e *Error) Error() string { return string(e.Condition) + ": " + e.Description }

// Descriptors, by type. Those that Decode can return are in performatives as well.
func (*Open) code() uint64        { return 0x10 }
func (*Begin) code() uint64       { return 0x11 }
func (*Attach) code() uint64      { return 0x12 }
func (*Flow) code() uint64        { return 0x13 }
func (*Transfer) code() uint64    { return 0x14 }
func (*Disposition) code() uint64 { return 0x15 }
func (*Detach) code() uint64      { return 0x16 }
func (*End) code() uint64         { return 0x17 }
func (*Close) code() uint64       { return 0x18 }
func (*Mechanisms) code() uint64  { return 0x40 }
func (*Init) code() uint64        { return 0x41 }
func (*Outcome) code() uint64     { return 0x44 }
func (*Source) code() uint64      { return 0x28 }
func (*Target) code() uint64      { return 0x29 }
func (*Error) code() uint64       { return 0x1d }
func (*accepted) code() uint64    { return 0x24 }
func (*rejected) code() uint64    { return 0x25 }

func (o *Open) fields() []any {
	return []any{&o.ContainerID, &o.Hostname, &o.MaxFrameSize, &o.ChannelMax, &o.IdleTimeout,
		nil, nil, nil, nil, nil}
}

func (b *Begin) fields() []any {
	return []any{&b.RemoteChannel, &b.NextOutgoingID, &b.IncomingWindow, &b.OutgoingWindow, &b.HandleMax,
		nil, nil, nil}
}

func (a *Attach) fields() []any {
	return []any{&a.Name, &a.Handle, &a.Role, &a.SenderSettleMode, &a.ReceiverSettleMode,
		&a.Source, &a.Target, nil, nil, &a.InitialDeliveryCount, &a.MaxMessageSize,
		nil, &a.DesiredCapabilities, &a.Properties}
}

func (s *Source) fields() []any {
	return []any{&s.Address, nil, nil, nil, nil, nil, nil, &s.Filter, nil, nil, nil}
}

func (t *Target) fields() []any { return []any{&t.Address, nil, nil, nil, nil, nil, nil} }

func (f *Flow) fields() []any {
	return []any{&f.NextIncomingID, &f.IncomingWindow, &f.NextOutgoingID, &f.OutgoingWindow,
		&f.Handle, ofLink{&f.DeliveryCount, f.Handle}, ofLink{&f.LinkCredit, f.Handle}, nil,
		ofLink{&f.Drain, f.Handle}, &f.Echo, nil}
}

func (t *Transfer) fields() []any {
	return []any{&t.Handle, &t.DeliveryID, &t.DeliveryTag, &t.MessageFormat, &t.Settled, &t.More,
		nil, nil, nil, &t.Aborted, nil}
}

func (d *Disposition) fields() []any {
	var state any = &accepted{}
	if d.Error != nil {
		state = &rejected{d.Error}
	}

	return []any{&d.Role, &d.First, &d.Last, &d.Settled, sent{state}, nil}
}

func (a *accepted) fields() []any   { return nil }
func (r *rejected) fields() []any   { return []any{&r.err} }
func (d *Detach) fields() []any     { return []any{&d.Handle, &d.Closed, &d.Error} }
func (e *End) fields() []any        { return []any{&e.Error} }
func (c *Close) fields() []any      { return []any{&c.Error} }
func (m *Mechanisms) fields() []any { return []any{sent{m.Names}} }
func (i *Init) fields() []any       { return []any{&i.Mechanism, &i.InitialResponse, nil} }
func (o *Outcome) fields() []any    { return []any{&o.Code, nil} }
func (e *Error) fields() []any {
	return []any{&e.Condition, &e.Description, &e.Info}
}

var performatives = func() map[uint64]reflect.Type {
	types := map[uint64]reflect.Type{}
	for _, p := range []Performative{
		&Open{}, &Begin{}, &Attach{}, &Flow{}, &Transfer{}, &Disposition{}, &Detach{}, &End{}, &Close{},
		&Mechanisms{}, &Init{}, &Outcome{},
	} {
		types[p.code()] = reflect.TypeOf(p).Elem()
	}

	return types
}()

// Decode decodes the body of a frame. The payload is what follows the
// performative; it aliases body.
func Decode(body []byte) (p Performative, payload []byte, err error) {
	v, payload, ok := amqpvalue.Next(body)
	if !ok {
		return nil, nil, fmt.Errorf("performative: %w", errShort)
	}

	code, fields, ok := v.Describe()
	if !ok {
		return nil, nil, errors.New("performative: not described by a number")
	}

	t, ok := performatives[code]
	if !ok {
		return nil, nil, fmt.Errorf("performative: unknown code %#x", code)
	}

	p = reflect.New(t).Interface().(Performative)
	if err := readList(p, fields); err != nil {
		return nil, nil, fmt.Errorf("%T: %w", p, err)
	}

	return p, payload, nil
}
