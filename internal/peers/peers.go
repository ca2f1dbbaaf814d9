// Package peers prevents replicas with different settings from running at the same
// time. Two replicas that store windows in different places, or whose rules have windows of different lengths,
// would each alert for the same device; of two of which only one sends recoveries, neither would send them reliably.
//
// A small record beside the checkpoints holds the settings in force for a consumer group.
// Replicas with these settings renew it every 10 s. A replica with other settings stands
// by until it has seen that the record, or the rule that differs, was not renewed for 30 s and, if the windows are in
// another place, until the last of them is over. Then it replaces the settings with its own. The record outlasts the
// replicas, which their heartbeats do not: windows do, too.
package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// Format is the version of the records in the throttle store. Replicas with another
// format cannot read our windows.
const Format = 1

// Settings are what all replicas of a consumer group must have in common.
type Settings struct {
	Format int             `json:"format"`
	Store  string          `json:"store"` // THROTTLE_STORE
	Place  string          `json:"place"` // its location: a container's address, without secrets
	Scope  string          `json:"scope"`
	Rules  map[string]Rule `json:"rules"` // by name. One that only one replica has shares no key with the rules of others
}

// A Rule is what replicas that have a rule of this name must have in common.
type Rule struct {
	Window   time.Duration `json:"windowNanoseconds"`
	Resolved bool          `json:"resolved,omitempty"`
	Per      string        `json:"per,omitempty"`
	Each     string        `json:"each,omitempty"`
	Sensor   string        `json:"sensor,omitempty"` // its names, as a list

	// Since is when the rule came into force, by the store's clock; zero until the record has been renewed once.
	Since time.Time `json:"since,omitzero"`
	// Unseen is for how long the record was renewed only by replicas without the rule.
	Unseen time.Duration `json:"unseenNanoseconds,omitempty"`
}

// Rules returns what Settings have of set.
func Rules(set rules.Set) map[string]Rule {
	all := map[string]Rule{}
	for _, r := range set.Rules {
		name := r.Name
		if r.Silence() { // its alerts have other keys than those of another kind of rule with its name
			name += " (silent)"
		}
		all[name] = Rule{Window: r.Window, Resolved: r.Resolved, Per: r.Per, Each: r.Each, Sensor: strings.Join(r.Sensor, ", ")}
	}

	return all
}

// Difference returns in one line how other differs from s, naming the variables; empty if it does not.
func (s Settings) Difference(other Settings) string {
	var parts []string
	differ := func(what string, theirs, ours any) {
		if theirs != ours {
			parts = append(parts, fmt.Sprintf("%s is %v there and %v here", what, theirs, ours))
		}
	}
	differ("record format", other.Format, s.Format)
	differ("THROTTLE_STORE", other.Store, s.Store)
	differ("the throttle store's location", other.Place, s.Place)
	differ("THROTTLE_SCOPE", other.Scope, s.Scope)
	for _, name := range slices.Sorted(maps.Keys(s.Rules)) {
		ours := s.Rules[name]
		theirs, both := other.Rules[name]
		if !both {
			continue
		}

		differ("the window of the rule "+name, theirs.Window, ours.Window)
		differ("resolved of the rule "+name, theirs.Resolved, ours.Resolved)
		differ("per of the rule "+name, strconv.Quote(theirs.Per), strconv.Quote(ours.Per))
		differ("each of the rule "+name, strconv.Quote(theirs.Each), strconv.Quote(ours.Each))
		differ("sensor of the rule "+name, strconv.Quote(theirs.Sensor), strconv.Quote(ours.Sensor))
	}

	return strings.Join(parts, ", ")
}

// sees reports whether s sees the windows of other: they are in the same place.
func (s Settings) sees(other Settings) bool {
	s.Rules, other.Rules = nil, nil
	return s.Difference(other) == ""
}

// longest returns the longest window of s.
func (s Settings) longest() (longest time.Duration) {
	for _, r := range s.Rules {
		longest = max(longest, r.Window)
	}
	return longest
}

// A record is what the store has, with times by the store's clock.
type record struct {
	Settings
	etag         string // empty if there is none
	written, now time.Time
}

// maxContent is more than any settings need, in bytes.
const maxContent = 64 << 10

// A Peer is one replica. It is safe for concurrent use.
type Peer struct {
	settings Settings
	store    records.Store
	name     string // of the record
	log      *zap.Logger

	// Bounds that only tests shorten.
	beat   time.Duration // between two looks at the record
	expiry time.Duration // after which nobody uses what has not been renewed
}

// Open returns a replica with settings. s has the replicas' checkpoints and is reliable. prefix identifies the
// replicas that must share settings: namespace/hub/group, as in the names of checkpoints. Open does not connect.
func Open(s records.Store, prefix string, settings Settings, log *zap.Logger) *Peer {
	// Checkpoints and ownerships have folders of their own beside it.
	return &Peer{
		settings: settings,
		store:    s,
		name:     prefix + "/settings",
		log:      log,
		beat:     10 * time.Second,
		expiry:   30 * time.Second,
	}
}

// ErrReplaced means that replicas with other settings have taken over.
var ErrReplaced = errors.New("replicas with other settings have taken over")

// Look returns what Join would wait for now; empty if nothing.
func (m *Peer) Look(ctx context.Context) (reason string, err error) {
	r, err := m.read(ctx)
	if err != nil || m.agrees(r) {
		return "", err
	}
	return m.reason(r), nil
}

// agrees reports whether r has the settings of m, or there is no record.
func (m *Peer) agrees(r record) bool {
	return r.etag == "" || m.settings.Difference(r.Settings) == ""
}

// takeOverAfter is how long r must not have been renewed before it can be replaced: until its
// users are gone and, unless m sees their windows, the last window that they started is over.
func (m *Peer) takeOverAfter(r record) time.Duration {
	if m.settings.sees(r.Settings) {
		return m.expiry
	}
	return m.expiry + max(r.longest(), m.settings.longest())
}

// Join returns nil once the settings of m are in force. While others are, it calls
// waiting with the reason at every look and logs it once a minute. Only the first look must
// succeed. It returns early when ctx ends.
func (m *Peer) Join(ctx context.Context, waiting func(reason string)) error {
	var seen string // the ETag of the others' record, looked at without a failure
	var since, logged time.Time
	for first := true; ; first = false {
		r, err := m.read(ctx)
		if err != nil || r.etag != seen { // after a failure waiting starts again: they could not renew it either
			seen, since = r.etag, time.Now()
		}

		// The age of the others' record proves nothing: they could not renew it if the store was unavailable.
		if err == nil && (m.agrees(r) || time.Since(since) >= m.takeOverAfter(r)) {
			if err = m.renew(ctx, r); err == nil {
				return nil
			}
		}

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, records.ErrConflict):
			continue // another replica was faster: look at what it wrote
		case err != nil && first:
			return err
		case err != nil:
			m.log.Warn("cannot read or write the settings that replicas share; standing by", zap.Error(err))
		default:
			reason := m.reason(r)
			waiting(reason)
			if time.Since(logged) >= time.Minute {
				logged = time.Now()
				m.log.Warn("standing by: " + reason)
			}
		}

		backoff.Sleep(ctx, m.beat/2)
	}
}

// reason returns why m is standing by.
func (m *Peer) reason(r record) string {
	difference := m.settings.Difference(r.Settings)

	if age := r.now.Sub(r.written); age >= m.expiry {
		return fmt.Sprintf(
			"other replicas ran with different settings until %v ago (%s): this one takes over %v after its start unless "+
				"they return",
			age.Round(time.Second),
			difference,
			m.takeOverAfter(r),
		)
	}

	return fmt.Sprintf(
		"other replicas run with different settings (%s); this one takes over %v after they stop",
		difference,
		m.takeOverAfter(r),
	)
}

// Keep renews the settings until ctx ends and then returns nil. It returns ErrReplaced
// as soon as it sees that other settings are in force. In each of its rounds, every 10 s, it also calls refresh,
// which reads what else replicas share.
func (m *Peer) Keep(ctx context.Context, refresh func(context.Context) error) error {
	failing := false
	for backoff.Sleep(ctx, m.beat) {
		err := errors.Join(m.keep(ctx), refresh(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrReplaced):
			return err
		case err != nil && !failing:
			m.log.Warn("cannot read or renew the records that replicas share; keeping what is known, and trying again", zap.Error(err))
		}

		failing = err != nil
	}

	return nil
}

// keep renews the settings if they are in force.
func (m *Peer) keep(ctx context.Context) error {
	for {
		r, err := m.read(ctx)
		if err != nil {
			return err
		}

		if !m.agrees(r) {
			return fmt.Errorf("%w: %s", ErrReplaced, m.settings.Difference(r.Settings))
		}

		// Another replica that has renewed the record may lack rules of ours, which would be
		// forgotten if it came first every time.
		if err := m.renew(ctx, r); !errors.Is(err, records.ErrConflict) {
			return err
		}
	}
}

// maxRules bounds the rules in a record. It is more than several configurations have.
const maxRules = 200

// renew writes the settings of m in place of r, unless they have just been written, with the times since when its rules are
// in force: since r says so, or from now on. It keeps the rules that only r has, until they have not been renewed for too
// long: who has them may be active. It fails with records.ErrConflict if r is not the current record.
func (m *Peer) renew(ctx context.Context, r record) error {
	next := m.settings
	next.Rules = maps.Clone(next.Rules)
	age := max(0, r.now.Sub(r.written))

	if r.etag != "" && m.agrees(r) {
		isFresh := age < m.beat/2 // and renewed by replicas that have all rules of m
		for name := range m.settings.Rules {
			theirs, ok := r.Rules[name]
			isFresh = isFresh && ok && theirs.Unseen < m.beat/2
		}

		if isFresh {
			return nil
		}

		for name, rule := range r.Rules {
			// A longer time is one in which nobody could renew anything.
			rule.Unseen += min(age, m.beat)
			if _, ours := next.Rules[name]; !ours && rule.Unseen <= m.expiry && len(next.Rules) < maxRules {
				next.Rules[name] = rule
			}
		}
	}

	moved := !m.settings.sees(r.Settings)
	for name, ours := range m.settings.Rules {
		theirs, ok := r.Rules[name]
		changed := theirs.Resolved != ours.Resolved || theirs.Per != ours.Per
		if !ok || changed || moved {
			ours.Since = r.now // zero if there was no record
		} else {
			ours.Since = cmp.Or(theirs.Since, r.written)
		}

		next.Rules[name] = ours
	}

	content, err := json.Marshal(next)
	if err != nil {
		return err
	}

	_, err = m.store.Write(ctx, records.Record{Name: m.name, Content: content, Type: "application/json", ETag: r.etag})
	return err
}

// Since returns, by name, since when the rules of m's settings are in force, by the store's clock: since now, if no
// replica has them. Those of which that is not known are left out.
func (m *Peer) Since(ctx context.Context) (map[string]time.Time, error) {
	r, err := m.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the settings in force: %w", err)
	}

	since := map[string]time.Time{}
	for name := range m.settings.Rules {
		since[name] = r.now // zero if there is no record
		if rule, ok := r.Rules[name]; ok {
			since[name] = rule.Since
		}
	}

	maps.DeleteFunc(since, func(_ string, at time.Time) bool { return at.IsZero() })
	return since, nil
}

// read returns the record, a zero one if there is none.
func (m *Peer) read(ctx context.Context) (record, error) {
	there, err := m.store.Read(ctx, m.name, maxContent)
	if errors.Is(err, records.ErrNotFound) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}

	r := record{etag: there.ETag, written: there.Written, now: there.Now}
	if err := json.Unmarshal(there.Content, &r.Settings); err != nil {
		return record{}, fmt.Errorf(
			"read record %q: it does not contain settings: delete it while no replica is running",
			m.name,
		)
	}

	return r, nil
}
