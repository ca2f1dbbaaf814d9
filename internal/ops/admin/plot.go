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
	Now   string // the count of the last 60 s
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

// plots draws the counts of s.
func (s Snapshot) plots() []plot {
	of := func(name, class string, pick func(totals) int64) plot {
		values := make([]int64, len(s.Minutes))
		for i, t := range s.Minutes {
			values[i] = pick(t)
		}
		return plotOf(name, class, values, pick(s.Last60s), s.Minute)
	}
	return []plot{
		of("Readings", "readings", func(t totals) int64 { return t.Readings }),
		of("Alerts", "alerts", func(t totals) int64 { return t.Alerts }),
		of("Suppressed", "suppressed", func(t totals) int64 { return t.Suppressed }),
	}
}

// plotOf draws the counts of minutes, of which the last is current.
func plotOf(name, class string, values []int64, last60s int64, current time.Time) plot {
	last := len(values) - 1
	most := slices.Max(values)
	top := max(1, most)
	p := plot{Name: name, Class: class, Top: count(most), Now: count(last60s)}
	for i, v := range values {
		height := 0
		if v > 0 {
			height = max(2, int(v*plotHeight/top))
		}
		p.Bars = append(p.Bars, bar{
			X: (minutes - len(values) + i) * barWidth, Y: plotHeight - height, Height: height,
			Minute: current.Add(time.Duration(i-last) * time.Minute).UTC().Format("15:04"), Value: count(v), Partial: i == last,
		})
	}
	return p
}
