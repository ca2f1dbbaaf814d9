package sensor_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"alertworker/internal/sensor"
)

// Whatever a device calls itself, what it is called here is bounded, shows how its id begins and ends, and is no other
// device's.
func TestLongIDs(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	seen := map[string]string{}
	for name, id := range map[string]string{
		"as long as it may be": long[:sensor.MaxDevice],
		"one more":             long[:sensor.MaxDevice+1],
		"long":                 long,
		"another beginning":    "a" + long,
		"another middle":       long + "a" + long,
		"another end":          long + "a",
		"umlauts":              strings.Repeat("ü", 1000),
		"not text":             strings.Repeat("\xff", 1000),
	} {
		got := sensor.Device(id)
		if len(got) > sensor.MaxDevice || seen[got] != "" || sensor.Device(got) != got {
			t.Errorf("%s: got %d bytes, %q, as for %q", name, len(got), got, seen[got])
		}
		seen[got] = name
		if isKept := got == id; isKept != (len(id) <= sensor.MaxDevice) {
			t.Errorf("%s: %d bytes became %q", name, len(id), got)
		}
		if isText := utf8.ValidString(id); isText && (!utf8.ValidString(got) || got[:100] != id[:100] || got[len(got)-50:] != id[len(id)-50:]) {
			t.Errorf("%s: %q does not show how it begins and ends", name, got)
		}
	}
	if got := sensor.Name(long); len(got) > sensor.MaxName {
		t.Errorf("the name of a sensor has %d bytes", len(got))
	}
}
