package silence_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/silence"
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
	*silence.Watch
	t        tester
	store    records.Store
	start    time.Time
	now      time.Duration
	log      []telemetry.Event
	said     []string                   // in the order in which it was said
	fell     map[string]silence.Silence // that have alarms
	quiet    int64                      // of the next event: see silence.Rule
	refuse   bool                       // there is no room for alarms
	muted    bool                       // people do not want to hear of any silence
	askedHub bool                       // by the last look
	sensor   string                     // that the event being heard is of; empty: the device's own

	partitions []string // of the hub
}

func newBench(t tester) *bench {
	b := &bench{partitions: []string{"0"},
		t: t, store: &records.Memory{},
		start: time.Now().Add(time.Second).Truncate(time.Millisecond), // after the floor of a new partition
		fell:  map[string]silence.Silence{},
	}
	b.begin(telemetry.Position{}, nil)
	return b
}

// begin makes a new Watch, as the next owner of the partition does, and returns where reading has to begin.
func (b *bench) begin(
	at telemetry.Position, removed map[sensor.ID]int64,
) (from telemetry.Position, ended []silence.Ended) {
	b.t.Helper()
	rule := silence.Rule{Column: roster.Column{Rule: "offline", Limit: limit}, Field: -1, Says: says, Forget: forget, Sensor: b.name}
	rule.Quiet = func(*telemetry.Event) int64 { return b.quiet }
	file := &roster.File{Store: b.store, Name: "roster/0"}
	b.Watch = silence.New([]silence.Rule{rule}, b, whole, file, zap.NewNop())
	if err := b.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	var open []silence.Open
	for _, device := range slices.Sorted(maps.Keys(b.fell)) {
		open = append(open, silence.Open{Of: b.fell[device].Of, Since: b.fell[device].Since})
	}
	return b.Begin(at, open, removed)
}

// What events say of whether their device is expected to be heard, in their bodies.
const (
	expected = ""
	excluded = "excluded"
	nothing  = "nothing"
)

func says(e *telemetry.Event, _ []telemetry.Found) silence.Says {
	switch string(e.Body) {
	case excluded:
		return silence.Excluded
	case nothing:
		return silence.Nothing
	}
	return silence.Expected
}

func (b *bench) say(format string, a ...any) { b.said = append(b.said, fmt.Sprintf(format, a...)) }

func (b *bench) name(to []byte) []byte { return append(to, b.sensor...) }

func (b *bench) Muted(int, sensor.ID, int64) bool { return b.muted }

func (b *bench) Fell(_ int, s silence.Silence) bool {
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

func (b *bench) Unwatched(sensor.ID, bool) { b.say("unwatched") }

// askDark says which of two partitions are dark, as the store has it.
func (b *bench) askDark() {
	p := silence.Partitions{All: len(b.partitions)}
	var err error
	if p.Dark, p.Complete, err = (&roster.File{Store: b.store, Name: "roster/0"}).Dark(b.t.Context(), b.partitions); err != nil {
		b.t.Fatal(err)
	}
	b.TellOfHub(b.start.Add(b.now), p)
}

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
		b.Hear(&e, roster.Hash(e.Device), []int{0}, nil)
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
	p := silence.Proof{At: b.start.Add(b.now), Until: b.start.Add(b.now).UnixMilli(), Sequence: -1}
	if n := len(b.log); n > 0 {
		p.Sequence, p.Enqueued = b.log[n-1].Sequence, b.log[n-1].Enqueued
	}
	b.Prove(&p)
}

// look looks once.
func (b *bench) look() {
	b.t.Helper()
	q := b.Look(b.start.Add(b.now), false)
	b.askedHub = q.Hub
	if q.Dark {
		b.askDark()
	}
}

// Whoever starts over in another hub writes the roster before the checkpoint: else the next owner would go on from one
// that knows nothing of what was read since.
func TestRosterOfAnotherHub(t *testing.T) {
	b := newBench(t)
	b.sends("oven")
	b.Save(t.Context(), true)
	b.begin(telemetry.Position{Generation: "another"}, nil)
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

// A roster that was written at the start of an empty partition is none to go on from: the first events are in one before
// a checkpoint passes them.
func TestRosterOfAnEmptyPartition(t *testing.T) {
	b := newBench(t)
	empty := telemetry.Position{Generation: "another", Sequence: -1, Offset: "-1"}
	b.begin(empty, nil)
	b.Save(t.Context(), true)
	b.begin(empty, nil)
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
			pass(b, limit+2*s)
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
			pass(b, limit+2*s)
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

// If hardly anybody is heard, the partition is dark: one silence stands for all, until half are heard again. Then
// everybody has the limit once more.
func TestDark(t *testing.T) {
	b := newBench(t)
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprint("device-", i))
	}
	says := func(when, want string) {
		t.Helper()
		b.look()
		if got := strings.Join(b.said, ", "); got != want {
			t.Errorf("%s it says %q, want %q", when, got, want)
		}
	}

	b.sends(all...)
	b.now = limit / 2
	b.sends(all[0])
	b.now = limit + 2*time.Second
	b.sends(all[0])
	says("with one of 25 devices heard", "")
	b.Save(t.Context(), false)
	says("once the roster says so", whole+" fell")
	b.now += time.Second
	b.sends(all[1:12]...)
	says("with 12 of 25 devices heard", whole+" fell")
	b.sends(all[12:24]...)
	says("with all but one heard", whole+" fell")
	b.Save(t.Context(), false)
	says("once the roster is written", whole+" fell, "+whole+" over")
	b.now += limit - time.Second
	b.sends(all[:24]...)
	says("before the last one has had the limit again", whole+" fell, "+whole+" over")
	b.now += 3 * time.Second
	b.sends(all[:24]...)
	says("after that", whole+" fell, "+whole+" over, device-24 fell")
}

// A mute that begins while the partition is dark brings nobody back.
func TestDarkIsNotOverBecauseItIsMuted(t *testing.T) {
	b := newBench(t)
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprint("device-", i))
	}
	b.sends(all...)
	b.now = limit / 2
	b.sends(all[0])
	b.now = limit + 2*time.Second
	b.sends(all[0])
	b.look()
	b.Save(t.Context(), false)
	b.look()
	for _, b.muted = range []bool{true, false} {
		for range 2 {
			b.now += 2 * time.Second
			b.sends(all[0])
			b.look()
			b.Save(t.Context(), false)
		}
	}
	b.look()
	if got, want := strings.Join(b.said, ", "), whole+" fell"; got != want {
		t.Errorf("while one of 25 is heard it says %q, want %q", got, want)
	}
}

// Whoever takes over from an owner that died when the partition was dark no more tells of no device: either the roster
// says that deadlines have started anew, or the partition is still dark.
func TestDarkAcrossACrash(t *testing.T) {
	for _, written := range []bool{false, true} {
		b := newBench(t)
		var all []string
		for i := range 25 {
			all = append(all, fmt.Sprint("device-", i))
		}
		b.sends(all...)
		b.now = limit / 2
		b.sends(all[0])
		b.now = limit + 2*time.Second
		b.sends(all[0])
		b.look()
		b.Save(t.Context(), true)
		b.look()
		b.now += time.Second
		b.sends(all[:24]...)
		b.look()
		if written {
			b.Save(t.Context(), true)
		}
		b.look()

		from, _ := b.begin(b.log[len(b.log)-1].Position, nil)
		for _, e := range b.log[from.Sequence:] {
			b.hear(e, true, 0)
		}
		b.now += 3 * time.Second
		b.sends(all[0])
		b.look()
		b.Save(t.Context(), true)
		b.look()
		if got, want := strings.Join(b.said, ", "), whole+" fell, "+whole+" over"; got != want {
			t.Errorf("with the roster written: %v, they say %q, want %q", written, got, want)
		}
	}
}

// After a gap of the whole partition, as long as a device may be silent, everybody has the limit once more, however
// few are the first to be heard. With few devices nothing follows from a gap.
func TestDawn(t *testing.T) {
	for devices, want := range map[int]string{
		25: "",
		20: "device-1 fell, device-2 fell, device-3 fell, device-4 fell, device-5 fell, device-6 fell, device-7 fell, " +
			"device-8 fell, device-9 fell",
	} {
		b := newBench(t)
		var all []string
		for i := range devices {
			all = append(all, fmt.Sprint("device-", i))
		}
		b.sends(all...)
		b.now = limit + 10*time.Second
		b.sends(all[0])
		b.sends(all[10:]...)
		b.look()
		if got := strings.Join(b.said, ", "); got != want {
			t.Errorf("with half of %d devices heard it says %q, want %q", devices, got, want)
		}

		b.said = nil
		for range 2 {
			b.now += limit/2 + 2*time.Second
			b.sends(all[:9]...)
			b.sends(all[10:]...)
		}
		b.look()
		if got := strings.Join(b.said, ", "); devices == 25 && got != "device-9 fell" {
			t.Errorf("after another %v it says %q", limit, got)
		}
	}
}

// The hub is asked only while a deadline is over or a notice waits, and not all the time.
func TestQuestions(t *testing.T) {
	b := newBench(t)
	b.sends("oven")
	for _, tt := range []struct {
		at      time.Duration
		waiting bool
		want    bool
	}{
		{limit - time.Second, false, false},
		{limit - time.Second, true, true},
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

// Partitions of an outage are in the order of their numbers, however rosters are listed.
func TestPartitionsOfAnOutageAreInOrder(t *testing.T) {
	b := newBench(t)
	var dark []roster.DarkPartition
	for _, id := range []string{"0", "1", "10", "11", "2"} {
		dark = append(dark, roster.DarkPartition{ID: id, Dark: roster.Dark{Devices: 1}})
	}
	b.TellOfHub(time.Now(), silence.Partitions{All: 5, Dark: map[string][]roster.DarkPartition{"offline": dark}})
	want := []string{"0", "1", "2", "10", "11"}
	if got := b.fell[whole].Outage.Partitions; !slices.Equal(got, want) {
		t.Errorf("it names %v; want %v", got, want)
	}
}

// A next owner goes on with the roster and the alarms of the ledger.
func TestBegin(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name    string
		do      func(b *bench) // after the roster was written, with the oven in it, which is silent
		removed map[sensor.ID]int64
		lost    bool // the roster
		from    int64
		ended   int
		want    string // after that the partition is read from there, and nobody is heard for the limit
	}{
		{"nothing has happened", func(*bench) {}, nil, false, 2, 0, "kiln fell"},
		{"a former owner has heard it", func(b *bench) { b.sends("oven") }, nil, false, 2, 0,
			"oven heard by 3, oven fell, kiln fell"},
		{"so the roster says", func(b *bench) {
			b.sends("oven")
			b.Save(b.t.Context(), true)
		}, nil, false, 3, 1, "oven fell, kiln fell"},
		{"it was removed", func(*bench) {}, map[sensor.ID]int64{sensor.Of("oven"): 2}, false, 2, 0, "unwatched, kiln fell"},
		{"it was removed after the roster was written", func(b *bench) { b.sends("oven") }, map[sensor.ID]int64{sensor.Of("oven"): 3},
			false, 2, 0, "unwatched, kiln fell"},
		{"there is no roster", func(*bench) {}, nil, true, 2, 0, ""},
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
			if tt.removed != nil {
				clear(b.fell)
			}
			fell := maps.Clone(b.fell)
			if len(b.log) > 2 && tt.removed == nil {
				fell["oven"] = silence.Silence{Of: sensor.Of("oven"), Since: roster.Place{Sequence: 1, Time: b.start.UnixMilli()}}
			}
			b.said, b.fell = nil, fell
			from, ended := b.begin(b.log[len(b.log)-1].Position, tt.removed)
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
