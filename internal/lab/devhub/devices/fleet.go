// Package devices makes telemetry: a [Fleet] of simulated devices hands its messages, one after the other
// and at its own pace, to a function that publishes them.
package devices

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/verify"
)

// A Message is what one device sends. Its properties are the same map in all messages of a device: they must not be
// changed.
type Message struct {
	devhub.Message

	// Temperature is the exact value of a reading that every decoder must understand. It is NaN in
	// other messages, which must never raise an alert, whatever their bodies hold, and in one with Measurements.
	Temperature float64

	// Measurements are those of the device's sensors, as they stand in the body:
	// {"readings":[{"sensor":"inlet","temperature":30.1},{"sensor":"probe","temperature":21.4}],…}.
	Measurements []Measurement
}

// A Measurement is a reading of one of a device's sensors.
type Measurement struct {
	Sensor      string  // Probe or Inlet
	Temperature float64 // the exact value
}

// Readings returns what the judge has to know of the message, once it has a place in the hub: a reading of the device,
// which is none if the message has no temperature, and those of its sensors.
func (m Message) Readings(at devhub.Published) []verify.Reading {
	r := verify.Reading{
		Device:      m.Device,
		Temperature: m.Temperature,
		At:          at.Enqueued,
		Partition:   at.Partition,
		Sequence:    at.Sequence,
		Properties:  map[string]string{},
		ByHub:       m.Source != Telemetry,
	}

	for name, value := range m.Properties {
		r.Properties[name] = fmt.Sprint(value)
	}

	all := []verify.Reading{r}
	for _, one := range m.Measurements {
		r.Sensor, r.Temperature = one.Sensor, one.Temperature
		all = append(all, r)
	}

	return all
}

// The sensors of a device that has some, and where its messages have them.
const (
	Probe  = "probe"
	Inlet  = "inlet"
	Array  = "readings"
	Sensor = "sensor" // in an element of the array: its name
)

// Names of the properties that the messages of a Fleet are enriched with from the
// device's twin, as text. Where the twin has no such tag, the value is the path itself, as IoT Hub
// leaves it: "$twin.tags.maxTemp".
const (
	MaxTemp = "maxTemp" // what is hot for this device: ovens can bear more than the others
	Quiet   = "quiet"   // "true" for a few
)

// OvensBear is how much more ovens can bear, in degrees.
const OvensBear = 8

// Telemetry is the Source of readings, the broken ones included.
const Telemetry = "Telemetry"

// Config describes a Fleet.
type Config struct {
	Devices   int     // how many; at least 1
	Rate      float64 // messages per second, all devices together; above 0
	Threshold float64 // what counts as hot: devices are at rest below it, and sometimes overheat
	Seed      uint64  // the same seed gives the same messages
	// Silent is how long a device may be silent: one in eight dies again and again, and comes back after two to four
	// times as long. 0: none dies.
	Silent time.Duration
}

// A Fleet is a number of simulated devices that report in turn. One in four has two sensors, whose measurements come
// in one message, or at times alone. It is not safe for concurrent use.
type Fleet struct {
	interval time.Duration // between two messages
	rng      *rand.Rand
	devices  []*device // in the order in which they report
	sent     int
}

// New returns a fleet. Some of its devices overheat from the first message on.
func New(c Config) (*Fleet, error) {
	if c.Devices < 1 {
		return nil, fmt.Errorf("simulate %d devices: at least 1 is needed", c.Devices)
	}

	interval := float64(time.Second) / c.Rate
	if !(interval >= 1 && interval <= float64(24*time.Hour)) {
		return nil, fmt.Errorf(
			"simulate %v readings per second: the rate must be between one a day and one a nanosecond",
			c.Rate,
		)
	}

	f := &Fleet{
		interval: time.Duration(interval),
		rng:      rand.New(rand.NewPCG(c.Seed, 0)),
		devices:  make([]*device, c.Devices),
	}

	for i := range f.devices {
		f.devices[i] = newDevice(i, c.Threshold, f.rng)
	}

	f.rng.Shuffle(len(f.devices), func(i, j int) { f.devices[i], f.devices[j] = f.devices[j], f.devices[i] })
	for i := 0; i < len(f.devices); i += 8 {
		f.devices[i].swing = swing
	}

	for _, d := range f.devices[:(c.Devices+7)/8] {
		d.overheat(0, f.rng)
	}

	for i := 7; i < len(f.devices) && c.Silent > 0; i += 8 {
		d := f.devices[i]
		d.silent = c.Silent
		d.dies = c.Silent/2 + exponential(f.rng, c.Silent/2)
	}

	for i := 1; i < len(f.devices); i += 4 {
		inlet := newDevice(i, c.Threshold, f.rng)
		if i%8 == 1 {
			inlet.swing = swing
			inlet.overheat(0, f.rng)
		}

		f.devices[i].inlet = inlet
	}

	return f, nil
}

// maxLag is how far Run may fall behind and still catch up.
const maxLag = time.Second

// Run publishes messages, evenly spaced but for some jitter. It returns nil when ctx
// ends, and publish's error if that fails. After a slow publish it catches up by at
// most a second's worth of messages.
func (f *Fleet) Run(ctx context.Context, publish func(context.Context, Message) error) error {
	start := time.Now()
	for {
		m, due := f.next()
		if lag := time.Since(start.Add(due)); lag > maxLag {
			start = start.Add(lag)
		}

		if !backoff.Sleep(ctx, time.Until(start.Add(due))) {
			return nil
		}

		if err := publish(ctx, m); err != nil && ctx.Err() == nil {
			return fmt.Errorf("publish a message of %q: %w", m.Device, err)
		}
	}
}

// next returns the next message and when it is due, counted from the start.
func (f *Fleet) next() (Message, time.Duration) {
	for {
		jitter := time.Duration((f.rng.Float64() - 0.5) * 0.6 * float64(f.interval))
		due := time.Duration(f.sent)*f.interval + f.interval/2 + jitter
		d := f.devices[f.sent%len(f.devices)]
		f.sent++
		if d.silent == 0 || d.alive(due, f.rng) {
			return d.report(due, f.rng), due
		}
	}
}

// A device's temperature is a resting value that drifts over the day, a
// mean-reverting walk around it, and what heat an overheating adds. A device cools down
// more slowly than it heats up. One in eight swings about its limit while it overheats.
type device struct {
	id     string
	shape  int     // how it writes its readings; see body
	rest   float64 // the mean temperature
	phase  float64 // of the daily drift
	limit  float64 // what counts as hot
	walk   float64
	heat   float64
	swing  float64       // how far it goes beyond its limit and below it; 0: it stays hot
	target float64       // of heat, while it overheats
	from   time.Duration // it overheats
	until  time.Duration
	next   time.Duration // when it overheats again
	last   time.Duration // when it last reported

	silent time.Duration // as in Config, if it dies at times
	dies   time.Duration // when it does next
	back   time.Duration // when it is back after that, if that is later

	properties map[string]any // of its messages

	inlet *device // its second sensor, which has a temperature of its own; nil: it has no sensors
}

const (
	walkSpread    = 0.7 // standard deviation of the walk
	walkMemory    = 20 * time.Second
	heatMemory    = 4 * time.Second // heating
	coolMemory    = 10 * time.Second
	swing         = 5.0 // degrees
	swingPeriod   = 8 * time.Second
	driftSpread   = 1.5
	calmMean      = 4 * time.Minute // between two overheatings
	excursionMean = 25 * time.Second
)

func newDevice(i int, threshold float64, rng *rand.Rand) *device {
	d := &device{
		id:    id(i),
		rest:  threshold - 5 - 8*rng.Float64(),
		phase: 2 * math.Pi * rng.Float64(),
		limit: threshold,
		next:  exponential(rng, calmMean),
	}

	if i%5 == 4 { // most write {"temperature":21.4,…}
		d.shape = 1 + (i/5)%(len(shapes)-1)
	}

	// An IoT Hub stamps on messages what it finds in the device's twin: ovens can bear
	// more than the others, and of some pumps nobody wants to hear.
	d.properties = map[string]any{
		"firmware": "2.4." + strconv.Itoa(d.shape),
		MaxTemp:    "$twin.tags." + MaxTemp,
		Quiet:      "$twin.tags." + Quiet,
	}

	switch i % (2 * len(kinds)) {
	case 1, 1 + len(kinds):
		d.properties[MaxTemp] = strconv.FormatFloat(threshold+OvensBear, 'f', -1, 64)
	case 2:
		d.properties[Quiet] = "true"
	}

	return d
}

// overheat lets the device get hot at now.
func (d *device) overheat(now time.Duration, rng *rand.Rand) {
	d.target = d.limit - d.rest + 3 + 12*rng.Float64()
	if d.swing > 0 {
		d.target = d.limit - d.rest
	}

	d.from = now
	if now == 0 {
		d.heat = d.target // it has been hot before
	}

	d.until = now + 5*time.Second + exponential(rng, excursionMean)
	d.next = d.until + exponential(rng, calmMean)
}

// alive reports whether the device is alive at now, which never goes back.
func (d *device) alive(now time.Duration, rng *rand.Rand) bool {
	if now < d.dies {
		return true
	}

	if d.back < d.dies {
		d.back = d.dies + 2*d.silent + time.Duration(rng.Float64()*2*float64(d.silent))
	}

	if now < d.back {
		return false
	}

	d.dies = d.back + 2*d.silent + exponential(rng, 3*d.silent)

	return now < d.dies
}

// measure moves the device on to now and returns its temperature.
func (d *device) measure(now time.Duration, rng *rand.Rand) float64 {
	if now >= d.next {
		d.overheat(now, rng)
	}

	target := 0.0
	memory := coolMemory
	swing := 0.0

	if now < d.until {
		target, memory = d.target, heatMemory
		swing = d.swing * math.Sin(2*math.Pi*float64(now-d.from)/float64(swingPeriod))
	}

	passed := float64(now - d.last)
	d.last = now
	d.heat = target + (d.heat-target)*math.Exp(-passed/float64(memory))
	keep := math.Exp(-passed / float64(walkMemory))
	d.walk = d.walk*keep + walkSpread*math.Sqrt(1-keep*keep)*rng.NormFloat64()
	drift := driftSpread * math.Sin(d.phase+2*math.Pi*float64(now)/float64(24*time.Hour))

	return d.rest + drift + d.walk + d.heat + swing
}

// report returns the device's message at now: nearly always a reading.
func (d *device) report(now time.Duration, rng *rand.Rand) Message {
	temperature := tenths(d.measure(now, rng))
	m := Message{
		Message:     devhub.Message{Device: d.id, Source: Telemetry, Properties: d.properties},
		Temperature: math.NaN(),
	}

	switch kind := rng.IntN(200); {
	case kind == 0:
		m.Source = "twinChangeEvents"
		m.Body = []byte(
			`{"version":7,"temperature":` + decimal(d.limit+99) + `,"properties":{"reported":{"interval":5}}}`,
		)

	case kind == 1:
		m.Source = "deviceConnectionStateEvents"
		m.Body = []byte(`{"sequenceNumber":"000000000000000001D4"}`)

	case kind == 2:
		m.Body = []byte(broken[rng.IntN(len(broken))])

	case d.inlet != nil:
		m.Measurements = d.sense(temperature, now, rng)
		m.Body = together(m.Measurements)

	default:
		m.Body = shapes[d.shape](decimal(temperature), rng)
		m.Temperature = temperature
	}

	return m
}

// decimal returns a temperature as bodies have it.
func decimal(temperature float64) string { return strconv.FormatFloat(temperature, 'f', 1, 64) }

// tenths returns the temperature that a decoder of its decimal reads.
func tenths(temperature float64) float64 {
	read, _ := strconv.ParseFloat(decimal(temperature), 64)

	return read
}

// sense returns what the sensors of the device measure at now; probe is what the first does.
func (d *device) sense(probe float64, now time.Duration, rng *rand.Rand) []Measurement {
	all := []Measurement{{Probe, probe}, {Inlet, tenths(d.inlet.measure(now, rng))}}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if rng.IntN(5) == 0 {
		return all[:1]
	}

	return all
}

// together returns a body that has all measurements.
func together(all []Measurement) []byte {
	var elements []string
	for _, one := range all {
		elements = append(elements, fmt.Sprintf(`{"sensor":%q,"temperature":%s}`, one.Sensor, decimal(one.Temperature)))
	}

	return []byte(`{"deviceId":"sensor","readings":[` + strings.Join(elements, ",") + "]}")
}

// shapes are the ways in which devices write a temperature. The deviceId in the body
// is a constant, as in many samples: it must not be trusted.
var shapes = []func(text string, rng *rand.Rand) []byte{
	func(t string, rng *rand.Rand) []byte {
		return fmt.Appendf(nil, `{"temperature":%s,"humidity":%.1f,"deviceId":"sensor"}`, t, 40+20*rng.Float64())
	},
	func(t string, _ *rand.Rand) []byte { return []byte(`{"temp":` + t + `}`) },
	func(t string, _ *rand.Rand) []byte { return []byte(`{"temperature":"` + t + `"}`) },
	func(t string, _ *rand.Rand) []byte { return []byte(`[{"temperature":` + t + `,"unit":"C"}]`) },
}

// broken are bodies that hold no reading.
var broken = []string{
	"",
	"{",
	`{"temperature":`,
	`{"temperature":null}`,
	`{"temperature":"NaN"}`,
	`{"temperature":"n/a"}`,
	`{"humidity":51.3}`,
	"\x82\x01\x00\xff\xfe",
	"temperature=21.4",
}

// id returns the id of the i-th device: realistic ones, mixed with ids that break code
// which does not encode its keys.
func id(i int) string {
	if round := i / 5; i%5 == 3 {
		s := nasty[round%len(nasty)]
		if round >= len(nasty) {
			s += "-" + strconv.Itoa(round/len(nasty)+1)
		}

		return s
	}

	return fmt.Sprintf("%s-%02d", kinds[i%len(kinds)], i+1)
}

var (
	kinds = []string{"press", "oven", "pump", "mixer", "chiller", "boiler", "dryer", "kiln"}
	nasty = []string{
		"line#3/oven%1", "line#3/oven%2F1", "Kiln:A", "kiln:a", "cell 4+5?", "größe@halle=2", "..", "$dryer*(7),'x'",
	}
)

// exponential draws a duration with the given mean.
func exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean))
}
