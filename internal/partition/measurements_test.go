package partition_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// heard says what r got, in its order: + and the sensor's value for an alert, - for a recovery.
func (r *receiver) heard() string {
	var all []string
	for _, a := range r.alerts("") {
		sign := "+"
		if a.Resolved {
			sign = "-"
		}
		all = append(all, strings.TrimLeft(fmt.Sprintf("%s %s%v", a.Sensor, sign, a.Temperature), " "))
	}
	return strings.Join(all, ", ")
}

// A message with several measurements, and messages of several sensors in turn: each sensor has alarms of its own.
func TestMeasurements(t *testing.T) {
	const speed, water = `{"DisplayName":"Speed","Value":{"Value":1450}}`, `{"DisplayName":"Water","Value":{"Value":%v}}`
	opc := func(r *rules.Rule) {
		r.Each, r.Field, r.Sensor = ".", "Value.Value", []string{"DisplayName"}
		r.Only = []rules.Condition{{Name: "DisplayName", Values: []string{"Water"}}}
	}
	both := func(value float64) string { return "[" + speed + "," + fmt.Sprintf(water, value) + "]" }
	one := func(value float64) string { return fmt.Sprintf(water, value) }
	stored := func(order ...int) string {
		var all []string
		for _, minute := range order {
			all = append(all, fmt.Sprintf(`{"ts":"1999-12-31T23:%02d:00Z","temperature":%d}`, minute, 85+minute))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	forward, backward := stored(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), stored(9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
	sustained := func(r *rules.Rule) { r.Each, r.Levels[0].For = ".", 5*time.Minute }
	modules := func(r *rules.Rule) { r.Sensor = []string{"$module"} }
	tags := func(r *rules.Rule) {
		r.Field, r.Sensor, r.Levels[0].For = "v", []string{"tag"}, 2*time.Minute
		r.Only = []rules.Condition{{Name: "tag", Values: []string{"water"}}}
	}

	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		clock  string
		bodies []string // one a minute; before a bar the module that sends it
		want   string
	}{
		{"OPC Publisher", opc, "", []string{both(20), both(31), both(20)}, "Water +31, Water -20"},
		{"OPC Publisher, one node a message", opc, "", []string{speed, one(31), speed, one(20)}, "Water +31, Water -20"},
		{"OPC Publisher, sustained", func(r *rules.Rule) { opc(r); r.Levels[0].For = 3 * time.Minute }, "", []string{one(31), speed, one(32), speed, one(33)}, "Water +33"},
		{"OPC Publisher, without each", func(r *rules.Rule) { opc(r); r.Each, r.Sensor = "", nil }, "", []string{both(20), both(31), both(20)}, "+31, -20"},
		{"a tag a message, in turn", tags, "", []string{`{"tag":"water","v":91}`, `{"tag":"air","v":20}`, `{"tag":"water","v":92}`, `{"tag":"air","v":99}`, `{"tag":"water","v":20}`}, "water +92, water -20"},
		{"modules in turn", modules, "", []string{`furnace|{"temperature":91}`, `room|{"temperature":21}`, `furnace|{"temperature":92}`, `room|{"temperature":31}`, `furnace|{"temperature":20}`},
			"furnace +91, furnace +92, room +31, furnace -20"},
		{"all sensors of one message", func(r *rules.Rule) { r.Each, r.Field, r.Sensor = "DS18B20-*", "Temperature", []string{"$key"} }, "", []string{
			`{"DS18B20-1":{"Temperature":21},"DS18B20-2":{"Temperature":91},"DS18B20-3":{"Temperature":92}}`, `{"DS18B20-1":{"Temperature":31},"DS18B20-2":{"Temperature":20}}`,
		}, "DS18B20-2 +91, DS18B20-3 +92, DS18B20-1 +31, DS18B20-2 -20"},
		{"stored readings", sustained, "body:ts", []string{forward}, "+90"},
		{"stored readings, the newest first", sustained, "body:ts", []string{backward}, "+90"},
		{"stored readings without a clock", sustained, "", []string{forward}, ""},
		{"a batch that ends normal", func(r *rules.Rule) { r.Each = "." }, "body:ts", []string{`[{"ts":"2000-01-01T00:00:00Z","temperature":91},{"ts":"2000-01-01T00:00:01Z","temperature":20}]`}, "+91, -20"},
		{"a mode around them ends the alarm", func(r *rules.Rule) {
			r.Each, r.Field, r.Sensor = "readings", "t", []string{"s"}
			r.Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}}
		}, "", []string{`{"mode":"run","readings":[{"s":"a","t":91}]}`, `{"mode":"stop","readings":[{"s":"a","t":91},{"s":"b","t":91}]}`}, "a +91, a -91"},
		{"a name that is nowhere says nothing", func(r *rules.Rule) {
			r.Each, r.Field, r.Sensor = "readings", "t", []string{"s"}
			r.Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}}
		}, "", []string{`{"mode":"run","readings":[{"s":"a","t":91}]}`, `{"readings":[{"s":"a","t":20}]}`, `{"mode":"run","readings":[{"s":"a","t":20}]}`}, "a +91, a -20"},
		{"a flag", func(r *rules.Rule) {
			r.Each, r.Field, r.Flags = "readings", "t", []rules.Condition{{Name: "q", Values: []string{"good", "192", "true"}}}
		}, "", []string{`{"readings":[{"t":91,"q":"bad"},{"t":92,"q":"192"}]}`, `{"readings":[{"t":20,"q":false}]}`, `{"readings":[{"t":20}]}`}, "+92, -20"},
		{"damaged messages calm nobody", func(r *rules.Rule) { r.Each, r.Field, r.Sensor = "r", "t", []string{"s"} }, "", []string{
			`{"r":[{"s":"a","t":91},{"s":"b","t":92}]}`, `{"r":[{"s":"a","t":20},{"s":"b","t":20},{"s":"c","t":93},]}`, `{"r":[{"s":"a","t":20},{"s":"b","t":20}]}`,
		}, "a +91, b +92, c +93, a -20, b -20"},
		{"without a name it is the device's own", func(r *rules.Rule) { r.Each, r.Field, r.Sensor = "r", "t", []string{"s"} }, "", []string{`{"r":[{"t":91},{"s":"a","t":92}]}`}, "+91, a +92"},
		{"a name that is too long", func(r *rules.Rule) { r.Sensor = []string{"s"} }, "", []string{`{"temperature":91,"s":"` + strings.Repeat("x", 129) + `"}`},
			strings.Repeat("x", 78) + "~0ec9eb33e74510bc~" + strings.Repeat("x", 32) + " +91"},
		{"stored readings of several sensors", func(r *rules.Rule) { sustained(r); r.Sensor = []string{"s"} }, "body:ts", []string{
			`[{"ts":"1999-12-31T23:06:00Z","s":"a","temperature":92},{"ts":"1999-12-31T23:00:00Z","s":"a","temperature":91},{"ts":"1999-12-31T23:01:00Z","s":"b","temperature":20},{"ts":"1999-12-31T23:02:00Z","s":"b","temperature":93}]`,
			`[{"ts":"1999-12-31T23:08:00Z","s":"b","temperature":94}]`,
		}, "a +92, b +94"},
		{"by what a mute asks for", func(r *rules.Rule) { r.Each, r.Field, r.Sensor = "r", "t", []string{"s"} }, "mute", []string{`{"r":[{"s":"a","t":91,"maintenance":true},{"s":"b","t":92}]}`}, "b +92"},
		{"by a property that is not there it is the device's own", func(r *rules.Rule) { r.Sensor = []string{"$property.temperature"} }, "", []string{`{"temperature":91}`}, "+91"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) { r.Window = time.Second; tt.change(r) }, r)
				if tt.clock == "mute" {
					s.config.Rules.Mutes = rules.Mutes{{Property: "maintenance", Value: "true"}}
				} else {
					s.setClock(tt.clock)
				}
				s.start(p)
				for _, body := range tt.bodies {
					module, rest, has := strings.Cut(body, "|")
					if !has {
						module, rest = "", body
					}
					p.publishFrom("oven", module, rest)
					synctest.Wait()
					time.Sleep(time.Minute)
				}
				s.end()
				if got := r.heard(); !sameSet(got, tt.want) {
					t.Errorf("heard %s; want %s", got, tt.want)
				}
				if n := int64(len(tt.bodies)); p.checkpoint() != n {
					t.Errorf("checkpoint %d of %d", p.checkpoint(), n)
				}
				if n := s.stats.Nameless.Load(); (n > 0) != strings.Contains(tt.name, "the device's own") {
					t.Errorf("%d readings without the name of a sensor", n)
				}
				ids := map[string]bool{}
				for _, a := range r.alerts("") {
					if ids[a.ID] {
						t.Errorf("two notices have the id %s", a.ID)
					}
					ids[a.ID] = true
				}
			})
		})
	}
}

// publishFrom adds an event that a module of a device has sent.
func (p *partition) publishFrom(device, module, body string) telemetry.Event {
	p.mu.Lock()
	p.module = module
	p.mu.Unlock()
	return p.publishBody(device, body)
}

// The readings of one sensor in one message are as those of several messages: each has a place and an id of its own.
func TestReadingsOfOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Window, r.Each = time.Second, "." }, r)
		s.start(p)
		p.publishBody("oven", `[{"temperature":91},{"temperature":20}]`) // its recovery is due before the next message
		pass(time.Minute)
		p.publishBody("oven", `[{"temperature":20},{"temperature":92},{"temperature":21},{"temperature":93}]`)
		pass(time.Minute)
		s.end()
		if got, want := r.heard(), "+91, -20, +92"; got != want { // it is open in the end, as it was at 92
			t.Errorf("heard %s; want %s", got, want)
		}
		ids := map[string]bool{}
		for _, a := range r.alerts("") {
			if ids[a.ID] {
				t.Errorf("two notices have the id %s", a.ID)
			}
			ids[a.ID] = true
		}
	})
}

// A device has many more sensors that are not normal than a partition keeps of one device: alerts about those share the
// device's own window, and other devices have room.
func TestManySensors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept, more = 1024, 40
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Each, r.Sensor = ".", []string{"s"} }, r)
		core, logs := observer.New(zap.WarnLevel)
		s.config.Log = zap.New(core)
		s.start(p)
		var all []string
		for i := range kept + more {
			all = append(all, fmt.Sprintf(`{"s":"%04d","temperature":91}`, i))
		}
		p.publishBody("gw", "["+strings.Join(all, ",")+"]")
		p.publishBody("oven", `[{"temperature":92}]`)
		pass(time.Minute)
		sensors := map[string]int{}
		for _, a := range r.alerts("gw") {
			sensors[a.Source]++
			if len(a.Sensor) != 4 {
				t.Errorf("%s is about the sensor %q", a.Source, a.Sensor)
			}
		}
		if all := logs.All(); len(all) != 1 || !strings.Contains(all[0].Message, "more than 1024 sensors of device \"gw\" are not normal by rule temperature") {
			t.Errorf("the log says %+v", all)
		}
		if n := s.counts()[0]; n.Open != kept+1 || n.Due != 0 {
			t.Errorf("%+v are counted", n)
		}
		if n := len(sensors); n != kept+1 || len(r.alerts("oven")) != 1 {
			t.Errorf("%d windows of gw, want one for each of %d sensors and its own; %d alerts of another device", n, kept, len(r.alerts("oven")))
		}
		p.publishBody("gw", strings.ReplaceAll("["+strings.Join(all, ",")+"]", ":91", ":20"))
		pass(5 * time.Minute)
		s.end()
		if n := len(s.open()); n != 0 {
			t.Errorf("%d alarms are open", n)
		}
		recoveries := 0
		for _, a := range r.alerts("gw") {
			if a.Resolved {
				recoveries++
			}
		}
		if recoveries != kept {
			t.Errorf("%d recoveries, want %d", recoveries, kept)
		}
	})
}
