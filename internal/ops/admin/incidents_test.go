package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/ops/admin"
	"alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// offline is a rule about gateways whose devices are silent.
var offline = rules.Set{Rules: []rules.Rule{{
	Name: "offline", Silent: 15 * time.Minute, Per: "gateway", Resolved: true, Window: 10 * time.Minute, Levels: []rules.Level{{}},
}}}

// gateway is a group of its devices.
func gateway(name string) incident.Group {
	return incident.Group{Rule: "offline", Silence: true, Per: "gateway", Value: name}
}

// enter writes that a partition has so many members, from a sequence number on.
func enter(t *testing.T, book *incident.Book, of, partition string, members int, sequence int64) string {
	t.Helper()
	result, err := book.Sync(t.Context(), gateway(of), partition, incident.Entry{
		Members: members, First: of + "-meter-" + partition, Since: time.Now().Add(-15 * time.Minute), Position: incident.Position{Sequence: sequence},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result.Incident
}

// Open incidents of all replicas are listed, with their members by partition. A link of a message leads to its incident.
func TestIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &incident.Book{Store: &records.Memory{}, Prefix: "incidents/"}
		w := newWorld(t, func(o *admin.Options) { o.Rules, o.Incidents, o.Receivers = offline, book, nil })
		if page := w.do(http.MethodGet, "/").Body.String(); strings.Contains(page, "Open incidents") {
			t.Error("the page lists incidents although there are none")
		}

		enter(t, book, "gw-1", "3", 1, 1)
		time.Sleep(time.Minute)
		enter(t, book, "gw-12", "10", 12, 1)
		linked := enter(t, book, "gw-12", "9", 18, 1)
		time.Sleep(time.Second) // they are listed in the order in which they began
		enter(t, book, "gw-7", "3", 2, 1)
		enter(t, book, "gw-7", "3", 0, 2)
		time.Sleep(11 * time.Minute)
		enter(t, book, "gw-12", "9", 17, 2)
		time.Sleep(5 * time.Second)

		for path, want := range map[string][]string{
			"/": {
				`<li><span class="grow">gw-1<small>offline</small><small>at least 1 device silent, first gw-1-meter-3: 1 in partition 3</small>`,
				`<li><span class="grow">gw-12<small>offline</small><small>at least 29 devices silent, first gw-12-meter-10: 17 in partition 9 and 12 in partition 10</small>`,
				`<li><span class="grow">gw-7<small>offline</small><small>over, and its end is being sent</small>`,
			},
			"/?incident=" + linked: {`<a href="/">all</a></span></h2>
<ul class="list open">
<li><span class="grow">gw-12<`, "</li>\n</ul>"},
			"/?incident=another": {"The incident of this link is over.</p>\n</section>"},
		} {
			rest := w.do(http.MethodGet, path).Body.String()
			for _, text := range want {
				at := strings.Index(rest, text)
				if at < 0 {
					t.Errorf("%s does not show %s (in this order) in\n%s", path, text, rest)
					break
				}
				rest = rest[at:]
			}
		}
	})
}

// The last alerts name what the members of an incident share, how many they were, and the first.
func TestAlertsOfIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *admin.Options) { o.Rules, o.Receivers = offline, nil })
		w.take(notifytest.Incident())
		time.Sleep(time.Second)
		w.take(notifytest.Over(notifytest.Incident()))
		rest := w.do(http.MethodGet, "/").Body.String()
		for _, text := range []string{
			`" class="good">berlin: all devices normal again after 43 min (freezer)</td>`,
			`">berlin: 12 devices at or above -15 °C, first freezer-7: -12.5 °C (freezer)</td>`,
		} {
			at := strings.Index(rest, text)
			if at < 0 {
				t.Fatalf("the page does not show %s (in this order) in\n%s", text, rest)
			}
			rest = rest[at:]
		}
	})
}

// What cannot be asked is said to be unknown, and not to be none.
func TestIncidentsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *admin.Options) { o.Rules, o.Incidents, o.Receivers = offline, failingIncidents{}, nil })
		if page := w.do(http.MethodGet, "/").Body.String(); !strings.Contains(page, "The checkpoint store has not answered yet.") {
			t.Error("the page does not say that incidents are not known")
		}
	})
}

type failingIncidents struct{}

func (failingIncidents) Read(context.Context, incident.Group) (incident.Record, time.Time, error) {
	return incident.Record{}, time.Time{}, errors.New("no route")
}

func (failingIncidents) Open(context.Context, int, time.Duration) ([]incident.Listed, bool, error) {
	return nil, false, errors.New("no route")
}

// Why nobody was told of a device alone: it is part of an incident.
func TestWhyOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &incident.Book{Store: &records.Memory{}, Prefix: "incidents/"}
		gate := &fakeGate{}
		w := newWorld(t, func(o *admin.Options) {
			o.Rules, o.Incidents = offline, book
			o.Receivers = []admin.Receiver{{Name: "hook", Rule: "offline", Per: "gateway", Gate: gate}}
		})
		since := time.Now().Add(-15 * time.Minute)
		w.set(func() {
			w.worker.devices = map[string]partition.DeviceState{"meter-3": {Alarms: []partition.AlarmState{{
				Partition: "3", Device: "meter-3", Rule: "offline", Phase: rules.Open, Silence: true, Since: since, Limit: 900, Group: "gw-12",
			}}}}
		})
		why := func() string {
			var answer struct{ Why string }
			if err := json.Unmarshal(w.do(http.MethodGet, "/devices/meter-3", "Authorization", "Bearer "+token).Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			return answer.Why
		}
		expect := func(want string) {
			t.Helper()
			if got := why(); !strings.Contains(got, "\n  incident offline: "+want) {
				t.Errorf("got\n%s\nwant %q", got, want)
			}
		}

		expect("to be part of the incident of gw-12: its record does not say so yet")
		id := enter(t, book, "gw-12", "3", 1, 1)
		at := since.UTC().Format("15:04:05 MST")
		if now := time.Now(); since.Format(time.DateOnly) != now.UTC().Format(time.DateOnly) {
			at = since.UTC().Format("2006-01-02 15:04:05 MST")
		}
		expect("part of the incident of gw-12, since " + at + ", with 1 device: " + id)
		enter(t, book, "gw-12", "5", 29, 1)
		expect("part of the incident of gw-12, since " + at + ", with 30 devices: " + id)
		if len(gate.asked) != 3 || gate.asked[0] != "gw-12" {
			t.Errorf("the windows of %v were looked up", gate.asked)
		}
	})
}

// An alarm may have opened while its rule had per: what is asked about then is the window of the device.
func TestWhyOnceTheRuleHasNoIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &fakeGate{}
		w := newWorld(t, func(o *admin.Options) {
			o.Rules = rules.Set{Rules: []rules.Rule{{Name: "offline", Silent: 15 * time.Minute, Window: time.Minute, Levels: []rules.Level{{}}}}}
			o.Receivers = []admin.Receiver{{Name: "hook", Rule: "offline", Gate: gate}}
		})
		w.set(func() {
			w.worker.devices = map[string]partition.DeviceState{"meter-3": {Alarms: []partition.AlarmState{{
				Partition: "3", Device: "meter-3", Rule: "offline", Phase: rules.Open, Silence: true, Since: time.Now(), Limit: 900, Group: "gw-12",
			}}}}
		})
		answer := w.do(http.MethodGet, "/devices/meter-3", "Authorization", "Bearer "+token).Body.String()
		if len(gate.asked) != 1 || gate.asked[0] != "meter-3" || strings.Contains(answer, "incident") {
			t.Errorf("the windows of %v were looked up: %s", gate.asked, answer)
		}
	})
}
