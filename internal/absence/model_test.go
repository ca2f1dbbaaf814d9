package absence_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/sensor"
)

// A model is what a partition's devices have sent, written down once more in the plainest way, without proofs, floors
// and rosters: who was heard when, and who was removed.
type model struct {
	*bench
	read  int                      // events that were read
	last  time.Time                // of the last one of them that was not lost
	heard map[string]time.Duration // devices that are known, and when they were heard last
	gap   time.Duration            // when the first event came after one that was lost, or after nothing for the limit
	says  map[string]string        // what devices have said last of whether they are expected
	saved *model                   // as it was at the last roster that was written; nil: there is none
}

// keep notes that the roster was written.
func (m *model) keep() {
	m.saved = &model{read: m.read, last: m.last, heard: maps.Clone(m.heard), says: maps.Clone(m.says)}
}

// nextOwner has another one go on from the last roster, and read once more what came after it. A removal that the roster
// lacks is undone: nobody was told that it had happened.
func (m *model) nextOwner() {
	if m.saved == nil { // no checkpoint is written before there is a roster
		return
	}
	at := m.log[m.read-1]
	if at.Enqueued.Sub(m.saved.last) > 10*time.Minute {
		return // a roster is never so old, unless it could not be written
	}
	m.heard, m.says = maps.Clone(m.saved.heard), maps.Clone(m.saved.says)
	for _, e := range m.log[m.saved.read:m.read] {
		if e.Device != lost {
			m.learn(e.Device, string(e.Body), e.Enqueued.Sub(m.start))
		}
	}
	from, _ := m.begin(at.Position)
	for _, e := range m.log[from.Sequence:m.read] {
		if e.Device != lost {
			m.hear(e, true, 0)
		}
	}
}

const unsure = "unsure"

const lost = "nobody knows"

// readAll has the Watch hear what was not read yet.
func (m *model) readAll() {
	for ; m.read < len(m.log); m.read++ {
		e := m.log[m.read]
		if m.read > 0 && m.log[m.read-1].Device == lost {
			m.gap = e.Enqueued.Sub(m.start)
		}
		if m.read > 0 && e.Enqueued.Sub(m.log[m.read-1].Enqueued) >= limit {
			m.gap = e.Enqueued.Sub(m.start)
		}
		m.hear(e, true, 0)
		m.last = e.Enqueued
		m.learn(e.Device, string(e.Body), e.Enqueued.Sub(m.start))
	}
}

// learn has the model hear a device, and what it says of whether it is expected.
func (m *model) learn(device, about string, at time.Duration) {
	before, known := m.heard[device]
	m.heard[device] = at
	switch {
	case about != nothing:
		m.says[device] = about
	case !known:
		m.says[device] = excluded
	case at-before > forget-time.Minute: // it may have been forgotten
		m.says[device] = unsure
	}
}

// lookAndJudge looks, and sees that what is said is true: nothing of a device that is said to be silent is in the log
// for as long, whether or not it was read, and nobody is said to be silent twice.
func (m *model) lookAndJudge(t *rapid.T) {
	before := maps.Clone(m.fell)
	m.said = nil
	m.look()
	for device, s := range m.fell {
		if _, was := before[device]; was {
			continue
		}
		at, known := m.heard[device]
		if m.says[device] == excluded {
			t.Fatalf("%s fell silent, and nothing is expected of it", device)
		}
		if !known || m.start.Add(at).UnixMilli() != s.Heard || s.Deadline < s.Heard+limit.Milliseconds() {
			t.Fatalf("%s was heard at %v (known: %v), and it fell silent: %+v", device, at, known, s)
		}
		for _, e := range m.log[m.read:] {
			if e.Device == device && e.Enqueued.UnixMilli() <= s.Proven {
				t.Fatalf("%s is silent, proven until %d, and has sent something at %v that was not read: %+v", device, s.Proven,
					e.Enqueued.Sub(m.start), s)
			}
		}
	}
	for _, device := range slices.Sorted(maps.Keys(m.heard)) {
		if m.now-m.heard[device] < forget+time.Minute {
			continue
		}
		if _, open := m.fell[device]; !open && slices.Contains(m.said, device+" forgotten") {
			delete(m.heard, device)
		}
	}
}

// everybody sees, once all is read and proven, that exactly those are silent who have sent nothing for the limit. Who
// may have sent something that was lost has the limit once more, and is known until he is forgotten.
func (m *model) everybody(t *rapid.T) {
	m.publish("beacon") // it may be what comes after a lost one
	m.readAll()
	m.now += 11 * time.Second // until the hub may be asked again
	m.prove()
	m.lookAndJudge(t)
	for device, at := range m.heard {
		silent := m.now - at
		_, open := m.fell[device]
		switch {
		case silent < limit && open:
			t.Fatalf("%s is silent, and was heard %v ago", device, silent)
		case m.says[device] == excluded && open:
			t.Fatalf("%s is silent, and nothing is expected of it", device)
		case m.says[device] != expected:
		case silent > limit+10*time.Second && m.now-m.gap > limit+10*time.Second && silent < forget-time.Minute && !open:
			t.Fatalf("%s is not silent, and was heard %v ago", device, silent)
		case silent > forget+10*time.Second && open:
			t.Fatalf("%s is not forgotten, and was heard %v ago", device, silent)
		}
	}
}

// Whatever is sent, read, lost, proven, removed and taken over, in any order: nobody is said to be silent who is
// not, and in the end everybody is who is.
func TestWatchIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{bench: newBench(t), heard: map[string]time.Duration{}, gap: -forget, says: map[string]string{}}
		device := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("device-", rapid.IntRange(0, 3).Draw(t, "n")) })
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				e := m.publish(device.Draw(t, "device"))
				e.Body = []byte(rapid.SampledFrom([]string{expected, expected, excluded, nothing}).Draw(t, "says"))
			},
			"read": func(*rapid.T) { m.readAll() },
			"pass": func(t *rapid.T) {
				m.now += time.Duration(rapid.IntRange(1, 400).Draw(t, "s")) * time.Second
			},
			"prove": func(t *rapid.T) { m.prove() },
			"look":  m.lookAndJudge,
			"lose": func(t *rapid.T) { // what its device sent before is known
				m.readAll()
				m.publish(lost)
				m.read++
			},
			"remove": func(t *rapid.T) {
				name := device.Draw(t, "device")
				_, known := m.heard[name]
				is := m.Forget(sensor.Of(name))
				if known && m.now-m.heard[name] < forget-time.Minute && !is {
					t.Fatalf("%s was heard, and is not known", name)
				}
				delete(m.heard, name)
				delete(m.says, name)
				if !is || rapid.Bool().Draw(t, "read on") {
					return
				}
				if got := m.Save(t.Context(), false); got.Err != nil || !got.Wrote {
					t.Fatal(got)
				}
				m.keep()
			},
			"save": func(t *rapid.T) {
				switch got := m.Save(t.Context(), true); {
				case got.Err != nil:
					t.Fatal(got.Err)
				case got.Wrote:
					m.keep()
				}
			},
			"next owner":         func(*rapid.T) { m.nextOwner() },
			"read and prove all": m.everybody,
		})
		m.everybody(t)
	})
}
