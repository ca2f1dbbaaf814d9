package roster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Roster does what a plain map does.
func TestRoster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const fields = 2
		r := roster.New(columns("offline", "dead"))
		model := map[string][fields]roster.Heard{}
		device := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("device-", rapid.IntRange(0, 5).Draw(t, "device")) })
		t.Repeat(map[string]func(*rapid.T){
			"hear": func(t *rapid.T) {
				name, field := device.Draw(t, "name"), rapid.IntRange(0, fields-1).Draw(t, "field")
				h := roster.Heard{Sequence: rapid.Int64Range(0, 20).Draw(t, "sequence"), Time: rapid.Int64Range(1, 100).Draw(t, "time"), Quiet: rapid.Int64Range(0, 5).Draw(t, "quiet")}
				r.Hear(r.Add(sensor.Of(name)), field, h)
				of := model[name]
				if of[field].Time == 0 || h.Sequence > of[field].Sequence {
					of[field] = h
				}
				model[name] = of
			},
			"forget": func(t *rapid.T) {
				name, field := device.Draw(t, "name"), rapid.IntRange(0, fields-1).Draw(t, "field")
				of, known := model[name]
				if !known {
					return
				}
				of[field] = roster.Heard{}
				model[name] = of
				if of == [fields]roster.Heard{} {
					delete(model, name)
				}
				if _, known := model[name]; r.Forget(r.Device(sensor.Of(name)), field) == known {
					t.Fatal("Forget says that it has removed a device that is known, or not one that is not")
				}
			},
			"come back": func(t *rapid.T) {
				packed := records.Compress(r.Encode())
				back, err := roster.Decode(packed)
				if err != nil {
					t.Fatal(err)
				}
				same(t, back, r)
				r = back.With(columns("dead", "other", "offline"), 1).With(columns("offline", "dead"), 1+roster.KeepIdle.Milliseconds())
			},
			"": func(t *rapid.T) {
				if r.Len() != len(model) {
					t.Fatalf("%d devices, want %d", r.Len(), len(model))
				}
				for name, of := range model {
					for field, h := range of {
						if got := r.Heard(r.Device(sensor.Of(name)), field); got != h {
							t.Fatalf("%s, field %d: %+v, want %+v", name, field, got, h)
						}
					}
				}
			},
		})
	})
}

// What is encoded comes back, whatever it is.
func TestRosterComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.Custom(func(t *rapid.T) roster.Place {
			return roster.Place{Sequence: rapid.Int64().Draw(t, "sequence"), Time: rapid.Int64Range(0, 1<<42).Draw(t, "time")}
		})
		fields := columns(rapid.SliceOfNDistinct(rapid.String(), 1, 3, rapid.ID).Draw(t, "rules")...)
		r := roster.New(fields)
		r.Raise(place.Draw(t, "floor"))
		r.Miss(rapid.Int64Range(0, 1<<42).Draw(t, "before the gap"), place.Draw(t, "gap"))
		r.Position = telemetry.Position{
			Generation: rapid.String().Draw(t, "generation"), Sequence: rapid.Int64().Draw(t, "position"), Offset: rapid.String().Draw(t, "offset"),
			Time: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time")).UTC(),
		}
		for _, name := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, sensor.MaxDevice), 1, 20).Draw(t, "names") {
			r.Hear(r.Add(sensor.Of(string(name))), rapid.IntRange(0, len(fields)-1).Draw(t, "field"), roster.Heard{
				Sequence: rapid.Int64Min(-1).Draw(t, "sequence"), Time: rapid.Int64Range(1, 1<<42).Draw(t, "time"), Quiet: rapid.SampledFrom([]int64{0, 1, roster.Excluded, math.MaxInt64}).Draw(t, "quiet"),
			})
		}
		packed := records.Compress(r.Encode())
		got, err := roster.Decode(packed)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, r)
	})
}

// columns returns those of rules that hear anything, for 15 minutes.
func columns(names ...string) (all []roster.Column) {
	for _, name := range names {
		all = append(all, roster.Column{Rule: name, Limit: 15 * time.Minute})
	}
	return all
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// same compares what two rosters encode.
func same(t tester, got, want *roster.Roster) {
	t.Helper()
	if !bytes.Equal(got.Encode(), want.Encode()) {
		t.Fatalf("got  %q\nwant %q", got.Encode(), want.Encode())
	}
}

func TestRosterIsBounded(t *testing.T) {
	r := roster.New(columns("offline"))
	for i := range roster.MaxDevices + 1 {
		if d := r.Add(sensor.Of(fmt.Sprint("device-", i))); (d < 0) != (i == roster.MaxDevices) {
			t.Fatalf("device %d has the number %d", i, d)
		}
	}
	if r.Add(sensor.Of("device-7")) != 7 {
		t.Error("a device that was known is not")
	}
}

func TestSilence(t *testing.T) {
	const minute = 60_000
	type place = roster.Place
	heard := roster.Heard{Sequence: 5, Time: 100 * minute}
	for _, tt := range []struct {
		name     string
		happened func(*roster.Roster)
		quiet    int64 // until when, in minutes
		since    place // in minutes
		deadline int64 // likewise
	}{
		{"nothing", func(*roster.Roster) {}, 0, place{5, 100}, 115},
		{"a floor", func(r *roster.Roster) { r.Raise(place{7, 103 * minute}) }, 0, place{7, 103}, 118},
		{"quiet after a floor", func(r *roster.Roster) { r.Raise(place{7, 103 * minute}) }, 130, place{7, 103}, 130},
		{"a gap", func(r *roster.Roster) { r.Miss(108*minute, place{9, 110 * minute}) }, 0, place{9, 110}, 125},
		{"a gap before", func(r *roster.Roster) { r.Miss(90*minute, place{4, 91 * minute}) }, 0, place{5, 100}, 115},
		{"a gap for as long as the limit", func(r *roster.Roster) { r.Miss(101*minute, place{9, 117 * minute}) }, 0, place{9, 117}, 132},
		{"gaps again and again", func(r *roster.Roster) {
			for m := int64(101); m < 150; m++ {
				r.Miss((m-1)*minute, place{m, m * minute})
			}
		}, 0, place{5, 100}, 130},
		{"gaps again and again after a floor", func(r *roster.Roster) {
			r.Raise(place{7, 103 * minute})
			for m := int64(104); m < 150; m++ {
				r.Miss((m-1)*minute, place{m, m * minute})
			}
		}, 0, place{7, 103}, 133},
	} {
		r := roster.New(columns("offline"))
		tt.happened(r)
		h := heard
		h.Quiet = tt.quiet * minute
		since, deadline := r.Silence(0, h)
		if want := (place{tt.since.Sequence, tt.since.Time * minute}); since != want || deadline != tt.deadline*minute {
			t.Errorf("%s: since %+v until %d, want %+v until %d", tt.name, since, deadline/minute, want, tt.deadline)
		}
	}

	heard.Quiet = math.MaxInt64
	if _, deadline := roster.New(columns("offline")).Silence(0, heard); deadline != math.MaxInt64 {
		t.Errorf("of a device that is quiet for ever: deadline %d", deadline)
	}
}

// A rule goes on with its own column, or with that of a rule that hears the same; what nobody heard for lately, and what heard
// something else, begins at the present time. Columns of other rules are kept for a while.
func TestColumnsOfOtherRules(t *testing.T) {
	const now = 1_000_000
	hears := func(what string, rules ...string) []roster.Column {
		all := columns(rules...)
		for i := range all {
			all[i].Hears = what
		}
		return all
	}
	only := func(class, rule string) []roster.Column {
		all := hears("temp", rule)
		all[0].Only = class
		return all
	}
	r := roster.New(hears("temp", "dead"))
	r.Position.Sequence = 9
	h := roster.Heard{Sequence: 5, Time: 100}
	r.Hear(r.Add(sensor.Of("oven")), 0, h)
	own, anew := roster.Place{Sequence: 5, Time: 100}, roster.Place{Sequence: 9, Time: now}
	other := columns("other")
	missed := r.With(hears("temp", "lost"), 50)
	missed.Hear(missed.Device(sensor.Of("oven")), 0, roster.Heard{Sequence: 8, Time: 140})
	missed = missed.With(hears("temp", "dead"), now)
	if last := missed.Last(sensor.Of("oven"), "dead"); last.Sequence != 8 {
		t.Errorf("what another rule has heard is not known: %+v", last)
	}
	for name, tt := range map[string]struct {
		r     *roster.Roster
		rule  string
		since roster.Place
	}{
		"as before":          {r.With(hears("temp", "dead"), now), "dead", own},
		"beside another":     {r.With(append(columns("other"), hears("temp", "dead")...), now), "dead", own},
		"renamed":            {r.With(hears("temp", "lost"), now), "lost", own},
		"it hears another":   {r.With(hears("humidity", "dead"), now), "dead", anew},
		"it is about others": {r.With(only("frozen", "dead"), now), "dead", roster.Place{}},
		"the same others":    {r.With(append(only("frozen", "other"), only("frozen", "dead")...), now), "dead", roster.Place{}},
		"missing for a time, and another heard the same": {missed, "dead", roster.Place{Sequence: 8, Time: 140}},
		"missing for a time":                             {r.With(other, 50).With(hears("temp", "dead"), now), "dead", anew},
		"kept by two":                                    {r.With(other, 50).With(columns("another"), 60).With(hears("temp", "dead"), now), "dead", anew},
		"missing for too long":                           {r.With(other, 50).With(other, 51+roster.KeepIdle.Milliseconds()).With(hears("temp", "dead"), now), "dead", roster.Place{}},
		"of another rule later":                          {r.With(other, 50).With(hears("temp", "lost"), now), "lost", roster.Place{}},
	} {
		got := tt.r.Last(sensor.Of("oven"), tt.rule)
		if got == (roster.Heard{}) != (tt.since == roster.Place{}) {
			t.Errorf("%s: heard %+v", name, got)
			continue
		}
		if excused := got.Quiet == now; excused != (tt.since == anew) {
			t.Errorf("%s: excused until %d, since %+v", name, got.Quiet, tt.since)
		}
		if since, _ := tt.r.Silence(tt.r.Column(tt.rule), got); got != (roster.Heard{}) && since != tt.since {
			t.Errorf("%s: since %+v, want %+v", name, since, tt.since)
		}
	}
}

// A device that version 1.0 expected although nobody had heard it is not one that was heard.
func TestDeviceThatAnOlderVersionAwaited(t *testing.T) {
	r := roster.New(columns("offline"))
	r.Hear(r.Add(sensor.Of("ghost")), 0, roster.Heard{Sequence: -2, Time: 5})
	r.Hear(r.Add(sensor.Of("oven")), 0, roster.Heard{Sequence: 7, Time: 6})
	got, err := roster.Decode(records.Compress(r.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if ghost, oven := got.Last(sensor.Of("ghost"), "offline"), got.Last(sensor.Of("oven"), "offline"); ghost != (roster.Heard{}) || oven.Sequence != 7 {
		t.Errorf("heard are %+v and %+v", ghost, oven)
	}
}

// Whatever a record has, reading it ends, and what it has comes back.
func FuzzDecode(f *testing.F) {
	r := roster.New(columns("offline", "dead"))
	r.Hear(r.Add(sensor.Of("oven-7")), 0, roster.Heard{Sequence: 7, Time: 1e12})
	f.Add(r.Encode())
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		packed := records.Compress(content)
		got, err := roster.Decode(packed)
		if err != nil {
			return
		}
		packed = records.Compress(got.Encode())
		again, err := roster.Decode(packed)
		if err != nil {
			t.Fatal(err)
		}
		same(t, again, got)
	})
}

func TestFile(t *testing.T) {
	ctx, store := context.Background(), &records.Memory{}
	a, b := &roster.File{Store: store, Name: "roster/0"}, &roster.File{Store: store, Name: "roster/0"}
	if r, _, why, err := a.Read(ctx); r != nil || why != nil || err != nil {
		t.Fatalf("of no record: %v, %v, %v", r, why, err)
	}
	r := roster.New(columns("offline"))
	r.Add(sensor.Of("oven-7"))
	if err := a.Write(ctx, r.Encode(), roster.Expected{}); err != nil {
		t.Fatal(err)
	}
	if r, now, why, err := b.Read(ctx); r == nil || r.Len() != 1 || now.IsZero() || why != nil || err != nil {
		t.Fatalf("%v, %v, %v, %v", r, now, why, err)
	}
	if err := b.Write(ctx, r.Encode(), roster.Expected{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(ctx, r.Encode(), roster.Expected{}); !errors.Is(err, records.ErrConflict) {
		t.Errorf("over another's: %v", err)
	}
	if err := a.Write(ctx, r.Encode(), roster.Expected{}); err != nil {
		t.Errorf("after a conflict: %v", err)
	}
	if err := a.Write(ctx, make([]byte, 64<<20+1), roster.Expected{}); err == nil {
		t.Error("what nobody can read is written")
	}
	if r, _, why, err := b.Read(ctx); r == nil || why != nil || err != nil {
		t.Errorf("after it: %v, %v, %v", r, why, err)
	}
	if _, err := store.Write(ctx, records.Record{Name: "roster/0", Content: []byte("garbage"), ETag: records.Any}); err != nil {
		t.Fatal(err)
	}
	if r, _, why, err := b.Read(ctx); r != nil || why == nil || err != nil {
		t.Errorf("of garbage: %v, %v, %v", r, why, err)
	}
}

// A store rounds its time down. Deadlines that begin then would be up to a second early.
func TestReadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(records.Resolution - time.Millisecond)
		f := &roster.File{Store: &records.Memory{}, Name: "roster/0"}
		if _, before, _, err := f.Read(t.Context()); err != nil || before.Before(time.Now()) {
			t.Errorf("read before %v, it says: %v (%v)", time.Now(), before, err)
		}
	})
}

// fleet returns a roster of devices with UUIDs for names, or names that count up.
func fleet(n int, uuids bool) *roster.Roster {
	r := roster.New(columns("offline"))
	r.Position = telemetry.Position{Sequence: 1e9, Offset: "1", Time: time.UnixMilli(1.77e12)}
	x := uint64(1)
	random := func() uint64 { // splitmix64
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	for i := range n {
		name := fmt.Sprintf("truck-%06d", i)
		if uuids {
			a, b := random(), random()
			name = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
		}
		ago := int64(random() % 900_000)
		r.Hear(r.Add(sensor.Of(name)), 0, roster.Heard{Sequence: 1e9 - ago*35, Time: 1.77e12 - ago})
	}
	return r
}

// live returns how many bytes of the heap are in use, once no more of it is freed.
func live() int64 {
	var m runtime.MemStats
	for last := int64(math.MaxInt64); ; last = int64(m.HeapAlloc) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if int64(m.HeapAlloc) >= last {
			return last
		}
	}
}

// At most 170 bytes of memory a device, and 30 in the store.
func TestRosterSize(t *testing.T) {
	const n = 31_250 // of a million in 32 partitions
	for name, uuids := range map[string]bool{"counting": false, "UUIDs": true} {
		before := live()
		r := fleet(n, uuids)
		memory := float64(live()-before) / n
		packed := records.Compress(r.Encode())
		stored := float64(len(packed)) / n
		t.Logf("%s: %.0f bytes of memory, %.1f stored for each device", name, memory, stored)
		if stored > 30 || memory > 170 {
			t.Errorf("%s: %.0f bytes of memory, %.1f stored for each device", name, memory, stored)
		}
		if !bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) {
			t.Error("not gzip")
		}
	}
}

func BenchmarkHear(b *testing.B) {
	for _, n := range []int{1000, 31_250} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := fleet(n, false)
			names, hashes := make([]string, n), make([]uint64, n)
			for i := range names {
				names[i] = fmt.Sprintf("truck-%06d", i)
				hashes[i] = roster.Hash(names[i])
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if i++; i == n {
					i = 0
				}
				r.Hear(r.Find(names[i], hashes[i], nil), 0, roster.Heard{Sequence: int64(2e9 + i), Time: 2e12})
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	r := fleet(31_250, true)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			r.Encode()
		}
	})
	b.Run("pack", func(b *testing.B) {
		content := r.Encode()
		for b.Loop() {
			records.Compress(content)
		}
	})
}
