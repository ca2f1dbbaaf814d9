//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
)

// An age is when a record was as it is put back.
type age int

const (
	latest     age = iota
	unheard        // the device was not known
	heard          // it had been heard
	silenced       // it was silent, and the receiver notified
	gone           // there is no record
	unreadable     // what there is makes no sense
)

// A rewind is what is put back while no worker runs.
type rewind struct{ checkpoint, roster, ledger age }

// Checkpoints, rosters and ledgers go back, as a former owner or a lost write has them, or are lost. Nobody is notified a second
// time, and nothing is forgotten: neither of devices that are silent, nor of those that were heard again.
func TestRewinds(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	busytest.Run(t, func(t *busytest.Attempt) { rewinds(t, storage) })
}

func rewinds(t *busytest.Attempt, storage string) {
	var all []rewind
	for _, checkpoint := range []age{latest, silenced, heard, unheard, gone} {
		for _, roster := range []age{latest, silenced, unheard, gone, unreadable} {
			all = append(all, rewind{checkpoint: checkpoint, roster: roster})
		}
	}
	// The ledger cannot go back, but a former owner's checkpoint may be ahead of it.
	late := len(all)
	for _, roster := range []age{latest, silenced, unheard} {
		for _, checkpoint := range []age{latest, silenced} {
			all = append(all, rewind{checkpoint, roster, silenced})
		}
	}
	w := newSilenceWorld(t, storage, 2*len(all), len(all))
	dead, back, unsent := w.devices[:len(all)], w.devices[len(all):], w.devices[len(all)+late:] // whose recovery is not sent before
	kept := map[age]stored{gone: {}, unreadable: {}}
	store := w.records("CHECKPOINT_CONTAINER")

	w.news(w.devices...)
	w.all(w.devices, "has a checkpoint", w.passed)
	kept[unheard] = w.stored(store)
	w.hello(w.devices...)
	w.all(w.devices, "is passed", w.passed)
	w.handOver()
	kept[heard] = w.stored(store)
	w.pass(time.Until(w.devices[len(w.devices)-1].heard.Add(silent + 2100*time.Millisecond)))
	w.news(w.devices...)
	w.all(w.devices, "is silent, and the receiver notified", func(d *silentDevice) bool { return w.notified(d, false) })
	w.all(w.devices, "is passed", w.passed)
	w.handOver()
	kept[silenced] = w.stored(store)
	for _, d := range unsent {
		request(false, record)(w, d, true)
	}
	w.hello(back...)
	w.all(back[:late], "is heard again, and the receiver notified", func(d *silentDevice) bool { return w.notified(d, true) })
	w.all(unsent, "has a recovery that is due", func(d *silentDevice) bool { return d.there() })
	w.all(w.devices, "is passed", w.passed)
	w.stop(w.owner)
	w.proxy.letGo()

	for i, d := range dead {
		to := all[i]
		for kind, age := range map[string]age{"/checkpoint/": to.checkpoint, "/roster/": to.roster, "/ledger/": to.ledger} {
			if age != latest {
				w.putBack(store, kept[age], kind+d.partition, age == unreadable)
			}
		}
	}
	w.next()
	w.handedOver()
	for i, d := range back {
		if all[i].roster >= gone { // else nobody knows it
			w.hello(d)
		}
	}
	slow := map[string]bool{} // they are silent again before the receiver could be notified
	w.all(unsent, "is heard again, and the receiver notified", func(d *silentDevice) bool {
		slow[d.name] = time.Since(d.heard) > silent
		return slow[d.name] || w.notified(d, true)
	})
	w.finish()

	got := map[string]string{}
	for _, a := range w.receiver.Taken() {
		got[a.Device] += map[bool]string{false: "silent ", true: "heard "}[a.Resolved]
	}
	for i, d := range w.devices {
		want := "silent "
		if i >= len(dead) {
			want = "silent heard silent "
		}
		if got[d.name] != want && !slow[d.name] {
			t.Errorf("%s, %+v: %s; want %s", d.name, all[i%len(all)], got[d.name], want)
		}
	}
}

// handOver has the owner stop, which writes all that it knows, and the next one begin.
func (w *silenceWorld) handOver() {
	w.stop(w.owner)
	w.next()
	w.handedOver()
}

// stored are records by their names.
type stored map[string]records.Record

// stored returns all that is kept of partitions.
func (w *silenceWorld) stored(store records.Store) stored {
	w.t.Helper()
	all := stored{}
	for page, err := range records.Pages(w.t.Context(), store, w.namespace) {
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range page {
			if r, err = store.Read(w.t.Context(), r.Name, maxOutput); err != nil {
				w.t.Fatal(err)
			}
			all[r.Name] = r
		}
	}
	return all
}

// putBack makes the record whose name ends so what it was.
func (w *silenceWorld) putBack(store records.Store, was stored, name string, unreadable bool) {
	w.t.Helper()
	name = w.namespace + "/" + hubName + "/$default" + name
	now, err := store.Stat(w.t.Context(), name)
	r, ok := was[name]
	switch {
	case err != nil:
	case unreadable:
		now.Content = []byte("?")
		_, err = store.Write(w.t.Context(), now)
	case ok:
		r.ETag = now.ETag
		_, err = store.Write(w.t.Context(), r)
	default:
		err = store.Delete(w.t.Context(), name, now.ETag)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
