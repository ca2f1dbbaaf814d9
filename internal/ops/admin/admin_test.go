package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/ledger"
	"alertworker/internal/muting"
	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

var update = flag.Bool("update", false, "write the golden files")

func TestAnswers(t *testing.T) {
	bearer := []string{"Authorization", "Bearer " + token}
	for _, test := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/", nil, 200},
		{"HEAD", "/", nil, 200},
		{"POST", "/", nil, 405},
		{"GET", "/healthz", nil, 200},
		{"GET", "/readyz", nil, 503}, // starting
		{"GET", "/metrics", nil, 200},
		{"DELETE", "/metrics", nil, 405},
		{"GET", "/favicon.ico", nil, 404},
		{"GET", "//", nil, 404},
		{"GET", "/devices", nil, 404},
		{"GET", "/devices/", bearer, 404},
		{"GET", "/devices/oven", nil, 401},
		{"GET", "/devices/oven", []string{"Authorization", "Bearer " + token + "x"}, 401},
		{"GET", "/devices/oven", []string{"Authorization", "Basic " + token}, 401},
		{"GET", "/devices/oven", bearer, 200},
		{"HEAD", "/devices/oven", bearer, 200},
		{"GET", "/devices/oven/", bearer, 404},
		{"GET", "/devices/oven/nothing", bearer, 404},
		{"PUT", "/devices/oven", bearer, 405},
		{"DELETE", "/devices/oven", nil, 401},
		{"DELETE", "/devices/oven/window", bearer, 404},
		{"POST", "/devices/oven/telemetry", nil, 418}, // the trigger sees to it
		{"GET", "/devices/%2e%2e/telemetry", nil, 418},
	} {
		answer := newWorld(t).do(test.method, test.path, test.header...)
		if answer.Code != test.status {
			t.Errorf("%s %s %q: %d, want %d", test.method, test.path, test.header, answer.Code, test.status)
		}
		switch answer.Code {
		case 401, 404, 405:
			problem(t, answer, test.status)
		}
		if answer.Code == 401 && answer.Header().Get("WWW-Authenticate") == "" || answer.Code == 405 && answer.Header().Get("Allow") == "" {
			t.Errorf("%s %s: %v", test.method, test.path, answer.Header())
		}
	}
}

// No body keeps a connection, whatever becomes of its request.
func TestBodiesAreLimited(t *testing.T) {
	for _, path := range []string{"/", "/healthz", "/nowhere", "/devices/oven"} {
		w := &connection{ResponseRecorder: httptest.NewRecorder()}
		newWorld(t).admin.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader("{")))
		if w.deadline.IsZero() {
			t.Errorf("%s: a body may take for ever", path)
		}
	}
}

type connection struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *connection) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }

// Without a token nobody can ask for a device, whatever he sends.
func TestNoToken(t *testing.T) {
	w := newWorld(t, func(o *admin.Options) { o.Token, o.Ingest = "", nil })
	for _, path := range []string{"/devices/oven", "/devices/oven/telemetry"} {
		for _, authorization := range []string{"", "Bearer", "Bearer "} {
			variable := "HTTP_ADMIN_TOKEN"
			if strings.HasSuffix(path, "telemetry") {
				variable = "HTTP_INGEST_TOKEN"
			}
			answer := w.do("GET", path, "Authorization", authorization)
			if problem(t, answer, 404); !strings.Contains(answer.Body.String(), variable) {
				t.Errorf("%s: %s, want %s named", path, answer.Body, variable)
			}
			problem(t, w.do("DELETE", path, "Authorization", authorization), 404)
			problem(t, w.do("POST", path, "Authorization", authorization), 404)
		}
	}
	if len(w.gate.asked) > 0 {
		t.Error("a gate was asked")
	}
}

// Only what a restart or another replica could help with makes a replica unready; the report's
// own tests are in internal/ops/status.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		check := func(code int, text string) {
			t.Helper()
			answer := w.do("GET", "/readyz")
			if answer.Code != code || answer.Body.String() != text {
				t.Errorf("%d %q, want %d %q", answer.Code, answer.Body, code, text)
			}
			if alive := w.do("GET", "/healthz"); alive.Code != 200 {
				t.Errorf("not alive: %d", alive.Code)
			}
			var report struct {
				Replica string
				Ready   bool
			}
			if answer := w.do("GET", "/status"); answer.Code != 200 || json.Unmarshal(answer.Body.Bytes(), &report) != nil || report.Ready != (code == 200) || report.Replica == "" {
				t.Errorf("/status: %d %s", answer.Code, answer.Body)
			}
		}
		check(503, "not ready: starting: waiting for the hub and the checkpoint store to answer.\n")
		w.set(func() { w.reading.Running = true })
		check(200, "ready: alerts are going out.\n") // it owns none
		w.set(func() { w.reading.Owned, w.reading.Reading = 3, 1 })
		check(503, "not ready: some alerts aren't going out: 2 of 3 partitions that this replica owns are not being read.\n"+
			"2 of 3 partitions that this replica owns are not being read, for 1 s (since 2000-01-01T00:00:00Z). Their readings wait in the hub. This is normal for a moment when partitions change hands.\n")
		w.set(func() { w.reading.Reading = 4 }) // one was lost and is still being settled
		w.set(func() {
			w.worker.receivers = []delivery.ReceiverState{{Name: "up"}, {Name: "pager", Down: true, Since: time.Now(), Retry: time.Now().Add(7 * time.Second)}}
		})
		check(200, "ready: some alerts aren't going out: receiver pager is down.\n"+
			"receiver pager is down, for 1 s (since 2000-01-01T00:00:00Z). Alerts wait until it accepts them, or until NOTIFY_GIVE_UP. Next attempt in 7 s.\n")
		w.set(func() { w.worker.receivers = nil })
		w.set(func() { w.standby = "others are active" })
		check(200, "ready: standing by: others are active.\n")
		w.monitor.Drain()
		check(503, "not ready: draining: alerts in progress are being settled.\n")
	})
}

// A service that does not answer keeps nobody waiting: no request calls it. The page says how old
// what it shows is.
func TestPageDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done() // as a service that accepts connections and never answers
			return ctx.Err()
		}
		down := false
		w := newWorld(t, func(o *admin.Options) {
			list := o.Partitions
			o.Partitions = func(ctx context.Context) ([]telemetry.PartitionStatus, error) {
				if down {
					return nil, hang(ctx)
				}
				return list(ctx)
			}
			o.Others = func(ctx context.Context) ([][]byte, error) {
				if down {
					return nil, hang(ctx)
				}
				return [][]byte{[]byte(`{"replica":"other"}`)}, nil
			}
		})
		w.busy(14)
		get := func() (string, time.Duration) {
			start := time.Now()
			body := w.do("GET", "/").Body.String()
			return body, time.Since(start)
		}
		if body, took := get(); took != 0 || !strings.Contains(body, "k8c2m") || !strings.Contains(body, "and 1 more") {
			t.Errorf("took %v, want at once, with what the services answer", took)
		}
		down = true
		time.Sleep(10 * time.Second)
		if _, took := get(); took > time.Second { // in virtual time: what the code waits for
			t.Errorf("waited %v", took)
		}
		time.Sleep(30 * time.Second)
		body, took := get()
		if took > time.Second {
			t.Errorf("waited %v for services that have not answered before", took)
		}
		if !strings.Contains(body, "this is the state 4") || !strings.Contains(body, "k8c2m") {
			t.Error("the page does not show what was known, or not how old it is")
		}
	})
}

// A page of another site, whose name is made to resolve to a replica's address, reads nothing of it. Probes, scrapes and
// callers with a token come by whatever name.
func TestForeignHost(t *testing.T) {
	w := newWorld(t, func(o *admin.Options) { o.Hosts = []string{"alerts.example.com"} })
	for path, code := range map[string]int{
		"/": 421, "/?all": 421, "/status": 421,
		"/readyz": 200, "/healthz": 200, "/metrics": 200, "/devices/oven-7": 200, "/devices/oven-7/telemetry": 418,
	} {
		for host, want := range map[string]int{"rebound.attacker.example:8080": code, "alerts.example.com": 200, "localhost:8080": 200, "10.1.2.3:8080": 200} {
			if want == 200 && code == 418 {
				want = code
			}
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+token)
			answer := httptest.NewRecorder()
			w.admin.ServeHTTP(answer, r)
			isReady := path == "/readyz" && answer.Code == 503 // nothing runs here
			if answer.Code != want && !isReady {
				t.Errorf("%s by the name %s: %d, want %d", path, host, answer.Code, want)
			}
			if want == 421 && strings.Contains(answer.Body.String(), "contoso") {
				t.Errorf("%s by the name %s says what it serves", path, host)
			}
		}
	}
}

// Before there is a replica the page is served, and says why there is none.
func TestStarting(t *testing.T) {
	monitor := status.New(zap.NewNop())
	monitor.Opening(status.ByStore, errors.New("401: the credentials were rejected"), true)
	a := admin.New(admin.Options{
		Source: "contoso/telemetry", Started: time.Now(), Recorder: &admin.Recorder{}, Self: func() status.Statement { return status.Statement{Status: monitor.Report()} }, Token: token, Log: zap.NewNop(),
	})
	for path, code := range map[string]int{"/": 200, "/readyz": 503, "/healthz": 200, "/status": 200, "/devices/oven": 503} {
		answer := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://host"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		a.ServeHTTP(answer, r)
		if answer.Code != code {
			t.Errorf("%s: %d, want %d", path, answer.Code, code)
		}
		if says := strings.Contains(answer.Body.String(), "the credentials were rejected"); says != (path == "/" || path == "/readyz" || path == "/status") {
			t.Errorf("%s says why: %v", path, says)
		}
	}
}

func TestDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		now := time.Now()
		for i, device := range []string{"other", "a/b #1", "a/b #1", "other"} {
			w.take(notify.Alert{ID: fmt.Sprint(i), Device: device, Temperature: 91.5, Partition: "3", Sequence: 17, Token: 9, Enqueued: now})
		}
		w.gate.state = throttle.State{
			Phase: throttle.Closed, Until: now.Add(41500*time.Millisecond - 1205), Quiet: now.Add(41500*time.Millisecond - 1205), // 1.2 µs less, as after a call
			AlertID: "2", Token: 9, Claimed: now, Replica: "me", Now: now,
		}
		w.gate.count = 4
		answer := w.authorized("GET", "/devices/a%2Fb%20%231")
		want := `{"device":"a/b #1","status":"window","why":"a/b #1: an alert was sent, and its window is in force\n` +
			`  window   example.com: in force until 00:00:41 UTC (another 41 s); an alert was delivered at 00:00:00 UTC (just now) by me",` +
			`"replica":"alertworker-7d9f-x2x1p","partitions":[],"receivers":[{"receiver":"example.com","rule":"temperature","state":"closed","until":"2000-01-01T00:00:41.499998795Z",` +
			`"quiet":"2000-01-01T00:00:41.499998795Z","alertId":"2","token":9,"claimed":"2000-01-01T00:00:00Z","replica":"me","storeTime":"2000-01-01T00:00:00Z","suppressed":4}]}` + "\n"
		if got := answer.Body.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if len(w.gate.asked) != 1 || w.gate.asked[0] != "a/b #1" {
			t.Errorf("asked about %q", w.gate.asked)
		}

		w.gate.state = throttle.State{Now: now}
		w.gate.count = 0
		w.worker.devices = map[string]partition.DeviceState{"cold": {
			Partitions: []string{"10", "9"},
			Unreadable: &partition.Unreadable{Device: "cold", Partition: "9", Since: now.Add(-time.Hour), Last: now, Reason: telemetry.ReasonNull},
		}}
		answer = w.authorized("GET", "/devices/cold")
		want = `{"device":"cold","status":"undecodable","why":"cold: its last messages cannot be read\n` +
			`  event    at 00:00:00 UTC (just now), partition 9: its reading is null; nothing could be read since 1999-12-31 23:00:00 UTC\n  window   none is recorded\n` +
			`Change what it sends, or the rules: ` + "`alertworker check`" + ` lists the fields of messages.",` +
			`"replica":"alertworker-7d9f-x2x1p","partitions":["9","10"],"unreadable":{"partition":"9","since":"1999-12-31T23:00:00Z","enqueuedTime":"2000-01-01T00:00:00Z","reason":"null"},` +
			`"receivers":[{"receiver":"example.com","rule":"temperature","state":"open","storeTime":"2000-01-01T00:00:00Z","suppressed":0}]}` + "\n"
		if got := answer.Body.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}

		w.worker.devices["Oven"] = partition.DeviceState{Partitions: []string{"9"}, Similar: "oven"}
		if got := w.authorized("GET", "/devices/Oven").Body.String(); !strings.Contains(got, "Did you mean oven?") {
			t.Errorf("in another case: %s", got)
		}

		w.gate.state, w.gate.err = throttle.State{}, errors.New("service unavailable")
		w.worker.devices["oven"] = partition.DeviceState{Deliveries: []delivery.State{{
			Receiver: "hook", Rule: "temperature", Partition: "3", Since: now, Value: 91.5, Joined: 2,
			Waits: delivery.Condition{For: delivery.WaitStore, Text: "the throttle store cannot be used", Since: now.Add(-time.Minute), Next: now.Add(7 * time.Second)},
		}}}
		answer = w.authorized("GET", "/devices/oven") // all that is known without the store
		want = `{"device":"oven","status":"waiting","why":"oven: a message about it waits to be delivered\n` +
			`  waits    hook: alert about 91.5, since 00:00:00 UTC: the throttle store cannot be used, for 60 s; the next attempt is due in 7 s\n` +
			`  window   example.com: not known: service unavailable",` +
			`"replica":"alertworker-7d9f-x2x1p","partitions":[],` +
			`"waiting":[{"receiver":"hook","rule":"temperature","partition":"3","since":"2000-01-01T00:00:00Z","temperature":91.5,"suppressed":2,` +
			`"waits":{"for":"throttle_store","text":"the throttle store cannot be used","since":"1999-12-31T23:59:00Z","next":"2000-01-01T00:00:07Z"}}],` +
			`"receivers":[{"receiver":"example.com","rule":"temperature","state":"unknown","suppressed":0,"error":"service unavailable"}]}` + "\n"
		if got := answer.Body.String(); answer.Code != 200 || got != want {
			t.Errorf("got  %d %s\nwant %s", answer.Code, got, want)
		}
	})
}

// A device has alarms, and a window for each level of each rule.
func TestDeviceOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ruled)
		now := time.Now()
		w.gate.state = throttle.State{Now: now, Notified: true, Recovery: true, AlertID: "x/resolved", Unresolved: true}
		w.take(notify.Alert{ID: "1", Device: "oven", Rule: "hot", Level: "critical", Temperature: 93, Window: time.Minute, Enqueued: now, Partition: "3", Sequence: 17, Token: 9})
		w.take(notify.Alert{ID: "1/resolved", Device: "oven", Rule: "hot", Level: "critical", Resolved: true, Temperature: 64, Enqueued: now, Partition: "3", Sequence: 18, Token: 10})
		w.worker.devices = map[string]partition.DeviceState{"oven": {
			Partitions: []string{"3"},
			Alarms: []partition.AlarmState{
				{Partition: "3", Device: "oven", Rule: "former", Due: now},
				{Partition: "3", Device: "oven", Rule: "damp", Phase: rules.Open, Since: now, Value: 61, Limit: 60},
				{Partition: "3", Device: "oven", Rule: "hot", Level: "warning", Phase: rules.Pending, Since: now, Value: 71, Limit: 70, Due: now},
			},
			Deliveries: []delivery.State{{Receiver: "example.com", Rule: "hot", Level: "warning", Recovery: true, Partition: "3", Since: now, Value: 64, Waits: delivery.Condition{For: delivery.WaitTurn, Text: "other alerts are first", Since: now}}},
		}}
		got := w.authorized("GET", "/devices/oven").Body.String()
		gate := `,"state":"open","alertId":"x/resolved","unresolved":true,"resolved":true,`
		at := `"2000-01-01T00:00:00Z"`
		for _, want := range []string{
			`"status":"waiting","why":"oven: a message about it waits to be delivered\n`,
			`\n  waits    example.com · hot · warning: recovery at 64, since 00:00:00 UTC: other alerts`,
			`"alarms":[{"partition":"3","device":"oven","rule":"damp","state":"open","since":` + at + `,"value":61,"limit":60},` +
				`{"partition":"3","device":"oven","rule":"former","state":"normal","value":0,"limit":0,"due":` + at + `},` +
				`{"partition":"3","device":"oven","rule":"hot","level":"warning","state":"pending","since":` + at + `,"value":71,"limit":70,"due":` + at + `}]`,
			`"waiting":[{"receiver":"example.com","rule":"hot","level":"warning","resolved":true,"partition":"3",`,
			`"receivers":[{"receiver":"example.com","rule":"hot","level":"warning"` + gate + `"notified":true,`,
			`{"receiver":"example.com","rule":"hot","level":"critical"` + gate + `"notified":true,`,
			`{"receiver":"example.com","rule":"cold-chain"` + gate + `"storeTime"`, // which tells nobody
			`{"receiver":"example.com","rule":"damp"` + gate + `"storeTime"`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("want %s in\n%s", want, got)
			}
		}

	})
}

// What replicas share is the same whoever is asked: alarms in ledgers of partitions that others read.
func TestDeviceOfAnotherPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &records.Memory{}
		since := time.Now().Add(-time.Hour)
		write := func(partition string, alarms ...ledger.Alarm) {
			l, _, err := ledger.Open(t.Context(), store, "group/ledger/"+partition)
			if err == nil {
				err = l.Write(t.Context(), ledger.Content{Alarms: alarms})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write("0", ledger.Alarm{Device: "other", Rule: "hot", Open: true, Since: since})
		write("1", ledger.Alarm{Device: "open", Rule: "hot", Open: true, Since: since, Value: 91.5, Limit: 90}, ledger.Alarm{Device: "pending", Rule: "hot", Since: since, Value: 81, Limit: 80},
			ledger.Alarm{Device: "due", Rule: "hot", Due: &ledger.Reading{Enqueued: since}}, ledger.Alarm{Device: "removed", Rule: "old", Open: true, Since: since, Value: 5, Limit: 4})
		hot := rules.Rule{Name: "hot", Field: "temperature", Resolved: true, Window: time.Minute, Levels: []rules.Level{{Limit: 80, Clear: 80, LimitAt: rules.Reference{Name: "maxTemp"}, For: 2 * time.Hour}}}
		a := admin.New(admin.Options{Rules: rules.Set{Rules: []rules.Rule{hot}}, Recorder: &admin.Recorder{}, Shared: admin.Shared{Records: store, Ledgers: "group/ledger/"}, Log: zap.NewNop()})
		text := func(device string) string {
			var b strings.Builder
			if err := a.WriteText(t.Context(), &b, sensor.Of(device), admin.Readings{}); err != nil {
				t.Error(err)
			}
			return b.String()
		}
		for device, want := range map[string]string{
			"open": "open: its alarm is open\n" +
				"  alarm    hot: open since 1999-12-31 23:00:00 UTC, by 91.5, limit 90 (partition 1)\n",
			"pending": "pending: it reaches a limit, but not for long enough yet\n" +
				"  alarm    hot: pending since 1999-12-31 23:00:00 UTC, by 81, limit 80; an alert is due from 01:00:00 UTC (partition 1)\n",
			"due": "due: a message about it waits to be delivered\n" +
				"  alarm    hot: over; a recovery is due since 1999-12-31 23:00:00 UTC, mostly after the window (partition 1)\n",
			"removed": "removed: its alarm is open\n  alarm    old: open since 1999-12-31 23:00:00 UTC, by 5, limit 4 (partition 1)\n",
			"Open":    "Open: it is not known\nDid you mean open?\n",
			"none":    "none: it has no alarm\nRun `alertworker why DEVICE --last 2h` to see what it sent",
		} {
			if got := text(device); !strings.HasPrefix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if _, err := store.Write(t.Context(), records.Record{Name: "group/ledger/2", Content: []byte("none")}); err != nil {
			t.Fatal(err)
		}
		if got := text("none"); !strings.Contains(got, "not all alarms are known: read ledger group/ledger/2") {
			t.Errorf("with a ledger that cannot be read: %s", got)
		}
	})
}

// A history has these events.
type history []telemetry.Event

func (h *history) Next(context.Context) (string, []telemetry.Event, error) {
	if len(*h) == 0 {
		return "", nil, io.EOF
	}
	events := *h
	*h = nil
	return "1", events, nil
}

// What is asked about a device says when it was heard and from when on it is silent, by what it shares its alerts, and who has silenced
// them: from what replicas share.
func TestSilentSharedAndSilenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, now := &records.Memory{}, time.Now()
		offline := rules.Rule{Name: "offline", Window: time.Minute, Silent: 15 * time.Minute, Levels: []rules.Level{{}}}
		hot := rules.Rule{Name: "hot", Field: "temperature", Per: "site", Window: time.Hour, Levels: []rules.Level{{Limit: 80, Clear: 80}}}
		heard := roster.New([]roster.Column{{Rule: "offline", Limit: 15 * time.Minute}})
		heard.Position.Time = now.Add(-time.Minute)
		heard.Hear(heard.Add(sensor.Of("probe")), 0, roster.Heard{Sequence: 7, Time: now.Add(-20 * time.Minute).UnixMilli()})
		if err := (&roster.File{Store: store, Name: "group/roster/1"}).Write(t.Context(), heard.Encode(), roster.Expected{}); err != nil {
			t.Fatal(err)
		}
		l, _, err := ledger.Open(t.Context(), store, "group/ledger/1")
		if err == nil {
			err = l.Write(t.Context(), ledger.Content{Alarms: []ledger.Alarm{{Device: "probe", Rule: "offline", Open: true, Silence: true, Since: now.Add(-20 * time.Minute), Limit: 900},
				{Device: "oven-7", Rule: "hot", Open: true, Since: now, Value: 91, Limit: 80, Group: "hamburg"}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		cache := muting.NewCache(muting.Store{Records: store, Name: "silences"}, zap.NewNop())
		silenced, err := cache.Add(t.Context(), muting.Mute{Device: "pro*", Rule: "hot", Property: "site", Value: "berlin", Why: "service", Who: "ann"}, 2*time.Hour)
		if err == nil {
			_, err = cache.Add(t.Context(), muting.Mute{Device: "oven", Why: "move", Who: "eva"}, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		gate := &fakeGate{state: throttle.State{Phase: throttle.Closed, Until: now.Add(time.Hour), Quiet: now.Add(time.Hour), Claimed: now, Now: now, Replica: "a"}}
		own := &fakeGate{state: throttle.State{Phase: throttle.Open, Now: now}} // of devices without the property
		open := func(change func(*admin.Options)) *admin.Admin {
			o := admin.Options{
				Rules: rules.Set{Rules: []rules.Rule{offline, hot}}, Recorder: &admin.Recorder{}, Silences: cache, Token: token, Log: zap.NewNop(),
				Shared:    admin.Shared{Records: store, Ledgers: "group/ledger/", Rosters: "group/roster/"},
				Receivers: []admin.Receiver{{Name: "hook", Rule: "hot", Per: "site", Gate: gate}, {Name: "hook", Rule: "hot", Gate: own}},
				Self:      func() status.Statement { return status.Statement{} },
				Incidents: &incident.Book{Store: store, Prefix: "group/incidents/"},
			}
			change(&o)
			return admin.New(o)
		}
		a := open(func(*admin.Options) {})
		var b strings.Builder
		if err := a.WriteText(t.Context(), &b, sensor.Of("probe"), admin.Readings{}); err != nil {
			t.Fatal(err)
		}
		silencedText := "muted    " + silenced.ID + ": device pro*, rule hot, site=berlin until 02:00:00 UTC (another 2 h), by ann: service"
		for _, want := range []string{
			"probe: it is silent\n",
			"  alarm    offline: open since 1999-12-31 23:40:00 UTC: no message counted, limit 15 min (partition 1)\n",
			"  silence  offline: heard at 1999-12-31 23:40:00 UTC (20 min ago) in partition 1, as of 1999-12-31 23:59:00 UTC; silent from 1999-12-31 23:55:00 UTC\n",
			"  unknown  not looked up: the window of hot, which devices share; only the hub knows which this one has: run `alertworker why probe --last 2h`\n",
			"  " + silencedText + "\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
		if gate.asked != nil {
			t.Errorf("the gate was asked about %q", gate.asked)
		}

		// The alarm in another replica's ledger says which site it is.
		b.Reset()
		if err := a.WriteText(t.Context(), &b, sensor.Of("oven-7"), admin.Readings{}); err != nil {
			t.Fatal(err)
		}
		if want := "  window   hook · hot · site=hamburg: in force until "; !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
		gate.asked = nil

		// What the hub holds says which site it is.
		b.Reset()
		events := &history{
			{Device: "probe", Enqueued: now.Add(-time.Hour), Body: []byte(`{"temperature":70}`)},
			{Device: "probe", Enqueued: now, Body: []byte(`{"temperature":91}`), Properties: telemetry.EncodeProperties(map[string]telemetry.Property{"site": telemetry.Text("berlin")})},
			{Device: "probe", Enqueued: now, Body: []byte(`{}`)},
		}
		readings, err := a.Readings(t.Context(), "probe", 2*time.Hour, events)
		if err == nil {
			err = a.WriteText(t.Context(), &b, sensor.Of("probe"), readings)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"  hub      3 events of it from the last 2 h, 3 shown\n  event    at 00:00:00 UTC (just now), partition 1", "  event    at 1999-12-31 23:00:00 UTC (60 min ago), partition 1, sequence 0: hot: 70, limit 80: not reached\n", "hot: 91, limit 80: reached\n",
			"  window   hook · hot · site=berlin: in force until 01:00:00 UTC (another 60 min); an alert was delivered at 00:00:00 UTC (just now) by a\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}

		// So does the replica that reads it.
		alarms := []partition.AlarmState{{Partition: "1", Device: "probe", Rule: "hot", Phase: rules.Open, Since: now, Value: 91, Limit: 80, Group: "berlin"}}
		a = open(func(o *admin.Options) {
			o.Worker = &fakeWorker{devices: map[string]partition.DeviceState{"probe": {Partitions: []string{"1"}, Alarms: alarms, Heard: partition.HeardIn(heard, "1", sensor.Of("probe"), &o.Rules)}}}
		})
		r := httptest.NewRequest(http.MethodGet, "/devices/probe", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		for _, want := range []string{
			`hook · hot · site=berlin: in force until 01:00:00 UTC (another 60 min); an alert was delivered at 00:00:00 UTC (just now) by a`, silencedText,
			`"heard":[{"partition":"1","rule":"offline","at":"1999-12-31T23:40:00Z","deadline":"1999-12-31T23:55:00Z"}]`,
			`"shared":"site=berlin","state":"closed"`, `"silences":[{"id":"` + silenced.ID + `"`,
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("no %q in\n%s", want, w.Body)
			}
		}

		if want := []string{"berlin", "berlin"}; !slices.Equal(gate.asked, want) {
			t.Errorf("the gate was asked about %q, want %q", gate.asked, want)
		}

		b.Reset()
		if _, err := store.Write(t.Context(), records.Record{Name: "group/roster/2", Content: []byte("none")}); err != nil {
			t.Fatal(err)
		}
		if err := open(func(*admin.Options) {}).WriteText(t.Context(), &b, sensor.Of("stranger"), admin.Readings{}); err != nil || !strings.HasPrefix(b.String(), "stranger: it is not known\n") || !strings.Contains(b.String(), "not all times when it was heard are known: read roster group/roster/2") {
			t.Errorf("%v: %s", err, b.String())
		}
	})
}

// A dead letter is remembered once it is kept, until there are 4,096 later deliveries.
func TestDeviceDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		now := time.Now()
		kept := &keeper{err: errors.New("disk full")}
		letters := w.recorder.DeadLetters(kept, func(d notify.DeadLetter) string { return "letter-" + d.Alert.ID })
		d := notify.DeadLetter{Alert: notify.Alert{ID: "1", Device: "oven", Temperature: 91.5, Enqueued: now}, Receiver: "5f3a", Name: "example.com", Reason: "refused for good"}
		if err := letters.Keep(t.Context(), d); err != kept.err {
			t.Errorf("got %v", err)
		}
		const deadLetter = ", letter-1: refused for good\\n"
		look := func(status string, known bool) {
			t.Helper()
			got := w.authorized("GET", "/devices/oven").Body.String()
			if !strings.Contains(got, `"status":"`+status+`"`) || strings.Contains(got, deadLetter) != known {
				t.Errorf("want status %s and, if %t, %s, in %s", status, known, deadLetter, got)
			}
		}
		look("no_alarm", false)
		kept.err = nil
		if err := letters.Keep(t.Context(), d); err != nil {
			t.Error(err)
		}
		look("dead_letter", true)
		for n := range 4095 {
			w.take(notify.Alert{Device: fmt.Sprint("other-", n)})
		}
		look("dead_letter", true)
		w.take(notify.Alert{Device: "other"})
		look("no_alarm", false)
	})
}

type keeper struct{ err error }

func (k *keeper) Keep(context.Context, notify.DeadLetter) error { return k.err }

// The page as it is served, but for what its style and script say.
func TestPageGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		time.Sleep(13*time.Minute + 7*time.Second)
		w.busy(14)
		w.do("GET", "/") // somebody looks for the first time
		time.Sleep(2*time.Minute + 10*time.Second)
		w.worker.read(0, 4000)
		w.set(func() { w.partitions[1].Checkpoint += 77 })
		time.Sleep(20 * time.Second)
		w.do("GET", "/")
		w.set(func() { w.partitions[1].Checkpoint += 77 })
		time.Sleep(10 * time.Second)
		w.take(notify.Alert{ID: "x", Device: "oven-3", Temperature: 81.25, Window: time.Minute, Partition: "2", Sequence: 5})

		golden(t, w, "testdata/page.golden.html")
	})
}

// The page of rules: each as it is, with its alarms, and what was told of which.
func TestPageOfRulesGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ruled)
		time.Sleep(13*time.Minute + 7*time.Second)
		w.busy(2)
		w.alarming()
		golden(t, w, "testdata/page-rules.golden.html")
	})
}

// golden compares w's page with file.
func golden(t *testing.T, w *world, file string) {
	t.Helper()
	answer := w.do("GET", "/")
	if answer.Code != 200 {
		t.Fatal(answer.Code, answer.Body)
	}
	got := regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`).ReplaceAll(answer.Body.Bytes(), []byte("<$1>…</$1>"))
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the page differs from %s: look at it, then go test -update\n%s", file, got)
	}
}

// The page names devices of which nothing can be read, of all replicas, but for those that only lack the field.
func TestPageNamesDevicesOfWhichNothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		since := time.Now().Add(-90 * time.Minute)
		other := newWorld(t, func(o *admin.Options) { o.Replica = "alertworker-7d9f-k8c2m" })
		var reports [][]byte
		w := newWorld(t, func(o *admin.Options) { o.Others = func(context.Context) ([][]byte, error) { return reports, nil } })
		page := func() string {
			time.Sleep(10 * time.Second)
			_ = w.do("GET", "/")
			time.Sleep(time.Second)
			return w.do("GET", "/").Body.String()
		}
		if !strings.Contains(page(), "<dt>Unreadable devices</dt><dd>0</dd>") {
			t.Error("there is none")
		}
		w.set(func() {
			w.worker.unreadable.Devices[telemetry.ReasonMissing] = 3
			w.worker.unreadable.Named = []partition.Unreadable{{Device: "door-1", Since: since, Reason: telemetry.ReasonMissing}}
		})
		if !strings.Contains(page(), "<dt>Unreadable devices</dt><dd>0</dd>") {
			t.Error("one that lacks only the field is no news")
		}
		for _, of := range []*world{w, other} {
			of.set(func() {
				of.worker.unreadable.Devices[telemetry.ReasonMalformed] = 2
				of.worker.unreadable.Named = append(of.worker.unreadable.Named, partition.Unreadable{Device: "<oven-7>", Since: since, Reason: telemetry.ReasonMalformed})
			})
		}
		reports = [][]byte{other.admin.Report(64 << 10)}
		const want = "\n<p class=\"detail warn\">Unreadable devices: &lt;oven-7&gt; (malformed, for 90 min) and &lt;oven-7&gt; (malformed, for 90 min)</p>"
		if body := page(); !strings.Contains(body, want) || !strings.Contains(body, "<dt>Unreadable devices</dt><dd>4</dd>") {
			t.Errorf("the page lacks %q", want)
		}
	})
}

// What devices and receivers are called is text, whatever it looks like.
func TestPageEscapes(t *testing.T) {
	const evil = `"><script>alert(1)</script>'&<img src=x onerror=alert(1)>`
	w := newWorld(t, func(o *admin.Options) { o.Source, o.Replica, o.Version = evil, evil, evil })
	w.set(func() { w.partitions = []telemetry.PartitionStatus{{Partition: evil, Owner: evil}} })
	w.set(func() { w.worker.receivers = []delivery.ReceiverState{{Name: evil, Down: true}, {Name: evil}} })
	w.take(notify.Alert{ID: evil, Device: evil, Partition: evil, Window: time.Minute})
	body := w.do("GET", "/").Body.String()
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
		t.Error("markup got through")
	}
	if !strings.Contains(body, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Error("the name is not there at all")
	}
}

func TestPageWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.busy(14)
		w.set(func() { w.partitionsError = errors.New("https://account/?sig=s3cr3t: service unavailable") })
		body := w.do("GET", "/").Body.String()
		if !strings.Contains(body, "The checkpoint store has not answered yet.") || strings.Contains(body, "s3cr3t") {
			t.Error("the page does not say that the store failed, or says why to everybody")
		}
		time.Sleep(10 * time.Second)
		w.set(func() { w.partitionsError = nil })
		w.do("GET", "/") // does not wait for what has failed
		synctest.Wait()
		if body := w.do("GET", "/").Body.String(); strings.Contains(body, "does not respond") || !strings.Contains(body, "k8c2m") {
			t.Error("the page does not show what the store answers now")
		}
		w.set(func() { w.partitionsError = errors.New("service unavailable") })
		time.Sleep(30 * time.Second)
		if body := w.do("GET", "/").Body.String(); !strings.Contains(body, "the state 30 s ago") || !strings.Contains(body, "k8c2m") {
			t.Error("the page does not show what was known, or not how old it is")
		}
	})
}

// However many look, the store is asked now and then.
func TestPageAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 100 {
			w.do("GET", "/")
			time.Sleep(200 * time.Millisecond)
		}
		if w.asked > 6 {
			t.Errorf("asked %d times in 20 s", w.asked)
		}
	})
}

func TestRecorder(t *testing.T) {
	w := newWorld(t)
	if err := notify.Observe(ill{}, w.recorder.Receiver("r")).Notify(t.Context(), notify.Alert{Device: "untaken"}); err == nil {
		t.Error("the error is gone")
	}
	for i := range 250 {
		w.take(notify.Alert{ID: fmt.Sprint("id-", i), Device: fmt.Sprint("device-", i), Window: time.Minute})
	}
	body := w.do("GET", "/?all").Body.String()
	if strings.Contains(body, "untaken") {
		t.Error("an alert is shown that was not taken")
	}
	if n := strings.Count(body, `title="id-`); n != 100 {
		t.Errorf("%d alerts are shown", n)
	}
	if first, last := strings.Index(body, `"id-249"`), strings.Index(body, `"id-150"`); first < 0 || last < first {
		t.Error("not the last 100, latest first")
	}
	if short := w.do("GET", "/").Body.String(); strings.Count(short, `title="id-`) != 15 || !strings.Contains(short, "Show all 100 alerts") {
		t.Error("alerts are not cut short")
	}
}

// What is recorded and what is shown do not get into each other's way.
func TestRecorderAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				w.take(notify.Alert{ID: "x", Device: fmt.Sprint("device-", i), Window: time.Minute})
			}
		})
	}
	for range 10 {
		w.do("GET", "/")
	}
	all.Wait()
	if got := strings.Count(w.do("GET", "/?device=device-3&all").Body.String(), `title="x"`); got != 50 {
		t.Errorf("%d alerts of a device, want 50", got)
	}
}

// The plots show each minute's own numbers, and an hour at most.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bars := func() []string {
			t.Helper()
			var all []string
			for _, m := range regexp.MustCompile(`<title>(\d\d:\d\d · [\d,]+)</title>`).FindAllStringSubmatch(w.do("GET", "/").Body.String(), -1) {
				all = append(all, m[1])
			}
			return all
		}
		readings := &w.worker.stats.Events[telemetry.ReasonOK]
		readings.Add(5)
		if got := fmt.Sprint(bars()); got != "[00:00 · 5]" {
			t.Error(got)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		readings.Add(1234)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		readings.Add(1)
		if got := fmt.Sprint(bars()); got != "[00:00 · 5 00:01 · 1,234 00:03 · 1]" {
			t.Error(got)
		}
		for range 80 {
			readings.Add(2)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if got := bars(); len(got) != 59 { // and none in the minute under way
			t.Errorf("%d bars: %v", len(got), got)
		}
	})
}

func TestProblemsAreJSON(t *testing.T) {
	var p struct {
		Title, Detail string
		Status        int
	}
	answer := newWorld(t).do("GET", "/nowhere")
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || p.Status != http.StatusNotFound || p.Title != "Not Found" || p.Detail == "" {
		t.Error(p, err)
	}
}

// The page says that no event arrives only if no replica gets any.
func TestNothingArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newWorld(t, ruled, func(o *admin.Options) { o.Replica = "alertworker-7d9f-k8c2m" })
		var reports [][]byte
		w := newWorld(t, ruled, func(o *admin.Options) { o.Others = func(context.Context) ([][]byte, error) { return reports, nil } })
		for i, of := range []*world{w, other} {
			of.set(func() {
				of.reading = telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}
				of.worker.partitions = []partition.State{{Partition: fmt.Sprint(i), ReadUntil: time.Now()}}
			})
			_ = of.monitor.Report() // as every second
		}
		page := func() string {
			reports = [][]byte{other.admin.Report(64 << 10)}
			_ = w.do("GET", "/")
			time.Sleep(10 * time.Second)
			_ = w.do("GET", "/")
			time.Sleep(time.Second)
			return w.do("GET", "/").Body.String()
		}
		time.Sleep(11 * time.Minute)
		body := page()
		for _, want := range []string{
			`<p class="says">Alerts would go out, but no events have arrived on any partition that this replica reads.</p>`, `<p class="state warn">`,
			"<strong>No events have arrived on any partition that this replica reads</strong> on alertworker-7d9f-x2x1p and alertworker-7d9f-k8c2m",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %q:\n%s", want, body)
			}
		}
		other.set(func() { other.worker.partitions[0].ReadUntil = time.Now() })
		if body := page(); strings.Contains(body, "No event") || !strings.Contains(body, `<p class="state good">`) {
			t.Errorf("another replica gets events:\n%s", body)
		}
	})
}

// Each replica's page shows what all have done, and what is in the way of any.
func TestPageOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newWorld(t, ruled, func(o *admin.Options) { o.Replica = "alertworker-7d9f-k8c2m" })
		other.busy(9)
		other.alarming()
		var reports [][]byte
		w := newWorld(t, ruled, func(o *admin.Options) {
			o.Others = func(context.Context) ([][]byte, error) { return append(reports, []byte("{}"), []byte("x")), nil }
		})
		w.set(func() {
			w.reading = telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}
			w.partitions = []telemetry.PartitionStatus{
				{Partition: "0", Owner: "alertworker-7d9f-k8c2m-0b6d8a0e-7f6c-4d3a-9c41-2f6f2b7f0a11", Checkpoint: 1_203_999, Last: 1_204_100},
				{Partition: "1", Owner: "alertworker-7d9f-x2x1p-0b6d8a0e-7f6c-4d3a-9c41-2f6f2b7f0a11", Mine: true, Checkpoint: -1, Last: -1},
			}
			w.worker.receivers = []delivery.ReceiverState{{Name: "example.com", Taken: 3}, {Name: "pager.example.net", Taken: 5}}
			w.worker.counts = []partition.AlarmCounts{{Rule: "hot", Level: "warning", Open: 1}, {Rule: "hot", Level: "critical"}, {Rule: "cold-chain"}, {Rule: "damp"}}
		})
		w.worker.stats.Events[telemetry.ReasonOK].Store(1000)
		w.take(notify.Alert{ID: "mine", Device: "vat", Rule: "damp", Temperature: 70, Threshold: 60, Partition: "1", Sequence: 9, Window: time.Minute})
		time.Sleep(5 * time.Second)
		page := func() string {
			time.Sleep(10 * time.Second)
			_ = w.do("GET", "/")
			time.Sleep(time.Second)
			return w.do("GET", "/").Body.String()
		}
		if alone := page(); !strings.Contains(alone, "delivered by this replica") || strings.Contains(alone, "Replicas</h2>") {
			t.Error("a page of one replica is not about this one")
		}
		reports = [][]byte{other.admin.Report(64 << 10)}
		body := page()
		for _, want := range []string{
			"Some alerts aren&#39;t going out, on alertworker-7d9f-k8c2m.",
			`<span class="state bad"><span class="dot"></span>is down on alertworker-7d9f-k8c2m</span>`,
			"<strong>Receiver pager.example.net is down</strong> on alertworker-7d9f-k8c2m",
			"alertworker-7d9f-x2x1p and 1 more", "Replicas</h2>", "All replicas <span",
			"2,392,112", // readings
			"1,207",     // open alarms of the rule hot
			">vat: 70, at or above 60 (damp)<", "oven-3", "115 delivered", "102 delivered, 3 waiting",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		if strings.Contains(body, "is not being read by any replica") {
			t.Error("all partitions have an owner")
		}
		golden(t, w, "testdata/page-all.golden.html")

		w.set(func() { w.partitions[0].Owner = "" })
		reports = nil
		if body := page(); !strings.Contains(body, `<p class="says">Some alerts aren&#39;t going out: partition 0 is not being read by any replica.</p>`) || !strings.Contains(body, `<p class="state bad">`) {
			t.Error("the headline does not say that nobody reads a partition")
		}
		if n := len(other.admin.Report(64 << 10)); n > 16<<10 {
			t.Errorf("a report has %d bytes", n)
		}
		for _, limit := range []int{16 << 10, 8 << 10, 4 << 10, 1 << 10} { // it is cut to fit, and says what is wrong
			report := other.admin.Report(limit)
			var m status.Statement
			err := json.Unmarshal(report, &m)
			if err != nil || len(report) > limit || len(m.Status.Problems) == 0 || m.Status.Headline == "" {
				t.Errorf("%d bytes, %v: %+v", len(report), err, m)
			}
		}
	})
}

// In a rollout the page shows replicas of both versions: what they have counted has the same names.
func TestPageOfAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old = `{"replica":"old","status":{"state":"alerts are going out"},"Counts":{"readings":41,"dead letters":3},"Unreadable":{"missing":1},"UnreadableNamed":null}`
		w := newWorld(t, func(o *admin.Options) {
			o.Others = func(context.Context) ([][]byte, error) { return [][]byte{[]byte(old)}, nil }
		})
		_ = w.do("GET", "/")
		synctest.Wait()
		page := w.do("GET", "/").Body.String()
		for _, want := range []string{">old<small>", "<strong>Dead letters since the start: 3</strong>", "<dt>Readings</dt><dd>41</dd>"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page has no %s", want)
			}
		}
	})
}

// Replicas that differ are counted and named: what one of them cannot do is not what none can.
func TestHeadlineOfAll(t *testing.T) {
	const down = "No alerts are going out: receiver pager is down."
	report := func(name string, s status.State, headline string) admin.Snapshot {
		return admin.Snapshot{Statement: status.Statement{Replica: name, Status: status.Report{State: s, Headline: headline}}}
	}
	well := report("c", status.GoingOut, "Alerts are going out.")
	blocked := report("b", status.Blocked, down)
	for name, test := range map[string]struct {
		all   []admin.Snapshot
		state status.State
		says  string
	}{
		"alone":       {[]admin.Snapshot{blocked}, status.Blocked, down},
		"all well":    {[]admin.Snapshot{well, report("d", status.GoingOut, "Alerts are going out.")}, status.GoingOut, "Alerts are going out."},
		"all blocked": {[]admin.Snapshot{blocked, report("d", status.Blocked, down)}, status.Blocked, down},
		"blocked by different things": {
			[]admin.Snapshot{report("d", status.Partly, "Some alerts aren't going out: receiver mail is down."), blocked}, status.Blocked, down,
		},
		"one of three": {
			[]admin.Snapshot{well, blocked, report("d", status.GoingOut, "")}, status.Partly, "Some alerts aren't going out, on b.",
		},
		"two of three": {
			[]admin.Snapshot{blocked, well, report("d", status.Partly, "Some alerts aren't going out: partition 3 is not being read.")},
			status.Partly, "Some alerts aren't going out, on b and d.",
		},
		"one, beside one that starts": {[]admin.Snapshot{blocked, report("d", status.Starting, "Starting.")}, status.Blocked, down},
	} {
		if state, says := admin.HeadlineOf(test.all); state != test.state || says != test.says {
			t.Errorf("%s: %s, %q; want %s, %q", name, state, says, test.state, test.says)
		}
	}
}

// A link of an alert leads to the open alarms and the last alerts of its device alone.
func TestPageAboutADevice(t *testing.T) {
	w := newWorld(t, ruled)
	w.busy(6)
	w.alarming()
	long := strings.Repeat("Feuerungsautomat", 64)
	w.take(notify.Alert{ID: "long", Device: long + "1", Rule: "hot", Level: "critical", Temperature: 1e300, Threshold: 85, Window: time.Hour, Partition: "0"})
	w.take(notify.Alert{ID: "other", Device: long + "2", Rule: "hot", Level: "critical", Temperature: 77, Threshold: 85, Window: time.Hour, Partition: "0"})
	about := func(device string) string {
		t.Helper()
		link := (wording.Style{Page: "https://alerts.example.com"}).Links(notify.Alert{Device: device})[0].URL
		_, page, ok := strings.Cut(w.do("GET", "/"+strings.TrimPrefix(link, "https://alerts.example.com")).Body.String(), `id="about"`)
		if !ok {
			t.Errorf("%s leads to a page without it", link)
		}
		return page
	}
	for device, wants := range map[string][]string{
		"oven-3":     {">oven-3 <", ">Open alarms <", ">oven-3<small>hot · critical</small>", ">Last alerts <", ">oven-3: 93.5, at or above 85 (hot, critical)<"},
		long + "1":   {`data-device="` + long + `1"`, "1e&#43;300"},
		long + "2":   {`data-device="` + long + `2"`, ": 77, not normal yet after reaching 85 (hot, critical)<"},
		"never-seen": {">never-seen <", ">Open alarms <", "None.", ">Last alerts <", "No alerts yet."},
		"..":         {">.. <"},
	} {
		rest := about(device)
		for _, want := range wants {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("about %.20s there is no %q next in %s", device, want, rest)
			}
			rest = after
		}
	}
	if page := about(long + "1"); strings.Contains(page, ": 77,") || strings.Contains(page, "oven-3") {
		t.Errorf("more is about it: %s", page)
	}
	if page := w.do("GET", "/").Body.String(); strings.Contains(page, `id="about"`) || strings.Contains(page, long) {
		t.Error("the page is about a device without being asked, or shows all of a long name")
	}
}

// What would act on the reader's screen is shown as a character that cannot be printed, wherever it comes from.
func TestPageShowsControlCharacters(t *testing.T) {
	const evil = "a\u202eb\u2066c\u009bd\u0007e\u200bf"
	w := newWorld(t, ruled, func(o *admin.Options) { o.Replica = "w" + evil })
	w.set(func() {
		w.worker.receivers = []delivery.ReceiverState{{Name: "r" + evil, Down: true, Err: errors.New(evil), Since: time.Now()}}
		w.worker.alarms = []partition.AlarmState{{Device: "d" + evil, Rule: "hot", Level: "warning", Since: time.Now()}}
		w.worker.counts = []partition.AlarmCounts{{Rule: "hot", Level: "warning", Open: 1}}
	})
	w.take(notify.Alert{ID: "i" + evil, Device: "d" + evil, Rule: "door-open", Per: "site", PerValue: "s" + evil, Word: "w" + evil, Window: time.Minute})
	page := w.do("GET", "/?device=d"+url.QueryEscape(evil)).Body.String()
	for _, r := range page {
		if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) && r != '\n' && r != '\t' {
			t.Errorf("the page has %U", r)
			break
		}
	}
	if n := strings.Count(page, "da\uFFFDb\uFFFDc\uFFFDd\uFFFDe\uFFFDf"); n < 3 {
		t.Errorf("the device is shown %d times", n)
	}
}

// Any name can be looked up: browsers take ".." and "%2E%2E" in a path away.
func TestLookUpByQuery(t *testing.T) {
	w := newWorld(t)
	for _, device := range []string{"..", ".", "kiln/north", "a b?c=d&e"} {
		answer := w.authorized("GET", "/devices?id="+url.QueryEscape(device))
		var found struct{ Device string }
		if err := json.Unmarshal(answer.Body.Bytes(), &found); err != nil || answer.Code != 200 || found.Device != device {
			t.Errorf("%s: %d %s", device, answer.Code, answer.Body)
		}
	}
	problem(t, w.authorized("GET", "/devices"), 404)
	problem(t, w.do("GET", "/devices?id=oven"), 401)
}

// The page says how a receiver is down in the words of the problem above it, for all replicas.
func TestPageSaysHowReceiversAreDown(t *testing.T) {
	for fault, says := range map[delivery.ReceiverFault]string{
		delivery.ReceiverFails:   "is down",
		delivery.ReceiverRejects: "rejects every alert",
		delivery.ReceiverLimited: "accepts nothing because of its rate limit",
	} {
		w := newWorld(t)
		down := delivery.ReceiverState{Name: "pager", Down: true, Fault: fault, Since: time.Now()}
		w.set(func() { w.worker.receivers = []delivery.ReceiverState{down} })
		page := w.do("GET", "/").Body.String()
		if want := `<span class="state bad"><span class="dot"></span>` + says + "</span>"; !strings.Contains(page, want) {
			t.Errorf("a receiver that is %v: the page has no %s", fault, want)
		}

		up := delivery.ReceiverState{Name: "pager"}
		got := admin.DownOn(
			admin.Snapshot{Statement: status.Statement{Replica: "w1"}, Receivers: []delivery.ReceiverState{up}},
			admin.Snapshot{Statement: status.Statement{Replica: "w2"}, Receivers: []delivery.ReceiverState{down}},
		)
		if want := says + " on w2"; got != want {
			t.Errorf("a receiver that is %v for another replica: %q, want %q", fault, got, want)
		}
	}
}
