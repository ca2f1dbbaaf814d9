package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// Who asks about a device gets all of its sensors, and who asks about one of them gets that one. A device may have the
// name that both have together.
func TestSensorsOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, now := &records.Memory{}, time.Now()
		alarm := func(device, name string, value float64, ago time.Duration) ledger.Alarm {
			return ledger.Alarm{Device: ledger.Text(device), Sensor: ledger.Text(name), Rule: "hot", Open: true, Since: now.Add(-ago), Value: ledger.Number(value), Limit: 60}
		}
		l, _, err := ledger.Open(t.Context(), store, "group/ledger/1")
		if err == nil {
			err = l.Write(t.Context(), ledger.Content{Alarms: []ledger.Alarm{
				alarm("gw-12", "return", 78, time.Hour), alarm("gw-12", "flow", 79, time.Minute), alarm("gw-12/return", "", 80, time.Minute),
			}})
		}
		if err != nil {
			t.Fatal(err)
		}
		gate := &fakeGate{state: throttle.State{Now: now}}
		hot := rules.Rule{Name: "hot", Field: "t", Sensor: []string{"s"}, Window: time.Hour, Levels: []rules.Level{{Limit: 60, Clear: 60}}}
		w := &fakeWorker{devices: map[string]partition.DeviceState{}}
		a := admin.New(admin.Options{
			Rules: rules.Set{Rules: []rules.Rule{hot}}, Recorder: &admin.Recorder{}, Worker: w, Token: token, Log: zap.NewNop(),
			Shared:    admin.Shared{Records: store, Ledgers: "group/ledger/"},
			Receivers: []admin.Receiver{{Name: "hook", Rule: "hot", Gate: gate}},
			Self:      func() status.Statement { return status.Statement{} },
		})
		for path, want := range map[string]string{
			"/devices/gw-12":                  "flow return",
			"/devices?id=gw-12&sensor=return": "return",
			"/devices/gw-12?sensor=flow":      "flow",
			"/devices/gw-12?sensor=other":     "",
			"/devices/gw-12%2Freturn":         "-",
		} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			answer := httptest.NewRecorder()
			a.ServeHTTP(answer, r)
			var view struct {
				Alarms []struct{ Sensor string }
			}
			if err := json.Unmarshal(answer.Body.Bytes(), &view); err != nil || answer.Code != http.StatusOK {
				t.Fatalf("%s: %d %v %s", path, answer.Code, err, answer.Body)
			}
			var got []string
			for _, s := range view.Alarms {
				got = append(got, max(s.Sensor, "-"))
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s has the alarms of %q, want %q", path, text, want)
			}
		}
		for of, want := range map[sensor.ID]string{
			{Device: "gw-12"}:                  "gw-12: its alarm is open\n  alarm    hot · flow: open since 1999-12-31 23:59:00 UTC",
			{Device: "gw-12", Name: "return"}:  "gw-12 / return: its alarm is open\n  alarm    hot: open since 1999-12-31 23:00:00 UTC",
			{Device: "gw-12", Name: "unheard"}: "gw-12 / unheard: it has no alarm\n",
			{Device: "gw-12/return"}:           "gw-12/return: its alarm is open\n  alarm    hot: open since 1999-12-31 23:59:00 UTC",
		} {
			var b strings.Builder
			if err := a.WriteText(t.Context(), &b, of, admin.Readings{}); err != nil || !strings.HasPrefix(b.String(), want) {
				t.Errorf("%v: %v, %s, want it to begin with %q", of, err, b.String(), want)
			}
		}
	})
}

// A gateway may have hundreds of sensors. People are shown the windows of some, and how many more there are.
func TestManySensors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		store, now := &records.Memory{}, time.Now()
		var elsewhere []ledger.Alarm
		var here []partition.AlarmState
		for i := range n {
			name := fmt.Sprintf("s%03d", i)
			if i%2 == 0 {
				elsewhere = append(elsewhere, ledger.Alarm{Device: "gw-12", Sensor: ledger.Text(name), Rule: "hot", Open: true, Since: now, Value: 78, Limit: 60})
			} else {
				here = append(here, partition.AlarmState{Device: "gw-12", Sensor: name, Rule: "hot", Phase: rules.Open, Partition: "0"})
			}
		}
		l, _, err := ledger.Open(t.Context(), store, "group/ledger/1")
		if err == nil {
			err = l.Write(t.Context(), ledger.Content{Alarms: elsewhere})
		}
		if err != nil {
			t.Fatal(err)
		}
		gate := &fakeGate{state: throttle.State{Now: now}}
		hot := rules.Rule{Name: "hot", Field: "t", Sensor: []string{"s"}, Window: time.Hour, Levels: []rules.Level{{Limit: 60, Clear: 60}}}
		a := admin.New(admin.Options{
			Rules: rules.Set{Rules: []rules.Rule{hot}}, Recorder: &admin.Recorder{}, Token: token, Log: zap.NewNop(),
			Worker:    &fakeWorker{devices: map[string]partition.DeviceState{"gw-12": {Partitions: []string{"0"}, Alarms: here}}},
			Shared:    admin.Shared{Records: store, Ledgers: "group/ledger/"},
			Receivers: []admin.Receiver{{Name: "hook", Rule: "hot", Gate: gate}},
			Self:      func() status.Statement { return status.Statement{} },
		})
		var b strings.Builder
		err = a.WriteText(t.Context(), &b, sensor.Of("gw-12"), admin.Readings{})
		if want := "unknown  not looked up: the windows of 292 other sensors; ask about one, as gw-12/s"; err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: no %q in %s", err, want, b.String()[max(0, b.Len()-600):])
		}
	})
}
