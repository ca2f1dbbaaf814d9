package rules

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/telemetry"
)

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
	time *telemetry.Decoder // of one field
}

// NewClock returns a Clock for times at where, as Set.Time has it. Its error continues the name of a setting.
func NewClock(where string) (*Clock, error) {
	field, inBody := strings.CutPrefix(where, "body:")
	if field, hasDot := strings.CutPrefix(where, "body."); hasDot {
		return nil, fmt.Errorf("is the name of an application property: for the field %s of the body write body:%s", field, field)
	}

	if strings.HasPrefix(where, "$twin.") {
		return nil, fmt.Errorf(
			"must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's " +
				"message enrichment")
	}

	if inBody && strings.TrimSpace(field) == "" {
		return nil, fmt.Errorf("must be a name, or body: and the path of a field, such as body:timestamp")
	}

	time, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: field, Time: true, InBody: inBody, Condition: true})
	if err != nil {
		return nil, fmt.Errorf("is invalid: %w", err)
	}

	return &Clock{time: time}, nil
}

// Clock returns the Clock for Time, nil if that is empty.
func (s *Set) Clock() (*Clock, error) {
	if s.Time == "" {
		return nil, nil
	}

	return NewClock(s.Time)
}

// Read returns the time of the i-th of m in Unix µs, 0 unless it is trusted.
func (c *Clock) Read(m *telemetry.Measurements, i int) (at int64, kind DeviceTime) {
	var found [1]telemetry.Found
	m.Read(c.time, i, found[:])

	switch reason := found[0].Reason; {
	case reason == telemetry.ReasonOK:
	case reason == telemetry.ReasonMissing, reason == telemetry.ReasonNull, !reason.Decoded():
		return 0, TimeMissing
	default:
		return 0, TimeUnreadable
	}

	at = int64(found[0].Value)
	ahead := time.UnixMicro(at).Sub(m.Event.Enqueued)

	switch {
	case ahead > MaxAhead:
		return 0, TimeFuture
	case ahead < -MaxBehind:
		return 0, TimeOld
	}

	return at, TimeUsed
}

// Sort orders m by the times that its measurements have, if all have one that is trusted.
func (c *Clock) Sort(m *telemetry.Measurements) {
	m.Sort(func(i int) (int64, bool) {
		at, kind := c.Read(m, i)
		return at, kind == TimeUsed
	})
}
