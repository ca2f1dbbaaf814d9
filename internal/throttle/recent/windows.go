package recent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"alertworker/internal/sensor"
)

const (
	shardCount = 64

	// A shard's table grows by an eighth when 7 of 8 slots are taken, so that a
	// device of many costs 37 to 42 bytes. It grows to 40 MB for all shards, with room
	// for 2^20 devices in however uneven shares chance deals them out.
	minSlots = 8
	maxSlots = 19_500

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
func NewWindows() *Windows { return &Windows{start: time.Now()} }

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

// A shard is a hash table with linear probing. Slots are reused and never emptied.
type shard struct {
	mu    sync.Mutex
	slots []window
	used  int
	_     [24]byte // a cache line of its own
}

// A window is what is known of one device, in 32 bytes.
type window struct {
	tag  [3]uint32 // of the device; zero in an empty slot
	wall moment    // when it ends by the wall clock, since 1970
	mono moment    // when it ends by the monotonic clock, since windows.start
	wait uint32    // how long after that the key frees, in ms; more than 49 days count as 49
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

// inForce reports whether the window is not over yet. Both clocks must say so: the
// monotonic one stands still while the machine is suspended, the wall clock can be set.
func (m *window) inForce(now instant) bool {
	return now.mono < m.mono.ms() && now.wall < m.wall.ms()
}

// lock returns the locked shard of a device or sensor, and its tag.
func (w *windows) lock(of sensor.ID) (s *shard, tag [3]uint32) {
	device := sum(w.key, of.Device)
	//planted:memory-without-sensor if true
	if of.Name == "" {
		return w.lockSum(device)
	}
	return w.lockSum(sum([16]byte(device[:]), of.Name)) // a gate of what devices share, see share, has no sensors
}

// sum returns the hash of s under key.
func sum(key [16]byte, s string) [sha256.Size]byte {
	var room [128]byte // for usual names
	return sha256.Sum256(append(append(room[:0], key[:]...), s...))
}

func (w *windows) lockSum(sum [sha256.Size]byte) (s *shard, tag [3]uint32) {
	for i := range tag {
		tag[i] = binary.LittleEndian.Uint32(sum[4*i:])
	}

	if tag == [3]uint32{} {
		tag[0] = 1
	}

	s = &w.shards[sum[12]%shardCount]
	s.mu.Lock()

	return s, tag
}

// find returns the slot with tag, or nil.
func (s *shard) find(tag [3]uint32) *window {
	if len(s.slots) == 0 {
		return nil
	}
	if m := s.slot(tag); m.tag == tag {
		return m
	}

	return nil
}

// slot returns the slot with tag, or else the empty one where it belongs. There always is one.
func (s *shard) slot(tag [3]uint32) *window {
	i := s.home(tag)
	for s.slots[i].tag != tag && s.slots[i].tag != [3]uint32{} {
		i = s.after(i)
	}
	return &s.slots[i]
}

// suppress reports whether the window of a device or sensor is in force, counting n readings if so. A window that lasts
// longer than length from since on does not count, unless length is 0: it began before.
func (w *windows) suppress(of sensor.ID, n int64, length time.Duration, since instant) bool {
	now := w.now()
	recent := false
	w.use(of, func(m *window) {
		recent = m.inForce(now) && (length == 0 || m.mono.ms()-since.mono >= length.Milliseconds())
		if recent {
			m.count(n)
		}
	})

	return recent
}

// share counts device among those whose readings the window of value, which they share, kept quiet since the last
// alert, unless it is counted already. That takes a place like that of a window.
func (w *windows) share(value, device string) {
	shared := sum(w.key, value)
	s, tag := w.lockSum(shared)
	m := s.find(tag)
	if m == nil {
		s.mu.Unlock()
		return
	}

	of := *m
	s.mu.Unlock()
	s, tag = w.lockSum(sum([16]byte(shared[:]), device))
	m = s.take(w.now(), tag)
	counted := m != nil && !m.isNew() && m.suppressed == of.suppressed&^maxCount
	if m != nil {
		m.wall = of.wall
		m.mono = of.mono
		m.suppressed = of.suppressed &^ maxCount
	}

	s.mu.Unlock()
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
	now, at := w.now(), w.at(end)
	s, tag := w.lock(of)
	defer s.mu.Unlock()
	m := s.take(now, tag)
	if m == nil {
		return
	}

	m.wall, m.mono = momentOf(at.wall), momentOf(at.mono)
	if m.wait = 0; wait > 0 {
		m.wait = uint32(wait/time.Millisecond) + 2 // end was rounded down, and so is this
	}

	if restart {
		m.suppressed = m.suppressed&^maxCount + maxCount + 1
	}
}

// take returns the slot with tag, or else a new one. If there is no more room that is the
// slot, of some from home on, whose window ends first; nil if none is there.
func (s *shard) take(now instant, tag [3]uint32) *window {
	if m := s.find(tag); m != nil {
		return m
	}

	if s.full() && len(s.slots) < maxSlots {
		s.grow(now)
	}

	if !s.full() {
		return s.place(window{tag: tag})
	}

	var first *window
	for i, n := s.home(tag), 0; n < 16 && s.slots[i].tag != [3]uint32{}; i, n = s.after(i), n+1 {
		if first == nil || s.slots[i].wall.ms() < first.wall.ms() {
			first = &s.slots[i]
		}
	}

	if first != nil {
		*first = window{tag: tag}
	}

	return first
}

// isNew reports whether nothing was set since take gave m a slot.
func (m *window) isNew() bool { return m.wall == moment{} }

// place puts m, which no slot has, where it belongs.
func (s *shard) place(m window) *window {
	slot := s.slot(m.tag)
	*slot = m
	s.used++
	return slot
}

// home is where a search for tag begins, and after where it goes on from i.
func (s *shard) home(tag [3]uint32) int { return int(uint64(tag[0]) * uint64(len(s.slots)) >> 32) }

func (s *shard) after(i int) int {
	if i++; i < len(s.slots) {
		return i
	}
	return 0
}

func (s *shard) full() bool { return s.used*8 >= len(s.slots)*7 }

// grow makes room: by dropping what is long over, or else by a larger table.
func (s *shard) grow(now instant) {
	kept := 0
	for i := range s.slots {
		if s.slots[i].kept(now) {
			kept++
		}
	}

	old, size := s.slots, max(len(s.slots), minSlots)
	if kept*4 >= size*3 || len(old) == 0 {
		size = min(size+size/8+1, maxSlots)
	}

	s.slots, s.used = make([]window, size), 0
	for i := range old {
		if old[i].kept(now) {
			s.place(old[i])
		}
	}
}

// kept says that m is of use, or may be: its count.
func (m *window) kept(now instant) bool {
	const keep = int64(keepCounts / time.Millisecond)
	return m.tag != [3]uint32{} && now.mono-m.mono.ms() < keep && now.wall-m.wall.ms() < keep
}

// count adds n suppressed readings, as far as they can be counted.
func (m *window) count(n int64) {
	m.suppressed += uint32(min(n, int64(maxCount-m.suppressed&maxCount)))
}

// use calls f with what is known of a device or sensor, if that is anything.
func (w *windows) use(of sensor.ID, f func(m *window)) {
	s, tag := w.lock(of)
	defer s.mu.Unlock()
	if m := s.find(tag); m != nil {
		f(m)
	}
}

// wait returns how long the key of a device or sensor is known to be still held by a window, and whether
// that is in force; 0 if nothing is known.
func (w *windows) wait(of sensor.ID) (left time.Duration, inForce bool) {
	now := w.now()
	w.use(of, func(m *window) {
		ms := min(m.mono.ms()-now.mono, m.wall.ms()-now.wall) + int64(m.wait)
		left, inForce = max(0, time.Duration(ms)*time.Millisecond), m.inForce(now)
	})
	return left, inForce
}

// forget ends the window of a device or sensor here. What was suppressed still counts.
func (w *windows) forget(of sensor.ID) {
	now := w.now()
	w.use(of, func(m *window) {
		m.wall = momentOf(now.wall)
		m.mono = momentOf(now.mono)
		m.wait = 0
	})
}

// add counts n suppressed readings of a device or sensor, which need not be known: its window may be over for long.
func (w *windows) add(of sensor.ID, n int64) {
	if n == 0 {
		return
	}

	now := w.now()
	s, tag := w.lock(of)
	defer s.mu.Unlock()
	m := s.take(now, tag)
	if m == nil {
		return
	}

	if m.isNew() {
		m.wall, m.mono = momentOf(now.wall), momentOf(now.mono)
	}

	m.count(n)
}

func (w *windows) suppressed(of sensor.ID) (n int64) {
	w.use(of, func(m *window) { n = int64(m.suppressed & maxCount) })
	return n
}
