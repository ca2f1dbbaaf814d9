package notifytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
)

// Odd is an alert with all that a channel has to deal with: a device that is any text,
// a level, and a delivery that may be a repeat.
func Odd() notify.Alert {
	a := Alert(7)
	a.Device = "K\u00e4l<te>&\"1'`*_~|\\[x](https://evil.example) <!channel> @here\n\x1b[31m\u202e\u2026"
	a.Level, a.Ambiguous = "warning", true
	return a
}

// Below is an alert of a rule of its own, for readings that are too low.
func Below() notify.Alert {
	a := Alert(7)
	a.ID += "/cold-chain"
	a.Source += "/cold-chain"
	a.Device = "cold-store-3"
	a.Rule = "cold-chain"
	a.Field = "probe.temp"
	a.Below = true
	a.Temperature, a.Threshold = 1.4, 2

	return a
}

// Sustained is an alert of a level of a rule with a duration, which tells when a device is
// normal again.
func Sustained() notify.Alert {
	a := Alert(7)
	a.ID += "/hot/critical"
	a.Source += "/hot/critical"
	a.Rule = "hot"
	a.Level = "critical"
	a.Field = "temperature, temp"
	a.Since, a.WillResolve = a.Enqueued.Add(-4*time.Minute), true

	return a
}

// Resolved is the recovery of an alert, ten minutes later.
func Resolved(a notify.Alert) notify.Alert {
	a.Resolved = true
	a.WillResolve = false
	a.Suppressed = 0
	if a.Since.IsZero() {
		a.Since = a.Enqueued
	}

	a.Enqueued, a.Expires = a.Enqueued.Add(10*time.Minute), a.Expires.Add(10*time.Minute)
	a.Token += 600_000
	a.Sequence += 10
	a.ID = fmt.Sprintf(
		"ns/hub/%s/%d/%d%s/resolved",
		a.Partition,
		a.Sequence,
		a.Enqueued.UnixMilli(),
		strings.TrimPrefix(a.Source, "/ns/hub"),
	)
	if a.Below {
		a.Temperature, a.Threshold = a.Threshold+1.5, a.Threshold+1
	} else {
		a.Temperature, a.Threshold = a.Threshold-15.5, a.Threshold-15
	}

	return a
}

// Alerts are the alerts of which channels have golden payloads, by name of the file.
func Alerts() map[string]notify.Alert {
	with := func(change func(*notify.Alert)) notify.Alert {
		a := Alert(7)
		change(&a)
		return a
	}
	return map[string]notify.Alert{
		"alert":     Alert(7),
		"odd":       Odd(),
		"test":      with(func(a *notify.Alert) { a.Test = true }),
		"below":     Below(),
		"level":     Sustained(),
		"resolved":  Resolved(Sustained()),
		"warm":      Resolved(Below()),
		"sensor":    Sensor(),
		"incident":  Incident(),
		"over":      Over(Incident()),
		"gateway":   Gateway(),
		"no_device": with(func(a *notify.Alert) { a.Device = "" }),
	}
}

// Sensor is an alert about one of several sensors of a device.
func Sensor() notify.Alert {
	a := Sustained()
	a.ID = "ns/hub/3/42.1/1767225600123~return/hot/critical"
	a.Source += "/~return"
	a.Device, a.Sensor = "gw-12", "return"

	return a
}

// Incident is an alert about several devices that share a value.
func Incident() notify.Alert {
	a := Sustained()
	a.Source = "/ns/hub/freezer/by-site"
	a.ID = "ns/hub/incidents/K7QXG3VYV4JZ2M5T6WBDN3RCEA"
	a.Rule, a.Level, a.Unit = "freezer", "", "°C"
	a.Device, a.Temperature, a.Threshold = "freezer-7", -12.5, -15
	a.Per, a.PerValue, a.Shown = "site", "berlin", a.Shown.With("site", "berlin").With("rack", "4")
	a.Incident = &notify.Incident{
		ID: a.ID, Began: a.Enqueued.Add(-time.Minute), Members: 12, First: "freezer-7"}

	return a
}

// Gateway is an alert about devices that are silent, of which there may be more.
func Gateway() notify.Alert {
	a := Incident()
	a.Source, a.ID = "/ns/hub/offline/by-gateway/silent", "ns/hub/incidents/PJ4XG3VYV4JZ2M5T6WBDN3RCEA"
	a.Rule, a.Field, a.Unit = "offline", "", ""
	a.Device, a.Temperature, a.Threshold, a.Shown = "meter-3", 0, 0, ""
	a.Per, a.PerValue = "gateway", "gw-12"
	a.Silent = 15 * time.Minute
	a.Since = a.Enqueued.Add(-a.Silent)
	a.LastHeard = a.Since
	a.Incident = &notify.Incident{ID: a.ID, Began: a.Enqueued, Members: 30, AtLeast: true, First: "meter-3"}

	return a
}

// Over is the end of an incident, 43 minutes after its first alarm began.
func Over(a notify.Alert) notify.Alert {
	over := *a.Incident
	over.Members, over.AtLeast, over.First = 0, false, ""
	a.Incident, a.ID = &over, a.ID+"/resolved"
	a.Resolved, a.WillResolve, a.Suppressed = true, false, 0
	a.Enqueued = a.Since.Add(43 * time.Minute)
	a.Token += 2_400_000
	a.Temperature, a.Device = -16.5, "freezer-9"

	return a
}

// Many are n alerts as a storm has them: of two rules, some of them recoveries.
func Many(n int) []notify.Alert {
	var alerts []notify.Alert
	for i := range n {
		a := Alert(i)

		switch i % 5 {
		case 1, 2:
			a = Sustained()
			a.Unit, a.Title = "°C", "Oven too hot"
		case 3:
			a = Resolved(Sustained())
		}

		a.ID = fmt.Sprint(a.ID, "/", i)
		a.Device = fmt.Sprintf("oven-%03d", i)
		a.Temperature = a.Temperature + float64(i)
		a.Shown = notify.Shown("").With("site", "berlin")
		alerts = append(alerts, a)
	}

	return alerts
}

// Golden compares JSON with testdata/name.json, which it rewrites if update is true.
func Golden(t *testing.T, update bool, name string, payload []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".json")
	var got bytes.Buffer
	if err := json.Indent(&got, bytes.TrimSpace(payload), "", "  "); err != nil {
		t.Fatal(err)
	}

	got.WriteByte('\n')

	if update {
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, got.Bytes(), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("payload differs from %s (go test -update writes it anew). Got:\n%s", file, got.Bytes())
	}
}

// RunAlarm checks that a channel tells alarms apart: identity, which is what its service
// goes by, is the same for an alert, its reminders and its recovery, and another for any
// other source, rule, level, device or sensor.
func RunAlarm(t *testing.T, identity func(a notify.Alert) string) {
	rapid.Check(t, func(t *rapid.T) {
		// Few and nasty, so that two alarms often differ in one part, or in where one ends.
		text := rapid.OneOf(
			rapid.SampledFrom([]string{"", "/", "a", "b", "a/b", "%2F", "a\nb", notify.DefaultRule, strings.Repeat("x", 300)}),
			rapid.String(),
		)
		a := notify.Alert{
			Source: text.Draw(t, "source"),
			Rule:   text.Draw(t, "rule"),
			Level:  text.Draw(t, "level"),
			Device: text.Draw(t, "device"),
			Sensor: text.Draw(t, "sensor"),
		}
		b := a
		for _, part := range []*string{&b.Source, &b.Rule, &b.Level, &b.Device, &b.Sensor} {
			if rapid.Bool().Draw(t, "another") {
				*part = text.Draw(t, "part")
			}
		}

		if separator := rapid.SampledFrom([]string{"", "/", "\n"}).Draw(t, "separator"); separator != "" {
			a.Level, a.Device = "a"+separator+"b", "c"
			b.Source = a.Source
			b.Rule = a.Rule
			b.Level = "a"
			b.Device = "b" + separator + "c"
		}

		if (identity(a) == identity(b)) != (a == b) {
			t.Errorf("%+v is %q, %+v is %q", a, identity(a), b, identity(b))
		}

		reminder := a
		reminder.ID = "other"
		reminder.Sequence = 8
		reminder.Temperature = 1
		reminder.Threshold = 2
		reminder.Enqueued = a.Enqueued.Add(time.Hour)
		reminder.Since = a.Enqueued
		reminder.Suppressed = 3
		reminder.Ambiguous = true
		if identity(reminder) != identity(a) {
			t.Errorf("the reminder %+v is another than %+v", reminder, a)
		}

		if identity(Resolved(a)) != identity(a) {
			t.Errorf("the recovery does not meet %+v", a)
		}

		incident := Incident()
		if identity(Over(incident)) != identity(incident) || identity(incident) == identity(a) {
			t.Errorf("%+v is %q, its end %q, and %+v is %q", incident, identity(incident), identity(Over(incident)), a, identity(a))
		}
	})
}
