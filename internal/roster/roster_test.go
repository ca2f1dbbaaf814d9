package roster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// A Roster does what a plain map does.
func TestRoster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const fields = 2
		r := roster.New([]string{"", "temp"})
		model := map[string][fields]roster.Heard{}
		device := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("device-", rapid.IntRange(0, 5).Draw(t, "device")) })
		t.Repeat(map[string]func(*rapid.T){
			"hear": func(t *rapid.T) {
				name, field := device.Draw(t, "name"), rapid.IntRange(0, fields-1).Draw(t, "field")
				h := roster.Heard{Sequence: rapid.Int64Range(0, 20).Draw(t, "sequence"), Time: rapid.Int64Range(1, 100).Draw(t, "time"), Quiet: rapid.Int64Range(0, 5).Draw(t, "quiet")}
				r.Hear(r.Add(name), field, h)
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
				if _, known := model[name]; r.Forget(r.Device(name), field) == known {
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
				r = back.With([]string{"temp", "other", ""}).With([]string{"", "temp"})
			},
			"": func(t *rapid.T) {
				if r.Len() != len(model) {
					t.Fatalf("%d devices, want %d", r.Len(), len(model))
				}
				for name, of := range model {
					for field, h := range of {
						if got := r.Heard(r.Device(name), field); got != h {
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
		fields := rapid.SliceOfNDistinct(rapid.String(), 1, 3, rapid.ID).Draw(t, "fields")
		r := roster.New(fields)
		r.Position = telemetry.Position{
			Generation: rapid.String().Draw(t, "generation"), Sequence: rapid.Int64().Draw(t, "position"), Offset: rapid.String().Draw(t, "offset"),
			Time: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time")).UTC(),
		}
		r.Floor = roster.Place{Sequence: rapid.Int64().Draw(t, "floor"), Time: rapid.Int64().Draw(t, "floor's time")}
		for _, name := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, roster.MaxName), 1, 20).Draw(t, "names") {
			r.Hear(r.Add(string(name)), rapid.IntRange(0, len(fields)-1).Draw(t, "field"), roster.Heard{
				Sequence: rapid.Int64().Draw(t, "sequence"), Time: rapid.Int64Range(1, 1<<42).Draw(t, "time"), Quiet: rapid.SampledFrom([]int64{0, 1, math.MaxInt64}).Draw(t, "quiet"),
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
	r := roster.New([]string{""})
	for i := range roster.MaxDevices + 1 {
		if d := r.Add(fmt.Sprint("device-", i)); (d < 0) != (i == roster.MaxDevices) {
			t.Fatalf("device %d has the number %d", i, d)
		}
	}
	if r.Add(string(make([]byte, roster.MaxName+1))) >= 0 || r.Add("device-7") != 7 {
		t.Error("a device too many, or one with too long a name, is known; or one that was known is not")
	}
}

func TestDeadline(t *testing.T) {
	r := roster.New([]string{""})
	minute := time.Minute.Milliseconds()
	h := roster.Heard{Sequence: 5, Time: 100 * minute}
	if got := r.Deadline(h, 15*time.Minute); got != 115*minute || r.Since(h) != (roster.Place{Sequence: 5, Time: 100 * minute}) {
		t.Errorf("deadline %d, since %+v", got/minute, r.Since(h))
	}
	r.Raise(roster.Place{Sequence: 7, Time: 103 * minute})
	if got := r.Deadline(h, 15*time.Minute); got != 118*minute || r.Since(h) != (roster.Place{Sequence: 7, Time: 103 * minute}) {
		t.Errorf("after a gap: deadline %d, since %+v", got/minute, r.Since(h))
	}
	h.Quiet = 130 * minute
	if got := r.Deadline(h, 15*time.Minute); got != 130*minute {
		t.Errorf("of a quiet device: deadline %d", got/minute)
	}
	h.Quiet = math.MaxInt64
	if got := r.Deadline(h, 15*time.Minute); got != math.MaxInt64 {
		t.Errorf("of a device that is quiet for ever: deadline %d", got)
	}
}

// Whatever a record has, reading it ends, and what it has comes back.
func FuzzDecode(f *testing.F) {
	r := roster.New([]string{"", "temp"})
	r.Hear(r.Add("oven-7"), 0, roster.Heard{Sequence: 7, Time: 1e12})
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
	r := roster.New([]string{""})
	r.Add("oven-7")
	if err := a.Write(ctx, r.Encode()); err != nil {
		t.Fatal(err)
	}
	if r, now, why, err := b.Read(ctx); r == nil || r.Len() != 1 || now.IsZero() || why != nil || err != nil {
		t.Fatalf("%v, %v, %v, %v", r, now, why, err)
	}
	if err := b.Write(ctx, r.Encode()); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(ctx, r.Encode()); !errors.Is(err, records.ErrConflict) {
		t.Errorf("over another's: %v", err)
	}
	if err := a.Write(ctx, r.Encode()); err != nil {
		t.Errorf("after a conflict: %v", err)
	}
	if _, err := store.Write(ctx, records.Record{Name: "roster/0", Content: []byte("garbage"), ETag: records.Any}); err != nil {
		t.Fatal(err)
	}
	if r, _, why, err := b.Read(ctx); r != nil || why == nil || err != nil {
		t.Errorf("of garbage: %v, %v, %v", r, why, err)
	}
}

// fleet returns a roster of devices with UUIDs for names, or names that count up.
func fleet(n int, uuids bool) *roster.Roster {
	r := roster.New([]string{""})
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
		r.Hear(r.Add(name), 0, roster.Heard{Sequence: 1e9 - ago*35, Time: 1.77e12 - ago})
	}
	return r
}

// At most 100 bytes of memory a device, and 30 in the store.
func TestRosterSize(t *testing.T) {
	const n = 31_250 // of a million in 32 partitions
	for name, uuids := range map[string]bool{"counting": false, "UUIDs": true} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := fleet(n, uuids)
		runtime.GC()
		runtime.ReadMemStats(&after)
		packed := records.Compress(r.Encode())
		memory, stored := float64(after.HeapAlloc-before.HeapAlloc)/n, float64(len(packed))/n
		t.Logf("%s: %.0f bytes of memory, %.1f stored for each device", name, memory, stored)
		if stored > 30 || memory > 100 {
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
				r.Hear(r.Find(names[i], hashes[i]), 0, roster.Heard{Sequence: int64(2e9 + i), Time: 2e12})
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
