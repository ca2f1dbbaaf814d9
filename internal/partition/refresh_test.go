package partition_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// forgetful is a receiver as Alertmanager is one: it knows what is open until it restarts, and takes what is posted again
// for no news.
type forgetful struct {
	receiver
	mu     sync.Mutex
	events []string        // what came, in its order, with the device
	open   map[string]bool // devices
}

func newForgetful() *forgetful {
	f := &forgetful{open: map[string]bool{}}
	f.limits = notify.Limits{Batch: 100, Forgets: true}
	return f
}

func (f *forgetful) Notify(ctx context.Context, alerts ...notify.Alert) error {
	if err := f.receiver.Notify(ctx, alerts...); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range alerts {
		what := "alert"
		switch {
		case a.Refresh:
			what = "again"
		case a.Resolved:
			what = "recovery"
		}
		f.events = append(f.events, what+" "+a.About())
		f.open[a.About()] = !a.Resolved
	}
	return nil
}

// restart has it forget everything.
func (f *forgetful) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.open)
}

// knows returns the devices that are open to it.
func (f *forgetful) knows() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for device, open := range f.open {
		if open {
			all = append(all, device)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// count returns how many of what came are this.
func (f *forgetful) count(event string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e == event {
			n++
		}
	}
	return n
}

// A receiver that forgets gets what is open again every few minutes, apart from repeat, from whoever owns the partition.
// That is no alert, and what it never got, or is muted, or over, does not come.
func TestOpenAlarmsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f, other := newPartition("0"), newForgetful(), &receiver{}
		once := repeating(rules.Never)
		s := with(t, once, &f.receiver, other)
		s.notifier = f
		var mute rules.Mutes
		s.config.Mutes = func() rules.Mutes { return mute }
		s.start(p)
		mute = rules.Mutes{{Device: "muted", From: time.Now(), Until: time.Now().Add(time.Hour)}}
		for _, device := range []string{"muted", "oven", "kiln", "warm"} {
			p.publish(device, threshold+5)
		}
		pass(time.Second)
		p.publish("kiln", threshold-10)
		p.publish("warm", threshold-2) // between the limit and where its alarm ends
		pass(2 * window)
		f.restart()
		pass(delivery.RefreshEvery + time.Second)
		if got, want := f.knows(), "oven warm"; got != want {
			t.Errorf("it knows of %q after its restart, want %q", got, want)
		}
		stats := s.stats
		if f.count("alert oven") != 1 || f.count("again oven") != 1 || f.count("again kiln") != 0 || other.asked() != 5-1 {
			t.Errorf("came: %v; the other receiver was asked %d times", f.events, other.asked())
		}
		if got := stats.Suppressed.Load() + stats.Ambiguous.Load() + stats.DeadLetters.Load(); got != 0 {
			t.Errorf("posting again counts: %d", got)
		}
		s.end()

		// The next owner does not know what was sent, and the gate's record does.
		next := with(t, once, &f.receiver, other)
		next.notifier = f
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		f.restart()
		pass(delivery.RefreshEvery + time.Second)
		if got, want := f.knows(), "oven warm"; got != want {
			t.Errorf("it knows of %q under the next owner, want %q: %v", got, want, f.events)
		}
		p.publish("oven", threshold-10)
		pass(10 * delivery.RefreshEvery)
		if got, want := f.knows(), "warm"; got != want || f.count("recovery oven") != 1 {
			t.Errorf("it knows of %q at the end, want %q: %v", got, want, f.events)
		}
		next.end()
	})
}

// A silent device sends nothing that could remind of it.
func TestSilenceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPartition("0"), newForgetful()
		s := silence(t, nil, &f.receiver)
		s.notifier = f
		s.start(p)
		defer s.end()
		p.publishBody("oven", "{}")
		for range 30 {
			p.publishBody("other", "{}")
			pass(time.Minute)
		}
		f.restart()
		pass(delivery.RefreshEvery + time.Second)
		if got := f.knows(); got != "oven" {
			t.Errorf("it knows of %q: %v", got, f.events)
		}
		p.publishBody("oven", "{}")
		p.publishBody("other", "{}")
		pass(2 * delivery.RefreshEvery)
		if got := f.knows(); got != "" {
			t.Errorf("it knows of %q: %v", got, f.events)
		}
	})
}

// What is muted is not posted again until the mute is over, nor is anything once another replica owns the partition.
func TestNotPostedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPartition("0"), newForgetful()
		s := with(t, repeating(rules.Never), &f.receiver)
		s.notifier = f
		start := time.Now()
		mute := rules.Mutes{
			{Device: "muted", From: start.Add(time.Minute), Until: start.Add(time.Hour)},
			{Property: "site", Value: "berlin", From: start.Add(time.Minute), Until: start.Add(time.Hour)},
		}
		s.config.Mutes = func() rules.Mutes { return mute }
		s.start(p)
		p.publish("muted", threshold+5)
		p.publish("oven", threshold+5)
		inBerlin := func() {
			p.publishProperties("berlin", fmt.Sprintf(`{"temperature":%v}`, threshold+5), map[string]any{"site": "berlin"})
		}
		inBerlin()
		pass(2 * time.Minute)
		inBerlin()
		pass(time.Hour - 3*time.Minute)
		if f.count("again muted") != 0 || f.count("again berlin") != 0 || f.count("again oven") < 15 {
			t.Errorf("came: %v", f.events)
		}
		pass(time.Minute + time.Second)
		inBerlin()
		pass(delivery.RefreshEvery)
		if f.count("again muted") == 0 || f.count("again berlin") == 0 {
			t.Errorf("came after the mute: %v", f.events)
		}
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		before := len(f.events)
		pass(2 * delivery.RefreshEvery)
		if len(f.events) != before {
			t.Errorf("came from a former owner: %v", f.events[before:])
		}
		s.end()
	})
}

// A recovery by the next owner comes when a former one cannot be posting the alarm again any more.
func TestNextOwnersRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPartition("0"), newForgetful()
		s := with(t, repeating(rules.Never), &f.receiver)
		s.notifier = f
		s.start(p)
		p.publish("oven", threshold+5)
		pass(2 * window)
		s.end()
		next := with(t, repeating(rules.Never), &f.receiver)
		next.notifier = f
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		p.publish("oven", threshold-10)
		start := time.Now()
		next.start(p)
		defer next.end()
		for f.count("recovery oven") == 0 && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if after := time.Since(start); after < delivery.RefreshLasts || after > delivery.RefreshLasts+2*time.Second {
			t.Errorf("the recovery came %v after the take-over", after)
		}
	})
}

// So it is with an incident, whoever owns the partition of its members. They are not posted by themselves.
func TestIncidentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := newPartition("0"), newForgetful()
		s := with(t, inSite, &f.receiver)
		s.notifier = f
		s.start(p)
		p.publishOf("freezer-1", "berlin", hot)
		pass(time.Second)
		p.publishOf("freezer-2", "berlin", hot)
		p.publishOf("freezer-3", "paris", hot)
		pass(window)
		p.publishOf("freezer-3", "paris", threshold-10)
		pass(window)
		f.restart()
		pass(2 * delivery.RefreshEvery)
		if got, want := f.knows(), "berlin"; got != want {
			t.Errorf("it knows of %q after its restart, want %q: %v", got, want, f.events)
		}
		s.end()

		next := with(t, inSite, &f.receiver)
		next.notifier = f
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		f.restart()
		pass(2 * delivery.RefreshEvery)
		if got, want := f.knows(), "berlin"; got != want {
			t.Errorf("it knows of %q under the next owner, want %q: %v", got, want, f.events)
		}
		p.publishOf("freezer-1", "berlin", threshold-10)
		p.publishOf("freezer-2", "berlin", threshold-10)
		pass(10 * delivery.RefreshEvery)
		if got := f.knows(); got != "" || f.count("recovery berlin") != 1 {
			t.Errorf("it knows of %q at the end: %v", got, f.events)
		}
		next.end()
	})
}
