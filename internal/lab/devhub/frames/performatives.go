package frames

import (
	"errors"
	"fmt"
	"time"
)

// A Performative is what a frame says.
type Performative interface {
	code() uint64
	fields() []any
}

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
	Source               *Terminus
	Target               *Terminus
	InitialDeliveryCount uint32
	MaxMessageSize       uint64
	Properties           Map
}

// A Terminus is a source or a target.
type Terminus struct {
	Address string
	Filter  Map // of a source
}

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
	Error   *Error // rejected; nil stands for accepted
}

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

// Mechanisms is what a SASL server offers.
type Mechanisms []Symbol

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

// Descriptor codes.
const (
	codeOpen        = 0x10
	codeBegin       = 0x11
	codeAttach      = 0x12
	codeFlow        = 0x13
	codeTransfer    = 0x14
	codeDisposition = 0x15
	codeDetach      = 0x16
	codeEnd         = 0x17
	codeClose       = 0x18
	codeError       = 0x1d
	codeAccepted    = 0x24
	codeRejected    = 0x25
	codeSource      = 0x28
	codeTarget      = 0x29
	codeMechanisms  = 0x40
	codeInit        = 0x41
	codeOutcome     = 0x44
)

func (Open) code() uint64        { return codeOpen }
func (Begin) code() uint64       { return codeBegin }
func (Attach) code() uint64      { return codeAttach }
func (Flow) code() uint64        { return codeFlow }
func (Transfer) code() uint64    { return codeTransfer }
func (Disposition) code() uint64 { return codeDisposition }
func (Detach) code() uint64      { return codeDetach }
func (End) code() uint64         { return codeEnd }
func (Close) code() uint64       { return codeClose }
func (Mechanisms) code() uint64  { return codeMechanisms }
func (Init) code() uint64        { return codeInit }
func (Outcome) code() uint64     { return codeOutcome }

func (o Open) fields() []any {
	return []any{o.ContainerID, o.Hostname, o.MaxFrameSize, o.ChannelMax, uint32(o.IdleTimeout.Milliseconds())}
}

func (b Begin) fields() []any {
	return []any{optional(b.RemoteChannel), b.NextOutgoingID, b.IncomingWindow, b.OutgoingWindow, b.HandleMax}
}

func (a Attach) fields() []any {
	return []any{a.Name, a.Handle, a.Role, optional(a.SenderSettleMode), optional(a.ReceiverSettleMode),
		a.Source.value(codeSource), a.Target.value(codeTarget), nil, nil, a.InitialDeliveryCount, a.MaxMessageSize, nil, nil, optionalMap(a.Properties)}
}

func (t *Terminus) value(code uint64) any {
	switch {
	case t == nil:
		return nil
	case code == codeTarget:
		return Described{code, []any{t.Address}}
	}
	return Described{code, []any{t.Address, nil, nil, nil, nil, nil, nil, optionalMap(t.Filter)}}
}

func (f Flow) fields() []any {
	list := []any{optional(f.NextIncomingID), f.IncomingWindow, f.NextOutgoingID, f.OutgoingWindow, optional(f.Handle)}
	if f.Handle == nil {
		return append(list, nil, nil, nil, nil, f.Echo)
	}
	return append(list, f.DeliveryCount, f.LinkCredit, nil, f.Drain, f.Echo)
}

func (t Transfer) fields() []any {
	return []any{t.Handle, optional(t.DeliveryID), t.DeliveryTag, t.MessageFormat, t.Settled, t.More, nil, nil, nil, t.Aborted}
}

func (d Disposition) fields() []any {
	state := Described{uint64(codeAccepted), []any{}}
	if d.Error != nil {
		state = Described{uint64(codeRejected), []any{d.Error.value()}}
	}
	return []any{d.Role, d.First, d.Last, d.Settled, state}
}

func (d Detach) fields() []any     { return []any{d.Handle, d.Closed, d.Error.value()} }
func (e End) fields() []any        { return []any{e.Error.value()} }
func (c Close) fields() []any      { return []any{c.Error.value()} }
func (m Mechanisms) fields() []any { return []any{[]Symbol(m)} }
func (i Init) fields() []any       { return []any{i.Mechanism, i.InitialResponse} }
func (o Outcome) fields() []any    { return []any{o.Code} }

func (e *Error) value() any {
	if e == nil {
		return nil
	}
	return Described{uint64(codeError), []any{e.Condition, e.Description, optionalMap(e.Info)}}
}

func optional[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func optionalMap(m Map) any {
	if len(m) == 0 {
		return nil
	}
	return m
}

// Decode decodes the body of a frame. The payload is what follows the
// performative; it aliases body.
func Decode(body []byte) (p Performative, payload []byte, err error) {
	v, payload, err := readValue(body, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("performative: %w", err)
	}
	d, _ := v.(Described)
	code, ok := d.Descriptor.(uint64)
	list, ok2 := d.Value.([]any)
	if !ok || !ok2 {
		return nil, nil, errors.New("performative: not a list described by a number")
	}
	r := &fieldReader{list: list}
	switch code {
	case codeOpen:
		p = Open{
			ContainerID:  field(r, 0, ""),
			Hostname:     field(r, 1, ""),
			MaxFrameSize: field(r, 2, uint32(0)),
			ChannelMax:   field(r, 3, uint16(65535)),
			IdleTimeout:  time.Duration(field(r, 4, uint32(0))) * time.Millisecond,
		}
	case codeBegin:
		p = Begin{
			RemoteChannel:  pointer[uint16](r, 0),
			NextOutgoingID: required[uint32](r, 1),
			IncomingWindow: required[uint32](r, 2),
			OutgoingWindow: required[uint32](r, 3),
			HandleMax:      field(r, 4, ^uint32(0)),
		}
	case codeAttach:
		p = Attach{
			Name:                 required[string](r, 0),
			Handle:               required[uint32](r, 1),
			Role:                 required[bool](r, 2),
			SenderSettleMode:     pointer[uint8](r, 3),
			ReceiverSettleMode:   pointer[uint8](r, 4),
			Source:               terminus(r, 5, codeSource),
			Target:               terminus(r, 6, codeTarget),
			InitialDeliveryCount: field(r, 9, uint32(0)),
			MaxMessageSize:       field(r, 10, uint64(0)),
			Properties:           field(r, 13, Map(nil)),
		}
	case codeFlow:
		p = Flow{
			NextIncomingID: pointer[uint32](r, 0),
			IncomingWindow: required[uint32](r, 1),
			NextOutgoingID: required[uint32](r, 2),
			OutgoingWindow: required[uint32](r, 3),
			Handle:         pointer[uint32](r, 4),
			DeliveryCount:  field(r, 5, uint32(0)),
			LinkCredit:     field(r, 6, uint32(0)),
			Drain:          field(r, 8, false),
			Echo:           field(r, 9, false),
		}
	case codeTransfer:
		p = Transfer{
			Handle:        required[uint32](r, 0),
			DeliveryID:    pointer[uint32](r, 1),
			DeliveryTag:   field(r, 2, []byte(nil)),
			MessageFormat: field(r, 3, uint32(0)),
			Settled:       field(r, 4, false),
			More:          field(r, 5, false),
			Aborted:       field(r, 9, false),
		}
	case codeDisposition:
		first := required[uint32](r, 1)
		d := Disposition{
			Role:    required[bool](r, 0),
			First:   first,
			Last:    field(r, 2, first),
			Settled: field(r, 3, false),
		}
		if state := field(r, 4, Described{}); state.Descriptor == uint64(codeRejected) {
			d.Error = &Error{}
			if list, _ := state.Value.([]any); len(list) > 0 {
				d.Error = condition(&fieldReader{list: list}, 0)
			}
		}
		p = d
	case codeDetach:
		p = Detach{required[uint32](r, 0), field(r, 1, false), condition(r, 2)}
	case codeEnd:
		p = End{condition(r, 0)}
	case codeClose:
		p = Close{condition(r, 0)}
	case codeMechanisms:
		p = mechanisms(r, 0)
	case codeInit:
		p = Init{required[Symbol](r, 0), field(r, 1, []byte(nil))}
	case codeOutcome:
		p = Outcome{required[uint8](r, 0)}
	default:
		return nil, nil, fmt.Errorf("performative: unknown code %#x", code)
	}
	if r.err != nil {
		return nil, nil, fmt.Errorf("%T: %w", p, r.err)
	}
	return p, payload, nil
}

// A fieldReader reads the fields of a list and keeps the first error.
type fieldReader struct {
	list []any
	err  error
}

func (r *fieldReader) at(i int) any {
	if i < len(r.list) {
		return r.list[i]
	}
	return nil
}

func (r *fieldReader) fail(i int, v any) {
	if r.err == nil {
		r.err = fmt.Errorf("field %d is a %T", i, v)
	}
}

// field returns field i, or missing where it is absent or null.
func field[T any](r *fieldReader, i int, missing T) T {
	switch v := r.at(i).(type) {
	case nil:
		return missing
	case T:
		return v
	default:
		r.fail(i, v)
		return missing
	}
}

func required[T any](r *fieldReader, i int) (v T) {
	if r.at(i) == nil {
		r.fail(i, nil)
		return v
	}
	return field(r, i, v)
}

func pointer[T any](r *fieldReader, i int) *T {
	if r.at(i) == nil {
		return nil
	}
	var v T
	v = field(r, i, v)
	return &v
}

// described returns the fields of the described list at i, nil if it is absent.
func described(r *fieldReader, i int, code uint64) *fieldReader {
	v := r.at(i)
	if v == nil {
		return nil
	}
	d, _ := v.(Described)
	list, ok := d.Value.([]any)
	if !ok || d.Descriptor != code {
		r.fail(i, v)
		return nil
	}
	return &fieldReader{list: list}
}

func terminus(r *fieldReader, i int, code uint64) *Terminus {
	f := described(r, i, code)
	if f == nil {
		return nil
	}
	t := &Terminus{Address: field(f, 0, "")}
	if code == codeSource {
		t.Filter = field(f, 7, Map(nil))
	}
	if r.err == nil {
		r.err = f.err
	}
	return t
}

func condition(r *fieldReader, i int) *Error {
	f := described(r, i, codeError)
	if f == nil {
		return nil
	}
	e := &Error{required[Symbol](f, 0), field(f, 1, ""), field(f, 2, Map(nil))}
	if r.err == nil {
		r.err = f.err
	}
	return e
}

// mechanisms reads an array of symbols or, as the standard allows for one, a symbol.
func mechanisms(r *fieldReader, i int) (m Mechanisms) {
	switch v := r.at(i).(type) {
	case Symbol:
		return Mechanisms{v}
	case []any:
		for _, e := range v {
			s, ok := e.(Symbol)
			if !ok {
				r.fail(i, e)
			}
			m = append(m, s)
		}
	default:
		r.fail(i, v)
	}
	return m
}
