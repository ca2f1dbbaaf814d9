package verify

import "time"

// A memory is what a receiver that does its part remembers of a stream. It drops what has an id that it took less than
// a window ago, or a token smaller than the greatest that it remembers, which may be that of something that it dropped.
type memory struct {
	window time.Duration
	ids    map[string]time.Time // until when each is remembered
	token  int64                // the greatest
	until  time.Time            // it is remembered
}

// A fate is what a receiver does with what it gets.
type fate int

const (
	kept     fate = iota
	repeated      // it has the id of something that was kept
	outdated      // it has a smaller token
)

// take says what becomes of d, and remembers that.
func (m *memory) take(d Delivery) fate {
	if !d.At.Before(m.until) {
		m.token = 0
		m.until = time.Time{}
	}

	if m.token > d.Token {
		return outdated
	}

	again := d.ID != "" && d.At.Before(m.ids[d.ID])
	if !again || d.Token > m.token {
		m.token = d.Token
		m.until = later(later(m.until, d.Until), d.At.Add(m.window))
	}

	if again {
		return repeated
	}

	m.ids[d.ID] = d.At.Add(m.window)
	if d.Recovery { // whose id is remembered as long as its token
		m.ids[d.ID] = later(m.ids[d.ID], d.Until)
	}

	return kept
}

// counts reports whether a window began with an alert that was kept: there is one, and it came while somebody could
// know of it.
func (d Delivery) counts() bool {
	return !d.At.IsZero() && (d.Expires.IsZero() || !d.At.After(d.Expires))
}

// receive finds what the receiver keeps of deliveries, and looks how far apart that is.
func (j *judge) receive(deliveries []Delivery) {
	m := memory{window: j.window, ids: make(map[string]time.Time)}
	for _, d := range deliveries {
		if d.Refused {
			j.Refused++
			j.refused = append(j.refused, d)
			if !d.Recovery {
				j.alerted++ // its reading has a dead letter instead of an alert
			}

			continue
		}

		fate := m.take(d)
		if fate != outdated && !d.Recovery {
			j.counting = append(j.counting, d)
		}

		if fate == kept {
			j.keep(d)
		} else {
			j.Dropped++
		}
	}
}

// keep adds d to what the receiver keeps.
func (j *judge) keep(d Delivery) {
	j.kept = append(j.kept, d)

	apart := d.At.Sub(j.alert.At)
	if j.alert.counts() && apart < j.window {
		j.tooClose(j.alert, d)
	}

	if d.Recovery {
		j.Recoveries++
		return
	}

	j.Alerts++
	if d.ID == "" || !j.alerts[d.ID] {
		j.alerted++
	}

	j.alerts[d.ID] = true
	j.alert = d
}
