package devices_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"alertworker/internal/lab/devhub/devices"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A sent message and when, counted from the start.
type sent struct {
	devices.Message
	at time.Duration
}

// run runs a fleet for so long, in a bubble's time.
func run(t *testing.T, c devices.Config, d time.Duration) (all []sent) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, err := devices.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		start := time.Now()
		err = f.Run(ctx, func(_ context.Context, m devices.Message) error {
			all = append(all, sent{m, time.Since(start)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != d {
			t.Errorf("Run returned after %v, want %v, when its context ends", got, d)
		}
	})
	return all
}

var local = devices.Config{Devices: 25, Rate: 50, Threshold: 30, Seed: 1}

// One device in eight dies and comes back, if that is asked for, and the others go on.
func TestDevicesDie(t *testing.T) {
	c := local
	c.Silent = 10 * time.Second
	last, gaps := map[string]time.Duration{}, map[string]int{}
	for _, m := range run(t, c, 5*time.Minute) {
		gap := m.at - last[m.Device]
		if gap > 2*time.Second {
			gaps[m.Device]++
			if gap < 20*time.Second || gap > 41*time.Second {
				t.Errorf("%q was dead for %v", m.Device, gap)
			}
		}
		last[m.Device] = m.at
	}
	if len(gaps) != 3 || len(last) != 25 {
		t.Errorf("of %d devices these died: %v", len(last), gaps)
	}
}

func TestFleetIsDeterministic(t *testing.T) {
	a, b := run(t, local, 20*time.Second), run(t, local, 20*time.Second)
	if len(a) != len(b) {
		t.Fatalf("%d and %d messages", len(a), len(b))
	}
	for i := range a {
		if a[i].Device != b[i].Device || string(a[i].Body) != string(b[i].Body) || a[i].at != b[i].at {
			t.Fatalf("message %d is %+v and %+v", i, a[i], b[i])
		}
	}
	other := local
	other.Seed = 2
	if c := run(t, other, time.Second); string(c[0].Body) == string(a[0].Body) && string(c[1].Body) == string(a[1].Body) {
		t.Error("another seed gives the same messages")
	}
}

func TestFleetPace(t *testing.T) {
	for _, rate := range []float64{0.5, 50, 3000} {
		all := run(t, devices.Config{Devices: 3, Rate: rate, Seed: 1}, 20*time.Second)
		if want := 20 * rate; math.Abs(float64(len(all))-want) > 1 {
			t.Errorf("rate %v: %d messages in 20s, want %v", rate, len(all), want)
		}
		interval := time.Duration(float64(time.Second) / rate)
		jittered := false
		for i := 1; i < len(all); i++ {
			gap := all[i].at - all[i-1].at
			if gap < interval/3 || gap > 2*interval {
				t.Fatalf("rate %v: %v between messages %d and %d", rate, gap, i-1, i)
			}
			jittered = jittered || gap != interval
		}
		if !jittered {
			t.Errorf("rate %v: no jitter", rate)
		}
	}
}

// TestFleetReadings holds what package verify relies on: what the body says is
// Temperature, for all readings, and nothing else is one.
func TestFleetReadings(t *testing.T) {
	hot, traps, broken, states := 0, 0, 0, 0
	all := run(t, local, 5*time.Minute)
	for _, m := range all {
		if math.IsNaN(m.Temperature) {
			switch {
			case len(m.Measurements) > 0: // see TestFleetHasSensors
			case m.Source == "twinChangeEvents":
				traps++
			case m.Source == "Telemetry":
				broken++
				if v, err := decode(m.Body); err == nil {
					t.Errorf("broken body %q says %v", m.Body, v)
				}
			default:
				states++
			}
			continue
		}
		if m.Source != "Telemetry" {
			t.Fatalf("%+v is a reading that is not telemetry", m)
		}
		if got, err := decode(m.Body); err != nil || got != m.Temperature {
			t.Fatalf("body %q says %v, %v, want %v", m.Body, got, err, m.Temperature)
		}
		if m.Temperature >= local.Threshold {
			hot++
		}
		if m.Temperature < local.Threshold-20 || m.Temperature > local.Threshold+25 {
			t.Errorf("%s is at %v", m.Device, m.Temperature)
		}
	}
	t.Logf("%d messages, %d hot, %d twin changes, %d broken, %d other", len(all), hot, traps, broken, states)
	if traps == 0 || broken == 0 || states == 0 || traps+broken+states > len(all)/20 {
		t.Errorf("of %d messages %d are twin changes, %d broken, %d of other sources; want a few of each", len(all), traps, broken, states)
	}
	if hot < len(all)/50 || hot > len(all)/2 {
		t.Errorf("%d of %d readings are over the threshold", hot, len(all))
	}
}

// One device in four has two sensors, and no reading of its own. What its body says is Measurements, and one sensor is hot
// without the other.
func TestFleetHasSensors(t *testing.T) {
	type sensor struct{ device, name string }
	hot := map[sensor]bool{}
	sensors, own, alone, apart := map[sensor]int{}, map[string]bool{}, 0, 0
	for _, m := range run(t, local, time.Minute) {
		var body struct {
			Readings []struct {
				Sensor      string
				Temperature float64
			}
		}
		err := json.Unmarshal(m.Body, &body)
		if len(m.Measurements) == 0 {
			if err == nil && len(body.Readings) > 0 {
				t.Fatalf("body %s has measurements that its message does not tell", m.Body)
			}
			own[m.Device] = own[m.Device] || !math.IsNaN(m.Temperature)
			continue
		}
		if !math.IsNaN(m.Temperature) {
			t.Errorf("%s has a reading of its own in a message of its sensors", m.Device)
		}
		if err != nil || len(body.Readings) != len(m.Measurements) {
			t.Fatalf("body %s: %v, want %v", m.Body, err, m.Measurements)
		}
		for i, want := range m.Measurements {
			if got := body.Readings[i]; devices.Measurement(got) != want {
				t.Fatalf("measurement %d of body %s is %v, want %v", i, m.Body, got, want)
			}
			s := sensor{m.Device, want.Sensor}
			sensors[s]++
			hot[s] = want.Temperature >= local.Threshold
		}
		switch {
		case len(m.Measurements) == 1:
			alone++
		case hot[sensor{m.Device, devices.Probe}] != hot[sensor{m.Device, devices.Inlet}]:
			apart++
		}
	}
	for s := range sensors {
		if own[s.device] {
			t.Errorf("%s has sensors, and readings of its own", s.device)
		}
	}
	if n := (local.Devices + 2) / 4; len(sensors) != 2*n {
		t.Errorf("%d sensors, want two of each of %d devices", len(sensors), n)
	}
	if alone == 0 || apart == 0 {
		t.Errorf("%d messages had one sensor, and in %d one was hot and the other was not; want some of each", alone, apart)
	}
}

// decode reads a body as the devices' documentation has it.
func decode(body []byte) (float64, error) {
	var array []json.RawMessage
	if json.Unmarshal(body, &array) == nil && len(array) == 1 {
		body = array[0]
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		return 0, err
	}
	for _, name := range []string{"temperature", "temp"} {
		switch v := m[name].(type) {
		case float64:
			return v, nil
		case string:
			f, err := strconv.ParseFloat(v, 64)
			if math.IsNaN(f) {
				err = errors.New("NaN")
			}
			return f, err
		}
	}
	return 0, errors.New("no temperature")
}

func TestFleetShapes(t *testing.T) {
	prefixes := map[string]bool{`{"temperature":"`: false, `{"temp":`: false, `[{"temperature":`: false, `{"temperature":2`: false}
	for _, m := range run(t, local, 5*time.Second) {
		for p := range prefixes {
			if strings.HasPrefix(string(m.Body), p) {
				prefixes[p] = true
			}
		}
	}
	for p, seen := range prefixes {
		if !seen {
			t.Errorf("no body begins with %s", p)
		}
	}
}

func TestFleetIsHotSoon(t *testing.T) {
	for _, c := range []devices.Config{
		{Devices: 1, Rate: 50, Threshold: 30},
		{Devices: 25, Rate: 50, Threshold: 30},
		{Devices: 25, Rate: 50, Threshold: -18},
		{Devices: 10_000, Rate: 20, Threshold: 100},
	} {
		for seed := range uint64(10) {
			c.Seed = seed
			hot := 0
			for _, m := range run(t, c, 2*time.Second) {
				if m.Temperature >= c.Threshold {
					hot++
				}
			}
			if hot == 0 {
				t.Errorf("%+v: nothing was hot in the first 2s", c)
			}
		}
	}
}

// Some devices have a limit of their own, some are quiet, and the rest have what an IoT Hub leaves.
func TestFleetIsEnriched(t *testing.T) {
	seen := map[string]map[string]bool{devices.MaxTemp: {}, devices.Quiet: {}}
	for _, m := range run(t, devices.Config{Devices: 25, Rate: 50, Threshold: 30.5, Seed: 1}, time.Second) {
		for name := range seen {
			value, _ := m.Properties[name].(string)
			seen[name][value] = true
		}
		if oven := strings.HasPrefix(m.Device, "oven-"); oven != (m.Properties[devices.MaxTemp] == "38.5") {
			t.Errorf("%s has %v", m.Device, m.Properties)
		}
	}
	if !maps.Equal(seen[devices.MaxTemp], map[string]bool{"38.5": true, "$twin.tags.maxTemp": true}) ||
		!maps.Equal(seen[devices.Quiet], map[string]bool{"true": true, "$twin.tags.quiet": true}) {
		t.Errorf("saw %v", seen)
	}
}

// Devices get normal again: they cool down through the degrees below the threshold, and some come back at once.
func TestFleetRecovers(t *testing.T) {
	const clear = 2 // degrees below the threshold
	flapped := 0
	for seed := range uint64(5) {
		c := local
		c.Seed = seed
		hot := map[string]time.Duration{} // since when
		between, recovered := 0, 0
		last := map[string]time.Duration{} // when a device recovered
		for _, m := range run(t, c, time.Minute) {
			since, isHot := hot[m.Device]
			switch {
			case math.IsNaN(m.Temperature):
			case m.Temperature >= c.Threshold && !isHot:
				hot[m.Device] = m.at
				if at, ok := last[m.Device]; ok && m.at-at < 10*time.Second {
					flapped++
				}
			case isHot && m.Temperature < c.Threshold-clear:
				recovered++
				last[m.Device] = m.at
				delete(hot, m.Device)
			case isHot && m.Temperature < c.Threshold && m.at > since:
				between++
			}
		}
		t.Logf("seed %d: %d recovered, %d readings between clear and threshold", seed, recovered, between)
		if recovered < 3 || between < 10 {
			t.Errorf("seed %d: %d recovered, %d readings between clear and threshold", seed, recovered, between)
		}
	}
	if flapped < 5 {
		t.Errorf("%d were hot again soon", flapped)
	}
}

func TestFleetDeviceIDs(t *testing.T) {
	const n = 200
	seen := map[string]bool{}
	folded := map[string]bool{}
	for _, m := range run(t, devices.Config{Devices: n, Rate: n, Seed: 1}, 2*time.Second) {
		seen[m.Device] = true
		folded[strings.ToLower(m.Device)] = true
		if m.Device == "" || len(m.Device) > 128 || !utf8.ValidString(m.Device) {
			t.Errorf("device id %q", m.Device)
		}
	}
	if len(seen) != n {
		t.Errorf("%d distinct ids, want %d", len(seen), n)
	}
	if len(folded) == n {
		t.Error("no two ids differ in case alone")
	}
	for _, c := range "#%+/?. " {
		found := false
		for id := range seen {
			found = found || strings.ContainsRune(id, c)
		}
		if !found {
			t.Errorf("no id contains %q", c)
		}
	}
}

func TestFleetCatchesUpABit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := devices.New(devices.Config{Devices: 1, Rate: 10, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n := 0
		err = f.Run(ctx, func(context.Context, devices.Message) error {
			n++
			switch n {
			case 10:
				time.Sleep(900 * time.Millisecond) // made up for
			case 50:
				time.Sleep(10 * time.Second) // not: 100 messages are left out
			}
			return nil
		})
		if err != nil || n < 98 || n > 112 {
			t.Errorf("Run = %v after %d messages in 20s, of which 10s stood still, want 100 to 110", err, n)
		}
	})
}

func TestFleetReturnsPublishError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := devices.New(local)
		if err != nil {
			t.Fatal(err)
		}
		full := errors.New("full")
		err = f.Run(t.Context(), func(context.Context, devices.Message) error { return full })
		if !errors.Is(err, full) {
			t.Errorf("Run = %v, want %v", err, full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = f.Run(ctx, func(context.Context, devices.Message) error { cancel(); return ctx.Err() })
		if err != nil {
			t.Errorf("Run = %v after its context ended in publish, want nil", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []devices.Config{
		{Devices: 0, Rate: 1}, {Devices: -1, Rate: 1}, {Devices: 1}, {Devices: 1, Rate: -1},
		{Devices: 1, Rate: math.NaN()}, {Devices: 1, Rate: math.Inf(1)}, {Devices: 1, Rate: 1e-300},
	} {
		if _, err := devices.New(c); err == nil {
			t.Errorf("New(%+v) gave no error", c)
		}
	}
}
