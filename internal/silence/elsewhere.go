package silence

import (
	"maps"
	"slices"
	"time"

	"alertworker/internal/roster"
)

// elsewhereEvery is how often other partitions are asked at most, if there are any: that reads all of their rosters.
const elsewhereEvery = 30 * time.Second

// Told is what other partitions say of a device.
type Told = roster.Told

// An Asked is a device that may be heard in another partition now: the hub has more partitions, or another place.
type Asked = roster.Asked

// elsewhere is what other partitions have heard of devices that are overdue in this one. Times are in Unix ms.
type elsewhere struct {
	suspects map[key]suspect
	unknown  bool            // whether any of them has not been asked about
	asked    map[key]suspect // suspects when we last asked
	told     map[Asked]Told  // the answer; nil if there is none
	at       time.Time       // when we asked
	asking   bool
	others   int // partitions that have answered
}

// A suspect is a device that is overdue. A gap that is read later may put its deadline off: then others are asked
// again.
type suspect struct {
	asked    Asked
	here     int64 // when it was heard in this partition; 0: it is awaited
	deadline int64
}

// moved reports whether another partition has heard a device, which is overdue by the rule of k, later than this one
// did.
func (e *elsewhere) moved(k key, s suspect, now time.Time) bool {
	e.suspects[k] = s
	if !e.answered(k, s, now) {
		e.unknown = true
		return false
	}
	return e.told[s.asked].Heard > s.here
}

// again has other partitions be asked again, if it is time for that.
func (e *elsewhere) again(now time.Time) {
	e.unknown = e.unknown || now.Sub(e.at) >= elsewhereEvery
}

// answered reports whether other partitions were asked lately about the device of k, which has been overdue since the
// same deadline.
func (e *elsewhere) answered(k key, s suspect, now time.Time) bool {
	was, known := e.asked[k]
	return known && was == s && e.told != nil && now.Sub(e.at) < elsewhereEvery
}

// questions returns the devices to ask other partitions about, none if nothing is unknown, or it is not time for that:
// then it counts as asked.
func (e *elsewhere) questions(now time.Time) []Asked {
	if !e.unknown || !e.mayAsk(now) {
		return nil
	}

	e.asking = true
	e.asked = maps.Clone(e.suspects)
	e.told = nil
	e.at = now

	all := map[Asked]bool{}
	for k := range e.asked {
		all[e.asked[k].asked] = true
	}

	return slices.Collect(maps.Keys(all))
}

// mayAsk reports whether it is time to ask other partitions. If there are none, that costs nothing.
func (e *elsewhere) mayAsk(now time.Time) bool {
	if e.asking {
		return false
	}

	return e.others == 0 || now.Sub(e.at) >= elsewhereEvery
}

// Answer records what other partitions, of which there are so many, say of the devices that Look asked for; nil if that
// is not known.
func (w *Watch) Answer(told map[Asked]Told, others int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.elsewhere.asking = false
	w.elsewhere.told = told
	w.elsewhere.others = others
}
