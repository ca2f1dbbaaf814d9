// Package muting keeps the mutes of a consumer group: who has muted the alerts of some devices or of a rule, until when
// and why. They are one record beside the settings, which every replica reads in the same rounds, every 10 s.
// Devices that are silent are the business of package absence.
package muting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"alertworker/internal/humanize"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

const (
	most      = 100                 // silences in force
	keepEnded = 24 * time.Hour      // for readings that are read late
	shortest  = time.Minute         // silence
	longest   = 30 * 24 * time.Hour // likewise
	farthest  = 90 * 24 * time.Hour // until one begins
	maxText   = 200                 // bytes of any text
	maxBytes  = 1 << 20             // of the record
	rounds    = 4                   // in which another writer may be first
)

// A Mute mutes alerts; commands, the API and the record call it a silence, as Alertmanager does. Readings are still evaluated and counted, and recoveries are sent.
type Mute struct {
	ID       string    `json:"id"`
	Device   string    `json:"device,omitempty"` // as in rules.Mute, like the next four
	Sensor   string    `json:"sensor,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	Property string    `json:"property,omitempty"`
	Value    string    `json:"value,omitempty"`
	From     time.Time `json:"from"` // by the store's clock
	Until    time.Time `json:"until"`
	Why      string    `json:"why"`
	Who      string    `json:"who"`
	EndedBy  string    `json:"endedBy,omitempty"` // who ended it before its time
}

// mute returns what s means to rules.
func (s Mute) mute() rules.Mute {
	return rules.Mute{
		Device:   s.Device,
		Sensor:   s.Sensor,
		Rule:     s.Rule,
		Property: s.Property,
		Value:    s.Value,
		From:     s.From,
		Until:    s.Until,
	}
}

// String says what s mutes.
func (s Mute) String() string {
	m := s.mute()
	return m.String()
}

// Text says from when until when s mutes, for people in a zone.
func (s Mute) Text(zone *time.Location) string {
	const layout = time.DateTime + " MST"
	text := "until " + s.Until.In(zone).Format(layout)
	if s.From.After(time.Now().Add(time.Minute)) { // it is planned
		text = "from " + s.From.In(zone).Format(layout) + " " + text
	}

	return text
}

// Begun reports whether s has begun.
func (s Mute) Begun(now time.Time) bool { return !now.Before(s.From) }

// MayMatch reports whether s mutes alerts of a device, or of one of its sensors if that has a name, of some rule and with
// some property at least.
func (s Mute) MayMatch(of sensor.ID) bool {
	m := s.mute()
	return m.MayMatch(of)
}

// Planned returns the mute times of set that are in force, as silences that nobody can end.
func Planned(set *rules.Set, now time.Time) (all []Mute) {
	for i := range set.Mutes {
		m := &set.Mutes[i]
		if m.TimesText() == "" || !m.InForce(now) {
			continue
		}

		from, until := m.From, m.Until
		if m.Times != nil {
			from, until = m.Times.Around(now)
		}

		all = append(all, Mute{
			Device:   m.Device,
			Sensor:   m.Sensor,
			Rule:     m.Rule,
			Property: m.Property,
			Value:    m.Value,
			From:     from.UTC(),
			Until:    until.UTC(),
			Why:      "mute " + m.TimesText(),
			Who:      "the rules",
		})
	}

	return all
}

// A Request is a silence as people ask for it.
type Request struct {
	Device string `json:"device"` // or DEVICE/SENSOR; without a sensor it is about all of them
	Rule   string `json:"rule"`
	Where  string `json:"where"` // NAME=VALUE
	From   string `json:"from"`  // as rules.ParsePlanned has it; empty: now
	For    string `json:"for"`   // a duration
	Why    string `json:"why"`
	Who    string `json:"who"`
}

// Mute returns the mute, whose From is zero if it is to begin now, and how long it is to last, or what is wrong with
// the request. Its rule must be one of set. Times without a zone are in zone.
func (r Request) Mute(set rules.Set, zone *time.Location) (s Mute, lasts time.Duration, err error) {
	of := sensor.Parse(r.Device)
	s = Mute{Device: of.Device, Sensor: of.Name, Rule: r.Rule, Why: r.Why, Who: r.Who}
	s.Property, s.Value, _ = strings.Cut(r.Where, "=")

	if lasts, err = time.ParseDuration(r.For); err != nil {
		return s, 0, errors.New("for must be a duration, such as 2h")
	}

	if r.From != "" {
		if s.From, err = rules.ParsePlanned(r.From, zone); err != nil {
			return s, 0, errors.New("from must be a time such as 2026-12-01 22:00, or by RFC 3339")
		}
	}

	names := set.Names()
	if r.Rule != "" && !slices.Contains(names, r.Rule) {
		return s, lasts, fmt.Errorf("there is no rule %s: rule must be %s", r.Rule, humanize.Or(names))
	}

	return s, lasts, s.Check(lasts)
}

// Check returns what is wrong with s, which is to last for d.
func (s Mute) Check(d time.Duration) error {
	for _, text := range []string{s.Device, s.Sensor, s.Rule, s.Property, s.Value, s.Why, s.Who} {
		if err := CheckText(text); err != nil {
			return err
		}
	}

	switch {
	case s.Device+s.Sensor+s.Rule+s.Property == "":
		return errors.New("say what to silence: devices, a rule, or messages with a property")
	case (s.Property == "") != (s.Value == ""):
		return errors.New("where must be NAME=VALUE")
	case d < shortest || d > longest:
		return fmt.Errorf("a silence lasts %v to %v, not %v", shortest, longest, d)
	case s.Why == "":
		return errors.New("say why: others see it")
	case s.Who == "":
		return errors.New("say who is silencing: others see it")
	}

	return nil
}

// CheckText returns what is wrong with a text of a silence.
func CheckText(text string) error {
	isControl := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, isControl) {
		return fmt.Errorf("%.*q must be printable text of at most %d bytes", maxText, text, maxText)
	}

	return nil
}

// ErrUnknown means that there is no such silence to end.
var ErrUnknown = errors.New("no silence has this id")

// A Store keeps the silences in a record.
type Store struct {
	Records records.Store // reliable
	Name    string        // of the record
}

// list returns the silences, with those that have ended of late, and their record.
func (s Store) list(ctx context.Context) ([]Mute, records.Record, error) {
	r, err := s.Records.Read(ctx, s.Name, maxBytes)
	if errors.Is(err, records.ErrNotFound) {
		return nil, r, nil
	}
	if err != nil {
		return nil, r, fmt.Errorf("read the silences: %w", err)
	}

	// Version 1.0 could mute only what had begun, which is more than a Mute can say: such a silence mutes nothing.
	var stored []struct {
		Mute
		UntilNormal bool `json:"untilNormal"`
	}
	if err := json.Unmarshal(r.Content, &stored); err != nil {
		return nil, r, fmt.Errorf("read the silences: record %q does not hold any: delete it", s.Name)
	}

	var all []Mute
	for _, one := range stored {
		if !one.UntilNormal {
			all = append(all, one.Mute)
		}
	}

	return all, r, nil
}

// List returns the silences in force, and those that are still to begin.
func (s Store) List(ctx context.Context) ([]Mute, error) {
	all, r, err := s.list(ctx)
	return slices.DeleteFunc(all, func(one Mute) bool { return !r.Now.Before(one.Until) }), err
}

// Recent returns the silences in force and those that ended within a day.
func (s Store) Recent(ctx context.Context) ([]Mute, error) {
	all, _, err := s.list(ctx)
	return all, err
}

// Mutes returns what is muted, or was within a day.
func (s Store) Mutes(ctx context.Context) (rules.Mutes, error) {
	all, _, err := s.list(ctx)
	return mutesOf(all), err
}

func mutesOf(all []Mute) (mutes rules.Mutes) {
	for _, s := range all {
		mutes = append(mutes, s.mute())
	}

	return mutes
}

// change replaces the silences by what edit makes of them; now is the store's clock. If others write at the same time
// edit is called again, with what it made before if the answer to that was lost.
func (s Store) change(ctx context.Context, edit func(all []Mute, now time.Time) ([]Mute, error)) error {
	for range rounds {
		all, r, err := s.list(ctx)
		if err != nil {
			return err
		}

		all = slices.DeleteFunc(all, func(one Mute) bool { return r.Now.Sub(one.Until) > keepEnded })
		if all, err = edit(all, r.Now); err != nil {
			return err
		}

		content, err := json.Marshal(all)
		if err != nil {
			return err
		}

		_, err = s.Records.Write(ctx, records.Record{Name: s.Name, Content: content, Type: "application/json", ETag: r.ETag})
		if err == nil {
			return nil
		}
		if !errors.Is(err, records.ErrConflict) {
			return fmt.Errorf("write the silences: %w", err)
		}
	}

	return errors.New("write the silences: others changed them at the same time: try again")
}

// Add adds a silence, of which Check finds nothing wrong, that lasts for d from its From on, or from now on if that is zero.
// It sets its ID and times.
func (s Store) Add(ctx context.Context, one Mute, d time.Duration) (Mute, error) {
	one.ID = uuid.NewString()[:8]
	err := s.change(ctx, func(all []Mute, now time.Time) ([]Mute, error) {
		//planted:mute-added-twice if false
		if i := indexOf(all, one.ID); i >= 0 { // it was written before, and the answer lost
			one = all[i]
			return all, nil
		}

		begins := one.From
		if begins.IsZero() {
			begins = now
		}

		if ahead := begins.Sub(now); ahead < -time.Minute || ahead > farthest {
			return nil, fmt.Errorf("a silence begins now or within %d days, not at %s", farthest/(24*time.Hour), begins.Format(time.RFC3339))
		}

		one.From, one.Until = begins.UTC(), begins.Add(d).UTC()

		if len(all) >= most {
			return nil, fmt.Errorf("there are already %d silences, including those that ended within the last day: "+
				"that is the limit; those that have ended make room after a day", len(all))
		}

		return append(all, one), nil
	})
	return one, err
}

// End ends a silence now, by whom it says, and returns it as it was left, also if it has ended before. ErrUnknown if
// there is none of that ID, nor was within a day.
func (s Store) End(ctx context.Context, id, who string) (ended Mute, err error) {
	if err := CheckText(who); err != nil {
		return ended, fmt.Errorf("who: %w", err)
	}

	err = s.change(ctx, func(all []Mute, now time.Time) ([]Mute, error) {
		i := indexOf(all, id)
		if i < 0 {
			return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
		}

		if now.Before(all[i].Until) { // else it has ended, perhaps just now, by a write whose answer was lost
			all[i].Until, all[i].EndedBy = now.UTC(), who
		}

		ended = all[i]
		return all, nil
	})
	return ended, err
}

// indexOf returns where the silence of this ID is, -1 if it is not there.
func indexOf(all []Mute, id string) int {
	return slices.IndexFunc(all, func(one Mute) bool { return one.ID == id })
}

// A Cache is what one replica knows of the silences of its Store since the last Refresh. It is safe for concurrent use.
type Cache struct {
	Store
	log *zap.Logger

	mu    sync.Mutex // held while the record is read
	known atomic.Pointer[known]
}

// known is what one replica knows of the record since it read that last. Nobody changes it.
type known struct {
	silences []Mute // with those that have ended of late
	mutes    rules.Mutes
	at       time.Time // by the store's clock
}

// inForce reports whether the silence of this ID is.
func (k *known) inForce(id string) bool {
	i := indexOf(k.silences, id)
	return i >= 0 && k.silences[i].Begun(k.at) && k.at.Before(k.silences[i].Until)
}

func NewCache(s Store, log *zap.Logger) *Cache {
	c := &Cache{Store: s, log: log}
	c.known.Store(&known{})
	return c
}

// Mutes returns what is muted. It takes no lock; nobody changes it.
func (c *Cache) Mutes() rules.Mutes { return c.known.Load().mutes }

// Silences returns those that were in force, or had ended of late, when they were last read. Nobody changes them.
func (c *Cache) Silences() []Mute { return c.known.Load().silences }

// Refresh reads the silences, and logs which have begun and ended. If they cannot be read, those that are known go on
// until they end.
func (c *Cache) Refresh(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, r, err := c.list(ctx)
	if err != nil {
		return err
	}

	was, is := c.known.Load(), &known{all, mutesOf(all), r.Now}
	c.known.Store(is)
	for _, s := range all {
		if begun := is.inForce(s.ID); begun != was.inForce(s.ID) {
			c.log.Warn(
				map[bool]string{true: "alerts are silenced", false: "a silence has ended"}[begun],
				zap.String("id", s.ID),
				zap.Stringer("silenced", s),
				zap.Time("until", s.Until),
				zap.String("why", s.Why),
				zap.String("who", s.Who),
				zap.String("ended_by", s.EndedBy), // empty unless somebody ended it
			)
		}
	}

	return nil
}
