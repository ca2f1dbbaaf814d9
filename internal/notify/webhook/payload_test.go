package webhook_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestEncodeGolden(t *testing.T) {
	with := func(change func(*notify.Alert)) notify.Alert {
		a := notifytest.Alert(7)
		change(&a)
		return a
	}
	for name, a := range map[string]notify.Alert{
		"alert": notifytest.Alert(7),
		"test":  with(func(a *notify.Alert) { a.Test, a.Expires = true, time.Time{} }),
		"odd": with(func(a *notify.Alert) {
			a.Device = `Käl<te>&"1'` + "\n…" // any string
			a.Temperature, a.Threshold = -1.5e-7, 0
			a.Window = 1500 * time.Millisecond
			a.Enqueued = a.Enqueued.In(time.FixedZone("", 2*60*60))
			a.Token = 1<<53 - 1
		}),
		"no_device": with(func(a *notify.Alert) { a.Device = "" }),
		"below":     notifytest.Below(),
		"level":     notifytest.Sustained(),
		"sensor":    notifytest.Sensor(),
		"incident":  notifytest.Incident(),
		"over":      notifytest.Over(notifytest.Incident()),
		"gateway":   notifytest.Gateway(),
		"resolved":  notifytest.Resolved(notifytest.Sustained()),
		"warm":      notifytest.Resolved(notifytest.Below()),
	} {
		t.Run(name, func(t *testing.T) {
			body, err := webhook.Encode(a, wording.Style{})
			if err != nil {
				t.Fatal(err)
			}
			notifytest.Golden(t, *update, name, body)
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*notify.Alert){
		"NaN":             func(a *notify.Alert) { a.Temperature = math.NaN() },
		"infinite":        func(a *notify.Alert) { a.Temperature = math.Inf(1) },
		"no id":           func(a *notify.Alert) { a.ID = "" },
		"newline in id":   func(a *notify.Alert) { a.ID = "a\nb" },
		"year out of RFC": func(a *notify.Alert) { a.Enqueued = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		a := notifytest.Alert(1)
		change(&a)
		if body, err := webhook.Encode(a, wording.Style{}); err == nil {
			t.Errorf("%s: encoded as %s", name, body)
		}
	}
}

func TestDecodeIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			return time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, label)).UTC()
		}
		want := notify.Alert{
			ID:          rapid.StringMatching(`[!-~]{1,80}`).Draw(t, "id"),
			Source:      rapid.String().Draw(t, "source"),
			Device:      rapid.String().Draw(t, "device"),
			Rule:        rapid.OneOf(rapid.SampledFrom([]string{"", notify.DefaultRule, "hot", "a.high"}), rapid.String()).Draw(t, "rule"),
			Level:       rapid.String().Draw(t, "level"),
			Resolved:    rapid.Bool().Draw(t, "resolved"),
			WillResolve: rapid.Bool().Draw(t, "willResolve"),
			Below:       rapid.Bool().Draw(t, "below"),
			Field:       rapid.String().Draw(t, "field"),
			Temperature: rapid.Float64Range(-1e9, 1e9).Draw(t, "temperature"),
			Threshold:   rapid.Float64Range(-1e9, 1e9).Draw(t, "threshold"),
			Per:         rapid.SampledFrom([]string{"", "site"}).Draw(t, "per"),
			DeviceTime:  rapid.SampledFrom([]time.Time{{}, at("device time")}).Draw(t, "which device time"),
			Since:       rapid.SampledFrom([]time.Time{{}, at("since")}).Draw(t, "which since"),
			Enqueued:    at("enqueued"),
			Partition:   rapid.String().Draw(t, "partition"),
			Sequence:    rapid.Int64().Draw(t, "sequence"),
			Window:      time.Duration(rapid.Int64Range(0, int64(48*24*time.Hour)).Draw(t, "window")),
			Remember:    time.Duration(rapid.Int64Range(0, int64(48*24*time.Hour)).Draw(t, "remember")),
			Token:       rapid.Int64Range(0, 1<<53-1).Draw(t, "token"),
			Expires:     at("expires"),
			Suppressed:  rapid.Int64Range(0, math.MaxInt64).Draw(t, "suppressed"),
			Replica:     rapid.String().Draw(t, "replica"),
			Test:        rapid.Bool().Draw(t, "test"),
		}
		if want.Per != "" {
			want.PerValue = rapid.String().Draw(t, "per value") // empty: the device counts
		}
		body, err := webhook.Encode(want, wording.Style{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := webhook.Decode(body)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A field of an alert that is new must be in the payload, or be about one attempt.
func TestEveryFieldIsDecoded(t *testing.T) {
	var want notify.Alert
	for name, v := range reflect.ValueOf(&want).Elem().Fields() {
		switch f := v.Addr().Interface().(type) {
		case *string:
			*f = name.Name
		case *notify.Shown:
			*f = f.With("site", "berlin").With("a\"b", "")
		case *bool:
			*f = name.Name != "Ambiguous" && name.Name != "Refresh" // no payload has it
		case *float64:
			*f = 1.5 + float64(len(name.Name))
		case *int64:
			*f = 7 + int64(len(name.Name))
		case *time.Duration:
			*f = time.Minute + time.Duration(len(name.Name))*time.Second
		case **notify.Outage:
			*f = &notify.Outage{Devices: 3}
		case **notify.Incident:
			*f = &notify.Incident{ID: "I", Began: time.UnixMilli(1772366400250).UTC(), Members: 30, AtLeast: true, First: "freezer-7"}
		case *time.Time:
			*f = time.UnixMilli(1772366400250 + int64(len(name.Name))).UTC()
		default:
			t.Fatalf("what is %s?", name.Name)
		}
	}
	want.Sent = time.Time{} // about the attempt
	want.To = ""            // of a receiver's recipients: a dead letter has it beside the payload
	want.Log = ""           // for the gate: a dead letter has it beside the payload
	want.Repeat = 0         // for receivers that end alerts by themselves: one that was kept ends as others do
	reading := want
	reading.Silent = 0
	want.Temperature, want.Threshold = 0, 0 // about silence there is no reading
	for _, want := range []notify.Alert{reading, want} {
		body, err := webhook.Encode(want, wording.Style{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := webhook.Decode(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := webhook.Encode(notifytest.Alert(1), wording.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ old, new, want string }{
		"other version":   {`"specversion":"1.0"`, `"specversion":"2.0"`, "specversion"},
		"no id":           {`"id":"ns/hub/0/1/1772366400250"`, `"id":""`, "the id is empty"},
		"other type":      {`temperature.high`, `humidity.high`, "type"},
		"other subject":   {`"subject":"device-1"`, `"subject":"device-2"`, "subject"},
		"negative window": {`"window":60`, `"window":-1`, "window"},
		"endless memory":  {`"remember":60`, `"remember":1e300`, "remember"},
		"other rule":      {`"rule":"temperature"`, `"rule":"hot"`, "type"},
		"endless window":  {`"window":60`, `"window":1e300`, "window"},
		"other year":      {`"enqueuedTime":"2026-03-01T12:00:00.25Z"`, `"enqueuedTime":"0000-01-01T00:00:00+01:00"`, "year outside"},
		"year of since":   {`"window":60`, `"since":"0000-01-01T00:00:00+01:00","window":60`, "year outside"},
		"text for token":  {`"token":1772366400251`, `"token":"1772366400251"`, "token"},
		"no value":        {`"value":91.5,`, ``, "data.value"},
		"not JSON":        {`{`, ``, "decode alert"},
	} {
		body := strings.Replace(string(good), tt.old, tt.new, 1)
		if body == string(good) {
			t.Fatalf("%s: %q is not in %s", name, tt.old, good)
		}
		if _, err := webhook.Decode([]byte(body)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds in testdata:", err)
	}
	for _, file := range files {
		seed, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := webhook.Decode(body)
		if err != nil {
			return
		}
		again, err := webhook.Encode(a, wording.Style{})
		if err != nil {
			t.Fatalf("decoded %+v, which cannot be encoded: %v", a, err)
		}
		b, err := webhook.Decode(again)
		if err != nil {
			t.Fatalf("%v: %s", err, again)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("decoded %+v, and after encoding %+v", a, b)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	a := notifytest.Alert(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := webhook.Encode(a, wording.Style{}); err != nil {
			b.Fatal(err)
		}
	}
}
