package admin

import "time"

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

// plots draws the counts of s in the hour until now.
func (s Snapshot) plots(now time.Time) []plot {
	of := func(name, class string, pick func(totals) int64) plot {
		var most int64
		for _, t := range s.Minutes {
			most = max(most, pick(t))
		}

		p := plot{Name: name, Class: class, Top: count(most), Now: count(pick(s.Last60s))}
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
