// Package peers keeps replicas that are configured differently from alerting side by
// side. Two replicas that keep windows in different places, or of different lengths,
// would each alert about the same device.
//
// A small blob beside the checkpoints holds the settings that are in force for a consumer
// group. Those who use them renew it every 10 s. A replica with other settings stands by
// until it has seen the blob not renewed for 30 s and a window. Then it puts its own
// settings in force.
package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Format is that of the records in the throttle store. Replicas of another format do not
// understand the windows of ours.
const Format = 1

// Settings are what all replicas of a consumer group must have in common.
type Settings struct {
	Format int           `json:"format"`
	Store  string        `json:"store"` // THROTTLE_STORE
	Place  string        `json:"place"` // where that is: a container's address, without secrets
	Scope  string        `json:"scope"`
	Window time.Duration `json:"windowNanoseconds"`
}

// Difference says in one line how other differs from s, naming the variables; empty if it does not.
func (s Settings) Difference(other Settings) string {
	var parts []string
	differ := func(what string, theirs, ours any) {
		if theirs != ours {
			parts = append(parts, fmt.Sprintf("%s is %v there and %v here", what, theirs, ours))
		}
	}
	differ("the format of records", other.Format, s.Format)
	differ("THROTTLE_STORE", other.Store, s.Store)
	differ("the place of windows", other.Place, s.Place)
	differ("THROTTLE_SCOPE", other.Scope, s.Scope)
	differ("THROTTLE_WINDOW", other.Window, s.Window)
	return strings.Join(parts, ", ")
}

// A record is what the blob holds, and when, by the store's clock.
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

var errConflict = errors.New("somebody else has written it")

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

// ErrReplaced says that replicas with other settings have taken over.
var ErrReplaced = errors.New("replicas with other settings have taken over")

// Look says, once, what Join would wait for; empty if for nothing.
func (m *Member) Look(ctx context.Context) (reason string, err error) {
	r, err := m.read(ctx)
	if err != nil || r.version == "" || m.settings.Difference(r.Settings) == "" {
		return "", err
	}
	return m.reason(r), nil
}

// patience is how long those who use r must not have renewed it: until they are gone, and
// the last window that they began is over.
func (m *Member) patience(r record) time.Duration {
	return m.expiry + max(r.Window, m.settings.Window)
}

// Join returns nil once the settings of m are in force. While others are it calls waiting
// with the reason at every look, and logs it now and then. Only the first look must
// succeed. It ends early with ctx.
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
			seen = "" // the others could not renew it either: look as long again
			m.log.Warn("cannot see whether replicas with other settings still run; standing by", zap.Error(err))
		default:
			if r.version != seen {
				seen, since = r.version, time.Now()
			}
			ours := r.version == "" || m.settings.Difference(r.Settings) == ""
			// How old others' record is proves nothing: its users could not renew it if the
			// store was out of order.
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
				m.log.Warn("cannot put the settings of this replica in force; trying again", zap.Error(err))
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

// reason says why m stands by.
func (m *Member) reason(r record) string {
	difference := m.settings.Difference(r.Settings)
	if age := r.now.Sub(r.written); age >= m.expiry {
		return fmt.Sprintf("replicas with other settings were active until %v ago (%s): this replica takes over %v after its start, unless they come back",
			age.Round(time.Second), difference, m.patience(r))
	}
	return fmt.Sprintf("replicas with other settings are active (%s): stop them all; this replica takes over %v after the last one has stopped",
		difference, m.patience(r))
}

// Keep renews the settings until ctx ends, and returns nil then. It returns ErrReplaced as
// soon as it sees that others are in force.
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
	return nil // somebody else has, or the next look will tell
}

// renew writes the settings of m in place of r, unless they are what has just been written.
func (m *Member) renew(ctx context.Context, r record) error {
	if r.version != "" && r.Settings == m.settings && r.now.Sub(r.written) < m.beat/2 {
		return nil
	}
	return m.write(ctx, r)
}

func (m *Member) read(ctx context.Context) (record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	return m.store.read(ctx)
}

func (m *Member) write(ctx context.Context, prev record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	return m.store.write(ctx, prev, m.settings)
}
