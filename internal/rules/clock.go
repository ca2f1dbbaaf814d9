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
	if field, hasDot := strings.CutPrefix(where, "body."); hasDot {
		return nil, fmt.Errorf("is the name of an application property: for the field %s of the body write body:%s", field, field)
	}

	if !inBody {
		return &Clock{property: where}, nil
	}

	body, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: field, Time: true})
	switch {
	case strings.TrimSpace(field) == "":
		return nil, fmt.Errorf("must be an application property, or body: and the path of a field, such as body:timestamp")
	case err != nil:
		return nil, fmt.Errorf("is invalid: %w", err)
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
	if kind != TimeUsed {
		return 0, kind
	}

	ahead := t.Sub(e.Enqueued)

	switch {
	case ahead > MaxAhead:
		return 0, TimeFuture
	case ahead < -MaxBehind:
		return 0, TimeOld
	}

	return t.UnixMicro(), TimeUsed
}

// read returns the time that e has where c looks, whether it is trusted or not.
func (c *Clock) read(e *telemetry.Event) (t time.Time, kind DeviceTime) {
	if c.body != nil {
		return c.readBody(e)
	}

	return readProperty(e.Properties.Get(c.property))
}

// readBody is read for a field of the body.
func (c *Clock) readBody(e *telemetry.Event) (t time.Time, kind DeviceTime) {
	var found [1]telemetry.Found
	c.body.DecodeAll(e, found[:])

	switch found[0].Reason {
	case telemetry.ReasonOK:
		return time.UnixMicro(int64(found[0].Value)), TimeUsed
	case telemetry.ReasonMissing, telemetry.ReasonNull:
		return t, TimeMissing
	}

	return t, TimeUnreadable
}

// readProperty is read for an application property.
func readProperty(p telemetry.Property) (t time.Time, kind DeviceTime) {
	if p.IsNull() {
		return t, TimeMissing
	}

	t, ok := timeOf(p)
	if !ok {
		return t, TimeUnreadable
	}

	return t, TimeUsed
}

// timeOf returns the time that p is, as a timestamp or as text or a number that stands for one; false if it is none.
func timeOf(p telemetry.Property) (t time.Time, ok bool) {
	if text, isText := p.Text(); isText {
		return telemetry.ParseTime(text)
	}

	if number, isNumber := p.Number(); isNumber {
		return telemetry.UnixTime(number)
	}

	return p.Time()
}
