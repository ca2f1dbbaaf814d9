//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
)

// A day of refrigerated trucks, in minutes: they send what they have stored beside what they measure, a depot fails,
// some are washed, some load something else, and the way to the hub is away for all of them. Replicas are killed and
// frozen meanwhile. It can go on for longer:
//
//	go test -run 'TestTrucks$' -v ./internal/lab/e2e -rounds 20
func TestTrucks(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	busytest.Run(t, func(t *busytest.Attempt) { trucks(t, storage) })
}

const trucksFile = `rules:
- name: warm
  field: temperature
  above: {warning: setpoint + 3, critical: setpoint + 8}
  clear: {warning: setpoint + 2, critical: setpoint + 6}
  for: 3s
  clear_for: 4s
  only: {kind: frozen}
  resolved: true
- {name: depot, field: temperature, above: setpoint + 5, for: 3s, only: {kind: frozen}, per: site, resolved: false}
- {name: offline, silent: 1m, resolved: true}
mute:
- {from: %s, to: %s, zone: UTC, device: "truck-1*", rule: warm}
`

// trucksRules are those of trucksFile, as the judge has them.
func trucksRules() []verify.Rule {
	isFrozen := []verify.Condition{{Name: "kind", Values: []string{"frozen"}}}
	return []verify.Rule{
		{
			Name: "warm", Base: "setpoint", Only: isFrozen, ClearFor: 4 * time.Second, Resolved: true,
			Levels: []verify.Level{
				{Name: "warning", Limit: 3, Clear: 2, For: 3 * time.Second},
				{Name: "critical", Limit: 8, Clear: 6, For: 3 * time.Second},
			},
		},
		{
			Name: "depot", Base: "setpoint", Only: isFrozen, Per: "site",
			Levels: []verify.Level{{Limit: 5, Clear: 5, For: 3 * time.Second}},
		},
		{Name: "offline", Silent: silent, Resolved: true, Levels: []verify.Level{{}}},
	}
}

const (
	trucksEach  = 26                      // in each of two partitions
	reportEvery = 1500 * time.Millisecond // a truck reports so often, about
	mutedWithin = 15 * time.Second        // all replicas know it
	clockOnWall = "15:04"
)

// A fleet is trucks at work, and the world that they are in.
type fleet struct {
	*world
	trucks []*truck
	muted  time.Time // until then

	state sync.Mutex // of all trucks
}

// A truck is one that reports.
type truck struct {
	name, partition, site string
	kind                  string
	setpoint              float64
	above                 float64 // its temperature, above the set point
	away                  bool    // it stores what it measures
	stored                []sample
}

// A sample is what a truck has measured.
type sample struct {
	taken time.Time
	body  map[string]any
}

// An hour is a part of the day.
type hour struct {
	name  string
	lasts time.Duration
	begin func(*fleet)
	stop  func(*fleet) // stops a replica meanwhile; nil: none
}

var day = []hour{
	{"on the road", 14 * time.Second, (*fleet).road, nil},
	{"at the wash", 14 * time.Second, (*fleet).wash, (*fleet).dies},
	{"the depot fails", 20 * time.Second, (*fleet).depotFails, (*fleet).isKnown},
	{"another load", 12 * time.Second, (*fleet).reload, (*fleet).dies},
	{"the wash is over", 10 * time.Second, (*fleet).washed, nil},
	{"no network", silent + 15*time.Second, (*fleet).lost, (*fleet).dies},
	{"back", 16 * time.Second, (*fleet).back, (*fleet).dies},
}

func trucks(t *busytest.Attempt, storage string) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	from := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	until := from.Add(time.Minute)
	text := fmt.Sprintf(trucksFile, from.Format(clockOnWall), until.Format(clockOnWall))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	w := &fleet{world: newWorld(t, storage, settings{
		partitions: 2, window: 10 * time.Second, rules: trucksRules(),
		env: []string{"RULES_FILE=" + file, "TIME_PROPERTY=created"},
	})}
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, "TEMPERATURE_") })
	w.verifyLog.Muted(verify.Mute{
		Device: "truck-1*", Rule: "warm", From: from, Known: from, Ending: until, Until: until,
	})
	for n := range 2 * trucksEach {
		w.trucks = append(w.trucks, &truck{
			name:      fmt.Sprintf("truck-%02d", n),
			partition: fmt.Sprint(n % 2),
			site:      []string{"berlin", "paris", "wash", "berlin"}[n/2%4],
			kind:      "frozen",
			setpoint:  []float64{-20, -18.5}[n%2],
		})
	}

	w.start("a", "b")
	w.ready()
	stop := w.drive()
	for range *rounds {
		for _, h := range day {
			t.Logf("%s %s", time.Now().Format("15:04:05.000"), h.name)
			began := time.Now()
			h.begin(w)
			if h.stop != nil {
				w.pass(w.between(0, 4*time.Second))
				h.stop(w)
			}
			w.pass(h.lasts - time.Since(began))
		}
	}
	stop()

	r := w.finish()
	w.heardOf("why a rule no longer applies", func(a notify.Alert) bool { return a.Excluded != "" })
	w.heardOf("a depot", func(a notify.Alert) bool { return a.Rule == "depot" && a.PerValue == "berlin" })
	if r.Recoveries == 0 {
		t.Error("no truck was normal again")
	}
}

// heardOf fails the test unless the receiver has taken such an alert.
func (w *fleet) heardOf(what string, is func(notify.Alert) bool) {
	w.t.Helper()
	if !slices.ContainsFunc(w.receiver.Taken(), is) {
		w.t.Errorf("the receiver was never told: %s", what)
	}
}

// drive has all trucks report until the returned function is called.
func (w *fleet) drive() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	rng := randv2.New(randv2.NewPCG(w.rng.Uint64(), 0))
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(reportEvery / time.Duration(len(w.trucks)))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			w.report(w.trucks[n%len(w.trucks)], rng)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// report has a truck measure, and send that and some of what it has stored, unless it is away.
func (w *fleet) report(t *truck, rng *randv2.Rand) {
	w.state.Lock()
	defer w.state.Unlock()
	now := t.measure(rng)
	if t.away {
		t.stored = append(t.stored, now)
		return
	}

	late := min(len(t.stored), rng.IntN(4))
	for _, s := range append(t.stored[:late:late], now) {
		w.sends(t, s)
	}
	t.stored = t.stored[late:]
}

func (t *truck) measure(rng *randv2.Rand) sample {
	noise := float64(rng.IntN(11)-5) / 10
	body := map[string]any{"temperature": t.setpoint + t.above + noise, "kind": t.kind}
	if rng.IntN(20) > 0 {
		body["setpoint"] = t.setpoint
	}
	return sample{time.Now().Truncate(time.Millisecond), body}
}

// sends publishes what a truck has measured.
func (w *fleet) sends(t *truck, s sample) {
	encoded, err := json.Marshal(s.body)
	if err != nil {
		w.t.Error(err)
		return
	}

	created := s.taken.UTC().Format(time.RFC3339Nano)
	fields := map[string]string{}
	for name, value := range s.body {
		fields[name] = fmt.Sprint(value)
	}

	w.post(
		devhub.Message{
			Device: t.name, Partition: t.partition, Body: encoded,
			Properties: map[string]any{"site": t.site, "created": created},
		},
		verify.Reading{
			Taken: s.taken, Temperature: s.body["temperature"].(float64), Fields: fields,
			Properties: map[string]string{"site": t.site, "created": created},
		},
	)
}

// each has something happen to trucks.
func (w *fleet) each(happens func(n int, t *truck)) {
	w.state.Lock()
	defer w.state.Unlock()
	for n, t := range w.trucks {
		happens(n, t)
	}
}

// road has some trucks get warm, and some store what they measure. Alerts of the wash are silenced.
func (w *fleet) road() {
	w.silenceWash()
	w.each(func(n int, t *truck) {
		t.kind = "frozen"
		t.above = []float64{0, 0, 5, 0, 10, 0}[w.rng.IntN(6)]
		t.away = w.rng.IntN(5) == 0
	})
}

// silenceWash silences alerts of trucks at the wash for a minute.
func (w *fleet) silenceWash() {
	w.muted = w.silences(verify.Mute{Property: "site", Value: "wash"}, "--where", "site=wash", "--for", "1m")
}

// isKnown silences what a depot has for a minute, while a replica freezes.
func (w *fleet) isKnown() {
	w.pass(4 * time.Second)
	w.silences(verify.Mute{Property: "site", Value: "berlin"}, "--where", "site=berlin", "--for", "1m")
	w.freezes()
}

var silencedUntil = regexp.MustCompile(`silenced until (\S+ \S+)Z: `)

// silences silences alerts by the command, as m says, and returns until when.
func (w *fleet) silences(m verify.Mute, args ...string) (until time.Time) {
	const takes = 10 * time.Second // the command; meanwhile replicas may know it, or not
	m.From = time.Now().Add(-time.Second)
	m.Known = m.From.Add(takes)
	m.Ending = m.Known
	m.Until = m.Known
	w.verifyLog.Muted(m)

	args = append([]string{"silence", "--why", "known", "--who", "somebody"}, args...)
	p := alertworker(w.t.T, "silence", w.env, args...)
	p.wait(exitWithin, 0)
	if time.Now().After(m.Known) {
		w.t.Missed("the command took longer than %v", takes)
	}

	until, err := time.Parse(time.DateTime, p.find(exitWithin, silencedUntil))
	if err != nil {
		w.t.Fatal(err)
	}

	m.Known = time.Now().Add(w.t.Time(mutedWithin))
	m.Ending = until.Add(-time.Second)
	m.Until = until.Add(2 * time.Second)
	w.verifyLog.Muted(m)

	return m.Until
}

// wash has trucks at the wash get warm; those that have stored something send it.
func (w *fleet) wash() {
	w.each(func(n int, t *truck) {
		t.away = false
		if t.site == "wash" {
			t.above = 10
		}
	})
}

// depotFails has all trucks of a depot get warm at once.
func (w *fleet) depotFails() {
	w.each(func(n int, t *truck) {
		if t.site == "berlin" {
			t.above = 6.5
		}
	})
}

// reload has some trucks, warm ones among them, load what need not be frozen. The depot works again.
func (w *fleet) reload() {
	w.each(func(n int, t *truck) {
		switch {
		case n%3 == 0 && t.site != "wash":
			t.kind = "chilled"
		case t.site == "berlin":
			t.above = 0
		}
	})
}

// washed waits until alerts of the wash are no longer silenced, and a little longer.
func (w *fleet) washed() { w.pass(time.Until(w.muted.Add(4 * time.Second))) }

// lost has nothing of any truck arrive.
func (w *fleet) lost() {
	w.each(func(n int, t *truck) {
		t.away = true
		if t.site == "wash" {
			t.above = 0
		}
	})
}

// back has trucks arrive again one after the other, with what they have stored.
func (w *fleet) back() {
	for n := range w.trucks {
		w.pass(w.between(0, 5*time.Second/time.Duration(len(w.trucks))))
		w.state.Lock()
		w.trucks[n].away = false
		w.state.Unlock()
	}
}

// dies kills a replica, and starts it again.
func (w *fleet) dies() {
	name := string(rune('a' + w.rng.IntN(2)))
	w.kill(name)
	w.pass(w.between(0, 2*time.Second))
	w.start(name)
}

// freezes freezes a replica until the other has its partitions, mostly.
func (w *fleet) freezes() {
	name := string(rune('a' + w.rng.IntN(2)))
	w.workers[name].freeze()
	w.t.Logf("%s froze %s", time.Now().Format("15:04:05.000"), name)
	w.pass(w.between(w.t.Time(ownershipExpiry)/2, 2*w.t.Time(ownershipExpiry)))
	w.workers[name].thaw()
	w.t.Logf("%s thawed %s", time.Now().Format("15:04:05.000"), name)
}
