package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	rosterEvery = time.Minute // the roster is written at most so often, and at a hand-over
	askHubEvery = 10 * time.Second
	askHubLimit = 10 * time.Second
	maxReplay   = 10 * time.Minute // of log between a roster and the start; beyond it the floor rises

	eventMargin = 2 * time.Second // by which the hub's times may go back within a partition
	maxFresh    = 5 * time.Minute
	clockMargin = 5 * time.Second // by which the store's clock and ours may both be ahead of the hub's
)

// silences is how a stream knows who has not been heard. Its lock is taken before the stream's.
type silences struct {
	fields []int // of the roster: what the decoder finds that an event must have to count; -1: nothing

	forget []time.Duration // after how much silence nothing of a device is known, of each
	file   *roster.File    // used by one goroutine at a time

	mu      sync.Mutex
	roster  *roster.Roster
	found   bool               // there is one in the store
	taken   int64              // when it was read from there, by the later of two clocks, in Unix ms
	written time.Time          // when it was last written, or read
	kept    telemetry.Position // the last event that it held then
	read    telemetry.Position // the last event that was read
	until   int64              // the latest time of an event that was read, in Unix ms
	asked   proof
	asking  bool
	next    time.Time // when the hub may be asked again
}

// A proof is what the hub said about the end of the partition.
type proof struct {
	at       time.Time // when we began to ask
	until    int64     // the earlier of the store's clock and ours then, in Unix ms
	sequence int64     // of the last event; read once that was
	enqueued time.Time // likewise
}

// newSilences returns nil if no rule is about silence.
func newSilences(w *Worker, partition string) *silences {
	if len(w.silences) == 0 {
		return nil
	}
	made := &silences{file: w.Roster(partition), fields: make([]int, len(w.heardFor)), forget: make([]time.Duration, len(w.heardFor))}
	for _, r := range w.silences {
		made.fields[r.column] = r.reads.Field
		made.forget[r.column] = max(made.forget[r.column], r.Forget)
	}
	made.roster = roster.New(w.heardFor)
	return made
}

// millis is t in ms, rounded up like micros.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// hear records e, the next event after the position before, whose device has this hash. The caller holds w.mu. It takes no lock and allocates
// nothing, unless the device was not known or has an alarm.
func (s *stream) hear(before telemetry.Position, e *telemetry.Event, hash uint64, reason telemetry.Reason) {
	w := s.unheard
	if e.Undecodable == "" {
		at := millis(e.Enqueued)
		if before.Offset != "" && e.Sequence > before.Sequence+1 {
			w.roster.Raise(roster.Place{Sequence: e.Sequence, Time: at})
		}
		w.until = max(w.until, at)
	}
	if e.Device == "" || reason == telemetry.ReasonNotTelemetry || notify.IsTest(e.Device) {
		return
	}
	h := roster.Heard{Sequence: e.Sequence, Time: millis(e.Enqueued)}
	if s.Rules.Quiet != "" {
		h.Quiet = quietUntil(e.Properties.Get(s.Rules.Quiet))
	}
	device := -1
	for i, field := range w.fields {
		if field >= 0 && s.found[field].Reason != telemetry.ReasonOK {
			continue
		}
		if device < 0 {
			if device = s.known(e.Device, hash); device < 0 {
				return
			}
		}
		w.roster.Hear(device, i, h)
	}
	if device >= 0 && s.alarms.mayHave(hash) {
		s.mu.Lock()
		s.endSilences(device, e.Device, before, e)
		s.mu.Unlock()
	}
}

// known returns the number of a device in the roster, -1 if there is no room for it, or if it is one of a test, which sends
// one message. The caller holds w.mu.
func (s *stream) known(name string, hash uint64) int {
	r := s.unheard.roster
	device := r.Find(name, hash)
	if device < 0 && !notify.IsTest(name) {
		if device = r.Add(name); device < 0 {
			s.stats.Unwatched.Add(1)
		}
	}
	return device
}

// quietUntil is rules.QuietUntil in Unix ms, 0 if it is zero.
func quietUntil(p telemetry.Property) int64 {
	until := rules.QuietUntil(p)
	switch {
	case until.IsZero():
		return 0
	case !until.Before(rules.Forever):
		return math.MaxInt64
	}
	return millis(until)
}

// endSilences ends the silences of a device that are about an earlier event than e, which counts for those rules for
// which it is what was heard last. The caller holds the locks.
func (s *stream) endSilences(device int, name string, before telemetry.Position, e *telemetry.Event) {
	for _, r := range s.silences {
		if s.unheard.roster.Heard(device, r.column).Sequence != e.Sequence {
			continue
		}
		key := alarmKey{name, r.levels[0]}
		was := s.alarms.of[key]
		if was.Phase != rules.Open || was.log == s.logName && e.Sequence <= was.sequence {
			continue
		}
		next := kept{due: s.recovered(key.level, was, e.Position)}
		if e.UpTo(s.skip) || e.UpTo(s.replay) { // the ledger is further on, and yet has not heard it
			s.change(key, next)
			continue
		}
		s.alarms.history.change(key, next, before, e.Position)
		s.become(key, next)
	}
}

// recovered returns the recovery of the silence was, whose device was heard at a position; nil if there is none.
func (s *stream) recovered(l *level, was kept, at telemetry.Position) *dueNotice {
	return s.recovery(l, s.logName, throttle.Event, reading{limit: was.limit, enqueued: micros(at.Time), sequence: at.Sequence, since: was.Since.Hub})
}

// freshness is how old the proof of a silence may be.
func freshness(silent time.Duration) time.Duration {
	return min(max(silent/4, 30*time.Second), maxFresh)
}

// provenUntil returns the time, in Unix ms, up to which every event that the hub has taken, or will take, was
// read: of proofs that are younger than fresh the later one. It is 0 if there is none. The caller holds w.mu.
func (w *silences) provenUntil(now time.Time, fresh time.Duration) (until int64) {
	if now.UnixMilli()-w.until < fresh.Milliseconds() {
		until = w.until - eventMargin.Milliseconds()
	}
	// Both of our clocks: the monotonic one stands still while the machine is suspended.
	young := now.Sub(w.asked.at) < fresh && now.Round(0).Sub(w.asked.at.Round(0)) < fresh
	if young && w.read.Offset != "" && w.asked.sequence == w.read.Sequence && w.asked.enqueued.UnixMilli() == w.read.Time.UnixMilli() {
		until = max(until, w.asked.until-clockMargin.Milliseconds())
	}
	return max(until, 0)
}

// proven reports whether it is still certain that nothing came until the deadline of the silence n.
func (s *stream) proven(n *dueNotice) bool {
	w := s.unheard
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := time.Duration(n.limit * float64(time.Second))
	return w.provenUntil(time.Now(), freshness(silent)) >= n.enqueued/1000
}

// askHub asks the hub for its last event, so that silence can be proven when nothing comes. The caller holds w.mu.
func (s *stream) askHub(now time.Time) {
	w := s.unheard
	if w.asking || now.Before(w.next) {
		return
	}
	w.asking, w.next = true, now.Add(askHubEvery)
	s.work.Go(func() {
		ctx, cancel := context.WithTimeoutCause(s.ctx, askHubLimit, fmt.Errorf("no answer within %v", askHubLimit))
		defer cancel()
		p := proof{at: time.Now()}
		store, err := s.ledger.Now(ctx)
		if err == nil {
			p.until = min(p.at.UnixMilli(), store.UnixMilli())
			p.sequence, p.enqueued, err = s.partition.Last(ctx)
		}
		if errors.Is(err, ledger.ErrLost) {
			s.lose()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking = false
		if err != nil {
			s.log.Debug("the hub did not report the partition's last event", zap.Error(err))
			return
		}
		w.asked = p
	})
}

// watch opens the alarms of devices that have fallen silent, and forgets devices that have been silent for too long.
func (s *stream) watch() {
	w := s.unheard
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchAt(time.Now())
}

// watchAt is watch. The caller holds the locks.
func (s *stream) watchAt(now time.Time) {
	w := s.unheard
	unproven := s.alarms.total[dueSilences] > 0
	for _, r := range s.silences {
		unproven = s.watchRule(r, now) || unproven
	}
	if s.forgetSilent(now, w.provenUntil(now, maxFresh)) || unproven {
		s.askHub(now)
	}
}

// watchRule opens the alarms of r about devices whose deadlines are proven to be over, and reports whether
// others are over but not proven to be. If most of the partition is not heard it opens one alarm about that
// instead. The caller holds the locks.
func (s *stream) watchRule(r *rule, now time.Time) (unproven bool) {
	w, l := s.unheard, r.levels[0]
	until := w.provenUntil(now, freshness(r.Silent))
	dark := s.alarms.of[alarmKey{s.wholeName(), l}]
	var overdue []int
	others, recent, again := 0, 0, 0 // devices that are not overdue; of these, those heard lately, and those heard since it is dark
	for device := range w.roster.Len() {
		h := w.roster.Heard(device, r.column)
		deadline := w.roster.Deadline(h, r.Silent)
		switch {
		case h.Time == 0, until >= h.Time+r.Forget.Milliseconds():
		case until < deadline && now.UnixMilli() < deadline && h.Quiet > until: // nothing is expected of it
		case until < deadline:
			others++
			if h.Time >= until-r.Silent.Milliseconds()/2 {
				recent++
			}
			if h.Time*1000 > dark.Since.Hub {
				again++
			}
			unproven = unproven || now.UnixMilli() >= deadline && s.alarms.of[alarmKey{w.roster.Name(device), l}].Phase != rules.Open
		case s.alarms.of[alarmKey{w.roster.Name(device), l}].Phase != rules.Open:
			overdue = append(overdue, device)
		}
	}
	if s.watchWhole(r, until, others+len(overdue), len(overdue), recent, again) {
		return unproven
	}
	for _, device := range overdue {
		h := w.roster.Heard(device, r.column)
		s.openSilence(w.roster.Name(device), r, w.roster.Since(h), h.Time, w.roster.Deadline(h, r.Silent), until)
	}
	return unproven
}

const (
	darkDevices = 20 // of fewer others nothing follows
	darkLimit   = 24 * time.Hour
)

// wholeName is what alarms about the whole partition have for a device.
func (s *stream) wholeName() string { return notify.Partition(s.id) }

// watchWhole reports whether the partition is dark: a device is overdue, and of the others that are not silent fewer than a
// quarter were heard lately. That is an outage before the hub, and one alert, until half of all are heard again, or
// for a day. The caller holds the locks.
func (s *stream) watchWhole(r *rule, until int64, all, overdue, recent, again int) bool {
	w, l := s.unheard, r.levels[0]
	whole := alarmKey{s.wholeName(), l}
	switch dark := s.alarms.of[whole]; {
	case dark.Phase != rules.Open:
		if overdue == 0 || all-1 < darkDevices || recent*4 >= all-1 {
			return false
		}
		last := roster.Place{Sequence: w.read.Sequence, Time: millis(w.read.Time)}
		s.openSilence(s.wholeName(), r, last, last.Time, min(last.Time+r.Silent.Milliseconds(), until), until)
		return true
	case until == 0:
		return true
	case again > 0 && again*2 >= all:
		s.change(whole, kept{due: s.recovered(l, dark, w.read)})
	case all == 0, until >= dark.Since.Hub/1000+darkLimit.Milliseconds(): // there is no device that could be heard again
		s.end(whole, until*1000, true)
	default:
		return true
	}
	return false
}

// openSilence opens an alarm of r: at once, whatever the watermark. The caller holds the locks.
func (s *stream) openSilence(name string, r *rule, since roster.Place, heard, deadline, until int64) {
	l := r.levels[0]
	if s.silenced(name, r.Name, time.UnixMilli(until), func(string) string { return "" }) {
		return // it opens when that is over, if it lasts
	}
	if !s.alarms.room(name) {
		s.stats.Untracked.Add(1)
		return
	}
	k := kept{
		State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: since.Time * 1000}}, limit: r.Silent.Seconds(), log: s.logName, sequence: since.Sequence,
	}
	if receivers := s.wanting(l); receivers != 0 {
		k.due = &dueNotice{
			log: k.log, part: throttle.Silence, receivers: receivers, opened: until * 1000, heard: heard * 1000,
			reading: reading{limit: k.limit, enqueued: deadline * 1000, sequence: k.sequence, since: k.Since.Hub},
		}
		s.opened = append(s.opened, opened{alarmKey{name, l}, k.due})
	}
	s.change(alarmKey{name, l}, k)
}

// An opened silence is one that the ledger in the store does not hold yet.
type opened struct {
	key alarmKey
	due *dueNotice
}

// saved starts the deliveries of silences that the ledger in the store now holds. The caller holds s.mu.
func (s *stream) saved(silences []opened) {
	for _, o := range silences {
		o.due.kept = true
		s.schedule(o.key)
	}
}

// forgetSilent forgets devices that have been silent for too long, and ends their alarms. until is what is proven. It
// reports whether others may have been, too. The caller holds the locks.
func (s *stream) forgetSilent(now time.Time, until int64) (unproven bool) {
	w := s.unheard
	for device := w.roster.Len() - 1; device >= 0; device-- { // backwards, because Forget puts the last one in place of another
		for column := len(w.forget) - 1; column >= 0; column-- {
			h := w.roster.Heard(device, column)
			at := h.Time + w.forget[column].Milliseconds()
			if h.Time == 0 || until < at {
				unproven = unproven || h.Time != 0 && now.UnixMilli() >= at
				continue
			}
			name := w.roster.Name(device)
			if s.forget(device, column, until) {
				s.log.Info("a device has been silent for so long that it is no longer watched", zap.String("device", name), zap.Time("heard", time.UnixMilli(h.Time).UTC()))
				break
			}
		}
	}
	return unproven
}

// forget has the roster know nothing of a device for a column, and ends its alarms. It reports whether the device is
// not known at all any more. The caller holds the locks.
func (s *stream) forget(device, column int, until int64) bool {
	name := s.unheard.roster.Name(device)
	for _, r := range s.silences {
		key := alarmKey{name, r.levels[0]}
		if r.column == column && s.alarms.of[key].Phase == rules.Open {
			s.end(key, until*1000, true)
		}
	}
	if !s.unheard.roster.Forget(device, column) {
		return false
	}
	s.stats.Forgotten.Add(1)
	return true
}

// Forget has w expect nothing more of a device, until it is heard again. It reports whether w knew the device.
func (w *Worker) Forget(device string) (known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.streams {
		known = s.unheard != nil && s.forgetDevice(device) || known
	}
	return known
}

func (s *stream) forgetDevice(name string) (known bool) {
	w := s.unheard
	w.mu.Lock()
	defer w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	device := w.roster.Device(name)
	if device < 0 || s.alarms == nil {
		return false
	}
	for column := range w.forget {
		if s.forget(device, column, time.Now().UnixMilli()) {
			break
		}
	}
	w.kept, w.written = telemetry.Position{}, time.Time{} // the roster is written soon
	s.log.Info("an operator removed a device: it is no longer watched", zap.String("device", name))
	return true
}

// load reads the roster of the partition, whose fields are to be these.
func (w *silences) load(ctx context.Context, fields []string, log *zap.Logger) error {
	if w == nil {
		return nil
	}
	now := time.Now()
	r, store, why, err := w.file.Read(ctx)
	if err != nil {
		return err
	}
	if store.After(now) {
		now = store
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken, w.written = millis(now), time.Now()
	switch {
	case r != nil:
		w.roster, w.found = r.With(fields), true
	case why != nil:
		log.Error("the roster of devices cannot be used: devices that are silent now are unknown until they are heard again", zap.Error(why))
	}
	return nil
}

// begin goes on from the roster that was loaded, with events after start, and the alarms of the ledger. The caller holds
// the locks.
func (s *stream) begin(start telemetry.Position) {
	w := s.unheard
	r := w.roster
	w.read = start
	floor := roster.Place{Sequence: start.Sequence, Time: w.taken}
	switch {
	case !w.found || start.Offset == "" || start.Generation != r.Position.Generation:
		r.Rebase(start)
		if start.Offset == "" {
			floor.Sequence = -1
		}
		r.Raise(floor)
	case start.UpTo(r.Position):
	case !start.Time.IsZero() && start.Time.Sub(r.Position.Time) <= maxReplay:
		w.read, s.lastRead, s.replay = r.Position, r.Position, start
		s.partition.Rewind(r.Position)
	default: // nobody will hear what lies between
		r.Position = start
		r.Raise(floor)
	}
	for key, k := range s.alarms.of {
		if k.Phase == rules.Open && key.level.rule.Silence() && key.level.removed.IsZero() && key.device != s.wholeName() {
			s.resume(key, k)
		}
	}
}

// resume goes on with the alarm of a silent device, which the ledger holds. If the device was heard since, a former
// owner that did not know of the alarm has read that. The caller holds the locks.
func (s *stream) resume(key alarmKey, was kept) {
	r := s.unheard.roster
	device := r.Add(key.device)
	if device < 0 {
		return
	}
	about := roster.Heard{Sequence: -1, Time: was.Since.Hub / 1000}
	if was.log == s.logName {
		about.Sequence = was.sequence
	}
	r.Hear(device, key.level.rule.column, about)
	heard := r.Heard(device, key.level.rule.column)
	if heard.Sequence <= about.Sequence {
		return
	}
	s.change(key, kept{due: s.recovered(key.level, was, telemetry.Position{Sequence: heard.Sequence, Time: time.UnixMilli(heard.Time)})})
}

// writeRoster writes the roster, if it is time for that, or if this is the last time. That it fails holds nothing up, but
// that there is one: without it, nobody would know who was heard before a checkpoint.
func (s *stream) writeRoster(ctx context.Context, last bool) error {
	w := s.unheard
	if w == nil {
		return nil
	}
	w.mu.Lock()
	if w.read == w.kept || !last && w.found && time.Since(w.written) < rosterEvery {
		w.mu.Unlock()
		return nil
	}
	read := w.read
	if r := w.roster; read.Offset != "" && !read.UpTo(r.Position) {
		r.Position = read
	}
	content := w.roster.Encode()
	w.written = time.Now()
	w.mu.Unlock()
	if !last { // a silence may have been opened, and notified, by another owner whose take-over overlapped ours, and nothing else asks
		s.mu.Lock()
		s.askOwner()
		s.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := w.file.Write(ctx, content)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.kept, w.found = read, true
	case !w.found:
		return err
	default:
		s.warn("cannot write the roster of devices; trying again in a minute", err)
	}
	return nil
}
