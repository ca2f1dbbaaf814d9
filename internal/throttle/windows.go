package throttle

import (
	"sync"
	"time"
)

// maxMarks bounds the memory of recently sent devices: about 20 MB.
const maxMarks = 1 << 17

// recent remembers open windows, so that a hot device costs the store nothing
// until its window ends. It only ever keeps a gate shut, and only as long as
// the store would; forgetting costs a store call.
type recent struct {
	mu    sync.Mutex
	marks map[string]*mark
}

type mark struct {
	end        time.Time // of the window, or before it
	suppressed int64     // readings kept quiet since the last alert
}

// suppress reports whether device's window is open, counting one reading if so.
func (r *recent) suppress(device string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.marks[device]
	if m == nil || !valid(time.Now(), m.end) {
		return false
	}
	m.suppressed++
	return true
}

// sent starts device's window anew.
func (r *recent) sent(device string, end time.Time) { r.set(device, end, true) }

// remember keeps an open window that the store told of.
func (r *recent) remember(device string, end time.Time) { r.set(device, end, false) }

func (r *recent) set(device string, end time.Time, restart bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.marks[device]
	if m == nil {
		if len(r.marks) >= maxMarks && !r.evict() {
			return
		}
		m = &mark{}
		r.marks[device] = m
	}
	m.end = end
	if restart {
		m.suppressed = 0
	}
}

// forget ends device's window here. What was suppressed still counts.
func (r *recent) forget(device string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[device]; m != nil {
		m.end = time.Time{}
	}
}

// evict makes room by dropping marks that are over, looking at a bounded
// number of them in the map's random order.
func (r *recent) evict() bool {
	now, looked := time.Now(), 0
	for device, m := range r.marks {
		if !valid(now, m.end) {
			delete(r.marks, device)
		}
		if looked++; looked == 64 {
			break
		}
	}
	return len(r.marks) < maxMarks
}

func (r *recent) add(device string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[device]; m != nil {
		m.suppressed += n
	}
}

func (r *recent) suppressed(device string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[device]; m != nil {
		return m.suppressed
	}
	return 0
}
