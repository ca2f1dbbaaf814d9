//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	randv2 "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/devices"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

// sustain is for of the rule.
const sustain = time.Second

// Workers stop in every state of an alarm: killed, or frozen until others have gone on. Alarms open and
// end at the readings that the rule says, and receivers are notified.
func TestAlarms(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	for name, scenario := range map[string]func(t *busytest.Attempt, storage string){
		"kill in every state":   func(t *busytest.Attempt, storage string) { everyState(t, storage, (*stage).kill) },
		"freeze in every state": func(t *busytest.Attempt, storage string) { everyState(t, storage, (*stage).freeze) },
		"kill with levels":      killWithLevels,
		"kill with sensors":     killWithSensors,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busytest.Run(t, func(t *busytest.Attempt) { scenario(t, storage) })
		})
	}
}

// What a reading is.
const (
	hot     = threshold + 5
	between = threshold - 1
	cool    = threshold - 5
)

// A stage is a world in which the alarm of one device after the other goes through its states.
type stage struct {
	*world
	proxy     *storageProxy
	sent      *hold // of alerts; nil: they are taken
	device    string
	partition string
	victim    string // the worker that owns it
}

// A state is one in which workers are stopped.
type state struct {
	name  string
	reach func(*stage) // has the worker get there
	after func(*stage) // goes on, while the worker is stopped
}

// states are in the order in which an alarm goes through them.
var states = []state{
	{"pending", func(w *stage) { w.reading(hot); w.kept() }, (*stage).opens},
	{"pending, and not sustained", func(w *stage) { w.reading(hot); w.kept() }, func(w *stage) { w.reading(between); w.pass(sustain); w.opens() }},
	{"open, before it is claimed", func(w *stage) { w.held(false, throttling, (*stage).opens) }, nil},
	{"open, claimed unheard", func(w *stage) { w.held(true, throttling, (*stage).opens) }, nil},
	{"open, being sent", func(w *stage) { w.sending(false, false, (*stage).opens) }, nil},
	{"open, sent and not recorded", func(w *stage) { w.sending(false, true, (*stage).opens) }, nil},
	{"open, the ledger being written", func(w *stage) { w.held(true, ledger, (*stage).opens) }, nil},
	{"open, the ledger written and the checkpoint not", func(w *stage) { w.held(false, checkpointAfterLedger(), (*stage).opens) }, nil},
	{"open and sent", func(w *stage) { w.opens(); w.notified(1, false); w.kept() }, nil},
	{"open and sent, and ended meanwhile", func(w *stage) { w.opens(); w.notified(1, false); w.kept() }, func(w *stage) { w.reading(between); w.ends() }},
	{"ended, within the window", func(w *stage) { w.opens(); w.notified(1, false); w.ends(); w.kept() }, nil},
	{"ended, within the window, and open again meanwhile", func(w *stage) { w.opens(); w.notified(1, false); w.ends(); w.kept() }, (*stage).opens},
	{"ended, before it is claimed", func(w *stage) { w.opened(); w.held(false, throttling, (*stage).ends) }, nil},
	{"ended, claimed unheard", func(w *stage) { w.opened(); w.held(true, throttling, (*stage).ends) }, nil},
	{"ended, being sent", func(w *stage) { w.opened(); w.sending(true, false, (*stage).ends) }, nil},
	{"ended, sent and not recorded", func(w *stage) { w.opened(); w.sending(true, true, (*stage).ends) }, nil},
	{"ended, sent and not recorded, and open again meanwhile", func(w *stage) { w.opened(); w.sending(true, true, (*stage).ends) }, (*stage).opens},
	{"ended and sent", func(w *stage) { w.opened(); w.ends(); w.notified(1, true); w.kept() }, (*stage).opens},
}

func everyState(t *busytest.Attempt, storage string, stop func(w *stage, meanwhile func(*stage))) {
	w := &stage{proxy: newStorageProxy(t.T, storage)}
	w.world = newWorld(t, w.proxy.connection, settings{
		partitions: 4,
		env: []string{
			"TEMPERATURE_THRESHOLD=",
			fmt.Sprintf("RULES=rules: [{name: %s, field: temperature, above: %v, clear: %v, for: %v, resolved: true}]", notify.DefaultRule, threshold, threshold-2, sustain),
		},
		rules: []verify.Rule{{
			Name: notify.DefaultRule, Levels: []verify.Level{{Limit: threshold, Clear: threshold - 2, For: sustain}}, Resolved: true,
		}},
	})
	w.start("a", "b", "c")
	for n, s := range states {
		w.ready()
		t.Logf("%s %s", time.Now().Format("15:04:05.000"), s.name)
		w.enter(fmt.Sprintf("oven%02d", n))
		s.reach(w)
		stop(w, s.after)
		if n%3 == 0 { // the others end as they are
			w.reading(between)
			w.opens()
		} else if n%3 == 1 {
			w.ends()
		}
	}
	w.finish()
}

// enter begins with a new device.
func (w *stage) enter(device string) {
	w.device = device
	w.partition = w.publishWith(device, cool, nil)
	within(w.t, startWithin, "the partition has an owner that runs", func() bool {
		w.alive()
		w.victim, _, _ = strings.Cut(w.devhub.Owners()[w.partition], "-")
		return w.workers[w.victim] != nil
	})
}

func (w *stage) reading(temperature float64) { w.publish(w.device, temperature) }

// opens has readings be hot for long enough.
func (w *stage) opens() {
	w.reading(hot)
	w.pass(sustain + 100*time.Millisecond)
	w.reading(hot)
}

// opened is opens, until the receiver has been notified.
func (w *stage) opened() {
	w.opens()
	w.notified(1, false)
}

// ends has a reading end the alarm.
func (w *stage) ends() { w.reading(cool) }

// notified waits until the receiver has taken so many alerts of the device, or recoveries.
func (w *stage) notified(n int, recovery bool) {
	w.t.Helper()
	within(w.t, startWithin, fmt.Sprintf("%d messages about %s, recovery: %v", n, w.device, recovery), func() bool {
		w.alive()
		got := 0
		for _, a := range w.receiver.Taken() {
			if a.Device == w.device && a.Resolved == recovery {
				got++
			}
		}
		return got >= n
	})
}

// kept lets so much time pass that the ledger holds what has been read.
func (w *stage) kept() { w.pass(1500 * time.Millisecond) }

// held has do go as far as a request of the victim to its storage account, which is held.
func (w *stage) held(done bool, which func(*stage, *http.Request) bool, do func(*stage)) {
	w.t.Helper()
	arrived := w.proxy.hold(done, func(r *http.Request) bool { return which(w, r) })
	do(w)
	w.await(arrived, "a request to the storage account is held")
}

// sending has do go as far as the request to the receiver, which is held.
func (w *stage) sending(recovery, taken bool, do func(*stage)) {
	w.t.Helper()
	device := w.device
	w.sent = newHold(func(a notify.Alert) bool { return a.Device == device && a.Resolved == recovery }, taken)
	w.receiver.BehaveAlways(w.sent.behave)
	do(w)
	w.holding(w.sent)
}

func (w *stage) await(c <-chan struct{}, what string) {
	w.t.Helper()
	within(w.t, startWithin, what, func() bool {
		w.alive()
		select {
		case <-c:
			return true
		default:
			return false
		}
	})
}

// kill kills the victim, and starts it again when another worker has its partition.
func (w *stage) kill(meanwhile func(*stage)) {
	w.world.kill(w.victim)
	w.proxy.lose() // what it has not written by now
	w.resume()
	w.others(meanwhile)
	w.start(w.victim)
}

// freeze freezes the victim until another worker has its partition, and has gone on. What was held goes on after that.
func (w *stage) freeze(meanwhile func(*stage)) {
	w.workers[w.victim].freeze()
	w.t.Logf("%s froze %s", time.Now().Format("15:04:05.000"), w.victim)
	w.proxy.holdNoMore()
	if w.sent != nil {
		w.resume() // what is on its way arrives, and nobody hears that it was taken
	}
	w.others(meanwhile)
	w.pass(time.Second)
	w.workers[w.victim].thaw()
	w.resume()
}

// others goes on until another worker has the victim's partition.
func (w *stage) others(meanwhile func(*stage)) {
	w.t.Helper()
	if meanwhile != nil {
		meanwhile(w)
	}
	within(w.t, startWithin, "another worker has the partition", func() bool {
		owner, _, _ := strings.Cut(w.devhub.Owners()[w.partition], "-")
		return owner != "" && owner != w.victim
	})
}

// resume lets go what is held.
func (w *stage) resume() {
	w.proxy.letGo()
	if w.sent != nil {
		close(w.sent.release)
		w.sent = nil
		w.receiver.BehaveAlways(notifytest.Take)
	}
}

// throttling is a request that changes the record of the device.
func throttling(w *stage, r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, w.setting("THROTTLE_CONTAINER")+"/") && strings.HasSuffix(r.URL.Path, w.device)
}

// ledger is a request that writes the ledger of the partition.
func ledger(w *stage, r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/ledger/"+w.partition)
}

// checkpointAfterLedger is a request that writes the checkpoint of the partition, the first one after its ledger.
func checkpointAfterLedger() func(*stage, *http.Request) bool {
	written := false
	return func(w *stage, r *http.Request) bool {
		written = written || ledger(w, r)
		return written && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/checkpoint/"+w.partition)
	}
}

// levelsFile is RULES_FILE.
const levelsFile = `mute: [{where: maintenance=true}]
rules:
- name: hot
  field: temperature
  above: {warning: 30, critical: maxTemp or 36}
  clear: {warning: 28, critical: 34}
  for: {warning: 2s}
  resolved: true
- {name: lines, field: temperature, above: 34, per: line}
- name: cold
  field: temperature
  below: 22
  clear: 24
  resolved: true
`

// Workers are killed and started again at random moments, while devices go up and down through two levels and one
// below. Some devices are quiet for a while, and some have a limit of their own.
func killWithLevels(t *busytest.Attempt, storage string) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(levelsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, storage, settings{
		env: []string{"RULES_FILE=" + file, "TIME_PROPERTY=created"},
		rules: []verify.Rule{
			{Name: "hot", Resolved: true, Quiet: "maintenance", Levels: []verify.Level{
				{Name: "warning", Limit: 30, Clear: 28, For: 2 * time.Second}, {Name: "critical", Limit: 36, Clear: 34, Override: "maxTemp"},
			}},
			{Name: "lines", Per: "line", Quiet: "maintenance", Levels: []verify.Level{{Limit: 34, Clear: 34}}},
			{Name: "cold", Below: true, Resolved: true, Quiet: "maintenance", Levels: []verify.Level{{Limit: 22, Clear: 24}}},
		},
	})
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, "TEMPERATURE_") })
	w.start("a", "b", "c")
	at := map[string]float64{}
	rng := randv2.New(randv2.NewPCG(w.rng.Uint64(), 0))
	stop := w.publishing(func(device string, _ float64) {
		properties := map[string]string{}
		if strings.HasSuffix(device, "#1") {
			properties["maxTemp"] = []string{"33", "$twin.tags.maxTemp", "hot"}[rng.IntN(3)]
		}
		if strings.HasSuffix(device, "#2") && rng.IntN(3) > 0 {
			properties["maintenance"] = "true"
		}
		if !strings.HasSuffix(device, "#4") {
			properties["line"], _, _ = strings.Cut(device, "/")
		}
		if strings.HasSuffix(device, "#3") && rng.IntN(8) > 0 {
			properties["created"] = time.Now().Add(-time.Duration(rng.IntN(3000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		}
		before, known := at[device]
		if !known {
			before = 26
		}
		at[device] = min(max(before+float64(rng.IntN(7)-3), 18), 42)
		w.publishWith(device, at[device], properties)
	})
	w.ready()
	for range 6 {
		w.pass(w.between(500*time.Millisecond, 4*time.Second))
		name := string(rune('a' + w.rng.IntN(3)))
		w.kill(name)
		w.pass(w.between(0, time.Second))
		w.start(name)
	}
	stop()
	if r := w.finish(); r.Recoveries == 0 || r.Opened == 0 {
		t.Errorf("%d alarms, %d recoveries", r.Opened, r.Recoveries)
	}
}

// sensorsFile is RULES_FILE.
const sensorsFile = `mute: [{where: quiet=true}]
rules:
- {name: hot, field: "temperature,temp", above: maxTemp or 30, clear: 28, resolved: true}
- {name: sensors, each: readings, sensor: sensor, field: temperature, above: maxTemp or 30, clear: 28, resolved: true}
`

// Workers are killed and started again at random moments, while one device in four has two sensors, and send what both
// measure in one message.
func killWithSensors(t *busytest.Attempt, storage string) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(sensorsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	hot := verify.Rule{
		Name: "hot", Resolved: true, Quiet: devices.Quiet,
		Levels: []verify.Level{{Limit: threshold, Clear: threshold - 2, Override: devices.MaxTemp}},
	}
	sensors := hot
	sensors.Name, sensors.Sensor = "sensors", true
	w := newWorld(t, storage, settings{env: []string{"RULES_FILE=" + file}, rules: []verify.Rule{hot, sensors}})
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, "TEMPERATURE_") })
	w.start("a", "b")
	stop := w.publishingFleet(devices.Config{Devices: 24, Rate: 50, Threshold: threshold, Seed: w.rng.Uint64()})
	w.ready()
	for range 3 {
		w.pass(w.between(time.Second, 4*time.Second))
		name := string(rune('a' + w.rng.IntN(2)))
		w.kill(name)
		w.pass(w.between(0, time.Second))
		w.start(name)
	}
	for _, sensor := range []string{devices.Probe, devices.Inlet, ""} {
		w.awaits("an alert about a device, sensor "+sensor, func(a notify.Alert) bool { return a.Sensor == sensor && !a.Resolved })
	}
	w.awaits("a sensor is normal again", func(a notify.Alert) bool { return a.Sensor != "" && a.Resolved })
	stop()
	w.finish()
}

// awaits waits until the receiver has taken such an alert.
func (w *world) awaits(what string, is func(notify.Alert) bool) {
	w.t.Helper()
	within(w.t, startWithin, what, func() bool { w.alive(); return slices.ContainsFunc(w.receiver.Taken(), is) })
}

// publishingFleet has a fleet publish until the returned function is called.
func (w *world) publishingFleet(c devices.Config) (stop func()) {
	w.t.Helper()
	f, err := devices.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = f.Run(ctx, func(_ context.Context, m devices.Message) error {
			w.post(m.Message, m.Readings(devhub.Published{})...)
			return nil
		})
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}
