// Package recent remembers windows in force beside the gate, so that a hot device costs the store nothing until its
// window is over. It only ever suppresses, and only as long as the store would; forgetting costs a store call.
//
// What it remembers counts from before the call that it learned it from, and holds only while both clocks of this
// machine say so: the wall clock, which can be set, and the monotonic clock, which stands still while the machine is
// suspended.
package recent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A Gate is a throttle.Gate that remembers the windows that its answers show, and counts what they suppress. What a
// request calls the device may be a value that devices share: then it counts devices, each once. It is safe for
// concurrent use.
//
// It knows a device, or sensor, by 96 bits of the SHA-256 of a random key of its own and the name, in a shard
// that 6 more bits choose: nobody can choose names that collide. Two windows that are one to us would suppress each
// other's alerts. That takes a chance of 2^-102 for any two, and of 2^-63 for any two of a
// million, which is negligible.
type Gate struct {
	*throttle.Gate
	window time.Duration
	table  *Windows
	key    [16]byte
}

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

// A tag is what of a name's hash is kept.
type tag [3]uint32

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
	mono moment // when it ends by the monotonic clock, since Windows.start
	wait uint32 // how long after that the key frees, in ms; more than 49 days count as 49
	// readings kept quiet since the last alert, or devices: see SuppressedShared; above countBits, which alert that was
	suppressed uint32
}

const (
	countBits = 24
	maxCount  = 1<<countBits - 1
)

// An instant is a moment by both clocks, in ms: since 1970, and since Windows.start.
type instant struct{ wall, mono int64 }

// A moment is a time in ms, in 48 bits: of nearly 9,000 years, so that none comes to look like another one, and of two
// bytes each, so that they have no gaps between them.
type moment [3]uint16

func momentOf(ms int64) moment {
	ms = min(max(0, ms), 1<<48-1)
	return moment{uint16(ms), uint16(ms >> 16), uint16(ms >> 32)}
}

func (m moment) ms() int64 { return int64(m[0]) | int64(m[1])<<16 | int64(m[2])<<32 }

// New returns a Gate that remembers its windows in table, where no other gate finds them.
func New(c throttle.Config, table *Windows) *Gate {
	g := &Gate{Gate: throttle.New(c), window: c.Window, table: table}
	//planted:gates-share-memory skip
	_, _ = rand.Read(g.key[:]) // does not fail
	return g
}

// Claim is that of throttle.Gate, but does not ask the store while nothing can be claimed: a store with a coarse clock
// frees a key late.
func (g *Gate) Claim(ctx context.Context, r throttle.Request) (*throttle.Claim, throttle.Result, error) {
	var wait time.Duration // for which a window still holds the key
	var mayBeCovered bool
	now := g.table.at(time.Now())
	g.use(r.Of(), func(m *window) { wait, mayBeCovered = m.frees(now), m.inForce(now) && !r.Recovery })
	if wait > 0 && !mayBeCovered {
		return nil, throttle.Result{Outcome: throttle.Busy, Retry: time.Now().Add(wait)}, nil
	}

	c, result, err := g.Gate.Claim(ctx, r)
	g.remember(r.Of(), result.Window, false)
	return c, result, err
}

// Settle is that of throttle.Gate.
func (g *Gate) Settle(ctx context.Context, c *throttle.Claim, answer throttle.Answer) (throttle.Result, error) {
	result, err := g.Gate.Settle(ctx, c, answer)
	g.remember(c.Of(), result.Window, true)
	return result, err
}

// Refused begins the window of a device or sensor at a time, on this replica alone: its alert is a dead letter, because the
// receiver refuses what it says, and would refuse the next one too. A recovery waits for its end.
func (g *Gate) Refused(of sensor.ID, at time.Time) {
	until := at.Add(g.window)
	g.remember(of, throttle.Window{Ends: until, Frees: until}, true)
}

// remember keeps w, if there is one. If it is new, nothing has been suppressed since its alert.
func (g *Gate) remember(of sensor.ID, w throttle.Window, isNew bool) {
	if w == (throttle.Window{}) {
		return
	}

	wait := min(max(0, w.Frees.Sub(w.Ends)), 49*24*time.Hour)
	g.use(of, func(m *window) {
		m.ends(g.table.at(w.Ends))
		if m.wait = 0; wait > 0 {
			m.wait = uint32(wait/time.Millisecond) + 2 // the end was rounded down, and so is this
		}
		if isNew {
			m.suppressed = m.suppressed&^maxCount + maxCount + 1
		}
	})
}

// Recent reports whether a device's, or sensor's, recorded window is known, without asking
// the store, to be still in force, and counts one more suppressed reading if so. It
// allocates nothing.
func (g *Gate) Recent(of sensor.ID) bool { return g.RecentSince(of, time.Time{}) }

// RecentSince is Recent for a window that began at since or later.
func (g *Gate) RecentSince(of sensor.ID, since time.Time) (recent bool) {
	now, began := g.table.at(time.Now()), g.table.at(since)
	g.use(of, func(m *window) {
		recent = m.inForce(now) && m.mono.ms()-began.mono >= g.window.Milliseconds()
		if recent {
			m.count(1)
		}
	})

	return recent
}

// RecentShared is Recent for the window of value, which device shares with others: it counts devices, each once.
func (g *Gate) RecentShared(value, device string) (recent bool) {
	now := g.table.at(time.Now())
	g.use(sensor.Of(value), func(m *window) { recent = m.inForce(now) })
	if recent {
		g.SuppressedShared(value, device)
	}
	return recent
}

// Suppressed counts n more suppressed readings of a device or sensor, which its next alert reports. It need not be known: its
// window may be over for long.
func (g *Gate) Suppressed(of sensor.ID, n int64) {
	if n == 0 {
		return
	}

	g.use(of, func(m *window) {
		if !m.known() {
			m.ends(g.table.at(time.Now()))
		}
		m.count(n)
	})
}

// SuppressedShared counts device among those whose readings the window of value, which they share, kept quiet since the last
// alert, unless it is counted already. That takes a place like that of a window.
func (g *Gate) SuppressedShared(value, device string) {
	var of window
	g.use(sensor.Of(value), func(m *window) { of = *m })
	if !of.known() {
		return
	}

	alert, counted := of.suppressed&^maxCount, false
	g.use(sensor.ID{Device: value, Name: device}, func(m *window) { // what devices share has no sensors
		counted = m.known() && m.suppressed == alert
		m.wall, m.mono, m.suppressed = of.wall, of.mono, alert
	})
	if !counted {
		g.Suppressed(sensor.Of(value), 1)
	}
}

// Count returns how many suppressed readings this replica has counted since the last alert about
// it; of a value that devices share, how many of them.
func (g *Gate) Count(of sensor.ID) (n int64) {
	g.use(of, func(m *window) { n = int64(m.suppressed & maxCount) })
	return n
}

// use calls f with what is known of a device or sensor, under its shard's lock. If nothing is, that is an empty window,
// which is remembered if f has it end.
func (g *Gate) use(of sensor.ID, f func(m *window)) {
	var room [128]byte // for usual names
	hash := sha256.Sum256(append(append(room[:0], g.key[:]...), of.Device...))
	//planted:memory-without-sensor if false
	if of.Name != "" {
		hash = sha256.Sum256(append(append(room[:0], hash[:16]...), of.Name...))
	}

	var t tag
	for i := range t {
		t[i] = binary.LittleEndian.Uint32(hash[4*i:])
	}
	if t == (tag{}) {
		t[0] = 1
	}

	s := &g.table.shards[hash[12]%shardCount]
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
	if m = s.place(t, g.table.at(time.Now())); m != nil {
		*m = added
	}
}

func (w *Windows) at(t time.Time) instant {
	return instant{t.UnixMilli(), t.Sub(w.start).Milliseconds()} // rounded down, both
}

// known reports whether m is more than an empty slot.
func (m *window) known() bool { return m.wall != moment{} }

// inForce reports whether the window is not over yet. Both clocks must say so: the
// monotonic one stands still while the machine is suspended, the wall clock can be set.
func (m *window) inForce(now instant) bool {
	return now.mono < m.mono.ms() && now.wall < m.wall.ms()
}

// frees returns how long the key is known to be still held.
func (m *window) frees(now instant) time.Duration {
	ms := min(m.mono.ms()-now.mono, m.wall.ms()-now.wall) + int64(m.wait)
	return max(0, time.Duration(ms)*time.Millisecond)
}

// ends has m end at a time, by both clocks.
func (m *window) ends(at instant) { m.wall, m.mono = momentOf(at.wall), momentOf(at.mono) }

// count adds n suppressed readings, as far as they can be counted.
func (m *window) count(n int64) {
	m.suppressed += uint32(min(n, int64(maxCount-m.suppressed&maxCount)))
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
