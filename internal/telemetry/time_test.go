package telemetry_test

import (
	"bytes"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/telemetry"
)

func TestParseTime(t *testing.T) {
	at := time.Date(2026, 3, 2, 3, 12, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-02t03:12:00z":                at,
		"2026-03-02 03:12:00 +0000":           at,
		"2026-03-02 03:12:00 Z":               at,
		"2026-03-02T03:12:00Z":                at,
		" 2026-03-02T03:12:00Z\n":             at,
		"2026-03-02T05:12:00+02:00":           at,
		"2026-03-01T19:12:00.000-08:00":       at,
		"2026-03-02T03:12:00.1509021Z":        at.Add(150_902_100),
		"2026-03-02T03:12:00":                 at, // the IoT Hub SDK for C
		"2026-03-02_03:12:00.0000000":         at, // and for Java
		"2026-03-02 03:12:00":                 at,
		"2026-03-02T03:12:00.123456789+00:00": at.Add(123_456_789),
		"2026-03-01T20:12:00-0700":            at, // strftime
		"2026-03-02T05:12:00.000+0200":        at,
		"1772421120000000":                    at,
		"1772421120000000000":                 at,
		"1772421120":                          at,
		"1772421120000":                       at,
		"1772421120,5":                        at.Add(500 * time.Millisecond),
		"2026-03-02 03:12:00.1509021 +0000":   at.Add(150_902_100),
		"1772421120.5":                        at.Add(500 * time.Millisecond),
		"1.77242112e9":                        at,
		"0":                                   time.Unix(0, 0),
		"-1":                                  time.Unix(-1, 0),
	} {
		if got, ok := telemetry.ParseTime([]byte(text)); !ok || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", " ", "now", "2026-03-02", "03:12", "2026-02-30T03:12:00Z", "2026-03-02T24:00:00Z", "2026-03-02T03:12:00+", "2026-03-02T03:12:00.1234567890123456+01:00", "02.03.2026 03:12:00", "177242112000000000000", "2026-03-02T03:12:00-07:0", "2026-03-02T03:12:00-070000", "2026-03-02 03:12:00  +0000", "NaN", "Infinity", "0x10", "1e400", "1_0", "1_0,5", "0x1,5p01", "1772421120,5x", "2026-03-02 03:12:00.12 3Z", "2026-03-02T03:12:05.12 3Z", "2026-03-02T03:12:0 Z", "$twin.tags.time"} {
		if got, ok := telemetry.ParseTime([]byte(text)); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, text := range []string{"2026-03-02T05:12:00.123+02:00", "2026-03-02T03:12:00", "2026-03-02T03:12:00-0700", "1772421120000"} {
		text := []byte(text)
		if n := testing.AllocsPerRun(100, func() { telemetry.ParseTime(text) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// A time in the body: as text or a number, the latest of several.
func TestDecodeTime(t *testing.T) {
	d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: "at", Time: true})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 2, 3, 12, 0, 5e8, time.UTC)
	for body, want := range map[string]telemetry.Reason{
		`{"at":"2026-03-02T03:12:00.5Z"}`:       telemetry.ReasonOK,
		`{"at":1772421120500}`:                  telemetry.ReasonOK,
		"{\"at\":\"2026-03-02T03:12:00.5Z\r\"}": telemetry.ReasonDamaged,
		`{"at":"1772421120.5"}`:                 telemetry.ReasonOK,
		`[{"at":1},{"at":1772421120.5}]`:        telemetry.ReasonOK,
		`{"at":null}`:                           telemetry.ReasonNull,
		`{}`:                                    telemetry.ReasonMissing,
		`{"at":true}`:                           telemetry.ReasonNotANumber,
		`{"at":"soon"}`:                         telemetry.ReasonNotANumber,
		`{"at":1e300}`:                          telemetry.ReasonNotANumber,
		`{"at":{}}`:                             telemetry.ReasonNotANumber,
	} {
		got, reason := d.Decode(&telemetry.Event{Device: "truck", Body: []byte(body)})
		if reason != want || reason.HasReading() && int64(got) != at.UnixMicro() {
			t.Errorf("%s: %v, %v", body, got, reason)
		}
	}
}

// What ParseNumber reads without strconv is what strconv reads.
func TestPlainNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`-?[0-9]{0,17}(\.[0-9]{0,17})?`),
			rapid.StringMatching(`9[0-9]{7}\.[0-9]{8}`),
			rapid.StringMatching(`[-+.0-9e]{0,4}`),
		).Draw(t, "text")
		f, ok := telemetry.ParseNumber([]byte(text))
		want, err := strconv.ParseFloat(text, 64)
		if ok != (err == nil) || math.Float64bits(f) != math.Float64bits(want) {
			t.Errorf("%q: %v, %v; strconv: %v, %v", text, f, ok, want, err)
		}
	})
}

// No text makes it panic, and what it takes it also takes as it writes it itself.
func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{"2026-03-02T03:12:00Z", "2026-03-02_03:12:00.0000000", "1772421120.5", "-"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		at, ok := telemetry.ParseTime(text)
		if !bytes.Equal(before, text) {
			t.Fatal("it has changed the text")
		}
		if !ok || at.Year() < 1 || at.Year() > 9999 {
			return
		}
		if again, ok := telemetry.ParseTime([]byte(at.UTC().Format(time.RFC3339Nano))); !ok || math.Abs(float64(again.Sub(at))) > 0 {
			t.Fatalf("%q: %v, then %v, %v", text, at, again, ok)
		}
	})
}
