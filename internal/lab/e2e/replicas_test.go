//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/throttle"
)

// Whatever breaks, nothing is lost, nothing comes too soon, and the checkpoints
// reach the end. What protocols cannot exclude, a second alert that reaches the receiver
// later than claim + window after the first one's claim, takes a worker that is frozen between
// claiming and sending: the scenarios freeze workers while all their alerts have reached the
// receiver, so that it cannot happen. Any other second alert must be one that the
// receiver drops.
func TestReplicas(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	for name, scenario := range map[string]func(t *busytest.Attempt, storage string){
		"kill, on Cosmos DB":     killOnCosmos,
		"kill":                   kill,
		"kill, and audit":        killAndAudit,
		"roll":                   roll,
		"roll to other settings": rollToOtherSettings,
		"kill while sending":     killWhileSending,
		"freeze while sending":   freezeWhileSending,
		"storage frozen":         storageFrozen,
		"hub breaks links":       hubBreaksLinks,
		"receiver down":          receiverDown,
		"native leases":          nativeLeases,
		"hub of another process": otherHub,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busytest.Run(t, func(t *busytest.Attempt) { scenario(t, storage) })
		})
	}
}

// Workers are killed and started again at random moments.
func kill(t *busytest.Attempt, storage string) { killOn(newWorld(t, storage, settings{})) }

// An audit then accounts for everything, until something is taken away. The store may be too slow to record a
// shorter window before that is over.
func killAndAudit(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{window: 15 * time.Second})
	killOn(w)
	w.audited()
}

func killOnCosmos(t *busytest.Attempt, storage string) {
	killOn(newWorld(t, storage, settings{store: "cosmos", env: []string{"COSMOS_CONNECTION_STRING=" + emulators.StartCosmos(t.T).ConnectionString}}))
}

func killOn(w *world) {
	w.start("a", "b", "c")
	w.ready() // an audit expects nothing of readings from before the rule was in force
	stop := w.publishing(w.publish)
	for range 4 {
		w.pass(w.between(300*time.Millisecond, 2*time.Second))
		name := string(rune('a' + w.rng.IntN(3)))
		w.kill(name)
		w.pass(w.between(0, time.Second))
		w.start(name)
	}
	stop()
	w.finish()
}

// Every worker is replaced in turn, as by a new version. It is asked to end, so
// its partitions need not expire.
func roll(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{})
	w.receiver.BehaveAlways(notifytest.Delay(100*time.Millisecond, notifytest.Take)) // so that there are sends to wait for
	w.start("a", "b", "c")
	stop := w.publishing(w.publish)
	w.ready()
	for _, name := range []string{"a", "b", "c"} {
		w.pass(w.between(300*time.Millisecond, time.Second))
		w.stop(name)
		w.ownsNone(name)
		w.start(name)
		w.ready()
	}
	stop()
	w.finish()
}

// ownsNone misses the attempt if a worker that has ended still owns partitions: its last requests took too long.
func (w *world) ownsNone(name string) {
	w.t.Helper()
	if n := w.owned()[name]; n > 0 {
		w.t.Missed("%s ended and still owns %d partitions", name, n)
	}
}

// Every worker is replaced by one that keeps windows elsewhere. Those wait, ready, until
// the last of the others has stopped, and a window longer. One with the old settings waits then.
func rollToOtherSettings(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{env: []string{"HTTP_INGEST_TOKEN=" + ingestToken}})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.sites[name] = freeAddr(t.T)
	}
	waits := func(name string) {
		t.Helper()
		within(t, startWithin, name+" stands by", func() bool {
			w.alive()
			status, body := try(http.MethodGet, "http://"+w.sites[name]+"/readyz", "")
			return status == http.StatusOK && strings.Contains(body, "ready: standing by: other replicas run with different settings (the throttle store's location is ")
		})
	}
	w.start("a", "b")
	stop := w.publishing(w.publish)
	w.ready()

	old := w.env
	w.env = append(slices.Clone(w.env), "THROTTLE_CONTAINER=throttle-"+uuid.NewString())
	w.start("c", "d")
	waits("c")
	waits("d")
	expect(t.T, http.MethodPost, "http://"+w.sites["c"]+"/devices/posted/telemetry", `{"temperature":99}`, http.StatusServiceUnavailable, "standing by")
	w.stop("a")
	w.pass(w.between(time.Second, 3*time.Second))
	if owned := w.owned(); owned["c"]+owned["d"] > 0 {
		t.Missed("they own partitions, as if b had not renewed its settings for 30 s: %v", owned)
	}
	w.stop("b")
	w.ready()

	w.env, old = old, w.env
	w.start("e")
	waits("e")
	w.stop("e")
	w.env = old
	stop()
	w.finish()
}

// hot publishes one reading over the threshold of each of n devices that have
// not been heard of before.
func (w *world) hot(prefix string, n int) {
	for i := range n {
		w.publish(fmt.Sprintf("%s-%d", prefix, i), threshold+1)
	}
}

// holding waits until alerts are held, and returns the replica that most are of.
func (w *world) holding(h *hold) (replica string) {
	w.t.Helper()
	within(w.t, startWithin, "an alert arrives", func() bool {
		w.alive()
		replica = h.holding()
		return replica != ""
	})
	return replica
}

// Workers die between claiming a device and the delivery, and between the
// delivery and recording it.
func killWhileSending(t *busytest.Attempt, storage string) {
	// The window is longer than the claim, so that the receiver gets, and drops, what
	// was delivered but not recorded.
	w := newWorld(t, storage, settings{window: 20 * time.Second, notifyTimeout: 2 * time.Second})
	w.start("a", "b", "c")
	w.ready()

	untaken := newHold(func(notify.Alert) bool { return true }, false)
	w.receiver.BehaveAlways(untaken.behave)
	w.hot("untaken", 16)
	victim := w.holding(untaken)
	w.kill(victim)
	w.receiver.BehaveAlways(notifytest.Take)
	w.start(victim)

	second := map[string]string{"a": "b", "b": "c", "c": "a"}[victim]
	unrecorded := newHold(func(a notify.Alert) bool { return a.Replica == second && strings.HasPrefix(a.Device, "unrecorded") }, true)
	w.receiver.BehaveAlways(unrecorded.behave)
	w.hot("unrecorded", 16)
	w.kill(w.holding(unrecorded))
	w.receiver.BehaveAlways(notifytest.Take)
	w.start(second)

	stop := w.publishing(w.publish)
	w.pass(2 * time.Second)
	stop()
	if r := w.finish(); r.Dropped == 0 {
		t.Missed("no alert was repeated within the window, although one that was taken could not be recorded")
	}
}

// A worker is frozen while the receiver has its alerts, for longer than it
// holds its devices and its partitions, and then goes on as if nothing had been.
func freezeWhileSending(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{window: 25 * time.Second, notifyTimeout: 5 * time.Second})
	w.start("a", "b", "c")
	w.ready()

	h := newHold(func(a notify.Alert) bool { return a.Replica == "a" }, false)
	w.receiver.BehaveAlways(h.behave)
	w.hot("z", 16)
	within(t, startWithin, "the alerts of all devices arrive", func() bool {
		w.alive()
		devices, _, _ := h.seen()
		return devices == 16
	})
	zombie := w.workers["a"]
	zombie.freeze()
	switch _, held, left := h.seen(); {
	case held["a"] == 0:
		t.Missed("the worker to freeze sent no alert: another had taken its partitions")
	case left > 0:
		t.Missed("16 alerts took more than NOTIFY_TIMEOUT=%v to be on their way", w.notifyTimeout)
	}
	close(h.release) // they are taken, and nobody hears it
	w.receiver.BehaveAlways(notifytest.Take)

	stop := w.publishing(w.publish)
	// For a window the receiver remembers what it took.
	within(t, 2*w.window, "another worker repeats an alert, which the receiver drops", func() bool {
		w.alive()
		return w.report().Dropped > 0
	})
	zombie.thaw()
	w.pass(2 * time.Second)
	stop()
	w.finish()
}

// The storage account, and with it ownership, checkpoints and windows, does not
// answer for ten seconds.
func storageFrozen(t *busytest.Attempt, _ string) {
	azurite := emulators.StartAzurite(t.T)
	w := newWorld(t, azurite.ConnectionString, settings{slack: throttle.ClaimTTL(time.Second)})
	w.start("a", "b", "c")
	stop := w.publishing(w.publish)
	w.ready()
	w.pass(w.between(0, time.Second))
	freeze(t.T, azurite.OS())
	w.pass(10 * time.Second)
	_ = azurite.OS().Signal(syscall.SIGCONT)
	w.pass(time.Second)
	stop()
	w.finish()
}

// The hub closes links, drops connections, refuses claims, is slow and falls
// silent, in random order.
func hubBreaksLinks(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{})
	w.start("a", "b", "c")
	stop := w.publishing(w.publish)
	w.ready()
	faults := []struct {
		name string
		do   func()
	}{
		{"detach one", func() { w.devhub.Detach(fmt.Sprint(w.rng.IntN(8))) }},
		{"detach all", func() { w.devhub.Detach("") }},
		{"reset", w.devhub.Reset},
		{"reset twice", func() { w.devhub.Reset(); w.pass(200 * time.Millisecond); w.devhub.Reset() }},
		{"refuse claims with 401", func() { w.devhub.RefuseClaims(3, 401); w.devhub.Reset() }},
		{"refuse claims with 500", func() { w.devhub.RefuseClaims(5, 500); w.devhub.Reset() }},
		{"refuse questions", func() { w.devhub.RefuseManagement(3, 500); w.devhub.Reset() }},
		{"slow", func() { w.devhub.SetLatency(50 * time.Millisecond); w.pass(time.Second); w.devhub.SetLatency(0) }},
		{"silent", func() { w.devhub.Stall(); w.pass(2 * time.Second); w.devhub.Resume() }},
	}
	for _, i := range w.rng.Perm(len(faults)) {
		t.Logf("%s %s", time.Now().Format("15:04:05.000"), faults[i].name)
		faults[i].do()
		w.pass(w.between(200*time.Millisecond, time.Second))
	}
	stop()
	w.finish()
}

// The receiver fails in every way, for long, and comes back. Meanwhile a worker
// is killed: what its successor reads again must not be sent again.
func receiverDown(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{})
	w.start("a", "b", "c")
	stop := w.publishing(w.publish)
	w.ready()
	for _, b := range []notifytest.Behaviour{
		notifytest.Status(503), notifytest.Reset, notifytest.Hang, notifytest.TakeThen(notifytest.Reset), notifytest.Status(429, "Retry-After", "1"), notifytest.Close,
	} {
		w.receiver.BehaveAlways(b)
		w.pass(w.between(500*time.Millisecond, 1500*time.Millisecond))
	}
	w.kill("b")
	w.pass(time.Second)
	w.receiver.BehaveAlways(notifytest.Take)
	w.start("b")
	w.pass(time.Second)
	stop()
	w.finish()
}

// The store of native leases, whose claims and windows last 15 s at least.
func nativeLeases(t *busytest.Attempt, storage string) {
	w := newWorld(t, storage, settings{store: "blob-lease", window: 15 * time.Second, notifyTimeout: 5 * time.Second})
	w.start("a", "b")
	w.ready()
	h := newHold(func(a notify.Alert) bool { return a.Replica == "a" }, true)
	w.receiver.BehaveAlways(h.behave)
	stop := w.publishing(w.publish)
	w.kill(w.holding(h))
	w.receiver.BehaveAlways(notifytest.Take)
	w.start("a")
	w.pass(time.Second)
	stop()
	w.finish()
}
