package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/incident"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

const maxIncidents = 200 // open ones that are read and listed

// Incidents are the records of those of all replicas, an incident.Book.
type Incidents interface {
	Read(ctx context.Context, g incident.Group) (r incident.Record, now time.Time, err error)
	Open(ctx context.Context, most int, overFor time.Duration) (open []incident.Listed, all bool, err error)
}

// openIncidents are those that run, or whose end is not settled.
type openIncidents struct {
	list []incident.Listed
	more bool // there are others
}

// askIncidents asks for those that are open, the oldest first.
func askIncidents(of Incidents) func(context.Context) (openIncidents, error) {
	return func(ctx context.Context) (o openIncidents, err error) {
		list, all, err := of.Open(ctx, maxIncidents, 0)
		o.list, o.more = list, !all
		slices.SortFunc(o.list, func(x, y incident.Listed) int {
			return cmp.Or(x.Record.Began.Compare(y.Record.Began), cmp.Compare(x.Record.ID, y.Record.ID))
		})
		return o, err
	}
}

// An incidentView is what people see of one.
type incidentView struct {
	Rule, Level string
	Silence     bool   // its members are silent
	Value       string // what its members share
	Began       time.Time
	Members     int
	Count       string // how many members there are, or "at least" how many
	By          string // how many are in which partitions
	First       string // the member whose alarm began first

	record incident.Record
}

// incidentView returns what there is to see of an incident, whose owners correct their numbers once a window.
func (a *Admin) incidentView(l incident.Listed, now time.Time) incidentView {
	rule, kind := ruleOf(&a.options.Rules, l.Group.Rule), "device"
	if len(rule.Sensor) > 0 {
		kind = "sensor"
	}

	members, atLeast := l.Record.Members(now.Add(-rule.Window))
	count := humanize.Count(members, kind)
	if atLeast {
		count = "at least " + count
	}

	var by []string
	for _, partition := range slices.SortedFunc(maps.Keys(l.Record.Entries), telemetry.ComparePartitions) {
		if n := l.Record.Entries[partition].Members; n > 0 {
			by = append(by, fmt.Sprintf("%d in partition %s", n, partition))
		}
	}

	return incidentView{
		Rule:    l.Group.Rule,
		Level:   l.Group.Level,
		Silence: l.Group.Silence,
		Value:   l.Group.Value,
		Began:   l.Record.Began,
		Members: members,
		Count:   count,
		By:      humanize.Some(by),
		First:   l.Record.First().First,
		record:  l.Record,
	}
}

// An incidentsView is what the page shows of incidents. The zero value has none.
type incidentsView struct {
	Old    string // how old this is, if the store does not respond
	List   []incidentView
	Linked bool // the page's address names one, which alone is listed, if it is open
	More   bool // there are others that were not read
}

// incidentsView returns the open incidents for the page, or the one that its address names.
func (a *Admin) incidentsView(r *http.Request, p *page) (v incidentsView) {
	if a.options.Incidents == nil {
		return v
	}

	open, at, err := a.incidents.get()
	linked := r.URL.Query().Get("incident")
	v = incidentsView{Old: aged("The checkpoint store", at, time.Now(), err), Linked: linked != "", More: open.more}
	for _, l := range open.list {
		if linked == "" || linked == l.Record.ID {
			v.List = append(v.List, a.incidentView(l, at))
		}
	}

	v.List = shorten(p, "incidents", v.List)
	return v
}

// An incidentOf is that of one of a device's alarms.
type incidentOf struct {
	alarm partition.AlarmState
	incidentView
}

// incidentsOf adds to f the incidents that alarms are part of.
func (a *Admin) incidentsOf(ctx context.Context, f *findings) error {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()

	for _, s := range f.state.Alarms {
		rule := ruleOf(&a.options.Rules, s.Rule)
		if s.Group == "" || s.Phase != rules.Open || rule.Per == "" { // it had one when the alarm opened
			continue
		}

		if len(f.incidents) == shownSensors {
			return errors.New("not all incidents that it is part of are known: there are too many")
		}

		g := incident.Group{Rule: s.Rule, Level: s.Level, Silence: s.Silence, Per: rule.Per, Value: s.Group}
		r, now, err := a.options.Incidents.Read(ctx, g)
		if err != nil {
			return fmt.Errorf("not all incidents that it is part of are known: %w", err)
		}

		f.incidents = append(f.incidents, incidentOf{s, a.incidentView(incident.Listed{Group: g, Record: r}, now)})
	}

	return nil
}

// incidentText says which incident an alarm is part of.
func (f findings) incidentText(i incidentOf) string {
	of := "the incident of " + shortName(i.Value)
	if i.record.State != incident.Running || i.record.Entries[i.alarm.Partition].Members == 0 {
		return "to be part of " + of + ": its record does not say so yet"
	}

	return fmt.Sprintf("part of %s, since %s, with %s: %s", of, f.clock(i.record.First().Since), i.Count, i.record.ID)
}
