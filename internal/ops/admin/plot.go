package admin

import (
	"slices"
	"time"
)

// A plot shows a count for each of the last minutes as a bar, with the current
// minute at the right.
type plot struct {
	Name  string
	Class string // for the style sheet
	Now   string // the count of the last full minute; of the current one if there is none
	Full  bool   // Now is of a full minute
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

const (
	plotHeight = 56
	barWidth   = 4 // with its gap
)

func (a *Admin) plots() []plot {
	now := a.totals()
	a.mu.Lock()
	all, first := a.history.series(now)
	a.mu.Unlock()
	of := func(name, class string, pick func(totals) int64) plot {
		values := make([]int64, len(all))
		for i, t := range all {
			values[i] = pick(t)
		}
		return plotOf(name, class, values, first)
	}
	return []plot{
		of("Readings", "readings", func(t totals) int64 { return t.readings }),
		of("Alerts", "alerts", func(t totals) int64 { return t.alerts }),
		of("Suppressed", "suppressed", func(t totals) int64 { return t.suppressed }),
	}
}

func plotOf(name, class string, values []int64, first time.Time) plot {
	last := len(values) - 1
	most := slices.Max(values)
	top := max(1, most)
	p := plot{Name: name, Class: class, Top: count(most), Full: last > 0, Now: count(values[max(0, last-1)])}
	for i, v := range values {
		height := 0
		if v > 0 {
			height = max(2, int(v*plotHeight/top))
		}
		p.Bars = append(p.Bars, bar{
			X: (minutes - len(values) + i) * barWidth, Y: plotHeight - height, Height: height,
			Minute: first.Add(time.Duration(i) * time.Minute).UTC().Format("15:04"), Value: count(v), Partial: i == last,
		})
	}
	return p
}
