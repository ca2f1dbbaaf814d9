package recent

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

func newGate(table *Windows) *Gate { return New(throttle.Config{}, table) }

// sent starts a window anew.
func (g *Gate) sent(of sensor.ID, end, frees time.Time) { g.set(of, end, frees, true) }

func (g *Gate) set(of sensor.ID, end, frees time.Time, isNew bool) {
	g.remember(of, throttle.Window{Ends: end, Frees: frees}, isNew)
}

// wait returns how long the key is known to be still held, and whether by a window in force.
func (g *Gate) wait(of sensor.ID) (left time.Duration, inForce bool) {
	now := g.table.at(time.Now())
	g.use(of, func(m *window) { left, inForce = m.frees(now), m.inForce(now) })
	return left, inForce
}

func deviceName(i int) string { return fmt.Sprintf("plant-7/oven-%08d", i) }

// A million devices are remembered, in at most 45 bytes each, whatever their number on the
// way there. It is the heap that counts: what it has after a collection with them less before.
func TestMillionWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("a million devices")
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w := newGate(NewWindows())
	before, end := heap(), time.Now().Add(time.Hour)
	const million = 1 << 20
	for i := range million {
		w.sent(sensor.Of(deviceName(i)), end, end)
		if n := i + 1; n == 100_000 || n == 300_000 || n == 640_000 || n == 900_000 || n == million {
			each := float64(heap()-before) / float64(n)
			t.Logf("%d devices: %.1f bytes each", n, each)
			if each > 45 {
				t.Errorf("%d devices take %.1f bytes each, want at most 45", n, each)
			}
		}
	}
	const sample = 8 // or it takes too long with the race detector
	for i := 0; i < million; i += sample {
		if !w.Recent(sensor.Of(deviceName(i))) {
			t.Fatalf("device %d of a million is forgotten", i)
		}
	}
	for i := million; i < 2*million; i += sample { // and two of them are never one
		if w.Recent(sensor.Of(deviceName(i))) {
			t.Fatalf("device %d is taken for another", i)
		}
	}
	const more = million / 4
	for i := million; i < million+more; i++ {
		w.sent(sensor.Of(deviceName(i)), end.Add(time.Hour), end)
	}
	if all := heap() - before; all > 42<<20 {
		t.Errorf("more devices than there is room for take %d bytes", all)
	}
	known := 0
	for i := 0; i < million+more; i += sample {
		if w.Recent(sensor.Of(deviceName(i))) {
			known += sample
		}
	}
	if known < million {
		t.Errorf("of %d devices %d are remembered, want a million", million+more, known)
	}
	runtime.KeepAlive(w)
}

// BenchmarkCollection collects garbage beside a million windows in force, and reports for how
// long that stops the program: half of the time, and at most in 99 of 100 collections.
func BenchmarkCollection(b *testing.B) {
	w, end := newGate(NewWindows()), time.Now().Add(time.Hour)
	for i := range 1 << 20 {
		w.sent(sensor.Of(deviceName(i)), end, end)
	}
	var pauses []uint64
	for b.Loop() {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		pauses = append(pauses, m.PauseNs[(m.NumGC+255)%256])
	}
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)/2])/1e3, "p50-pause-µs")
	b.ReportMetric(float64(pauses[len(pauses)*99/100])/1e3, "p99-pause-µs")
	runtime.KeepAlive(w)
}

// What is over makes room, however often all devices change.
func TestWindowsThatAreOverMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGate(NewWindows())
		for round := range 20 {
			for i := range 10_000 {
				end := time.Now().Add(time.Minute)
				w.sent(sensor.Of(deviceName(round*10_000+i)), end, end)
			}
			time.Sleep(keepCounts + 2*time.Minute)
		}
		slots := 0
		for i := range w.table.shards {
			slots += len(w.table.shards[i].slots)
		}
		if slots > 30_000 {
			t.Errorf("%d slots for 10,000 devices at a time", slots)
		}
	})
}

// The table does what a map would.
func TestWindowsAreAMap(t *testing.T) {
	type known struct {
		end, frees time.Time
		suppressed int64
	}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 5), 2, 2), 0, 60).Draw(rt, "steps")
		devices := rapid.SampledFrom([]int{1, 10, 1000}).Draw(rt, "devices")
		synctest.Test(t, func(*testing.T) {
			w, model := newGate(NewWindows()), map[string]*known{}
			for n, step := range steps {
				device := deviceName((n*7919 + step[1]) % devices)
				now, m := time.Now(), model[device]
				end := now.Add(time.Duration(step[1]) * 20 * time.Second)
				frees := end.Add(time.Duration(step[1]%3) * time.Second)
				switch step[0] {
				case 0, 1:
					w.set(sensor.Of(device), end, frees, step[0] == 0)
					if m == nil {
						m = &known{}
						model[device] = m
					}
					if m.end, m.frees = end, frees; step[0] == 0 {
						m.suppressed = 0
					}
				case 2:
					w.Suppressed(sensor.Of(device), 3)
					if m == nil {
						m = &known{}
						model[device] = m
					}
					m.suppressed += 3
				case 3:
					time.Sleep(time.Duration(step[1]) * 10 * time.Second)
				}
				now = time.Now()
				inForce := m != nil && now.Before(m.end)
				if got := w.Recent(sensor.Of(device)); got != inForce {
					rt.Fatalf("step %d: in force is %t, want %t", n, got, inForce)
				}
				if inForce {
					m.suppressed++
				}
				if m != nil && w.Count(sensor.Of(device)) != m.suppressed {
					rt.Fatalf("step %d: %d suppressed, want %d", n, w.Count(sensor.Of(device)), m.suppressed)
				}
				var wait time.Duration
				if m != nil {
					wait = max(0, m.frees.Sub(now))
				}
				if got, _ := w.wait(sensor.Of(device)); got < wait || got > wait+2*time.Millisecond {
					rt.Fatalf("step %d: the key is held for another %v, want %v", n, got, wait)
				}
				if _, got := w.wait(sensor.Of(device)); got != inForce {
					rt.Fatalf("step %d: in force %t, want %t", n, got, inForce)
				}
			}
		})
	})
}

// Either clock ends a window: one can be set, the other stands still in suspend.
func TestBothClocksEndAWindow(t *testing.T) {
	w := newGate(NewWindows())
	w.sent(sensor.Of("oven"), time.Now().Add(time.Minute), time.Now().Add(time.Minute))
	var m window
	w.use(sensor.Of("oven"), func(known *window) { m = *known })
	now := w.table.at(time.Now())
	const hour = int64(time.Hour / time.Millisecond)
	for _, test := range []struct {
		name string
		now  instant
		want bool
	}{
		{"now", now, true},
		{"after a suspend", instant{now.wall + hour, now.mono}, false},
		{"after the wall clock was set back", instant{now.wall - hour, now.mono + 61_000}, false},
		{"30 days later, after it was set back by a year", instant{now.wall - 365*24*hour, now.mono + 30*24*hour}, false},
		{"50 days later, after it was set back by a year", instant{now.wall - 365*24*hour, now.mono + math.MaxUint32}, false},
		{"after 60 days", instant{now.wall + 60*24*hour, now.mono + 60*24*hour}, false},
	} {
		if got := m.inForce(test.now); got != test.want {
			t.Errorf("%s: in force is %t", test.name, got)
		}
	}
}

// Counts stop at what their bits hold.
func TestSuppressedDoesNotOverflow(t *testing.T) {
	w := newGate(NewWindows())
	w.sent(sensor.Of("oven"), time.Now().Add(time.Minute), time.Time{})
	w.Suppressed(sensor.Of("oven"), maxCount-1)
	for range 3 {
		w.Recent(sensor.Of("oven"))
	}
	if got := w.Count(sensor.Of("oven")); got != maxCount {
		t.Errorf("%d", got)
	}
}

// Devices that share a window are counted once each, and anew after the next alert.
func TestWindowsCountDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, end := newGate(NewWindows()), time.Now().Add(time.Minute)
		counted := map[string]map[string]bool{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			site := rapid.SampledFrom([]string{"berlin", "paris"}).Draw(t, "site")
			switch device := deviceName(rapid.IntRange(0, 20).Draw(t, "device")); rapid.IntRange(0, 20).Draw(t, "step") {
			case 0:
				w.sent(sensor.Of(site), end, end)
				counted[site] = map[string]bool{}
			case 1:
				w.set(sensor.Of(site), end, end, false)
				if counted[site] == nil {
					counted[site] = map[string]bool{}
				}
			default:
				w.SuppressedShared(site, device)
				if counted[site] != nil {
					counted[site][device] = true
				}
			}
			if got := w.Count(sensor.Of(site)); got != int64(len(counted[site])) {
				t.Fatalf("%s: %d devices, want %d", site, got, len(counted[site]))
			}
		}
	})
}

// A window of years is in force for as long, not forgotten or misread.
func TestLongWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGate(NewWindows())
		end := time.Now().AddDate(3, 0, 0)
		w.sent(sensor.Of("oven"), end, end.AddDate(1, 0, 0))
		for _, days := range []int{0, 1, 30, 60, 365, 730} {
			time.Sleep(time.Until(end.AddDate(-3, 0, days)))
			if !w.Recent(sensor.Of("oven")) {
				t.Errorf("after %d days it is not in force", days)
			}
		}
		time.Sleep(time.Until(end))
		if w.Recent(sensor.Of("oven")) {
			t.Error("it does not end")
		}
	})
}

func TestRecentAllocatesNothing(t *testing.T) {
	g := New(throttle.Config{Window: time.Minute}, NewWindows())
	g.sent(sensor.Of("oven"), time.Now().Add(time.Hour), time.Now())
	if n := testing.AllocsPerRun(100, func() { g.Recent(sensor.Of("oven")); g.Recent(sensor.Of("another")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWindowsAreSafeForConcurrentUse(t *testing.T) {
	w := newGate(NewWindows())
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 2000 {
				device := deviceName((i * (n + 1)) % 3000)
				w.sent(sensor.Of(device), time.Now().Add(time.Hour), time.Now())
				w.Recent(sensor.Of(device))
				w.Suppressed(sensor.Of(device), 1)
				w.wait(sensor.Of(device))
			}
		})
	}
	all.Wait()
}

func BenchmarkRecentParallel(b *testing.B) {
	g := New(throttle.Config{Window: time.Minute}, NewWindows())
	names := make([]string, 100_000)
	for i := range names {
		names[i] = deviceName(i)
		end := time.Now().Add(time.Hour)
		g.sent(sensor.Of(names[i]), end, end)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			g.Recent(sensor.Of(names[i*7919%len(names)]))
		}
	})
}

// Gates that share a Windows keep apart what they remember, within one bound.
func TestGatesShareTheBound(t *testing.T) {
	if testing.Short() {
		t.Skip("two million devices")
	}
	table := NewWindows()
	end := time.Now().Add(time.Hour)
	var gates []*Gate
	for range 64 {
		w := newGate(table)
		gates = append(gates, w)
		for i := range 1000 {
			w.sent(sensor.Of(deviceName(i)), end, end)
		}
	}
	if other := newGate(table); other.Recent(sensor.Of(deviceName(1))) {
		t.Error("a window of another gate suppresses")
	}
	for _, w := range gates {
		if !w.Recent(sensor.Of(deviceName(999))) {
			t.Error("a window is forgotten")
		}
	}
	for _, w := range gates[:32] {
		for i := range 60_000 {
			w.sent(sensor.Of(deviceName(i)), end, end)
		}
	}
	slots := 0
	for i := range table.shards {
		slots += len(table.shards[i].slots)
	}
	if slots > shardCount*maxSlots {
		t.Errorf("%d slots for 64 gates, want %d at most", slots, shardCount*maxSlots)
	}
}
