package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
)

// The stores of leases, ledgers, rosters and incidents as replicas reach them.

// services says which outage makes a call fail.
var services = map[string]string{
	callAcquire: storeDown, callExtend: storeDown, callRelease: storeDown,
	callLedgerOwner: ledgerDown, callLedgerRead: ledgerDown, callLedgerWrite: ledgerDown, callCheckpoint: ledgerDown,
	callIncidentRead: ledgerDown, callIncidentWrite: ledgerDown,
}

// faultyLeases is the lease store as a process reaches it.
type faultyLeases struct {
	lease.Store
	*process
}

var errConflict = errors.New("412: the record was changed meanwhile")

// unchanged returns a func that fails if key's record is not what it is now any more: a request that
// arrives late has the concurrency tag of then.
func (s faultyLeases) unchanged(ctx context.Context, key string) func(lease.Record) error {
	was, _ := s.Store.Read(ctx, key)
	return func(r lease.Record) error {
		if r.Token != was.Token || !r.Written.Equal(was.Written) || r.Note != was.Note {
			return errConflict
		}
		return nil
	}
}

func (s faultyLeases) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string,
	error)) (lease.Lease, error) {
	if ttl < 15*second || ttl > time.Minute {
		return lease.Lease{}, fmt.Errorf("acquire lease %q for %v: a native blob lease lasts 15 s to 60 s", key, ttl)
	}
	same := s.unchanged(ctx, key)
	var l lease.Lease
	err := s.call(ctx, callAcquire, key, func(ctx context.Context) (err error) {
		l, err = s.Store.Acquire(ctx, key, ttl, next)
		s.note("%s claims %s: %s", s.name, key, short(l.Note, err))
		return err
	}, func(ctx context.Context) error {
		l, err := s.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) {
			if err := same(r); err != nil {
				return "", err
			}
			return next(r)
		})
		s.note("%s claims %s, late: %s", s.name, key, short(l.Note, err))
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return l, nil
}

func short(note string, err error) string {
	if err != nil {
		return err.Error()
	}
	return note
}

func (s faultyLeases) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	same := s.unchanged(ctx, l.Key)
	var extended lease.Lease
	effect := func(ctx context.Context) (err error) {
		extended, err = s.Store.Extend(ctx, l, note, ttl)
		s.note("%s records the window of %s: %v", s.name, l.Key, short("done", err))
		return err
	}
	err := s.call(ctx, callExtend, l.Key, effect, func(ctx context.Context) error {
		if r, err := s.Store.Read(ctx, l.Key); err != nil || same(r) != nil {
			return errConflict
		}
		return effect(ctx)
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return extended, nil
}

func (s faultyLeases) Release(ctx context.Context, l lease.Lease, note string) error {
	same := s.unchanged(ctx, l.Key)
	effect := func(ctx context.Context) error {
		err := s.Store.Release(ctx, l, note)
		s.note("%s frees %s: %s", s.name, l.Key, short(note, err))
		return err
	}
	return s.call(ctx, callRelease, l.Key, effect, func(ctx context.Context) error {
		if r, err := s.Store.Read(ctx, l.Key); err != nil || same(r) != nil {
			return errConflict
		}
		return effect(ctx)
	})
}

// faultyRecords returns the store of ledgers and rosters as o reaches it.
func (o *owner) faultyRecords() records.Store {
	kinds := map[records.Op]string{
		records.OpRead: callLedgerRead, records.OpList: callLedgerRead, records.OpStat: callLedgerOwner,
		records.OpWrite: callLedgerWrite,
	}
	return records.Around(&notedRecords{Store: o.ledgers, owner: o}, func(ctx context.Context, op records.Op, name string,
		call func(context.Context) error) error {
		if op == records.OpWrite && name != o.log.id && o.refusesRosters() {
			return errDown
		}
		later := call
		if op != records.OpWrite { // a read whose answer is lost has no effect
			later = func(context.Context) error { return nil }
		}
		err := o.call(ctx, kinds[op], "", call, later)
		if op == records.OpWrite && name != o.log.id && err == nil {
			o.mu.Lock()
			o.hasRoster = o.hasRoster || o.next > 0
			o.mu.Unlock()
		}
		return err
	})
}

// refusesRosters reports whether the roster of o's partition is not replaced any more. Who knows of none that holds an event waits
// until there is one: then it is.
func (o *owner) refusesRosters() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	isKnown := o.hasRoster || !o.log.rosterAt.IsZero() && o.log.rosterAt.Before(o.began)
	return o.rosterDown > 0 && time.Since(o.start) > o.rosterDown && isKnown
}

// faultyIncidents returns the store of the records of incidents as p reaches it.
func (p *process) faultyIncidents() records.Store {
	noted := &notedIncidents{p.ledgers, p.world}
	return records.Around(noted, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
		if op == records.OpWrite {
			return p.call(ctx, callIncidentWrite, name, call, nil)
		}
		return p.call(ctx, callIncidentRead, name, call, func(context.Context) error { return nil })
	})
}

// notedIncidents remembers what is written.
type notedIncidents struct {
	records.Store
	*world
}

func (s *notedIncidents) Write(ctx context.Context, r records.Record) (string, error) {
	s.mu.Lock() // what it does, and what is remembered, is one step
	defer s.mu.Unlock()
	etag, err := s.Store.Write(ctx, r)
	var c struct {
		Group    incident.Group
		Incident incident.Record
	}
	if err == nil && json.Unmarshal(r.Content, &c) == nil {
		s.incidents = append(s.incidents, incidentWrite{at: time.Now(), of: c.Group, Record: c.Incident})
	}
	return etag, err
}

// notedRecords checks what is written.
type notedRecords struct {
	records.Store
	*owner
	took bool // the ledger over
}

func (s *notedRecords) Write(ctx context.Context, r records.Record) (string, error) {
	s.mu.Lock() // what it does, and what is checked, is one step
	defer s.mu.Unlock()
	etag, err := s.Store.Write(ctx, r)
	what := "the " + r.Name
	if r.Name == s.log.id {
		what = "the ledger of " + r.Name
	}
	if err != nil {
		s.noteLocked("%s writes %s: %v", s.name, what, err)
		return etag, err
	}
	if r.Name != s.log.id {
		s.noteLocked("%s writes %s", s.name, what)
		if r.Name == "roster/"+s.log.id {
			s.log.rosters = append(s.log.rosters, time.Now())
			if s.next > 0 && s.log.rosterAt.IsZero() {
				s.log.rosterAt = time.Now()
			}
		}
		return etag, nil
	}
	c, err := unpack(r)
	if err != nil {
		s.violated("unreadable ledger: %v", err)
		return etag, nil
	}
	s.log.kept = c
	s.noteLocked("%s writes %s at %d: %s", s.name, what, c.Position.Sequence, describe(c))
	if !s.took {
		s.took = true
		s.reigns(c.Position.Sequence)
	}
	s.judgeLedger(s.log)
	return etag, nil
}

// reigns notes from where on o decides: after its checkpoint and what its ledger holds. The caller holds o.mu.
func (o *owner) reigns(ledger int64) {
	o.forgetStories()
	from := o.resumed.Sequence
	if o.stateful() {
		from = max(from, ledger)
	}
	o.log.reigns = slices.DeleteFunc(o.log.reigns, func(r reign) bool { return r.owner == o }) // it has taken over once more
	rivaled := slices.ContainsFunc(o.log.reigns, func(r reign) bool {
		return r.version != o.version && !r.owner.gone && r.owner.consumes(slices.Index(o.logs, o.log))
	})
	o.log.reigns = append(o.log.reigns, reign{o, o.version, from, from, time.Now(), rivaled})
}

func describe(c ledger.Content) string {
	var all []string
	for _, a := range c.Alarms {
		s := strings.TrimSpace(strings.Join([]string{a.Of().String(), a.Rule, a.Level}, " "))
		switch {
		case a.Open:
			s += " open"
		case !a.Since.IsZero():
			s += " pending"
		}
		if a.Due != nil {
			s += fmt.Sprint(" owed ", a.Due.Sequence)
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// unpack returns what a record holds.
func unpack(r records.Record) (ledger.Content, error) {
	var m records.Memory
	ctx := context.Background()
	if _, err := m.Write(ctx, records.Record{Name: r.Name, Content: r.Content}); err != nil {
		return ledger.Content{}, err
	}
	_, c, err := ledger.Open(ctx, &m, r.Name)
	return c, err
}
