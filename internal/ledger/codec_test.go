package ledger_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

var at = time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)

// full is a content with everything in it.
func full() ledger.Content {
	return ledger.Content{
		Position: telemetry.Position{Sequence: 41, Offset: "4100", Time: at},
		Alarms: []ledger.Alarm{
			{Device: "pending", Rule: "hot", Level: "warning", Since: at},
			{Device: "open", Rule: "hot", Level: "critical", Open: true, Since: at, DeviceSince: at.Add(-time.Hour), DeviceNewest: at.Add(-time.Minute), Cleared: at.Add(time.Second), DeviceCleared: at},
			{Device: "due", Rule: "temperature", Due: &ledger.Reading{Sequence: 40, Enqueued: at.Add(time.Millisecond), Value: 64.5, Limit: 65, Since: at, DeviceTime: at.Add(-time.Hour)}},
			{Device: "caf\xe9/\x00\"\\\u2028<設備>", Rule: "hot", Open: true, Since: at, Due: &ledger.Reading{}},
		},
	}
}

func packed(t testing.TB, plain string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if _, err := zip.Write([]byte(plain)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is kept comes back as it was, whatever bytes the hub and devices have chosen.
func TestContentComesBack(t *testing.T) {
	text := rapid.String()
	bytes := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "valid") {
			return text.Draw(t, "text")
		}
		return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	})
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	number := rapid.Custom(func(t *rapid.T) float64 {
		return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64})).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		want := ledger.Content{Position: telemetry.Position{Sequence: rapid.Int64().Draw(t, "sequence"), Generation: bytes.Draw(t, "generation"), Offset: bytes.Draw(t, "offset"), Time: moment.Draw(t, "time")}}
		for range rapid.IntRange(0, 3).Draw(t, "levels") {
			l := ledger.Level{
				Rule: text.Draw(t, "rule"), Name: text.Draw(t, "level"), Resolved: rapid.Bool().Draw(t, "resolved"), Below: rapid.Bool().Draw(t, "below"), Field: text.Draw(t, "field"),
				Window: time.Duration(rapid.Int64().Draw(t, "window")), Silent: time.Duration(rapid.Int64().Draw(t, "silent")), Title: text.Draw(t, "title"), Unit: text.Draw(t, "unit"), Runbook: text.Draw(t, "runbook"), Removed: moment.Draw(t, "removed"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "words") {
				l.Is = append(l.Is, text.Draw(t, "word"))
			}
			want.Levels = append(want.Levels, l)
		}
		for range rapid.IntRange(0, 5).Draw(t, "alarms") {
			a := ledger.Alarm{Device: ledger.Text(bytes.Draw(t, "device")), Rule: text.Draw(t, "rule"), Level: text.Draw(t, "level"), Open: rapid.Bool().Draw(t, "open"), Value: ledger.Number(number.Draw(t, "opened by")), Limit: ledger.Number(number.Draw(t, "limit")), Since: moment.Draw(t, "since"), DeviceSince: moment.Draw(t, "device since"), DeviceNewest: moment.Draw(t, "device newest"), Cleared: moment.Draw(t, "cleared"), DeviceCleared: moment.Draw(t, "device cleared")}
			a.Exposed = rapid.Bool().Draw(t, "exposed")
			if a.Silence = rapid.Bool().Draw(t, "silence"); a.Silence {
				a.Log, a.Sequence = rapid.StringMatching("[a-z]*").Draw(t, "log"), rapid.Int64().Draw(t, "place")
			}
			if rapid.Bool().Draw(t, "due") {
				a.Due = &ledger.Reading{Part: rapid.Byte().Draw(t, "part"), RaisedAt: moment.Draw(t, "opened"), Heard: moment.Draw(t, "heard"), Forgotten: rapid.Bool().Draw(t, "forgotten"), DeviceTime: moment.Draw(t, "device time"), Sequence: rapid.Int64().Draw(t, "cleared"), Enqueued: moment.Draw(t, "enqueued"), Value: ledger.Number(number.Draw(t, "value")), Limit: ledger.Number(number.Draw(t, "limit")), Since: moment.Draw(t, "since")}
			}
			want.Alarms = append(want.Alarms, a)
		}
		encoded, err := ledger.Encode("id", want)
		if err != nil {
			t.Fatal(err)
		}
		id, got, err := ledger.Decode(encoded)
		if err != nil || id != "id" || !reflect.DeepEqual(got, want) {
			t.Fatalf("it is %q %+v, %v\nwant %+v", id, got, err, want)
		}
	})
}

// A number that JSON does not have must not stop a partition, and nor must a time zone change a time.
func TestOddValuesComeBack(t *testing.T) {
	local := at.In(time.FixedZone("", 3600))
	encoded, err := ledger.Encode("id", ledger.Content{Position: telemetry.Position{Sequence: 1, Time: local}, Alarms: []ledger.Alarm{
		{Device: "", Since: local, Due: &ledger.Reading{Value: ledger.Number(math.NaN()), Limit: ledger.Number(math.Inf(-1)), Enqueued: local, Since: local}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := ledger.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	a := got.Alarms[0]
	if !math.IsNaN(float64(a.Due.Value)) || !math.IsInf(float64(a.Due.Limit), -1) || a.Device != "" {
		t.Errorf("it is %+v %+v", a, a.Due)
	}
	for _, got := range []time.Time{got.Position.Time, a.Since, a.Due.Enqueued, a.Due.Since} {
		if !got.Equal(at) {
			t.Errorf("%v has become %v", at, got)
		}
	}
}

// Anything else than what Encode wrote is an error that says what is wrong, and never an empty ledger.
func TestUnreadable(t *testing.T) {
	good, err := ledger.Encode("id", full())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"nothing", nil, "not compressed"},
		{"text", []byte("{}"), "not compressed"},
		{"cut off", good[:len(good)-9], "cannot be decompressed"},
		{"flipped", append(bytes.Clone(good[:len(good)-5]), 0, 1, 2, 3, 4), "cannot be decompressed"},
		{"empty", packed(t, ""), "not JSON"},
		{"another type", packed(t, "[]"), "not JSON"},
		{"no format", packed(t, "{}"), "not JSON with a format"},
		{"newer", packed(t, `{"format":2,"id":{"a":1}}`), "format 2; this version reads only format 1"},
		{"zero", packed(t, `{"format":0}`), "format 0"},
		{"no id", packed(t, `{"format":1}`), "no id"},
		{"unknown field", packed(t, `{"format":1,"id":"a","more":1}`), `"more"`},
		{"unknown field of an alarm", packed(t, `{"format":1,"id":"a","alarms":[{"device":"a","rule":"r","more":1}]}`), `"more"`},
		{"a number for a name", packed(t, `{"format":1,"id":"a","alarms":[{"device":1}]}`), "not that of a ledger"},
		{"two strings", packed(t, `{"format":1,"id":"a","alarms":[{"device":["YQ==","YQ=="]}]}`), "array of 2"},
		{"more after it", packed(t, `{"format":1,"id":"a"}{}`), "not JSON"},
		{"too large", bytes.Repeat(packed(t, strings.Repeat(" ", 1<<20)), ledger.MaxBytes>>20+1), fmt.Sprintf("more than %d bytes", ledger.MaxBytes)},
		{"too large as it is", make([]byte, ledger.MaxBytes+1), fmt.Sprintf("more than %d bytes", ledger.MaxBytes)},
	} {
		if _, got, err := ledger.Decode(test.content); err == nil || !strings.Contains(err.Error(), test.want) || !reflect.DeepEqual(got, ledger.Content{}) {
			t.Errorf("%s: %+v, %v; want an error with %q", test.name, got, err, test.want)
		}
	}
}

// The operator reads which record it is and what to do.
func TestUnreadableSaysWhatToDo(t *testing.T) {
	for content, want := range map[string]string{
		"garbage": "read ledger ns/hub/group/ledger/3: it is not compressed by gzip: its partition is not read until you restore it or delete it; " +
			"without it the partition's alarms are forgotten, and no recovery is sent for those that are open",
		string(packed(t, `{"format":2}`)): "read ledger ns/hub/group/ledger/3: it has format 2; this version reads only format 1: run the version that wrote it; until then its partition is not read",
	} {
		store := &records.Memory{}
		const name = "ns/hub/group/ledger/3"
		if _, err := store.Write(t.Context(), records.Record{Name: name, Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
		_, _, err := ledger.Open(t.Context(), store, name)
		var unreadable *ledger.UnreadableError
		if !errors.As(err, &unreadable) || unreadable.Name != name || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// many returns n alarms of ordinary size. No two have much in common besides their rule.
func many(n int) ledger.Content {
	random := rand.New(rand.NewPCG(1, 2))
	c := ledger.Content{Position: telemetry.Position{Sequence: 1 << 40, Offset: "1099511627776", Time: at}}
	for range n {
		a := ledger.Alarm{Device: ledger.Text(fmt.Sprintf("sensor-%08x", random.Uint32())), Rule: "temperature", Open: true, Since: at.Add(time.Duration(random.IntN(86_400_000)) * time.Millisecond)}
		c.Alarms = append(c.Alarms, a)
	}
	return c
}

// largest are alarms that take the most space, each of another kind, with texts that consist of a character.
func largest(char string) (open, silent, due ledger.Alarm) {
	text := func(n int) ledger.Text { return ledger.Text(strings.Repeat(char, n/len(char))) }
	const number, log = -2.2250738585072014e-308, "xxxxxxxxxxxx/1023"
	us := at.Add(time.Microsecond) // what is kept is in µs
	of := ledger.Alarm{Device: text(sensor.MaxDevice), Measured: "xxxxxxxx", Per: strings.Repeat("p", 128), Group: text(256), Sensor: text(sensor.MaxName), Element: math.MaxInt32, Rule: strings.Repeat("r", 32), Level: strings.Repeat("l", 32), Log: log, Sequence: math.MinInt64}
	reading := ledger.Reading{Log: log, Element: math.MaxInt32, Part: math.MaxUint8, Sequence: math.MinInt64, Enqueued: us, Limit: number, Since: us, RaisedAt: us}

	open, silent, due = of, of, of
	open.Open, open.Value, open.Limit, open.Since, open.DeviceSince, open.DeviceNewest = true, number, number, us, us, us
	open.Cleared, open.DeviceCleared, open.Exposed = us, us, true
	silent.Open, silent.Limit, silent.Since, silent.Silence = true, number, us, true
	heard := reading
	heard.Heard, silent.Due = us, &heard
	reading.Value, reading.DeviceTime, reading.Forgotten, reading.Excluded, due.Due = number, us, true, text(ledger.MaxExcluded), &reading

	return open, silent, due
}

// Each field of an alarm and of a reading is in one of the largest, but for that of the only outage.
func TestLargestHaveAllFields(t *testing.T) {
	open, silent, due := largest("x")
	for _, all := range [][]any{{open, silent, due}, {*silent.Due, *due.Due}} {
		for i := range reflect.TypeOf(all[0]).NumField() {
			field := reflect.TypeOf(all[0]).Field(i).Name
			has := slices.ContainsFunc(all, func(one any) bool { return !reflect.ValueOf(one).Field(i).IsZero() })
			if !has && field != "Outage" {
				t.Errorf("no %T has %s", all[0], field)
			}
		}
	}
}

// As many alarms as there may be fit, whatever devices are called and send.
func TestBounds(t *testing.T) {
	for name, char := range map[string]string{
		"letters": "x", "quotes": `"`, "backslashes": `\`, "less than": "<", "ampersands": "&", "control characters": "\x01", "line feeds": "\n",
		"not UTF-8": "\xff", "line separators": "\u2028", "C1": "\u0085", "emoji": "🌡", "replacement characters": "\ufffd",
	} {
		t.Run(name, func(t *testing.T) {
			size := func(c ledger.Content) int {
				encoded, err := ledger.Encode("id", c)
				if err != nil {
					t.Fatal(err)
				}
				zip, err := gzip.NewReader(bytes.NewReader(encoded))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := io.ReadAll(zip)
				if err != nil {
					t.Fatal(err)
				}
				if _, got, err := ledger.Decode(encoded); err != nil || !reflect.DeepEqual(got, c) {
					t.Errorf("%v: %+v has become %+v", err, c, got)
				}
				return len(plain)
			}
			open, silent, due := largest(char)
			one := func(a ledger.Alarm) int {
				return size(ledger.Content{Alarms: []ledger.Alarm{a, a}}) - size(ledger.Content{Alarms: []ledger.Alarm{a}})
			}
			end := func(n int) int {
				e := ledger.End{
					Rule: open.Rule, Level: open.Level, Measured: open.Measured, Per: open.Per, Silence: true, Value: open.Group,
					Incident: strings.Repeat("i", 300), Began: open.Since, Overs: math.MaxInt32, Device: open.Device, Sensor: open.Sensor,
					Reading: *due.Due,
				}
				return size(ledger.Content{Ends: slices.Repeat([]ledger.End{e}, n)})
			}
			ends := (end(2) - end(1)) * ledger.MaxEnds
			const levels = 64 * 4 << 10 // more than configurations have, of those that are removed
			most := ledger.MaxAlarms/2*(max(one(open), one(silent))+one(due)) + ends + levels
			t.Logf("open %d, silent %d, due %d, ends %d: %d of %d", one(open), one(silent), one(due), ends, most, ledger.MaxBytes)
			if most > ledger.MaxBytes {
				t.Errorf("%d bytes, and a ledger holds %d", most, ledger.MaxBytes)
			}
		})
	}
}

// What earlier versions kept of devices that operators had removed is read.
func TestRemovedOfEarlierVersions(t *testing.T) {
	_, c, err := ledger.Decode(packed(t, `{"format":1,"id":"a","forgotten":[{"device":"oven","log":"x/0","sequence":7}],"alarms":[{"device":"kiln","rule":"r"}]}`))
	if err != nil || len(c.Alarms) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := ledger.Encode("id", full())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{good, good[:len(good)/2], nil, packed(f, `{"format":1,"id":"a","alarms":[{"device":["YQ=="],"rule":"r","due":{"value":"NaN"}}]}`), packed(f, `{"format":2}`)} {
		f.Add(b, "")
	}
	f.Add([]byte(nil), `{"format":1,"id":"a","position":{"sequence":3,"time":"2026-03-04T05:06:07Z"},"alarms":[{"device":"d","rule":"r","level":"l","since":"2026-03-04T05:06:07Z"}]}`)
	f.Fuzz(func(t *testing.T, content []byte, plain string) {
		if plain != "" {
			content = packed(t, plain)
		}
		id, c, err := ledger.Decode(content)
		if err != nil {
			if !reflect.DeepEqual(c, ledger.Content{}) || id != "" {
				t.Fatalf("%q %+v besides the error %v", id, c, err)
			}
			return
		}
		encoded, err := ledger.Encode(id, c)
		if err != nil {
			if !strings.Contains(err.Error(), "year outside of range") { // in another time zone it was not
				t.Fatalf("what was read cannot be written: %v", err)
			}
			return
		}
		again, got, err := ledger.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := ledger.Encode(again, got); err != nil || !bytes.Equal(same, encoded) {
			t.Fatalf("%q %+v, %v; want %q %+v", again, got, err, id, c)
		}
	})
}

// BenchmarkEncode says what a write costs besides the request, and how large it is:
//
//	go test -run - -bench . ./internal/ledger
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{10, 1000, ledger.MaxAlarms} {
		b.Run(fmt.Sprintf("alarms=%d", n), func(b *testing.B) {
			c := many(n)
			b.ReportAllocs()
			var size int
			for b.Loop() {
				encoded, err := ledger.Encode("id", c)
				if err != nil {
					b.Fatal(err)
				}
				size = len(encoded)
			}
			b.ReportMetric(float64(size)/float64(n), "B/alarm")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{10, 1000, ledger.MaxAlarms} {
		b.Run(fmt.Sprintf("alarms=%d", n), func(b *testing.B) {
			encoded, err := ledger.Encode("id", many(n))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ledger.Decode(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
