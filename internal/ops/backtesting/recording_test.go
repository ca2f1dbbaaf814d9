package backtesting_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
)

func write(t testing.TB, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// read returns the events of a recording as text, one in a line, and what was skipped.
func read(name, field string) (string, backtesting.Skipped, error) {
	r, err := backtesting.Open(name, field)
	if err != nil {
		return "", backtesting.Skipped{}, err
	}
	defer r.Close()
	var b strings.Builder
	for {
		_, events, err := r.Next(context.Background())
		if err == io.EOF {
			return b.String(), r.Skipped, nil
		}
		if err != nil {
			return b.String(), r.Skipped, err
		}
		for _, e := range events {
			b.WriteString(e.Enqueued.Format(time.RFC3339Nano) + " " + e.Device + " " + string(e.Body))
			if site, ok := e.Properties.Get("site").Text(); ok {
				b.WriteString(" site " + string(site))
			}
			b.WriteByte('\n')
		}
	}
}

func TestRecordings(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		skipped          backtesting.Skipped
	}{
		{"CSV", "timestamp,value\n2014-01-01 00:00:00,31\n2014-01-01T00:00:05Z,31.5\n",
			"2014-01-01T00:00:00Z readings {\"temperature\":31}\n2014-01-01T00:00:05Z readings {\"temperature\":31.5}\n", backtesting.Skipped{}},
		{"CSV with devices and fields", "\xef\xbb\xbfDevice,timestamp,temperature, door\noven,1388534400,31,open\nkiln,1388534401000,,ajar\n",
			"2014-01-01T00:00:00Z oven {\"temperature\":31,\"door\":\"open\"}\n2014-01-01T00:00:01Z kiln {\"door\":\"ajar\"}\n", backtesting.Skipped{}},
		{"lines that are no readings", "timestamp,device,value\n2014-01-01 00:00:09,oven,\nsoon,oven,3\n2014-01-01 00:00:09,oven,1\n2014-01-01 00:00:09,oven\n2014-01-01 00:00:08,oven,2\n2014-01-01 00:00:10,,2\n",
			"2014-01-01T00:00:09Z oven {\"temperature\":1}\n2014-01-01T00:00:09Z oven {\"temperature\":2}\n", backtesting.Skipped{Empty: 1, Malformed: 3, Unordered: 1}},
		{"what a route writes", `{"EnqueuedTimeUtc":"2026-03-01T14:00:00.1230000Z","Properties":{"site":"berlin"},"SystemProperties":{"connectionDeviceId":"oven-7","contentType":"application/json","contentEncoding":"utf-8"},"Body":{"temperature":91.5}}` + "\n" +
			`{"EnqueuedTimeUtc":"2026-03-01T14:00:01Z","Properties":{},"SystemProperties":{"connectionDeviceId":"oven-7"},"Body":"eyJ0ZW1wZXJhdHVyZSI6OTJ9"}`,
			"2026-03-01T14:00:00.123Z oven-7 {\"temperature\":91.5} site berlin\n2026-03-01T14:00:01Z oven-7 {\"temperature\":92}\n", backtesting.Skipped{}},
		{"lines of JSON", `{"timestamp":"2026-03-01T14:00:00Z","device":"oven","temperature":1}` + "\n\n?\n" + `{"timestamp":1772373601,"device":"oven","body":{"temp":2},"properties":{"site":7}}`,
			"2026-03-01T14:00:00Z oven {\"timestamp\":\"2026-03-01T14:00:00Z\",\"device\":\"oven\",\"temperature\":1}\n2026-03-01T14:00:01Z oven {\"temp\":2} site 7\n", backtesting.Skipped{Empty: 1, Malformed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, skipped, err := read(write(t, "readings.csv", tt.text), "temperature")
			if err != nil || got != tt.want || skipped != tt.skipped {
				t.Errorf("it reads\n%s\n%+v, %v; want\n%s\n%+v", got, skipped, err, tt.want, tt.skipped)
			}
		})
	}
}

func TestFilesThatAreNoRecordings(t *testing.T) {
	for _, tt := range []struct{ name, text, field, want string }{
		{"empty", "", "temperature", "it is empty"},
		{"Avro", "Obj\x01\x04\x14avro.codec", "temperature", "it is Avro"},
		{"compressed", "\x1f\x8b\x08\x00", "temperature", "unpack it first"},
		{"no columns", "2014-01-01 00:00:00,31\n2014-01-01 00:00:05,31\n", "temperature", "must name the columns"},
		{"nothing but the time", "timestamp,device\n2014-01-01 00:00:00,oven\n", "temperature", "must name the columns"},
		{"a value of which field", "timestamp,value\n2014-01-01 00:00:00,31\n", "", "give the column the name of one"},
		{"no readings", "timestamp,value\n" + strings.Repeat("yesterday,31\n", 1000), "temperature", "no reading in 100 lines"},
		{"only a header", "timestamp,value\n", "temperature", "no reading in 0 lines"},
		{"other JSON", `{"a":1}`, "temperature", "no reading in 1 lines"},
		{"a line without end", `{"a":` + strings.Repeat(" ", 2<<20), "temperature", "line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _, err := read(write(t, "file", tt.text), tt.field); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
	if _, _, err := read("nowhere.csv", ""); err == nil {
		t.Error("a file that is not there can be read")
	}
}

// Whatever a file holds, reading it ends, without a panic, and time never goes back.
func FuzzRecording(f *testing.F) {
	f.Add("timestamp,device,value\n2014-01-01 00:00:00,oven,31\n2013-01-01 00:00:00,oven,\n")
	f.Add(`{"EnqueuedTimeUtc":"2026-03-01T14:00:00Z","Properties":{"a":null},"SystemProperties":{"connectionDeviceId":"oven"},"Body":"eyJ9"}` + "\n{}")
	decoder, err := telemetry.NewDecoder("temperature")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := backtesting.Open(write(t, "file", text), "temperature")
		if err != nil {
			return
		}
		defer r.Close()
		var last time.Time
		for {
			_, events, err := r.Next(t.Context())
			if err != nil {
				return
			}
			for i := range events {
				if e := &events[i]; e.Enqueued.Before(last) || e.Device == "" {
					t.Errorf("%v of %q after %v", e.Enqueued, e.Device, last)
				}
				last = events[i].Enqueued
				decoder.Decode(&events[i])
			}
		}
	})
}
