package absence_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	limit  = 10 * time.Minute
	forget = time.Hour
	whole  = "hub/telemetry"
)

// A tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// A bench is a Watch with one rule, what it has said, and the log that it is told of. Times are since the start.
type bench struct {
	*absence.Watch
	t        tester
	store    records.Store
	start    time.Time
	now      time.Duration
	log      []telemetry.Event
	said     []string                   // in the order in which it was said
	fell     map[string]absence.Silence // that have alarms
	quiet    int64                      // of the next event: see absence.Rule
	refuse   bool                       // there is no room for alarms
	muted    bool                       // people do not want to hear of any silence
	askedHub bool                       // by the last look
	sensor   string                     // that the event being heard is of; empty: the device's own
	forget   time.Duration              // of the first rule
	more     []absence.Rule             // at most one besides the first, about the same devices

	// nothing comes to other partitions, in which so many devices are known; else something does all the time
	cutOff bool
	others int
}

func newBench(t tester) *bench {
	b := &bench{
		t: t, store: &records.Memory{},
		start:  time.Now().Add(time.Second).Truncate(time.Millisecond), // after the floor of a new partition
		fell:   map[string]absence.Silence{},
		forget: forget,
	}
	b.begin(telemetry.Position{})
	return b
}

// begin makes a new Watch, as the next owner of the partition does, and returns where reading has to begin.
func (b *bench) begin(at telemetry.Position) (from telemetry.Position, ended []absence.Ended) {
	b.t.Helper()
	rule := absence.Rule{Column: roster.Column{Rule: "offline", Limit: limit}, Field: -1, Says: says, Forget: b.forget, Sensor: b.name}
	rule.Quiet = func(*telemetry.Event) int64 { return b.quiet }
	file := &roster.File{Store: b.store, Name: "roster/0"}
	b.Watch = absence.New(append([]absence.Rule{rule}, b.more...), b, whole, file, zap.NewNop())
	if err := b.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	var open []absence.Open
	for _, device := range slices.Sorted(maps.Keys(b.fell)) {
		open = append(open, absence.Open{Of: b.fell[device].Of, Since: b.fell[device].Since})
	}
	return b.Begin(at, open)
}

// What events say of whether their device is expected to be heard, in their bodies.
const (
	expected = ""
	excluded = "excluded"
	nothing  = "nothing"
)

func says(e *telemetry.Event, _ []telemetry.Found) absence.Says {
	switch string(e.Body) {
	case excluded:
		return absence.Excluded
	case nothing:
		return absence.Nothing
	}
	return absence.Expected
}

func (b *bench) say(format string, a ...any) { b.said = append(b.said, fmt.Sprintf(format, a...)) }

func (b *bench) name(to []byte) []byte { return append(to, b.sensor...) }

func (b *bench) Muted(int, sensor.ID, string, int64) bool { return b.muted }

func (b *bench) FellSilent(_ int, s absence.Silence) bool {
	if b.refuse || b.muted {
		return false
	}
	b.say("%s fell", s.Of)
	b.fell[s.Of.String()] = s
	return true
}

func (b *bench) Heard(_ int, of sensor.ID, _, at telemetry.Position) {
	b.say("%s heard by %d", of, at.Sequence)
	delete(b.fell, of.String())
}

func (b *bench) Excluded(_ int, e *telemetry.Event, name string, _ []telemetry.Found, _ telemetry.Position) {
	of := sensor.ID{Device: e.Device, Name: name}
	b.say("%s excluded by %d", of, e.Sequence)
	delete(b.fell, of.String())
}

func (b *bench) Ended(_ int, of sensor.ID, _ int64, forgotten bool) {
	b.say(map[bool]string{true: "%s forgotten", false: "%s over"}[forgotten], of)
	delete(b.fell, of.String())
}

func (b *bench) Unwatched(sensor.ID) { b.say("unwatched") }

// publish has a device send an event now.
func (b *bench) publish(device string) *telemetry.Event {
	n := int64(len(b.log) + 1)
	at := b.start.Add(b.now)
	b.log = append(b.log, telemetry.Event{
		Position: telemetry.Position{Sequence: n, Offset: fmt.Sprint(n), Time: at}, Device: device, Enqueued: at,
	})
	return &b.log[n-1]
}

// hear has the Watch hear an event.
func (b *bench) hear(e telemetry.Event, counts bool, quiet time.Duration) {
	b.quiet = 0
	if quiet > 0 {
		b.quiet = b.start.Add(quiet).UnixMilli()
	}
	b.Lock()
	defer b.Unlock()
	b.Take(&e)
	if counts {
		b.Hear(&e, roster.Hash(e.Device), []int{0, 1}[:1+len(b.more)], nil)
	}
}

// sendsAbout has a device send an event now, which is heard, and says this of whether it is expected.
func (b *bench) sendsAbout(device, about string) {
	e := b.publish(device)
	e.Body = []byte(about)
	b.hear(*e, true, 0)
}

// sends has devices send events now, which are heard.
func (b *bench) sends(devices ...string) {
	for _, device := range devices {
		b.hear(*b.publish(device), true, 0)
	}
}

// loses has the partition lose an event of now unread.
func (b *bench) loses(device string) { b.publish(device) }

// prove has the hub answer that nothing more has come.
func (b *bench) prove() {
	now := b.start.Add(b.now)
	p := absence.Proof{At: now, Until: now.UnixMilli(), Sequence: -1, Newest: now.UnixMilli(), NewestUntil: now.UnixMilli()}
	if n := len(b.log); n > 0 {
		p.Sequence, p.Enqueued = b.log[n-1].Sequence, b.log[n-1].Enqueued
	}
	if b.cutOff {
		p.Newest = p.Enqueued.UnixMilli()
	}
	p.Others = &roster.Expected{Devices: b.others, Limit: limit}
	b.Prove(&p)
}

// says sees what was said by the next look, once the hub has answered.
func (b *bench) says(when, want string) {
	b.t.Helper()
	b.said = nil
	b.prove()
	b.look()
	if got := strings.Join(b.said, ", "); got != want {
		b.t.Fatal(fmt.Sprintf("%s it says %q, want %q", when, got, want))
	}
}

// look looks once.
func (b *bench) look() {
	b.t.Helper()
	q := b.Look(b.start.Add(b.now), false)
	b.askedHub = q.Hub
}

// Whoever starts over in another hub writes the roster before the checkpoint: else the next owner would go on from one
// that knows nothing of what was read since.
func TestRosterOfAnotherHub(t *testing.T) {
	b := newBench(t)
	b.sends("oven")
	b.Save(t.Context(), true)
	b.begin(telemetry.Position{Generation: "another"})
	e := *b.publish("oven")
	e.Generation = "another"
	b.hear(e, true, 0)
	if saved := b.Save(t.Context(), false); !saved.Wrote {
		t.Error("the roster was not written")
	}
	b.sends("oven")
	if saved := b.Save(t.Context(), false); saved.Wrote {
		t.Error("it was written again at once")
	}
}

// A roster that could not be written after an operator removed a device is not taken for one that was: it is written again
// at once.
func TestRemovalIsWrittenAgain(t *testing.T) {
	b, down := newBench(t), false
	b.store = records.Around(b.store, func(ctx context.Context, _ records.Op, _ string, call func(context.Context) error) error {
		if down {
			return errors.New("the store is down")
		}
		return call(ctx)
	})
	b.begin(telemetry.Position{})
	b.sends("oven")
	b.Save(t.Context(), true)
	b.Forget(sensor.Of("oven"))
	down = true
	if saved := b.Save(t.Context(), false); saved.Err == nil {
		t.Fatal("the roster was not to be written")
	}
	down = false
	if saved := b.Save(t.Context(), false); saved.Err != nil || !saved.Wrote {
		t.Errorf("after a write that failed: %+v", saved)
	}
}

// A roster that was written at the start of an empty partition is none to go on from: the first events are in one before
// a checkpoint passes them.
func TestRosterOfAnEmptyPartition(t *testing.T) {
	b := newBench(t)
	empty := telemetry.Position{Generation: "another", Sequence: -1, Offset: "-1"}
	b.begin(empty)
	b.Save(t.Context(), true)
	b.begin(empty)
	e := *b.publish("oven")
	e.Generation = "another"
	b.hear(e, true, 0)
	if saved := b.Save(t.Context(), false); !saved.Wrote {
		t.Error("the roster was not written")
	}
}

// What a Watch says of the oven, which sends something at the start, and of nobody else unless that is said.
func TestWatch(t *testing.T) {
	const m, s = time.Minute, time.Second
	pass := func(b *bench, d time.Duration) { b.now += d }
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want string
	}{
		{"nothing proves that it is silent", func(b *bench) { pass(b, limit+m) }, ""},
		{"a later event proves it", func(b *bench) {
			pass(b, limit+2*s)
			b.sends("kiln")
		}, "oven fell"},
		{"an event that is not late enough", func(b *bench) {
			pass(b, limit+s)
			b.sends("kiln")
		}, ""},
		{"an event that does not count proves it", func(b *bench) {
			pass(b, limit+2*s)
			b.hear(*b.publish("kiln"), false, 0)
		}, "oven fell"},
		{"an event that was read late proves nothing", func(b *bench) {
			pass(b, limit+2*s)
			late := *b.publish("kiln")
			pass(b, 3*m)
			b.hear(late, true, 0)
		}, ""},
		{"the hub proves it", func(b *bench) {
			pass(b, limit+5*s)
			b.prove()
		}, "oven fell"},
		{"the hub answers too early", func(b *bench) {
			pass(b, limit+4*s)
			b.prove()
			pass(b, 10*s)
		}, ""},
		{"the hub has more than was read", func(b *bench) {
			pass(b, limit+5*s)
			b.publish("kiln")
			b.prove()
		}, ""},
		{"the hub's answer is old", func(b *bench) {
			pass(b, limit+5*s)
			b.prove()
			pass(b, 3*m)
		}, ""},
		{"it is heard again", func(b *bench) {
			pass(b, limit+2*s)
			b.sends("kiln")
			b.look()
			b.sends("oven")
		}, "oven fell, oven heard by 3"},
		{"there is no room for its alarm, and then there is", func(b *bench) {
			b.refuse = true
			pass(b, limit+2*s)
			b.sends("kiln")
			b.look()
			b.refuse = false
		}, "oven fell"},
		{"it says that nothing is expected of it", func(b *bench) {
			b.sendsAbout("oven", excluded)
			b.sendsAbout("oven", nothing)
			pass(b, limit+2*s)
			b.sends("kiln")
		}, ""},
		{"it says nothing of that, and something was expected", func(b *bench) {
			b.sendsAbout("oven", nothing)
			pass(b, limit+2*s)
			b.sends("kiln")
		}, "oven fell"},
		{"nobody has ever said that it is expected", func(b *bench) {
			b.sendsAbout("stove", nothing)
			pass(b, limit-m)
			b.sends("oven")
			pass(b, 2*m)
			b.sends("kiln")
		}, ""},
		{"it is expected again", func(b *bench) {
			b.sendsAbout("oven", excluded)
			b.sends("oven")
			pass(b, limit+2*s)
			b.sends("kiln")
		}, "oven fell"},
		{"it was silent, and says that nothing is expected of it", func(b *bench) {
			pass(b, limit+2*s)
			b.sends("kiln")
			b.look()
			b.sendsAbout("oven", excluded)
			pass(b, limit+2*s)
			b.sends("kiln")
			b.sends("kiln")
		}, "oven fell, oven excluded by 3"},
		{"it is quiet", func(b *bench) {
			b.hear(*b.publish("oven"), true, 2*limit)
			pass(b, limit+2*s)
			b.sends("kiln")
		}, ""},
		{"it was quiet", func(b *bench) {
			b.hear(*b.publish("oven"), true, 2*limit)
			pass(b, 2*limit+2*s)
			b.sends("oven-2", "kiln")
		}, "oven fell"},
		{"an event is lost", func(b *bench) {
			pass(b, 5*m)
			b.loses("oven")
			b.sends("kiln")
			pass(b, limit-m)
			b.sends("kiln")
		}, ""},
		{"an event is lost, and then none", func(b *bench) {
			pass(b, 5*m)
			b.loses("oven")
			b.sends("kiln")
			pass(b, limit-m)
			b.sends("kiln")
			pass(b, m+2*s)
			b.sends("kiln")
		}, "oven fell"},
		{"events are lost again and again", func(b *bench) {
			for range 21 {
				pass(b, m)
				b.loses("")
				b.sends("kiln")
			}
		}, "oven fell"},
		{"events have expired", func(b *bench) {
			pass(b, limit-m)
			e := b.publish("")
			e.MessageSource = telemetry.SourceExpired
			b.hear(*e, false, 0)
			pass(b, limit-m)
			b.sends("kiln")
		}, ""},
		{"an event is lost before one that cannot be decoded", func(b *bench) {
			pass(b, 5*m)
			b.loses("oven")
			e := b.publish("")
			e.Undecodable = "broken"
			b.hear(*e, false, 0)
			pass(b, limit-m)
			b.sends("kiln")
		}, ""},
		{"the same, and the next owner goes on after it", func(b *bench) {
			pass(b, 5*m)
			b.loses("oven")
			e := b.publish("")
			e.Undecodable = "broken"
			b.hear(*e, false, 0)
			b.Save(b.t.Context(), true)
			b.begin(e.Position)
			pass(b, limit-m)
			b.sends("kiln")
		}, ""},
		{"it is silent for so long that it is forgotten", func(b *bench) {
			pass(b, limit+2*s)
			b.sends("kiln")
			b.look()
			pass(b, forget-limit)
			b.sends("kiln")
		}, "oven fell, oven forgotten, unwatched"},
		{"it was forgotten, and is heard again", func(b *bench) {
			pass(b, forget+2*s)
			b.sends("kiln")
			b.look()
			b.sends("oven")
			pass(b, limit-m)
			b.sends("kiln")
			pass(b, m+2*s)
			b.sends("kiln")
		}, "unwatched, oven fell"},
		{"it is removed while it is silent", func(b *bench) {
			pass(b, limit+2*s)
			b.sends("kiln")
			b.look()
			b.Forget(sensor.Of("oven"))
			pass(b, m)
			b.sends("kiln")
		}, "oven fell, oven forgotten, unwatched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.sends("oven")
			tt.do(b)
			b.look()
			if got := strings.Join(b.said, ", "); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// While nothing has come to the hub for half of the limit, nothing is said of a device. After the whole limit the hub is
// cut off, until something comes; then everybody has the limit once more.
func TestCutOff(t *testing.T) {
	const s = time.Second
	b := newBench(t)
	b.sends("oven")
	b.now = limit / 2
	b.sends("kiln", "grill")
	b.cutOff = true
	b.now = limit + 4*s
	b.says("before it is proven", "")
	b.now = limit + 6*s
	b.says("once it is proven, and nothing has come for more than half of the limit", "")
	b.now = 3*limit/2 + 4*s
	b.says("before the hub is proven to be cut off", "")
	b.now += 2 * s
	b.says("once nothing has come for the limit", whole+" fell")
	b.now += limit
	b.says("while that lasts", "")
	b.sends("kiln")
	b.says("when something comes", whole+" over")
	b.now += limit - s
	b.sends("kiln")
	b.says("before the limit is over once more", "")
	b.now += 4 * s
	b.sends("kiln")
	b.says("after that", "oven fell, grill fell")
}

// A backtest looks when somebody may be silent next: soon, as long as it is only the hub's silence that one has to wait
// for; else when the next one's time is over.
func TestNext(t *testing.T) {
	b := newBench(t)
	next := func() time.Duration { return time.UnixMilli(b.Next(b.start.Add(b.now).UnixMilli())).Sub(b.start) }
	b.sends("oven")
	b.now = limit / 2
	b.sends("kiln", "grill")
	b.cutOff = true
	b.now = limit + 6*time.Second
	b.says("while nothing comes to the hub", "")
	if got := next(); got != b.now+5*time.Second {
		t.Errorf("it looks again at %v, want %v", got, b.now+5*time.Second)
	}
	b.cutOff = false
	b.says("once something has come elsewhere", "oven fell")
	if got := next(); got != 3*limit/2+5*time.Second {
		t.Errorf("with an alarm it looks again at %v, want when the others' time is over", got)
	}
}

// Events come to another partition again: everybody here has the limit once more, and what is open about the hub ends.
func TestCutOffEndsElsewhere(t *testing.T) {
	b := newBench(t)
	b.sends("oven", "kiln")
	b.cutOff = true
	b.now = limit + 6*time.Second
	b.says("once nothing has come for the limit", whole+" fell")
	b.cutOff = false
	b.now += time.Minute
	b.says("when something has come elsewhere", whole+" over")
	b.now += limit + 4*time.Second
	b.says("before the limit is over once more", "")
	b.now += 2 * time.Second
	b.says("after that", "oven fell, kiln fell")
}

// One device that is all that the hub has is silent, and not the hub. How many there are elsewhere, their rosters say.
func TestCutOffFromOneDevice(t *testing.T) {
	for others, want := range []string{"oven fell", whole + " fell"} {
		b := newBench(t)
		b.sends("oven")
		b.cutOff, b.others = true, others
		b.now = limit + 6*time.Second
		b.says(fmt.Sprintf("with %d more devices elsewhere", others), want)
	}
}

// Whoever takes over while the hub is cut off, or just after that, tells of no device: either the roster says that it is
// cut off, or that deadlines have started anew.
func TestCutOffAcrossACrash(t *testing.T) {
	for _, tt := range []struct {
		name          string
		begun, ended  bool // the roster was written when the hub was found to be cut off, and not to be any more
		first, second string
	}{
		{"before", false, false, whole + " over", ""},
		{"during", true, false, whole + " over", ""},
		{"after", true, true, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.sends("oven", "kiln")
			b.Save(t.Context(), true)
			b.cutOff = true
			b.now = limit + 6*time.Second
			b.says("once nothing has come for the limit", whole+" fell")
			if tt.begun {
				b.Save(t.Context(), true)
			}
			b.now += limit
			b.publish("oven")
			if tt.ended {
				b.hear(b.log[len(b.log)-1], true, 0)
				b.says("when something comes", whole+" over")
				b.Save(t.Context(), true)
			}
			from, _ := b.begin(b.log[1].Position)
			for _, e := range b.log[from.Sequence:] {
				b.hear(e, true, 0)
			}
			b.now += 3 * time.Second
			b.says("the next owner, when it has read that something has come,", tt.first)
			b.now += limit - 10*time.Second
			b.sends("oven")
			b.says("before the limit is over once more", tt.second)
		})
	}
}

// After a gap of the whole partition, as long as a device may be silent, everybody has the limit once more: whoever reads
// it may not have asked the hub meanwhile.
func TestDawn(t *testing.T) {
	b := newBench(t)
	b.sends("oven", "kiln")
	b.now = limit + 10*time.Second
	b.sends("oven")
	b.says("after the gap", "")
	b.now += limit - time.Second
	b.sends("oven")
	b.says("before the limit is over once more", "")
	b.now += 3 * time.Second
	b.sends("oven")
	b.says("after that", "kiln fell")
}

// The hub is asked only while a deadline is over, a notice waits, or nothing has come for half of the limit, and not all
// the time.
func TestQuestions(t *testing.T) {
	b := newBench(t)
	b.sends("oven")
	for _, tt := range []struct {
		at      time.Duration
		waiting bool
		want    bool
	}{
		{limit/2 - time.Second, false, false},
		{limit/2 - time.Second, true, true},
		{limit + time.Second, false, false}, // asked, and not answered
		{limit + 20*time.Second, false, false},
	} {
		if q := b.Look(b.start.Add(tt.at), tt.waiting); q.Hub != tt.want {
			t.Errorf("at %v, waiting %v: asks the hub %v", tt.at, tt.waiting, q.Hub)
		}
	}
	b.Prove(nil) // no answer
	if q := b.Look(b.start.Add(limit+20*time.Second), false); !q.Hub {
		t.Error("the hub is not asked again")
	}
}

// A next owner goes on with the roster and the alarms of the ledger.
func TestBegin(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		do    func(b *bench) // after the roster was written, with the oven in it, which is silent
		lost  bool           // the roster
		from  int64
		ended int
		want  string // after that the partition is read from there, and nobody is heard for the limit
	}{
		{"nothing has happened", func(*bench) {}, false, 2, 0, "kiln fell"},
		{"a former owner has heard it", func(b *bench) { b.sends("oven") }, false, 2, 0,
			"oven heard by 3, oven fell, kiln fell"},
		{"so the roster says", func(b *bench) {
			b.sends("oven")
			b.Save(b.t.Context(), true)
		}, false, 3, 1, "oven fell, kiln fell"},
		{"it was removed", func(b *bench) {
			b.Forget(sensor.Of("oven"))
			b.Save(b.t.Context(), false) // whatever was written a moment ago
		}, false, 2, 0, "kiln fell"},
		{"a former owner, which knew of no checkpoint, has written what it knew", func(b *bench) {
			b.sends("oven")
			b.begin(telemetry.Position{})
			b.Save(b.t.Context(), true)
		}, false, 2, 0, "oven heard by 3, oven fell, kiln fell"},
		{"there is no roster", func(*bench) {}, true, 2, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.sends("oven")
			b.now = limit + 2*s
			b.sends("kiln")
			b.look()
			if saved := b.Save(t.Context(), true); saved.Err != nil || !saved.Wrote {
				t.Fatal(saved)
			}
			tt.do(b)
			if tt.lost {
				b.store = &records.Memory{}
			}
			fell := maps.Clone(b.fell)
			if len(b.log) > 2 {
				fell["oven"] = absence.Silence{Of: sensor.Of("oven"), Since: roster.Place{Sequence: 1, Time: b.start.UnixMilli()}}
			}
			b.said, b.fell = nil, fell
			from, ended := b.begin(b.log[len(b.log)-1].Position)
			if from.Sequence != tt.from || len(ended) != tt.ended {
				t.Errorf("it begins after %d, and %v have ended", from.Sequence, ended)
			}
			for _, e := range b.log[from.Sequence:] {
				b.hear(e, true, 0)
			}
			b.now += limit + 5*s
			b.prove()
			b.look()
			if got := strings.Join(b.said, ", "); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// Without a checkpoint reading begins with the earliest event that there is. Where the roster is further than that, nothing is
// missing.
func TestBeginWithoutACheckpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		earliest int
		want     string // the limit after the last event
	}{
		"nothing is missing":         {1, "oven fell"},
		"only what was heard":        {2, "oven fell"},
		"what nobody heard, perhaps": {4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.sends("oven", "kiln")
			b.Save(t.Context(), true)
			b.now = limit - time.Minute
			b.publish("kiln")
			b.publish("kiln")
			if from, _ := b.begin(telemetry.Position{}); from != (telemetry.Position{}) {
				t.Fatalf("it begins after %+v", from)
			}
			for _, e := range b.log[tt.earliest-1:] {
				b.hear(e, true, 0)
			}
			b.now += 2 * time.Minute
			b.says("after that", tt.want)
		})
	}
}

// Who may have been heard while nobody listened is not forgotten for that: it has its time, and then it is silent.
func TestNobodyIsForgottenWhoMayHaveBeenHeard(t *testing.T) {
	for name, missed := range map[string]func(*bench){
		"a checkpoint has passed it": func(b *bench) {
			time.Sleep(time.Until(b.start.Add(b.now))) // the floor is by this machine's clock
			b.begin(b.log[1].Position)
		},
		"it has expired, with all that came": func(b *bench) {
			b.begin(b.log[0].Position)
			e := b.log[1]
			e.MessageSource = telemetry.SourceExpired
			b.hear(e, false, 0)
		},
		"it has expired, in a hub that was made anew, of which nothing was read": func(b *bench) {
			anew := telemetry.Position{Generation: "another"}
			b.begin(anew)
			b.Save(b.t.Context(), true)
			time.Sleep(time.Until(b.start.Add(b.now)))
			b.begin(anew)
			e := b.log[1]
			e.MessageSource = telemetry.SourceExpired
			b.hear(e, false, 0)
		},
		"it has expired, and another one comes": func(b *bench) {
			b.begin(b.log[0].Position)
			b.hear(*b.publish("kiln"), false, 0)
		},
		"it has expired, and one comes that cannot be decoded": func(b *bench) {
			b.begin(b.log[0].Position)
			e := *b.publish("kiln")
			e.Undecodable = "broken"
			b.hear(e, false, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.sends("oven")
				b.Save(t.Context(), true)
				b.now = forget + time.Hour
				b.loses("oven")
				missed(b)
				b.says("when somebody listens again", "")
				b.now += limit + time.Minute
				b.says("once nothing has come for the limit", "oven fell")
				b.now += forget
				b.says("once nothing has come for so long again", "oven forgotten, unwatched")
			})
		})
	}
}

// A device that was told as silent before a gap is forgotten behind it, unless it could have sent in the gap and fallen silent
// again meanwhile.
func TestWhatGapsDelay(t *testing.T) {
	for _, test := range []struct {
		forget, gap time.Duration
		want        string
	}{
		{forget, forget - 2*limit - time.Minute, "oven fell, oven forgotten, unwatched"},
		{forget, forget - 2*limit + time.Minute, "oven fell"},
		{2*limit + 5*time.Minute, limit - time.Minute, "oven fell, oven forgotten, unwatched"},
		{2*limit + 5*time.Minute, limit + time.Minute, "oven fell"},
	} {
		b := newBench(t)
		b.forget = test.forget
		b.begin(telemetry.Position{})
		b.sends("oven")
		until := max(test.forget, 30*time.Minute) - test.gap + 30*time.Second
		for b.now < until {
			b.now += 30 * time.Second
			b.sends("kiln")
			b.prove()
			b.look()
		}
		b.loses("oven")
		b.now += test.gap
		b.sends("kiln")
		b.prove()
		b.look()
		if got := strings.Join(b.said, ", "); got != test.want {
			t.Errorf("forget %v, a gap of %v: it says %q, want %q", test.forget, test.gap, got, test.want)
		}
	}
}

// A device is told as silent before it is forgotten, also if gaps have its time begin anew.
func TestToldBeforeItIsForgotten(t *testing.T) {
	minutes := func(b *bench, n int) {
		for range n {
			b.now += time.Minute
			b.sends("kiln")
			b.prove()
			b.look()
		}
	}
	check := func(name string, limits time.Duration, misses func(*bench)) {
		t.Helper()
		b := newBench(t)
		b.forget = limits * limit
		b.begin(telemetry.Position{})
		b.sends("oven")
		misses(b)
		minutes(b, 120)
		if got, want := strings.Join(b.said, ", "), "oven fell, oven forgotten, unwatched"; got != want {
			t.Errorf("%s, forget is %d times the limit: it says %q, want %q", name, limits, got, want)
		}
	}

	for limits := time.Duration(2); limits <= 5; limits++ {
		for gap := 1; gap <= 35; gap++ {
			check(fmt.Sprintf("a gap of %d min", gap), limits, func(b *bench) {
				minutes(b, 8)
				b.loses("oven")
				b.now += time.Duration(gap-1) * time.Minute
				minutes(b, 1)
			})
			check(fmt.Sprintf("a gap of %d min, and then one of 70 s", gap), limits, func(b *bench) {
				minutes(b, 8)
				b.loses("oven")
				b.now += time.Duration(gap-1) * time.Minute
				minutes(b, 9)
				b.loses("kiln")
				b.now += 10 * time.Second
			})
		}
		check("a compacted hub", limits, func(b *bench) {
			for range 20 {
				b.now += time.Minute
				b.loses("")
				b.sends("kiln")
				b.prove()
				b.look()
			}
		})
	}
}

// A device of a hub that was made anew is forgotten, however often a partition to which nothing comes changes owners: reading
// begins with the earliest event each time, and nothing goes unheard.
func TestDevicesOfAHubMadeAnewAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sends("oven")
		b.Save(t.Context(), true)
		b.log = nil
		for range 4 {
			b.now += forget - limit
			time.Sleep(time.Until(b.start.Add(b.now))) // floors are by this machine's clock
			b.begin(telemetry.Position{Generation: "another"})
			b.prove()
			b.look()
			b.Save(t.Context(), true)
		}
		if got, want := strings.Join(b.said, ", "), "unwatched"; got != want {
			t.Errorf("in %v it says %q, want %q", b.now, got, want)
		}
	})
}

// A message that cannot be decoded came to the hub all the same, which is not cut off then, whatever it said before.
func TestUndecodableMessageReachesTheHub(t *testing.T) {
	b := newBench(t)
	b.sends("oven", "kiln")
	b.cutOff = true
	b.now = limit + 6*time.Second
	b.prove()
	broken := *b.publish("oven")
	broken.Undecodable = "broken"
	b.hear(broken, false, 0)
	b.look()
	if len(b.said) > 0 {
		t.Errorf("it says %q", b.said)
	}
}

// What a device has sent may be missing also between two undecodable messages that are the first ones of all.
func TestGapAfterAnUndecodableMessage(t *testing.T) {
	b := newBench(t)
	sends := func(device string) {
		broken := *b.publish(device)
		broken.Undecodable = "broken"
		b.hear(broken, true, 0)
	}
	sends("oven")
	b.now += limit / 2
	b.loses("oven")
	b.now += time.Minute
	sends("kiln")
	b.now += limit/2 + 2*time.Second
	b.says("what was lost was the oven's, for all that is known:", "")
	b.now += limit/2 + time.Minute
	b.says("the limit later", "oven fell, kiln fell")

	b = newBench(t) // they come again, because there is no checkpoint
	sends("kiln")
	sends("kiln")
	b.sends("oven")
	b.Save(t.Context(), true)
	b.begin(telemetry.Position{})
	for _, e := range b.log {
		e.Undecodable = map[string]string{"kiln": "broken"}[e.Device]
		b.hear(e, true, 0)
	}
	b.now += limit / 2
	b.loses("oven")
	sends("kiln")
	b.now += limit/2 + 6*time.Second
	b.says("after a gap behind those that came again", "")
}

// The time that an undecodable message claims puts no deadline off.
func TestDawnOfAnUndecodableMessage(t *testing.T) {
	b := newBench(t)
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprint("device-", i))
	}
	b.sends(all...)
	broken := *b.publish("")
	broken.Undecodable = "broken"
	broken.Enqueued = b.start.Add(24 * time.Hour)
	broken.Position.Time = broken.Enqueued
	b.hear(broken, false, 0)
	for range 2 {
		b.now += limit/2 + 2*time.Second
		b.sends(all[:24]...)
	}
	b.look()
	if got := strings.Join(b.said, ", "); got != "device-24 fell" {
		t.Errorf("it says %q", got)
	}
}

// That the hub is cut off lasts while any rule expects something, because nobody hears of it by a second rule.
func TestCutOffForLongerThanOneRuleForgets(t *testing.T) {
	b := newBench(t)
	patient := absence.Rule{Column: roster.Column{Rule: "dead", Limit: limit}, Field: -1, Says: says, Forget: 100 * time.Hour, Sensor: b.name}
	patient.Quiet = func(*telemetry.Event) int64 { return 0 }
	b.more = []absence.Rule{patient}
	b.begin(telemetry.Position{})
	b.sends("oven", "kiln")
	b.cutOff = true
	b.now = limit + 6*time.Second
	b.says("once nothing has come for the limit", whole+" fell, "+whole+" fell")
	b.now = forget + 10*time.Second
	b.says("once one rule has forgotten the devices", "")
	b.now = 100*time.Hour + 10*time.Second
	b.says("once both have", whole+" forgotten, "+whole+" forgotten, unwatched, unwatched")
}

// Each rule forgets a device in a time of its own.
func TestEachRuleForgets(t *testing.T) {
	b := newBench(t)
	patient := absence.Rule{Column: roster.Column{Rule: "dead", Limit: 30 * time.Hour}, Field: -1, Says: says, Forget: 100 * time.Hour, Sensor: b.name}
	patient.Quiet = func(*telemetry.Event) int64 { return 0 }
	b.more = []absence.Rule{patient}
	b.begin(telemetry.Position{})
	b.sends("oven")
	b.now = limit + 2*time.Second
	b.sends("kiln")
	b.look()
	b.now = forget + 2*time.Second
	b.sends("kiln")
	b.look()
	if got := strings.Join(b.said, ", "); got != "oven fell, oven forgotten" {
		t.Errorf("it says %q", got)
	}
}

// A device that is removed while the roster is written is in it, so the next owner cannot go on from that.
func TestRemovedWhileTheRosterIsWritten(t *testing.T) {
	b := newBench(t)
	store := &during{Store: b.store}
	b.store = store
	b.begin(telemetry.Position{})
	b.sends("oven")
	b.now = limit + 2*time.Second
	b.sends("kiln")
	b.look()
	if saved := b.Save(t.Context(), true); saved.Needed || len(b.fell) != 1 {
		t.Fatalf("%+v, silent: %v", saved, b.fell)
	}

	store.write = func() { b.Forget(sensor.Of("oven")) }
	b.sends("kiln")
	if saved := b.Save(t.Context(), true); !saved.Needed {
		t.Errorf("the roster that has it is good enough: %+v", saved)
	}
}

// Who catches up reads more of the log within seconds than the next owner would read again: the roster is written at once.
// One that cannot be written holds nothing up, and is tried again a minute later.
func TestRosterOfWhoCatchesUp(t *testing.T) {
	b := newBench(t)
	b.sends("oven")
	b.Save(t.Context(), true)
	b.store = records.Around(b.store, func(_ context.Context, op records.Op, _ string, call func(context.Context) error) error {
		if op == records.OpWrite {
			return errors.New("down")
		}
		return call(t.Context())
	})
	b.begin(b.log[0].Position)
	for range 5 {
		b.now += 4 * time.Minute
		b.sends("kiln")
	}
	if saved := b.Save(t.Context(), false); saved.Err == nil || saved.Needed {
		t.Errorf("it is written at once, and what cannot be written holds nothing up: %+v", saved)
	}
	if saved := b.Save(t.Context(), false); saved.Wrote {
		t.Errorf("what cannot be written is tried again at each tick: %+v", saved)
	}
}

// during calls write while a record is written.
type during struct {
	records.Store
	write func()
}

func (d *during) Write(ctx context.Context, r records.Record) (string, error) {
	if d.write != nil {
		d.write()
	}
	return d.Store.Write(ctx, r)
}
