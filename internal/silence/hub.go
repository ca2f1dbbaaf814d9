package silence

import (
	"slices"
	"time"

	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// What is told of the whole hub. An outage before it makes several partitions dark, at several moments. That is one
// alarm, of the partition that every hub has: it asks the rosters of all, in which their owners say that they are dark.
// One partition of many has the same alarm.
//
// Its own roster is asked as well: the store has it before the alarm opens or ends, with deadlines that start anew. An
// owner that knew only that the alarm has ended would tell of each device.

// darkEvery is how often rosters are asked at most which partitions are dark, if there are several.
const darkEvery = 30 * time.Second

// A hubQuestion is when rosters were asked which partitions are dark.
type hubQuestion struct {
	at       time.Time   // when they were asked last
	answered time.Time   // when they last answered
	alone    bool        // the hub has one partition
	untold   map[int]int // how many were dark then, by rules that have no alarm about that
}

// Partitions are those of a hub, as rosters say.
type Partitions struct {
	All      int                               // that the hub has
	Dark     map[string][]roster.DarkPartition // by rule
	Complete bool                              // each has a roster
}

// mayAskDark reports whether rosters have to be asked now which partitions are dark, and counts as doing so. If there
// is one, that costs little.
func (w *Watch) mayAskDark(now time.Time) bool {
	if w.hub == "" || len(w.rules) == 0 {
		return false
	}

	if now.Sub(w.asks.at) < darkEvery && !(w.asks.alone && w.hubChanges()) {
		return false
	}

	w.asks.at = now

	return true
}

// hubChanges reports whether an alarm about the hub says something else than this partition.
func (w *Watch) hubChanges() bool {
	for rule := range w.rules {
		if w.roster.Dark(rule).Lasts() != w.isOpen(key{rule, sensor.Of(w.hub)}) {
			return true
		}
	}

	return false
}

// TellOfHub tells the alarms whether partitions of the hub are dark, by what rosters have just said. It is the answer
// to Questions.Dark.
func (w *Watch) TellOfHub(now time.Time, p Partitions) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.asks.answered = now
	w.asks.alone = p.All == 1
	for rule := range w.rules {
		w.tellOfHub(rule, now, p)
	}
}

// tellOfHub is TellOfHub for one rule.
func (w *Watch) tellOfHub(rule int, now time.Time, p Partitions) {
	dark := p.Dark[w.rules[rule].Rule]
	k := key{rule, sensor.Of(w.hub)}
	lasting := slices.DeleteFunc(slices.Clone(dark), func(d roster.DarkPartition) bool { return !d.Lasts() })
	told, open := w.open[k]

	switch {
	case len(lasting) > 0 && !open:
		w.gather(rule, now, lasting, p.All)

	case len(lasting) == 0 && !open:
		delete(w.asks.untold, rule)

	//planted:hub-recovers-while-dark case p.Complete
	case len(lasting) == 0 && p.Complete:
		delete(w.open, k)
		w.alarms.Ended(rule, k.of, now.UnixMilli(), slices.ContainsFunc(dark, func(d roster.DarkPartition) bool {
			return d.Since.Time >= told.Time // its darkness was told
		}))
	}
}

// gather tells of partitions that are dark, of all that the hub has, once they have not become more since they were
// asked before: an outage does not reach all at once.
func (w *Watch) gather(rule int, now time.Time, dark []roster.DarkPartition, all int) {
	if before := w.asks.untold[rule]; len(dark) > before && len(dark) < all {
		w.asks.untold[rule] = len(dark)
		return
	}

	slices.SortFunc(dark, func(a, b roster.DarkPartition) int { return telemetry.ComparePartitions(a.ID, b.ID) })
	first := dark[0].Since
	deadline := dark[0].Deadline
	outage := &Outage{Of: all}
	for _, d := range dark {
		outage.Partitions = append(outage.Partitions, d.ID)
		outage.Devices += d.Devices
		deadline = min(deadline, d.Deadline)
		if d.Since.Time < first.Time {
			first = d.Since
		}
	}

	delete(w.asks.untold, rule)
	w.tell(rule, Silence{
		Of:       sensor.Of(w.hub),
		Since:    first,
		Heard:    first.Time,
		Deadline: deadline,
		Proven:   now.UnixMilli(),
		Outage:   outage,
	})
}

// KnowsHub reports whether rosters have said lately which partitions are dark.
func (w *Watch) KnowsHub(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return now.Sub(w.asks.answered) < maxFresh
}
