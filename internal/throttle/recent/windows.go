package recent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"alertworker/internal/sensor"
)

const (
	shardCount = 64

	// A shard's table grows by an eighth when 7 of 8 slots are taken, so that a
	// device of many costs 37 to 42 bytes. It grows to 40 MB for all shards, with room
	// for 2^20 devices in however uneven shares chance deals them out. If it is full, a new
	// window takes the slot of the first to end of up to evictOf.
	minSlots = 8
	maxSlots = 19_500
	evictOf  = 16

	// keepCounts is for how long after its window a device's suppressed readings
	// are kept if their place is needed.
	keepCounts = time.Hour
)

// Windows remembers windows in force. One serves all gates of a replica: 40 MB at most, with room for 1,048,576
// windows. It is safe for concurrent use.
type Windows struct {
	start  time.Time // from which the monotonic clock counts
	shards [shardCount]shard
}

// NewWindows returns an empty Windows.
func NewWindows() *Windows {
	w := &Windows{start: time.Now()}
	for i := range w.shards {
		w.shards[i].slots = make([]window, minSlots)
	}
	return w
}

// windows are those of one gate.
//
// A device, or sensor, is known by 96 bits of the SHA-256 of a random key of the gate and its name, in a shard
// that 6 more bits choose: nobody can choose names that collide. Two windows that are one to us would suppress each
// other's alerts. That takes a chance of 2^-102 for any two, and of 2^-63 for any two of a
// million, which is negligible.
type windows struct {
	*Windows
	key [16]byte
}

// A hash is what a device, or sensor, is known by, and a tag what of it is kept.
type (
	hash [sha256.Size]byte
	tag  [3]uint32
)

// A shard is a hash table with linear probing. Slots are reused and never emptied.
type shard struct {
	mu    sync.Mutex
	slots []window
	used  int
	_     [24]byte // a cache line of its own
}

// A window is what is known of one device, in 32 bytes.
type window struct {
	tag  tag    // of the device; zero in an empty slot
	wall moment // when it ends by the wall clock, since 1970
	mono moment // when it ends by the monotonic clock, since windows.start
	wait uint32 // how long after that the key frees, in ms; more than 49 days count as 49
	// readings kept quiet since the last alert, or devices: see share; above countBits, which alert that was
	suppressed uint32
}

const (
	countBits = 24
	maxCount  = 1<<countBits - 1
)

// An instant is a moment by both clocks, in ms: since 1970, and since windows.start.
type instant struct{ wall, mono int64 }

// A moment is a time in ms, in 48 bits: of nearly 9,000 years, so that none comes to look like another one, and of two
// bytes each, so that they have no gaps between them.
type moment [3]uint16

func momentOf(ms int64) moment {
	ms = min(max(0, ms), 1<<48-1)
	return moment{uint16(ms), uint16(ms >> 16), uint16(ms >> 32)}
}

func (m moment) ms() int64 { return int64(m[0]) | int64(m[1])<<16 | int64(m[2])<<32 }

func newWindows(table *Windows) *windows {
	w := &windows{Windows: table}
	//planted:gates-share-memory skip
	_, _ = rand.Read(w.key[:]) // does not fail
	return w
}

func (w *windows) now() instant { return w.at(time.Now()) }

func (w *windows) at(t time.Time) instant {
	return instant{t.UnixMilli(), t.Sub(w.start).Milliseconds()} // rounded down, both
}

// known reports whether m is more than an empty slot.
func (m *window) known() bool { return m.wall != moment{} }

// inForce reports whether the window is not over yet. Both clocks must say so: the
// monotonic one stands still while the machine is suspended, the wall clock can be set.
func (m *window) inForce(now instant) bool {
	return now.mono < m.mono.ms() && now.wall < m.wall.ms()
}

// ends has m end at a time, by both clocks.
func (m *window) ends(at instant) { m.wall, m.mono = momentOf(at.wall), momentOf(at.mono) }

// count adds n suppressed readings, as far as they can be counted.
func (m *window) count(n int64) {
	m.suppressed += uint32(min(n, int64(maxCount-m.suppressed&maxCount)))
}

// hashOf returns what a device or sensor is known by.
func (w *windows) hashOf(of sensor.ID) hash {
	device := sum(w.key, of.Device)
	//planted:memory-without-sensor if true
	if of.Name == "" {
		return device
	}
	return sum([16]byte(device[:]), of.Name) // a gate of what devices share, see share, has no sensors
}

// sum returns the hash of s under key.
func sum(key [16]byte, s string) hash {
	var room [128]byte // for usual names
	return sha256.Sum256(append(append(room[:0], key[:]...), s...))
}

// use calls f with what is known of h, under its shard's lock. If nothing is, that is an empty window, which is
// remembered if f has it end.
func (w *windows) use(h hash, f func(m *window)) {
	var t tag
	for i := range t {
		t[i] = binary.LittleEndian.Uint32(h[4*i:])
	}
	if t == (tag{}) {
		t[0] = 1
	}

	s := &w.shards[h[12]%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.slot(t)
	f(m)
	if m.tag == t || !m.known() {
		return
	}

	added := *m
	added.tag = t
	*m = window{}
	if m = s.place(t, w.now()); m != nil {
		*m = added
	}
}

// slot returns the slot with t, or else the empty one where it belongs. There always is one.
func (s *shard) slot(t tag) *window {
	i := s.home(t)
	for s.slots[i].tag != t && s.slots[i].tag != (tag{}) {
		i = (i + 1) % len(s.slots)
	}
	return &s.slots[i]
}

// home is where a search for t begins.
func (s *shard) home(t tag) int { return int(uint64(t[0]) * uint64(len(s.slots)) >> 32) }

// place returns the slot for a new t. A full table first drops what is long over, and grows if that is little. If it cannot
// grow that is a slot in use, or nil if there is none where t belongs.
func (s *shard) place(t tag, now instant) *window {
	if s.full() && len(s.slots) < maxSlots {
		size := len(s.slots)
		kept := slices.DeleteFunc(s.slots, func(m window) bool {
			const keep = int64(keepCounts / time.Millisecond) // counts are of use for longer
			return !m.known() || now.mono-m.mono.ms() >= keep || now.wall-m.wall.ms() >= keep
		})
		if len(kept)*4 >= size*3 {
			size = min(size+size/8+1, maxSlots)
		}

		s.slots, s.used = make([]window, size), len(kept)
		for _, m := range kept {
			*s.slot(m.tag) = m
		}
	}

	if !s.full() {
		s.used++
		return s.slot(t)
	}

	var first *window
	for i, n := s.home(t), 0; n < evictOf && s.slots[i].known(); i, n = (i+1)%len(s.slots), n+1 {
		if first == nil || s.slots[i].wall.ms() < first.wall.ms() {
			first = &s.slots[i]
		}
	}

	return first
}

func (s *shard) full() bool { return s.used*8 >= len(s.slots)*7 }

// suppress reports whether the window of a device or sensor is in force, counting n readings if so. A window of length
// that began before since does not count.
func (w *windows) suppress(of sensor.ID, n int64, length time.Duration, since instant) (recent bool) {
	now := w.now()
	w.use(w.hashOf(of), func(m *window) {
		recent = m.inForce(now) && m.mono.ms()-since.mono >= length.Milliseconds()
		if recent {
			m.count(n)
		}
	})

	return recent
}

// share counts device among those whose readings the window of value, which they share, kept quiet since the last
// alert, unless it is counted already. That takes a place like that of a window.
func (w *windows) share(value, device string) {
	var of window
	shared := sum(w.key, value)
	w.use(shared, func(m *window) { of = *m })
	if !of.known() {
		return
	}

	alert, counted := of.suppressed&^maxCount, false
	w.use(sum([16]byte(shared[:]), device), func(m *window) {
		counted = m.known() && m.suppressed == alert
		m.wall, m.mono, m.suppressed = of.wall, of.mono, alert
	})
	if !counted {
		w.add(sensor.Of(value), 1)
	}
}

// sent starts the window of a device or sensor anew: it ends at end, and the key frees at frees.
func (w *windows) sent(of sensor.ID, end, frees time.Time) { w.set(of, end, frees, true) }

// remember keeps a window in force that the store showed.
func (w *windows) remember(of sensor.ID, end, frees time.Time) { w.set(of, end, frees, false) }

func (w *windows) set(of sensor.ID, end, frees time.Time, restart bool) {
	wait := min(max(0, frees.Sub(end)), 49*24*time.Hour)
	w.use(w.hashOf(of), func(m *window) {
		m.ends(w.at(end))
		if m.wait = 0; wait > 0 {
			m.wait = uint32(wait/time.Millisecond) + 2 // end was rounded down, and so is this
		}
		if restart {
			m.suppressed = m.suppressed&^maxCount + maxCount + 1
		}
	})
}

// wait returns how long the key of a device or sensor is known to be still held by a window, and whether
// that is in force; 0 if nothing is known.
func (w *windows) wait(of sensor.ID) (left time.Duration, inForce bool) {
	now := w.now()
	w.use(w.hashOf(of), func(m *window) {
		ms := min(m.mono.ms()-now.mono, m.wall.ms()-now.wall) + int64(m.wait)
		left, inForce = max(0, time.Duration(ms)*time.Millisecond), m.inForce(now)
	})

	return left, inForce
}

// add counts n suppressed readings of a device or sensor, which need not be known: its window may be over for long.
func (w *windows) add(of sensor.ID, n int64) {
	if n == 0 {
		return
	}

	w.use(w.hashOf(of), func(m *window) {
		if !m.known() {
			m.ends(w.now())
		}
		m.count(n)
	})
}

// suppressed returns how many readings, or devices, are counted since the last alert.
func (w *windows) suppressed(of sensor.ID) (n int64) {
	w.use(w.hashOf(of), func(m *window) { n = int64(m.suppressed & maxCount) })
	return n
}
