package partition

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/incident"
)

// An IncidentBook also finds incidents that run, and those that have been over for long: see incident.Book.
type IncidentBook interface {
	Incidents
	Open(ctx context.Context, most int) (open []incident.Listed, all bool, err error)
	Overdue(ctx context.Context, age time.Duration, most int) ([]incident.Listed, error)
}

// The owner of the first partition, which every hub has, sends the ends of incidents that are nobody's: all their members
// were of a partition that is no more.
const (
	firstPartition = "0"
	overdueFirst   = 5 * time.Minute
	overdueEvery   = time.Hour
	overdueAfter   = time.Hour // that an incident is over and its end is not settled
	overdueAtOnce  = 1000
)

// adopt has the records written that say of members which this owner has not found, as after its ledger was lost: nobody
// else would take them out.
func (s *Stream) adopt() {
	if !slices.ContainsFunc(s.config.Evaluator.levels, (*level).grouped) {
		return
	}

	all, _, err := s.config.Incidents.Open(s.ctx, overdueAtOnce)
	if err != nil {
		s.warn("incidents cannot be listed; those whose members are not known any more stay open until the partition's next owner looks", err)
		return
	}

	reg := s.reader.register
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, l := range all {
		level := reg.evaluator.levelOf(l.Group)
		if level == nil || l.Record.Entries[reg.id].Members == 0 || !reg.mayJoin(level, l.Group.Value) {
			continue
		}

		if reg.groups[level.groupKey(l.Group.Value)] == nil {
			reg.write(reg.groupOf(level, l.Group.Value))
		}
	}
}

// endOverdue makes the ends of incidents due that have been over for long, every hour until s.ctx ends, if the partition is
// the first one.
func (s *Stream) endOverdue() {
	if s.reader.register.id != firstPartition || !slices.ContainsFunc(s.config.Evaluator.levels, (*level).grouped) {
		return
	}

	for wait := overdueFirst; backoff.Sleep(s.ctx, wait); wait = overdueEvery {
		all, err := s.config.Incidents.Overdue(s.ctx, overdueAfter, overdueAtOnce)
		if err != nil {
			s.warn("incidents that are over cannot be listed; those that nobody ends stay open until the next look, in an hour", err)
			continue
		}

		s.reader.register.endOverdue(all)
		s.reader.register.flush()
		s.box.Ask()
	}
}

// endOverdue makes the ends of incidents due, unless their groups have members here or they are due here already.
func (reg *register) endOverdue(all []incident.Listed) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, l := range all {
		level := reg.evaluator.levelOf(l.Group)
		if level == nil || !reg.mayJoin(level, l.Group.Value) {
			continue // it is not configured any more
		}
		if g := reg.groupOf(level, l.Group.Value); g.members == 0 {
			reg.endGroup(g, l.Record.End(), l.Record.Began)
		}
	}
}

// levelOf returns the level whose members a group has; nil if there is none.
func (e *Evaluator) levelOf(g incident.Group) *level {
	for _, l := range e.levels {
		if l.grouped() && (&group{level: l, key: l.groupKey(g.Value)}).of() == g {
			return l
		}
	}
	return nil
}
