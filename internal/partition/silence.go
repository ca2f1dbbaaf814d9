package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	askHubLimit = 10 * time.Second
)

// watch opens and ends the alarms of devices that have fallen silent, and asks what has to be known for that.
func (s *Stream) watch() {
	if len(s.config.Evaluator.silences) == 0 {
		return
	}

	w := s.register.unheard
	s.register.mu.Lock()
	waiting := false
	for _, k := range s.register.alarms.byKey {
		waiting = waiting || k.due.silence()
	}
	//planted:incident-unproven skip
	for key, g := range s.register.groups {
		waiting = waiting || key.Topic.Silence && g.alert != nil && g.alert.receivers != 0
	}
	s.register.mu.Unlock()
	q := w.Look(time.Now(), waiting)
	if q.Hub {
		s.work.Go(func() {
			w.Prove(s.askHub(q))
			signal(s.hurry)
		})
	}
}

// askHub asks the hub for the partition's last event, so that silence can be proven when nothing comes; nil if there is no
// answer. It also asks whether anything comes to the hub; without an answer to that silences wait.
func (s *Stream) askHub(q absence.Questions) *absence.Proof {
	ctx, cancel := context.WithTimeoutCause(s.ctx, askHubLimit, fmt.Errorf("no answer within %v", askHubLimit))
	defer cancel()
	p := absence.Proof{At: time.Now()}
	store, err := s.ledger.Now(ctx)
	if err == nil {
		p.Until = min(p.At.UnixMilli(), store.UnixMilli())
		p.Sequence, p.Enqueued, err = s.partition.Last(ctx)
	}

	if errors.Is(err, ledger.ErrLost) {
		s.lose()
	}

	if err != nil {
		s.log.Debug("the hub did not report the partition's last event", zap.Error(err))
		return nil
	}

	if p.Enqueued.After(q.Enough) {
		p.Newest = millis(p.Enqueued)
		return &p
	}

	newest, asked, err := s.partition.Newest(ctx, q.Enough)
	if err != nil {
		s.log.Debug("the hub did not report when it took its newest event", zap.Error(err))
		return &p
	}

	if !newest.IsZero() {
		p.Newest = millis(newest)
	}

	p.NewestUntil = p.Until - max(0, p.At.Sub(asked)).Milliseconds()
	if !q.Others {
		return &p
	}

	others, err := s.config.Roster(s.register.id).Others(ctx)
	if err != nil {
		s.warn("cannot read how many devices are expected in other partitions; alerts about the whole hub wait", err)
		return &p
	}

	p.Others = &others

	return &p
}

// resumeSilences goes on with the silences of the ledger, and the events after start. It is called before any are read.
func (s *Stream) resumeSilences(start telemetry.Position) {
	var open []absence.Open
	s.register.mu.Lock()
	for key, k := range s.register.alarms.byKey {
		rule := slices.Index(s.config.Evaluator.silences, key.level.rule)
		if k.Phase != rules.Open || rule < 0 {
			continue
		}

		since := roster.Place{Sequence: -1, Time: k.Since.Hub / 1000}
		if k.log == s.register.logName {
			since.Sequence = k.sequence
		}

		open = append(open, absence.Open{Rule: rule, Of: key.about, Since: since})
	}

	s.register.mu.Unlock()

	resumed, _ := s.partition.Resumed()
	begin := start
	begin.Generation = resumed.Generation
	from, ended := s.register.unheard.Begin(begin, open)
	if from != start {
		s.register.last.replayed = start
		s.partition.Rewind(from)
	}
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	for _, e := range ended {
		key := alarmKey{e.Of, s.config.Evaluator.silent(e.Rule)}
		at := telemetry.Position{Sequence: e.At.Sequence, Time: time.UnixMilli(e.At.Time)}
		because := ""
		if e.Excluded {
			because = "a condition of the rule does not hold" // a roster does not know which
		}
		s.register.change(key, s.register.endedBy(key, at, because))
	}
}

// writeRoster writes the roster, if it is time for that, or if this is the last time, and reports whether the store has
// what is to be there. That it fails holds nothing up, but that there is one.
func (s *Stream) writeRoster(ctx context.Context, last bool) (ok bool, err error) {
	saved := s.register.unheard.Save(ctx, last)
	// a silence may have been opened, and notified, by another owner whose take-over overlapped ours, and nothing else
	// asks
	if saved.Wrote && !last {
		s.owner.ask()
	}

	switch {
	case saved.Err == nil:
		return true, nil
	case saved.Needed:
		return false, saved.Err
	}

	s.warn("cannot write the roster of devices; trying again within a minute", saved.Err)
	return false, nil
}

// silent returns the level of a rule about silence.
func (ev *Evaluator) silent(rule int) *level { return ev.silences[rule].levels[0] }

// Muted implements absence.Alarms.
func (reg *register) Muted(rule int, of sensor.ID, shared string, at int64) bool {
	r := reg.evaluator.silences[rule]
	about := rules.Subject{
		Device:   of.Device,
		Sensor:   of.Name,
		Rule:     r.Name,
		Enqueued: time.UnixMilli(at),
		Text:     r.SharedText(shared),
	}
	return reg.evaluator.muted(&about)
}

// FellSilent implements absence.Alarms. The alarm opens at once, whatever the watermark.
func (reg *register) FellSilent(rule int, fell absence.Silence) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	l, r := reg.evaluator.silent(rule), reg.evaluator.silences[rule]
	if reg.Muted(rule, fell.Of, fell.Shared, fell.Proven) {
		return false // it opens when that is over, if it lasts
	}

	key := alarmKey{fell.Of, l}
	switch was := reg.alarms.byKey[key]; {
	case was.Phase == rules.Open:
		reg.silentAnew(key, &fell)
		return true
	case was == (alarm{}) && !reg.alarms.room():
		reg.evaluator.book.Counters.Untracked.Add(1)
		return false
	}

	k := alarm{
		State:    rules.State{Phase: rules.Open, Since: rules.Moment{Hub: fell.Since.Time * 1000}},
		limit:    r.Silent.Seconds(),
		log:      reg.logName,
		sequence: fell.Since.Sequence,
	}

	receivers := reg.evaluator.wanting(l) &^ reg.hearOfHub(fell, l)
	k.alerted = receivers | reg.alarms.byKey[key].due.receivers()
	if reg.mayJoin(l, fell.Shared) { // nothing is shared without per, nor by the hub
		k.group = fell.Shared
	}

	if receivers != 0 || k.group != "" {
		due := &dueNotice{Notice: delivery.Notice{
			Log:      k.log,
			Part:     throttle.Silence,
			RaisedAt: reg.noticedAt(fell.Proven * 1000),
			Heard:    fell.Heard * 1000,
			Outage:   (*notify.Outage)(fell.Outage),
			Reading: delivery.Reading{
				Limit:    k.limit,
				Enqueued: fell.Deadline * 1000,
				Sequence: k.sequence,
				Since:    k.Since.Hub,
			},
		}}
		due.becomeDue(receivers)
		reg.unsaved = append(reg.unsaved, unsavedSilence{key, due})
		if k.group == "" {
			k.due = due
		} else { // and of a recovery that is due people are told all the same
			k.unsaved, k.due = due, reg.alarms.byKey[key].due
		}
	}

	reg.change(key, k)

	return true
}

// silentAnew has what people were not told yet of an open silence say what is known of it now: something may have been missed
// since it opened. It is the same silence, and who was told hears nothing again.
func (reg *register) silentAnew(key alarmKey, fell *absence.Silence) {
	k := reg.alarms.byKey[key]
	was := k.due
	if !was.silence() {
		return
	}

	k.due = &dueNotice{Notice: delivery.Notice{
		Reading:  was.Reading,
		Log:      was.Log,
		Part:     was.Part,
		RaisedAt: was.RaisedAt,
		Heard:    fell.Heard * 1000,
		Anew:     &delivery.Silence{Since: fell.Since.Time * 1000, Deadline: fell.Deadline * 1000},
	}}
	k.due.becomeDue(was.to)
	reg.unsaved = append(reg.unsaved, unsavedSilence{key, k.due})
	reg.change(key, k)
}

// hearOfHub returns the receivers that hear of the hub by another rule than that of l, if fell is about the hub. One
// message is enough. Whom a former owner told nobody knows: receivers may have asked for other rules then.
func (reg *register) hearOfHub(fell absence.Silence, l *level) (receivers uint32) {
	if fell.Outage == nil {
		return 0
	}

	for rule := range reg.evaluator.silences {
		other := reg.evaluator.silent(rule)
		k := reg.alarms.byKey[alarmKey{fell.Of, other}]
		if other != l && k.Phase == rules.Open && k.alerted != everybody {
			receivers |= reg.evaluator.wanting(other)
		}
	}

	return receivers
}

// hubIsCutOff reports whether a rule that is configured has an open alarm about an outage of the hub since a time, in Unix µs.
func (reg *register) hubIsCutOff(since int64) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()

	return slices.ContainsFunc(reg.evaluator.silences, func(r *rule) bool {
		k := reg.alarms.byKey[alarmKey{sensor.Of(notify.Hub), r.levels[0]}]
		return k.Phase == rules.Open && k.Since.Hub == since
	})
}

// Heard implements absence.Alarms.
func (reg *register) Heard(rule int, of sensor.ID, before, at telemetry.Position) {
	reg.endSilence(alarmKey{of, reg.evaluator.silent(rule)}, before, at, "")
}

// Excluded implements absence.Alarms.
func (reg *register) Excluded(
	rule int,
	e *telemetry.Event,
	name string,
	found []telemetry.Found,
	before telemetry.Position,
) {
	r, m := reg.evaluator.silences[rule], reg.message
	because, _ := r.Expects(found, r.reads)
	excluded := because.Excluded(reg.evaluator.book.Decoder.Seen(m.part.measurements, m.index, because.Name))
	reg.endSilence(alarmKey{sensor.ID{Device: e.Device, Name: name}, reg.evaluator.silent(rule)}, before, e.Position, excluded)
}

// endSilence ends a silence with the event at a position: see register.endedBy.
func (reg *register) endSilence(key alarmKey, before, at telemetry.Position, excluded string) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	next := reg.endedBy(key, at, excluded)
	group := reg.alarms.byKey[key].member()
	if at.NotAfter(reg.last.settled) || at.NotAfter(reg.last.replayed) { // the ledger is further on, and yet has not heard it
		reg.change(key, next)
		return
	}

	if group != "" {
		reg.groupOf(key.level, group).heard = at
	}

	reg.alarms.history.change(key, next, before, at)
	reg.become(key, next)
}

// Ended implements absence.Alarms.
func (reg *register) Ended(rule int, of sensor.ID, at int64, forgotten bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.end(alarmKey{of, reg.evaluator.silent(rule)}, at*1000, forgotten)
}

// Unwatched implements absence.Alarms. Alarms about readings end with what is expected of the device, or of its sensor:
// nobody would end them otherwise.
func (reg *register) Unwatched(of sensor.ID) {
	reg.evaluator.book.Counters.Forgotten.Add(1)
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.endAlarms(of)
}

// endedBy returns what the silence of key becomes with the event at a position. excluded says why the rule expects nothing
// more of the device, if it is not empty.
func (reg *register) endedBy(key alarmKey, at telemetry.Position, excluded string) alarm {
	was := reg.alarms.byKey[key]
	return alarm{due: reg.recovery(key, was, &dueNotice{Notice: delivery.Notice{
		Reading:  delivery.Reading{Limit: was.limit, Enqueued: micros(at.Time), Sequence: at.Sequence, Since: was.Since.Hub},
		Log:      reg.logName,
		Excluded: excluded,
	}})}
}

// hearsShared returns what absence.Rule.Shared is of r.
func (reg *register) hearsShared(r *rule) func(value []byte) []byte {
	if r.Per == "" {
		return nil
	}

	name, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: r.Per, Text: true, Condition: true})
	if err != nil { // the settings have been checked
		return nil
	}

	found := make([]telemetry.Found, 1)
	return func(value []byte) []byte {
		m := reg.message.part.measurements
		m.Read(name, reg.message.index, found)
		if found[0].Reason != telemetry.ReasonOK {
			return value
		}

		all := m.AppendText(value, found[0])
		if len(all)-len(value) > incident.MaxValue {
			return value
		}

		return all
	}
}

// watch has reg know who has fallen silent, by a roster that is kept in file.
func (reg *register) watch(file *roster.File, log *zap.Logger) {
	text := func(name string) string {
		return reg.evaluator.book.Decoder.Text(reg.message.part.measurements, reg.message.index, name)
	}

	watched := make([]absence.Rule, len(reg.evaluator.silences))
	for i, r := range reg.evaluator.silences {
		watched[i] = absence.Rule{
			Column: roster.Column{Rule: r.Name, Hears: r.HeardBy(), Only: r.ExpectedBy(), Covers: r.ExpectsAllOf, Limit: r.Silent, Per: r.Per},
			Field:  r.reads.Field,
			Forget: r.Forget,
			Shared: reg.hearsShared(r),
			Sensor: func(name []byte) []byte {
				p := reg.message.part
				return r.AppendSensor(name, p.measurements, p.found, r.reads)
			},
			Quiet: func(e *telemetry.Event) int64 {
				about := rules.Subject{Device: e.Device, Rule: r.Name, Enqueued: e.Enqueued, Text: text}
				return reg.evaluator.book.Rules.Mutes.Quiet(&about)
			},
			Says: func(_ *telemetry.Event, found []telemetry.Found) absence.Says {
				switch because, all := r.Expects(found, r.reads); {
				case because != nil:
					return absence.Excluded
				case all:
					return absence.Expected
				}

				return absence.Nothing
			},
		}
	}

	hub := ""
	if reg.id == firstPartition { // it reports outages of the whole hub
		hub = notify.Hub
	}

	reg.unheard = absence.New(watched, reg, hub, file, log)
}
