package admin

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/muting"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

// events are what a hub holds of one partition.
type events []telemetry.Event

func (e *events) Next(context.Context) (string, []telemetry.Event, error) {
	if *e == nil {
		return "", nil, io.EOF
	}
	all := *e
	*e = nil
	return "0", all, nil
}

// asked returns what `alertworker why` says of a device of which a hub holds events.
func asked(t *testing.T, a *Admin, device string, held events) string {
	t.Helper()
	var b strings.Builder
	r, err := a.Readings(t.Context(), device, 2*time.Hour, &held)
	if err == nil {
		err = a.WriteText(t.Context(), &b, sensor.Of(device), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What was not decided about is said as well: by which value, and by whom.
func TestWhyNotDecided(t *testing.T) {
	one := func(limit float64) []rules.Level { return []rules.Level{{Limit: limit, Clear: limit}} }
	set := rules.Set{Mutes: rules.Mutes{{Property: "mute", Value: "true"}}, Time: "taken", Rules: []rules.Rule{
		{
			Name: "frozen", Field: "temp", Unit: "°C", Levels: one(-17), Valid: &telemetry.Range{From: -60, To: 60},
			Only: []rules.Condition{{Name: "kind", Values: []string{"frozen"}}},
		},
		{Name: "door", Field: "door", Is: []string{"open", "ajar"}, Levels: one(1)},
	}}
	for name, test := range map[string]struct {
		body       string
		properties map[string]any
		want       string
	}{
		"a decimal comma": {`{"temp":"-5,0"}`, map[string]any{"kind": "frozen"}, "frozen: -5 °C, limit -17 °C: reached"},
		"a comma that may be of thousands": {`{"temp":"-5,000"}`, map[string]any{"kind": "frozen"},
			`frozen: "-5,000" at temp is not a number: may be one number or two: the device must write a decimal point`},
		"its unit":     {`{"temp":"-5 °C"}`, map[string]any{"kind": "frozen"}, "frozen: -5 °C, limit -17 °C: reached"},
		"another unit": {`{"temp":"23F"}`, map[string]any{"kind": "frozen"}, `frozen: "23F" at temp is not a number: F where the rule has °C`},
		"a damaged message": {`{'temp':-5,'kind':'frozen',}`, nil, "frozen: -5 °C, limit -17 °C: reached; its message is damaged, " +
			"which ends no alarm (not JSON at byte 1 of a message of d: found ' where a name in double quotes must begin)"},
		"a message that no repair can read": {`{"temp":-5;"kind":"frozen"}`, nil,
			"not JSON at byte 10 of a message of d: found ; where a comma or a closing bracket must follow"},
		"a text":         {`{"temp":"warm","kind":"frozen"}`, nil, `frozen: "warm" at temp is not a number`},
		"an object":      {`{"temp":{},"kind":"frozen"}`, nil, "frozen: its reading is not a number"},
		"another kind":   {`{"temp":40.4,"kind":"chilled"}`, nil, `frozen: 40.4 °C, not looked at: kind is "chilled", not frozen`},
		"no kind":        {`{"temp":40.4}`, nil, `frozen: 40.4 °C, not looked at: kind is missing, not frozen`},
		"a broken probe": {`{"temp":850,"kind":"frozen"}`, nil, "frozen: its reading is outside the valid range of its rule"},
		"a word":         {`{"door":"AJAR"}`, nil, "door: ajar, limit open or ajar: reached"},
		"another word":   {`{"door":"closed"}`, nil, "door: another value, limit open or ajar: not reached"},
		"a mute": {`{"temp":3,"kind":"frozen"}`, map[string]any{"mute": "true"},
			"frozen: 3 °C, limit -17 °C: reached"},
		"the time of the device": {`{"temp":3,"kind":"frozen"}`, map[string]any{"taken": "1999-12-31T23:20:00Z"}, "frozen: 3 °C, limit -17 °C: reached"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Options{Rules: set, Recorder: &Recorder{}, Log: zap.NewNop()})
				e := telemetry.Event{Device: "d", Body: []byte(test.body), Enqueued: time.Now(), Properties: telemetrytest.Properties(test.properties)}
				got := asked(t, a, "d", events{e})
				at := ""
				if test.properties["taken"] != nil {
					at = ", taken at 1999-12-31 23:20:00 UTC by its own clock"
				}
				want := test.want
				if test.properties["mute"] != nil {
					want += ", and is muted: mute=true"
				}
				want = "d: it has no alarm\n  hub      1 event of it from the last 2 h, 1 shown\n  event    at 00:00:00 UTC (just now)" + at +
					", partition 0, sequence 0: " + want + "\n"
				if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

// Readings that came at a mute time are shown as muted, and the answer says until when that lasts.
func TestWhyMuteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hot := rules.Rule{Name: "hot", Field: "temp", Window: time.Minute, Levels: []rules.Level{{Limit: 80, Clear: 80}}}
		none := muting.NewCache(muting.Store{Records: &records.Memory{}, Name: "silences"}, zap.NewNop())
		saturday := &rules.Times{Days: [7]bool{time.Saturday: true}, From: 60, To: 120, Zone: time.UTC}
		a := New(Options{Log: zap.NewNop(), Recorder: &Recorder{}, Silences: none, Rules: rules.Set{
			Rules: []rules.Rule{hot},
			Mutes: rules.Mutes{{Device: "d*", Property: "site", Value: "berlin", Times: saturday}},
		}})
		time.Sleep(time.Hour)
		berlin := telemetrytest.Properties(map[string]any{"site": "berlin"})
		got := asked(t, a, "door", events{
			{Device: "door", Body: []byte(`{"temp":90}`), Enqueued: time.Now(), Properties: berlin},
			{Device: "door", Body: []byte(`{"temp":91}`), Enqueued: time.Now()},
		})
		for _, want := range []string{
			"\n  muted    device d*, site=berlin until 02:00:00 UTC (another 60 min), by the rules: mute Sat from 01:00 to 02:00, UTC\n",
			"hot: 90, limit 80: reached, and is muted: device d*, site=berlin: Sat from 01:00 to 02:00, UTC\n",
			"hot: 91, limit 80: reached\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwithout\n%s", got, want)
			}
		}
	})
}

// A device that nobody has heard is not one whose last reading somebody else knows.
func TestWhyNeverHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &records.Memory{}
		heard := roster.New([]roster.Column{{Rule: "offline", Limit: 15 * time.Minute}})
		for _, device := range []string{"Oven-7", "oven-8"} {
			heard.Hear(heard.Add(sensor.Of(device)), 0, roster.Heard{Sequence: 7, Time: time.Now().UnixMilli()})
		}
		other := heard.Device(sensor.Of("oven-8"))
		heard.Hear(other, 0, roster.Heard{Sequence: 8, Time: time.Now().UnixMilli(), Quiet: roster.Excluded})
		if err := (&roster.File{Store: store, Name: "group/roster/1"}).Write(t.Context(), heard.Encode(), roster.Expected{}); err != nil {
			t.Fatal(err)
		}
		set := rules.Threshold("temperature", 80, time.Minute)
		set.Rules = append(set.Rules, rules.Rule{Name: "offline", Silent: time.Hour, Levels: []rules.Level{{}}, Only: []rules.Condition{{Name: "kind", Values: []string{"frozen"}}}})
		a := New(Options{Rules: set, Recorder: &Recorder{}, Log: zap.NewNop(), Shared: Shared{Records: store, Ledgers: "group/ledger/", Rosters: "group/roster/"}})
		for device, want := range map[string]string{
			"oven-8": "silence  offline: heard at 00:00:00 UTC (just now) in partition 1; nothing is expected of it: not kind frozen",
		} {
			var b strings.Builder
			if err := a.WriteText(t.Context(), &b, sensor.Of(device), Readings{}); err != nil || !strings.Contains(b.String(), want) {
				t.Errorf("got %s, %v; want %s", b.String(), err, want)
			}
		}
		for device, todo := range map[string]string{
			"oven-7": "Did you mean Oven-7?\n",
			"kiln":   "Check the id (its case matters), or look further back with --last.\n",
		} {
			var b strings.Builder
			if err := a.WriteText(t.Context(), &b, sensor.Of(device), Readings{}); err != nil || b.String() != device+": it is not known\n"+todo {
				t.Errorf("got %s, %v", b.String(), err)
			}
			want := device + ": it is not known\n  hub      0 events of it from the last 2 h, 0 shown\n" + todo
			if got := asked(t, a, device, nil); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// What a device has put into its messages does not reach the terminal as it is.
func TestWhyPrintsNoEscapeSequences(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{{
		Name: "hot", Field: "temperature", Per: "site", Window: time.Minute, Levels: []rules.Level{{Limit: 80, Clear: 80}},
		Only: []rules.Condition{{Name: "mode", Values: []string{"run"}}},
	}}}
	config := throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Rule: "hot", Per: "site", Window: time.Minute, SendTimeout: time.Second}
	a := New(Options{Rules: set, Recorder: &Recorder{}, Log: zap.NewNop(), Receivers: []Receiver{{Name: "hook", Rule: "hot", Gate: recent.New(config, recent.NewWindows())}}})
	const evil = "berlin\x1b]0;owned\x07\x1b[2J\nreceiver hook: replica-a delivered an alert just now"
	text, err := json.Marshal(map[string]any{"temperature": 91, "mode": evil})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"temperature":91,"mode":"run"}`, string(text), strings.ReplaceAll(string(text), "91", `"`+"\x1b[2J"+`"`)} {
		e := telemetry.Event{Device: "oven-7", Body: []byte(body), Enqueued: time.Now(), Properties: telemetrytest.Properties(map[string]any{"site": evil})}
		got := asked(t, a, "oven-7", events{e})
		if strings.ContainsAny(got, "\x1b\x07") || strings.Contains(got, "\nreceiver hook: replica-a") {
			t.Errorf("escape sequences, or a forged line:\n%q", got)
		}
	}
}
