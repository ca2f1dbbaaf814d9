package absence_test

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// sendsOf has a device send a measurement of one of its sensors, which says this of whether it is expected.
func (b *bench) sendsOf(device, name, about string) {
	b.sensor = name
	b.sendsAbout(device, about)
	b.sensor = ""
}

// A gateway has two sensors, and each is heard by its own measurements alone. The other gateway goes on.
func TestSensorsFallSilent(t *testing.T) {
	const m = time.Minute
	gateway := func(b *bench, names ...string) {
		for _, name := range names {
			b.sendsOf("gw", name, expected)
		}
		b.sendsOf("other", "flow", expected)
		b.prove()
		b.look()
	}
	pass := func(b *bench, d time.Duration, names ...string) {
		for range int(d / m) {
			b.now += m
			gateway(b, names...)
		}
	}
	for name, tt := range map[string]struct {
		do   func(b *bench)
		want string
	}{
		"one of them is silent": {func(b *bench) { pass(b, 12*m, "flow") }, "gw / return fell"},
		"it is heard again":     {func(b *bench) { pass(b, 12*m, "flow"); pass(b, m, "flow", "return") }, "gw / return fell, gw / return heard by 29"},
		"both send in turn": {func(b *bench) {
			for range 20 {
				pass(b, 5*m, "flow")
				pass(b, 4*m, "return")
			}
		}, ""},
		"the gateway is silent: that is one alert":           {func(b *bench) { pass(b, 30*m) }, "gw fell"},
		"although its sensors were heard at different times": {func(b *bench) { pass(b, 6*m, "flow"); pass(b, 30*m) }, "gw fell"},
		"it comes back, and its sensors one by one": {func(b *bench) {
			pass(b, 30*m)
			pass(b, 8*m, "flow")
			pass(b, 5*m, "flow", "return")
		}, "gw fell, gw heard by 34"},
		"it comes back, but for a sensor": {func(b *bench) { pass(b, 30*m); pass(b, 12*m, "flow") }, "gw fell, gw heard by 34, gw / return fell"},
		"it comes back, and has another owner before anybody looks": {func(b *bench) {
			pass(b, 30*m)
			b.now += m
			b.sendsOf("gw", "flow", expected)
			b.Save(t.Context(), true)
			b.begin(b.log[len(b.log)-1].Position)
			pass(b, 7*m, "flow")
		}, "gw fell, gw heard by 34"},
		"a sensor is silent, and then the gateway": {func(b *bench) {
			pass(b, 12*m, "flow")
			pass(b, 12*m)
			pass(b, m, "return")
		}, "gw / return fell, gw fell, gw heard by 40, gw / return heard by 40"},
		"a sensor is excluded":                       {func(b *bench) { b.sendsOf("gw", "return", excluded); pass(b, 12*m, "flow") }, ""},
		"the other one still stands for the gateway": {func(b *bench) { b.sendsOf("gw", "return", excluded); pass(b, 12*m) }, "gw fell"},
		"both are excluded": {func(b *bench) {
			b.sendsOf("gw", "return", excluded)
			b.sendsOf("gw", "flow", excluded)
			pass(b, 12*m)
		}, ""},
		"a sensor is forgotten": {func(b *bench) { pass(b, 62*m, "flow") }, "gw / return fell, gw / return forgotten, unwatched"},
		"a sensor is removed": {func(b *bench) {
			b.Forget(sensor.ID{Device: "gw", Name: "return"})
			pass(b, 12*m, "flow")
		}, "unwatched"},
		"the gateway is removed, with its sensors": {func(b *bench) {
			b.Forget(sensor.Of("gw"))
			pass(b, 12*m)
		}, "unwatched, unwatched, unwatched"},
		"the next owner goes on": {func(b *bench) {
			pass(b, 6*m, "flow")
			b.Save(t.Context(), true)
			b.begin(b.log[len(b.log)-1].Position)
			pass(b, 6*m, "flow")
		}, "gw / return fell"},
		"the next owner knows what was removed": {func(b *bench) {
			b.Forget(sensor.ID{Device: "gw", Name: "return"})
			b.Save(t.Context(), false)
			b.begin(b.log[len(b.log)-1].Position)
			pass(b, 12*m, "flow")
		}, "unwatched"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			gateway(b, "flow", "return")
			tt.do(b)
			if got := strings.Join(b.said, ", "); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// Measurements of sensors that are known cost no allocation.
func TestHearingSensorsAllocatesNothing(t *testing.T) {
	b := newBench(t)
	b.sendsOf("gw", "return", expected)
	e := telemetry.Event{Device: "gw", Enqueued: b.start.Add(time.Second)}
	b.sensor = "return"
	if n := testing.AllocsPerRun(100, func() {
		e.Sequence++
		b.hear(e, true, 0)
	}); n > 1 { // that of the event
		t.Errorf("%v allocations", n)
	}
}
