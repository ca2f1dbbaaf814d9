package verify

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
)

// A stream is what one receiver gets about one alarm. Each is checked on its own.
type stream struct {
	receiver string
	alarm
}

// Check checks what has been recorded so far. It keeps the records and can be called again.
func (l *Log) Check(rules Rules) Report {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.sort()

	report := Report{
		Rules:    rules,
		Readings: l.readings,
		Over:     l.over,
		Quieted:  l.quieted,
	}

	fleets := l.fleets()

	events := l.events(rules, fleets)
	for _, of := range events {
		for _, e := range of {
			isSilence := math.IsNaN(e.Temperature) // which counts only if it was to be told
			if e.opens && (e.needsAlert || !isSilence) {
				report.Opened++
			}
		}
	}

	ids := map[message]alarm{}
	for s := range l.streams(rules, events) {
		by := l.rule(s.rule)
		j := &judge{
			Report:    &report,
			stream:    s,
			by:        by,
			window:    cmp.Or(by.Window, rules.Window),
			bound:     rules.Bound,
			early:     cmp.Or(rules.Early, rules.Bound),
			known:     l.rules != nil,
			events:    events[s.alarm],
			fleets:    fleets,
			settledAt: l.settledAt,
			muted:     l.mutedSilence,
			alerts:    map[string]bool{},
		}

		if by.silence() {
			j.bound += rules.Proof
			j.early += rules.Proof
		}

		j.check(l.deliveries[s])
		if rules.Distinct {
			j.distinct(l.deliveries[s], ids)
		}
	}

	return report
}

// sort has events in the order of their time if they were recorded in any order, as they may be without rules.
func (l *Log) sort() {
	if l.rules != nil {
		return
	}

	for _, t := range l.tracks {
		slices.SortFunc(t.events, func(a, b event) int {
			return cmp.Or(
				a.At.Compare(b.At),
				cmp.Compare(a.Partition, b.Partition),
				cmp.Compare(a.Sequence, b.Sequence),
			)
		})
	}
}

// events returns the events of each alarm as receivers know it.
func (l *Log) events(rules Rules, fleets map[alarm]*fleet) map[alarm][]event {
	all := make(map[alarm][]event)
	for a, t := range l.tracks {
		r := l.rule(a.rule)
		if r.silence() {
			of := fleets[whole(wholeNames+t.heard.Partition, a)]
			all[a] = l.silences(t, r, rules, fleets[whole(hubName, a)], of)
			continue
		}

		all[a] = slices.Clip(all[a]) // it is an alarm, though it may have no events
		for _, e := range t.events {
			of := a
			if e.shared != "" {
				of.device, of.sensor = e.shared, ""
			}
			all[of] = append(all[of], e)
		}
	}

	for a, f := range fleets {
		if a.device == hubName && f.isMany() {
			all[a] = f.outages(rules.Until, rules.Bound+rules.Proof)
		}
	}

	for a, events := range all {
		if l.rule(a.rule).Per != "" { // devices share their alerts
			slices.SortStableFunc(events, func(x, y event) int { return x.At.Compare(y.At) })
		}
	}

	return all
}

// streams yields, in order, the streams that each receiver got or should have got.
func (l *Log) streams(rules Rules, events map[alarm][]event) iter.Seq[stream] {
	all := make(map[stream]bool)
	receivers := slices.Clone(rules.Receivers) // those that must get alerts, or got something
	for s := range l.deliveries {
		all[s] = true
		receivers = append(receivers, s.receiver)
	}

	if len(receivers) == 0 { // there should have been one
		receivers = []string{""}
	}

	for _, receiver := range slices.Compact(slices.Sorted(slices.Values(receivers))) {
		for a := range events {
			all[stream{receiver, a}] = true
		}
	}

	return slices.Values(slices.SortedFunc(maps.Keys(all), func(a, b stream) int {
		return cmp.Or(
			cmp.Compare(a.receiver, b.receiver),
			cmp.Compare(a.device, b.device),
			cmp.Compare(a.sensor, b.sensor),
			cmp.Compare(a.rule, b.rule),
			cmp.Compare(a.level, b.level),
		)
	}))
}
