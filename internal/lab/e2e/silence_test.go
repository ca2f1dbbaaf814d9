//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

// Devices die and come back, and workers stop in every state of a silence: killed, or frozen until others have gone on. No
// silence is false, none is lost, and what the receiver heard last is what is. It can go on for longer:
//
//	go test -run 'TestSilence$' -v ./internal/lab/e2e -rounds 20
func TestSilence(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	for name, stop := range map[string]func(w *silenceWorld, meanwhile, then func()){"kill": (*silenceWorld).kill, "freeze": (*silenceWorld).freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busytest.Run(t, func(t *busytest.Attempt) { everySilence(t, storage, stop) })
		})
	}
}

// silent is after how long a device is: the least that a rule may ask for.
const silent = time.Minute

// A silenceWorld is a world in which one worker after the other watches all devices. A silence takes a minute at least, so all of them go
// through their states at the same time, in partitions of their own.
type silenceWorld struct {
	*world
	proxy   *storageProxy
	devices []*silentDevice
	owner   string // the worker that owns all partitions
	stops   int
	quiet   func() // ends what comes to a partition of its own all the time: the hub is reached, whoever dies

	behave notifytest.Behaviour // of the receiver, which holds some requests
	sends  []*hold
}

// A silentDevice is one that dies and comes back.
type silentDevice struct {
	name, partition string
	heard           time.Time    // last
	sequence        atomic.Int64 // of that
	there           func() bool  // the worker is where it is to be stopped
}

func newSilenceWorld(t *busytest.Attempt, storage string, devices, partitions int) *silenceWorld {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("rules:\n- {name: offline, silent: 1m, resolved: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &silenceWorld{proxy: newStorageProxy(t.T, storage), owner: "a", behave: notifytest.Take}
	w.world = newWorld(t, w.proxy.connection, settings{
		partitions: partitions + 1, window: 10 * time.Second, notifyTimeout: 3 * time.Second, env: []string{"RULES_FILE=" + file},
		rules: []verify.Rule{{Name: "offline", Silent: silent, Levels: []verify.Level{{}}, Resolved: true}},
	})
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, "TEMPERATURE_") })
	for n := range devices {
		w.devices = append(w.devices, &silentDevice{name: fmt.Sprintf("device%02d", n), partition: fmt.Sprint(n % partitions)})
	}
	w.start(w.owner)
	w.handedOver()
	w.reach(fmt.Sprint(partitions))
	return w
}

// reach has the hub say something about a device in a partition until quiet is called.
func (w *silenceWorld) reach(partition string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			w.news(&silentDevice{name: "beacon", partition: partition})
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	})
	w.quiet = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(w.quiet)
}

// finish is world.finish, once nothing comes any more.
func (w *silenceWorld) finish() verify.Report {
	w.t.Helper()
	w.quiet()
	return w.world.finish()
}

// hello has devices be heard.
func (w *silenceWorld) hello(devices ...*silentDevice) {
	for _, d := range devices {
		at := w.post(devhub.Message{Device: d.name, Body: []byte(`{"hello":true}`), Partition: d.partition}, verify.Reading{Temperature: math.NaN()})
		d.heard = at.Enqueued
		d.sequence.Store(at.Sequence)
	}
}

// news has the hub itself say something about devices, which proves silence.
func (w *silenceWorld) news(devices ...*silentDevice) {
	for _, d := range devices {
		w.post(devhub.Message{Device: d.name, Body: []byte("{}"), Source: "deviceConnectionStateEvents", Partition: d.partition}, verify.Reading{Temperature: math.NaN(), ByHub: true})
	}
}

// notified reports whether the receiver has taken a notice that is about what was heard of d last, or its end.
func (w *silenceWorld) notified(d *silentDevice, recovery bool) bool {
	return slices.ContainsFunc(w.receiver.Taken(), func(a notify.Alert) bool {
		return a.Device == d.name && a.Resolved == recovery && a.Sequence >= d.sequence.Load()
	})
}

// all waits until something is true of all devices.
func (w *silenceWorld) all(devices []*silentDevice, what string, met func(*silentDevice) bool) {
	w.t.Helper()
	for _, d := range devices {
		within(w.t, settleWithin, d.name+" "+what, func() bool { w.alive(); return met(d) })
	}
}

// recovered waits until the last that the receiver heard of no device is that it is silent. They are heard meanwhile.
func (w *silenceWorld) recovered(devices []*silentDevice) {
	w.t.Helper()
	next := time.Now().Add(silent / 4)
	within(w.t, settleWithin, "devices are heard, and the receiver knows", func() bool {
		w.alive()
		if time.Now().After(next) {
			w.hello(devices...)
			next = time.Now().Add(silent / 4)
		}
		last := map[string]notify.Alert{}
		for _, a := range w.receiver.Taken() {
			last[a.Device] = a
		}
		return !slices.ContainsFunc(devices, func(d *silentDevice) bool { a, ok := last[d.name]; return ok && !a.Resolved })
	})
}

// A moment is one at which a worker is stopped. reach has d's owner be held there, and d.there tell when it is.
type moment struct {
	name    string
	reach   func(w *silenceWorld, d *silentDevice, recovery bool)
	claimed bool // and nobody knows whether the notice was sent
}

// helloMoments are those of a device that is heard for the first time.
var helloMoments = []moment{
	{name: "before the roster is written", reach: request(false, "/roster/")},
	{name: "the roster is written, unheard", reach: request(true, "/roster/")},
	{name: "before the checkpoint is written", reach: request(false, "/checkpoint/")},
	{name: "the checkpoint is written, and the roster", reach: settled},
	{name: "the checkpoint is written, and the roster was before", reach: func(w *silenceWorld, d *silentDevice, _ bool) {
		w.news(d)
		settled(w, d, false)
	}},
}

// noticeMoments are those of a silence, and of its end.
var noticeMoments = []moment{
	{name: "before the ledger has it", reach: request(false, "/ledger/")},
	{name: "the ledger has it, unheard", reach: request(true, "/ledger/")},
	{name: "before it is claimed", reach: request(false, record)},
	{name: "claimed, unheard", reach: request(true, record), claimed: true},
	{name: "being sent", reach: sending(false), claimed: true},
	{name: "sent, and not answered", reach: sending(true)},
	{name: "sent, and not recorded", reach: requestAfter(false, record)},
	{name: "recorded, unheard", reach: requestAfter(true, record)},
	{name: "recorded, and due in the ledger", reach: requestAfter(false, "/ledger/")},
	{name: "recorded, and the ledger is written unheard", reach: requestAfter(true, "/ledger/")},
}

const record = "" // of a device, in the throttle store

// request holds requests that write what is kept of d's partition there, or the record of d.
func request(done bool, where string) func(*silenceWorld, *silentDevice, bool) {
	return func(w *silenceWorld, d *silentDevice, _ bool) {
		d.holdStorage(w, done, func(r *http.Request) bool { return d.written(r, where) })
	}
}

// requestAfter is request for those after the receiver has taken the notice.
func requestAfter(done bool, where string) func(*silenceWorld, *silentDevice, bool) {
	return func(w *silenceWorld, d *silentDevice, recovery bool) {
		d.holdStorage(w, done, func(r *http.Request) bool { return d.written(r, where) && w.notified(d, recovery) })
	}
}

func (d *silentDevice) holdStorage(w *silenceWorld, done bool, which func(*http.Request) bool) {
	arrived := w.proxy.hold(done, which)
	d.there = func() bool { return closed(arrived) }
}

// written reports whether r writes what is kept of d's partition there, or the record of d.
func (d *silentDevice) written(r *http.Request, where string) bool {
	name := d.partition
	if where == record {
		name = d.name
	}
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, where+name)
}

// sending holds the request to the receiver.
func sending(taken bool) func(*silenceWorld, *silentDevice, bool) {
	return func(w *silenceWorld, d *silentDevice, recovery bool) {
		arrived, before := make(chan struct{}), w.behave
		var once sync.Once
		h := newHold(func(a notify.Alert) bool {
			held := a.Device == d.name && a.Resolved == recovery
			if held {
				once.Do(func() { close(arrived) })
			}
			return held
		}, taken)
		w.sends = append(w.sends, h)
		w.behave = func(rw http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
			h.behave(rw, r, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { before(rw, r, take, stop) }), stop)
		}
		w.receiver.BehaveAlways(w.behave)
		d.there = func() bool { return closed(arrived) && (!taken || w.notified(d, recovery)) }
	}
}

// settled is when the checkpoint has reached what was heard.
func settled(w *silenceWorld, d *silentDevice, _ bool) { d.there = func() bool { return w.passed(d) } }

// passed reports whether the checkpoint of d's partition has reached the last event.
func (w *silenceWorld) passed(d *silentDevice) bool {
	w.mu.Lock()
	last := w.last[d.partition]
	w.mu.Unlock()
	at, ok := w.checkpointed()[d.partition]
	return ok && at >= last
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func everySilence(t *busytest.Attempt, storage string, stop func(w *silenceWorld, meanwhile, then func())) {
	w := newSilenceWorld(t, storage, 2*len(noticeMoments), 2*len(noticeMoments))
	dead, heard := w.devices[:len(noticeMoments)], w.devices[len(noticeMoments):] // heard again while the worker is stopped
	at := func(devices []*silentDevice, moments []moment, recovery bool) {
		for i, d := range devices {
			moments[i%len(moments)].reach(w, d, recovery)
		}
	}
	there := func(devices []*silentDevice, what string) {
		w.all(devices, "is "+what, func(d *silentDevice) bool { return d.there() })
		t.Logf("%s %s is where it is to stop: %s", time.Now().Format("15:04:05.000"), w.owner, what)
	}

	for i, m := range noticeMoments {
		if m.claimed {
			w.unknown = append(w.unknown, heard[i].name)
		}
	}
	at(w.devices, helloMoments, false)
	w.pass(3 * time.Second) // an event that was before is in the roster
	w.hello(w.devices...)
	there(w.devices, "heard")
	stop(w, func() {}, func() {})

	for range *rounds {
		w.hello(w.devices...)
		deadline := w.devices[len(w.devices)-1].heard.Add(silent)
		w.pass(time.Until(deadline.Add(-2 * time.Second)))
		at(dead, noticeMoments, false)
		at(heard, noticeMoments, false)
		if w.rng.IntN(2) == 0 { // else the hub says that nothing came
			w.pass(time.Until(deadline.Add(2100 * time.Millisecond)))
			w.news(w.devices...)
		}
		there(w.devices, "silent")
		stop(w, func() { w.hello(heard...) }, func() {
			w.all(dead, "is silent, and the receiver notified", func(d *silentDevice) bool { return w.notified(d, false) })
		})
		w.recovered(heard)

		at(dead, noticeMoments, true)
		w.hello(dead...)
		there(dead, "heard again")
		stop(w, func() {}, func() {
			w.all(dead, "is heard again, and the receiver notified", func(d *silentDevice) bool { return w.notified(d, true) })
		})
		w.recovered(w.devices)
	}
	r := w.finish()
	t.Logf("%d times a worker was stopped, in %d states of devices", w.stops, *rounds*3*len(noticeMoments)+len(w.devices))
	if r.Recoveries < *rounds*len(dead) {
		t.Errorf("%d recoveries", r.Recoveries)
	}
}

// kill kills the owner. then waits for what the next one has to do.
func (w *silenceWorld) kill(meanwhile, then func()) {
	w.stops++
	w.world.kill(w.owner)
	w.release()
	w.proxy.lose() // what it has not written by now
	w.next()
	meanwhile()
	w.handedOver()
	then()
}

// freeze freezes the owner until another worker has its partitions, and in half of all cases has done what then waits for. What was
// held goes on after that.
func (w *silenceWorld) freeze(meanwhile, then func()) {
	w.stops++
	frozen := w.owner
	w.workers[frozen].freeze()
	w.t.Logf("%s froze %s", time.Now().Format("15:04:05.000"), frozen)
	w.proxy.holdNoMore()
	w.release() // what is on its way arrives, and nobody hears that it was taken
	w.next()
	meanwhile()
	w.handedOver()
	late := w.rng.IntN(2) == 0
	if late {
		then()
	}
	if w.rng.IntN(2) == 0 {
		w.proxy.letGo() // the answers are there when it goes on
	}
	w.workers[frozen].thaw()
	w.t.Logf("%s thawed %s", time.Now().Format("15:04:05.000"), frozen)
	w.proxy.letGo()
	if !late {
		then()
	}
	w.pass(time.Second)
	w.stop(frozen)
	w.handedOver()
}

// release lets the receiver answer what it holds.
func (w *silenceWorld) release() {
	for _, h := range w.sends {
		close(h.release)
	}
	w.sends, w.behave = nil, notifytest.Take
	w.receiver.BehaveAlways(notifytest.Take)
}

// next starts the next owner.
func (w *silenceWorld) next() {
	w.owner = map[string]string{"a": "b", "b": "a"}[w.owner]
	w.start(w.owner)
}

// handedOver waits until the next owner has all partitions.
func (w *silenceWorld) handedOver() {
	w.t.Helper()
	within(w.t, settleWithin, w.owner+" has all partitions", func() bool {
		w.alive()
		owners := w.devhub.Owners()
		for _, owner := range owners {
			if !strings.HasPrefix(owner, w.owner+"-") {
				return false
			}
		}
		return len(owners) == w.partitions
	})
}
