// Package peers prevents replicas with different settings from running at the same
// time. Two replicas that store windows in different places, or of different lengths,
// would each alert for the same device; of two of which only one tells when a device is normal
// again, neither would tell it reliably.
//
// A small blob beside the checkpoints holds the settings in force for a consumer group.
// Replicas with these settings renew it every 10 s. A replica with other settings stands
// by until it has seen that the blob was not renewed for 30 s plus a window. Then it
// replaces the settings with its own.
package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Format is the version of the records in the throttle store. Replicas with another
// format cannot read our windows.
const Format = 1

// Settings are what all replicas of a consumer group must have in common.
type Settings struct {
	Format int           `json:"format"`
	Store  string        `json:"store"` // THROTTLE_STORE
	Place  string        `json:"place"` // its location: a container's address, without secrets
	Scope  string        `json:"scope"`
	Window time.Duration `json:"windowNanoseconds"`
	// Rules is what Rules returns, and in a record also what other replicas had. It is empty if
	// there is only the rule that every version has, so that earlier versions read what they wrote.
	Rules string `json:"rules,omitempty"`
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
	differ("THROTTLE_WINDOW", other.Window, s.Window)
	parts = append(parts, s.differentRules(other)...)
	return strings.Join(parts, ", ")
}

// A record is the content of the blob, with times by the store's clock.
type record struct {
	Settings
	version      string // of the blob; empty if there is none
	written, now time.Time
}

// A store holds one record.
type store interface {
	read(ctx context.Context) (record, error)
	// write replaces prev, or fails with errConflict if it is not the current record.
	write(ctx context.Context, prev record, s Settings) error
}

var errConflict = errors.New("the record has been changed by another replica")

const callTimeout = 10 * time.Second

// A Member is one replica. It is safe for concurrent use.
type Member struct {
	settings Settings
	store    store
	log      *zap.Logger

	// Bounds that only tests shorten.
	beat   time.Duration // between two looks at the record
	expiry time.Duration // after which nobody uses what has not been renewed
}

func newMember(s store, mine Settings, log *zap.Logger) *Member {
	return &Member{settings: mine, store: s, log: log, beat: 10 * time.Second, expiry: 30 * time.Second}
}

// ErrReplaced means that replicas with other settings have taken over.
var ErrReplaced = errors.New("replicas with other settings have taken over")

// Look returns what Join would wait for now; empty if nothing.
func (m *Member) Look(ctx context.Context) (reason string, err error) {
	r, err := m.read(ctx)
	if err != nil || r.version == "" || m.settings.Difference(r.Settings) == "" {
		return "", err
	}
	return m.reason(r), nil
}

// patience is how long r must not have been renewed before it can be replaced: until its
// users are gone and the last window that they started is over.
func (m *Member) patience(r record) time.Duration {
	return m.expiry + max(r.longest(), m.settings.longest())
}

// Join returns nil once the settings of m are in force. While others are, it calls
// waiting with the reason at every look and logs it once a minute. Only the first look must
// succeed. It returns early when ctx ends.
func (m *Member) Join(ctx context.Context, waiting func(reason string)) error {
	tick := time.NewTicker(m.beat / 2)
	defer tick.Stop()
	var seen string     // the version of the others' record, looked at without a failure
	var since time.Time // from then on
	var logged time.Time
	for first := true; ; first = false {
		r, err := m.read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && first:
			return err
		case err != nil:
			seen = "" // the others could not renew it either: start waiting again
			m.log.Warn("cannot check whether replicas with other settings are running; standing by", zap.Error(err))
		default:
			if r.version != seen {
				seen, since = r.version, time.Now()
			}
			ours := r.version == "" || m.settings.Difference(r.Settings) == ""
			// The age of the others' record proves nothing: they could not renew it if the
			// store was unavailable.
			if ours || time.Since(since) >= m.patience(r) {
				err := m.renew(ctx, r)
				switch {
				case err == nil:
					return nil
				case errors.Is(err, errConflict):
					continue
				case first:
					return err
				}
				m.log.Warn("cannot write the settings of this replica; trying again", zap.Error(err))
				break
			}
			reason := m.reason(r)
			waiting(reason)
			if logged.IsZero() || time.Since(logged) >= time.Minute {
				logged = time.Now()
				m.log.Warn("standing by: " + reason)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reason returns why m is standing by.
func (m *Member) reason(r record) string {
	difference := m.settings.Difference(r.Settings)
	if age := r.now.Sub(r.written); age >= m.expiry {
		return fmt.Sprintf("replicas with other settings were active until %v ago (%s): this replica takes over %v after its start unless they return",
			age.Round(time.Second), difference, m.patience(r))
	}
	return fmt.Sprintf("replicas with other settings are active (%s): stop them all; this replica takes over %v after the last one has stopped",
		difference, m.patience(r))
}

// Keep renews the settings until ctx ends and then returns nil. It returns ErrReplaced
// as soon as it sees that other settings are in force.
func (m *Member) Keep(ctx context.Context) error {
	tick := time.NewTicker(m.beat)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := m.keep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrReplaced):
			return err
		case err != nil && !failing:
			m.log.Warn("cannot renew the settings in force; trying again", zap.Error(err))
		}
		failing = err != nil
	}
}

// keep renews the settings if they are in force.
func (m *Member) keep(ctx context.Context) error {
	r, err := m.read(ctx)
	if err != nil {
		return err
	}
	if difference := m.settings.Difference(r.Settings); r.version != "" && difference != "" {
		return fmt.Errorf("%w: %s", ErrReplaced, difference)
	}
	if err := m.renew(ctx, r); !errors.Is(err, errConflict) {
		return err
	}
	return nil // another replica has renewed it, or the next look will show
}

// renew writes the settings of m in place of r, unless they are what has just been written. Rules that only
// r has stay until other settings replace it: who has them may be active.
func (m *Member) renew(ctx context.Context, r record) error {
	next := m.settings
	if r.version != "" && next.Difference(r.Settings) == "" {
		next = next.withRules(r.Settings)
	}
	if r.version != "" && r.Settings == next && r.now.Sub(r.written) < m.beat/2 {
		return nil
	}
	return m.write(ctx, r, next)
}

func (m *Member) read(ctx context.Context) (record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	return m.store.read(ctx)
}

func (m *Member) write(ctx context.Context, prev record, s Settings) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	return m.store.write(ctx, prev, s)
}
