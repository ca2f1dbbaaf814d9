package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/notify"
)

// Incidents are the records of groups that replicas share: see incident.Book.
type Incidents interface {
	Sync(ctx context.Context, g incident.Group, partition string, e incident.Entry) (incident.Result, error)
	Close(ctx context.Context, g incident.Group, e incident.End) error
}

// incidentsAtOnce bounds the records that are written at a time.
const incidentsAtOnce = 8

// gathering is for how long the first silence of a group waits for others, which people are told of with it: their
// deadlines are not the same, and each partition looks for itself.
const gathering = 5 * time.Second

// errGathering says that others may be about to fall silent as well.
var errGathering = errors.New("others that share the value may have fallen silent, too")

// errNotWritten says that the record of an incident does not have what the alert is about.
var errNotWritten = errors.New("the record of the incident has not been written yet")

// writeIncidents writes the records of groups whose members have changed, until s.ctx ends.
func (s *Stream) writeIncidents() {
	var writers errgroup.Group
	writers.SetLimit(incidentsAtOnce)
	defer func() { _ = writers.Wait() }()
	for {
		select {
		case <-s.register.regroups:
		case <-s.ctx.Done():
			return
		}

		for g := s.register.nextGroup(); g != nil && s.ctx.Err() == nil; g = s.register.nextGroup() {
			writers.Go(func() error {
				s.writeIncident(g)
				return nil
			})
		}
	}
}

// writeIncident writes the record of g until nothing is to be written.
func (s *Stream) writeIncident(g *group) {
	defer s.box.Ask() // for what waits for the record
	for failed := 0; s.ctx.Err() == nil; {
		any, err := s.register.writeGroup(s.ctx, s.config.Incidents, g)
		if !any {
			return
		}

		if err == nil {
			failed = 0
			continue
		}

		failed++
		s.warn("the record of an incident cannot be written; people are told once it is", err)
		backoff.Sleep(s.ctx, backoff.Delay(failed, minBackoff, maxBackoff))
	}
}

// maySendIncident is MaySend for a notice of an incident, which is due, of a partition that is ours: the record, read under
// the claim, must say the same. Else an alert begins anew, and an end is dropped.
func (s *Stream) maySendIncident(ctx context.Context, key delivery.Key, n *delivery.Notice) (*notify.Incident, error) {
	reg := s.register
	reg.mu.Lock()
	g := reg.groups[key]
	if !g.has(n) {
		reg.mu.Unlock()
		return nil, errNotDue
	}

	of, members := g.of(), g.members
	reg.mu.Unlock()

	r, now, err := s.config.Incidents.Read(ctx, of)
	if err != nil {
		return nil, err
	}

	about := n.Incident.About
	if n.Incident.Over {
		if r.MayEnd(endOf(n)) {
			return &about, nil
		}

		reg.mu.Lock()
		defer reg.mu.Unlock()
		if g.due.is(n) { // not one that has become due since
			reg.dropEnd(g)
			reg.queue(g) // it may be gone
		}

		return nil, errNotDue
	}

	if !r.MayAlert(reg.id, about.ID) {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		reg.write(g)
		return nil, errNotWritten
	}

	ours := r.Entries[reg.id]
	ours.Members, ours.Written = members, now
	r.Entries[reg.id] = ours
	about.Members, about.AtLeast = r.Members(now.Add(-key.Topic.Message.Window))
	about.Began, about.First = r.Began, r.First().First

	return &about, nil
}

// An IncidentBook also reads records, and finds incidents that run, or are over and not closed: see incident.Book.
type IncidentBook interface {
	Incidents
	Read(ctx context.Context, g incident.Group) (r incident.Record, now time.Time, err error)
	Open(ctx context.Context, most int, overFor time.Duration) (open []incident.Listed, all bool, err error)
}

const (
	firstPartition = "0" // every hub has it
	adoptEvery     = time.Hour
	adoptAtOnce    = 1000
)

// adopt looks after incidents that nobody else would end. What records say of members that this owner has not found, as
// after its ledger was lost, is taken out now. And every hour, until s.ctx ends, the owner of the first partition sends the
// ends of those that have been over for so long that all their members were of a partition that is no more.
func (s *Stream) adopt() {
	hasIncidents := func(l *level) bool { return l.id.per != "" }
	if !slices.ContainsFunc(s.config.Evaluator.levels, hasIncidents) {
		return
	}

	isFirst := s.register.id == firstPartition
	for overFor := time.Duration(0); overFor == 0 || isFirst && backoff.Sleep(s.ctx, adoptEvery); overFor = adoptEvery {
		all, _, err := s.config.Incidents.Open(s.ctx, adoptAtOnce, overFor)
		if err != nil {
			s.warn("incidents cannot be listed; those that nobody ends stay open until the next look", err)
			continue
		}

		s.register.mu.Lock()
		for _, l := range all {
			s.register.adopt(l)
		}
		s.register.mu.Unlock()
	}
}

// adopt is Stream.adopt for one incident. The caller holds reg.mu.
func (reg *register) adopt(l incident.Listed) {
	value, levels := l.Group.Value, reg.evaluator.levels
	i := slices.IndexFunc(levels, func(level *level) bool {
		return level.id.per != "" && (&group{level: level, key: level.groupKey(value)}).of() == l.Group
	})
	if i < 0 || !reg.mayJoin(levels[i], value) {
		return // it is not configured any more
	}

	level := levels[i]
	g := reg.groups[level.groupKey(value)]
	isOverdue := reg.id == firstPartition && l.Record.State == incident.Over && l.Age > adoptEvery
	switch {
	case g == nil && l.Record.Entries[reg.id].Members > 0:
		reg.write(reg.groupOf(level, value))
	case isOverdue && (g == nil || g.members == 0):
		//planted:overdue-ends-unsent skip
		reg.endGroup(reg.groupOf(level, value), l.Record.End(), l.Record.Began)
	}
}
