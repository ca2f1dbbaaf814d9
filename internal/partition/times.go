package partition

import "time"

// Pauses after failures in a row grow between these.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// micros is t in µs, rounded up: rounding makes no reading older, and the hub counts in ms.
func micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// micros0 is micros, but 0 for a zero t.
func micros0(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromMicros0 is fromMicros, but the zero time for 0.
func fromMicros0(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}

// millis is t in ms, rounded up like micros.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }
