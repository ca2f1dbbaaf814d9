package admin

import (
	"maps"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

const (
	sampleEvery = 5 * time.Second // how often Run reads the worker's counters
	minutes     = 60              // how far back the plots go
	plotHeight  = 56
	barWidth    = 4 // with its gap
)

// totals are counters that are plotted. An alert counts once for each receiver that took it.
type totals struct{ Readings, Alerts, Suppressed int64 }

// plus adds what another replica counts.
func (t totals) plus(u totals) totals {
	return totals{t.Readings + u.Readings, t.Alerts + u.Alerts, t.Suppressed + u.Suppressed}
}

// sample adds what was counted since the last sample to the current minute, and returns the counts of the last minutes.
func (a *Admin) sample() map[int64]totals {
	a.mu.Lock()
	defer a.mu.Unlock()
	stats := a.options.Worker.Stats()
	counted := totals{Readings: readings(stats), Suppressed: stats.Suppressed.Load()}
	for i := range stats.Levels {
		counted.Alerts += stats.Levels[i].Sent.Load()
	}

	minute := minuteOf(time.Now())
	a.minutes[minute] = a.minutes[minute].plus(totals{
		Readings:   counted.Readings - a.counted.Readings,
		Alerts:     counted.Alerts - a.counted.Alerts,
		Suppressed: counted.Suppressed - a.counted.Suppressed,
	})
	a.counted = counted

	// the clock may have been changed
	maps.DeleteFunc(a.minutes, func(m int64, _ totals) bool { return m <= minute-minutes || m > minute })
	return maps.Clone(a.minutes)
}

// readings returns how many events had one.
func readings(stats *worker.Stats) int64 {
	return stats.Events[telemetry.ReasonOK].Load() + stats.Events[telemetry.ReasonDamaged].Load()
}

// minuteOf returns the minute of t since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// A plot shows a count for each of the last minutes as a bar, with the current
// minute at the right.
type plot struct {
	Name  string
	Class string // for the style sheet
	Last  string // the count of the last whole minute
	Top   string // what the highest bar stands for
	Bars  []bar
}

// A bar in a drawing of 240 by 56.
type bar struct {
	X, Y, Height int
	Minute       string
	Value        string
	Partial      bool
}

// plots draws the counts of s in the hour until now.
func (s Snapshot) plots(now time.Time) []plot {
	of := func(name, class string, pick func(totals) int64) plot {
		var most int64
		for _, t := range s.Minutes {
			most = max(most, pick(t))
		}

		p := plot{Name: name, Class: class, Top: count(most), Last: count(pick(s.Minutes[minuteOf(now)-1]))}
		for i := range minutes {
			minute := minuteOf(now) - minutes + 1 + int64(i)
			v := pick(s.Minutes[minute])
			if v <= 0 {
				continue
			}

			height := max(2, int(v*plotHeight/most))
			p.Bars = append(p.Bars, bar{
				X:       i * barWidth,
				Y:       plotHeight - height,
				Height:  height,
				Minute:  time.Unix(minute*60, 0).In(now.Location()).Format("15:04"),
				Value:   count(v),
				Partial: i == minutes-1,
			})
		}

		return p
	}
	return []plot{
		of("Readings", "readings", func(t totals) int64 { return t.Readings }),
		of("Alerts", "alerts", func(t totals) int64 { return t.Alerts }),
		of("Suppressed", "suppressed", func(t totals) int64 { return t.Suppressed }),
	}
}
