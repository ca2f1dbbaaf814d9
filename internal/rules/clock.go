package rules

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/telemetry"
)

// A Moment is when a reading was taken by two clocks, in Unix µs.
type Moment struct {
	Hub    int64 // when the hub took it
	Device int64 // when the device did, by its own clock; 0 if that is not known, or not trusted
}

// Time returns the device's time if that is known, else the hub's.
func (m Moment) Time() int64 { return cmp.Or(m.Device, m.Hub) }

// By returns m and the earlier moment since by one clock: the device's if it has both, else the hub's.
func (m Moment) By(since Moment) (at, from int64) {
	if m.Device != 0 && since.Device != 0 {
		return m.Device, since.Device
	}
	return m.Hub, since.Hub
}

// after returns how long after the earlier moment since m is, as By says.
func (m Moment) after(since Moment) time.Duration {
	now, from := m.By(since)
	return time.Duration(now-from) * time.Microsecond
}

// Which times of devices are trusted.
const (
	MaxAhead  = 5 * time.Minute     // of the hub's
	MaxBehind = 30 * 24 * time.Hour // of the hub's
)

// A DeviceTime is what a message has for the time of its device.
type DeviceTime int

const (
	TimeUsed       DeviceTime = iota
	TimeMissing               // none
	TimeUnreadable            // something that is no time
	TimeFuture                // more than MaxAhead
	TimeOld                   // more than MaxBehind
	TimeLate                  // earlier than that of a reading that the alarm of the device has seen
)

func (d DeviceTime) String() string {
	return [...]string{"used", "missing", "unreadable", "future", "old", "late"}[d]
}

// A Clock finds the time that a device gave its reading. It is safe for concurrent use.
type Clock struct {
	property string
	body     *telemetry.Decoder // nil if it is a property
}

// NewClock returns a Clock for times at where, as Set.Time has it. Its error continues the name of a setting.
func NewClock(where string) (*Clock, error) {
	field, inBody := strings.CutPrefix(where, "body:")
	if !inBody {
		return &Clock{property: where}, nil
	}

	body, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: field, Time: true})
	if err != nil || strings.TrimSpace(field) == "" {
		return nil, fmt.Errorf("must be an application property, or body: and the path of a field, such as body:timestamp")
	}

	return &Clock{body: body}, nil
}

// Clock returns the Clock for Time, nil if that is empty.
func (s *Set) Clock() (*Clock, error) {
	if s.Time == "" {
		return nil, nil
	}
	return NewClock(s.Time)
}

// Read returns the time of e's device in Unix µs, 0 unless it is trusted.
func (c *Clock) Read(e *telemetry.Event) (at int64, kind DeviceTime) {
	t, kind := c.read(e)
	switch ahead := t.Sub(e.Enqueued); {
	case kind != TimeUsed:
	case ahead > MaxAhead:
		kind = TimeFuture
	case ahead < -MaxBehind:
		kind = TimeOld
	default:
		return t.UnixMicro(), TimeUsed
	}

	return 0, kind
}

func (c *Clock) read(e *telemetry.Event) (t time.Time, kind DeviceTime) {
	ok := false

	if c.body != nil {
		var found [1]telemetry.Found
		switch c.body.DecodeAll(e, found[:]); found[0].Reason {
		case telemetry.ReasonOK:
			t, ok = time.UnixMicro(int64(found[0].Value)), true
		case telemetry.ReasonMissing, telemetry.ReasonNull:
			return t, TimeMissing
		}
	} else {
		p := e.Properties.Get(c.property)
		text, isText := p.Text()
		number, isNumber := p.Number()
		switch {
		case p.IsNull():
			return t, TimeMissing
		case isText:
			t, ok = telemetry.ParseTime(text)
		case isNumber:
			t, ok = telemetry.UnixTime(number)
		default:
			t, ok = p.Time()
		}
	}

	if !ok {
		return t, TimeUnreadable
	}

	return t, TimeUsed
}
