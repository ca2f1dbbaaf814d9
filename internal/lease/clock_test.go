package lease

import (
	"testing"
	"time"
	"unsafe"
)

// A machine that was suspended has a wall clock ahead of its monotonic one, and one
// whose clock was set back the other way about. The earlier end counts.
func TestBothClocks(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name  string
		end   time.Time
		shift time.Duration // of the end, by the wall clock alone
		want  bool
	}{
		{"ahead", now.Add(time.Minute), 0, true},
		{"over", now.Add(-time.Nanosecond), 0, false},
		{"just now", now, 0, false},
		{"suspended for less", now.Add(time.Minute), -59 * time.Second, true},
		{"suspended for longer", now.Add(time.Minute), -60 * time.Second, false},
		{"over, and the wall clock set back", now.Add(-time.Second), time.Hour, false},
	}
	for _, test := range tests {
		if got := Ahead(shiftWall(t, test.end, test.shift)); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

// shiftWall moves the wall clock's reading in at, and not the monotonic one's,
// by whole seconds: what no clock does in a test and every laptop does in a bag.
func shiftWall(t testing.TB, at time.Time, by time.Duration) time.Time {
	shifted := at
	wall := (*uint64)(unsafe.Pointer(&shifted)) // time.Time's first field; seconds from bit 30
	*wall += uint64(by/time.Second) << 30
	if shifted.Sub(at) != 0 || shifted.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("%v was not moved by %v: time.Time is made differently now", at, by)
	}
	return shifted
}
