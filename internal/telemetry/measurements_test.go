package telemetry_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/telemetry"
)

// Messages with several measurements, and what of them is read: for each measurement "sensor=reading", and behind a space
// what a condition says if there is one.
var measured = []struct {
	name        string
	each        string
	field       string
	sensor      []string
	only, value string // a condition
	body        string
	want        string
}{
	{"OPC Publisher", ".", "Value.Value", names("DisplayName"), "", "",
		`[{"NodeId":"a","DisplayName":"Speed","Value":{"Value":1450}},{"DisplayName":"Water","Value":{"Value":37.1}}]`, "Speed=1450, Water=37.1"},
	{"OPC Publisher, one node a message", ".", "Value.Value", names("DisplayName"), "", "",
		`{"DisplayName":"Speed","Value":{"Value":1450}}`, "Speed=1450"},
	{"several JSON values", ".", "t", names("n"), "", "", `{"n":"a","t":1}` + "\n" + `{"n":"b","t":2}`, "a=1, b=2"},
	{"Modbus module", "Content.Data.Values", "Value", names("HwId", "DisplayName"), "", "",
		`{"PublishTimestamp":"x","Content":[{"HwId":"A","Data":[{"Values":[{"DisplayName":"p","Value":"2230"},{"DisplayName":"q","Value":"31"}]}]},{"HwId":"B","Data":[{"Values":[{"DisplayName":"p","Value":"5"}]}]}]}`,
		"A/p=2230, A/q=31, B/p=5"},
	{"Tasmota", "DS18B20-*", "Temperature", names("$key"), "TempUnit", "C",
		`{"Time":"2026-11-28T02:00:00","DS18B20-1":{"Id":"01","Temperature":21.2},"DS18B20-2":{"Temperature":91.5},"TempUnit":"C"}`,
		"DS18B20-1=21.2 around 1, DS18B20-2=91.5 around 1"},
	{"gateway of ThingsBoard", "*", "values.temperature", names("$key"), "", "",
		`{"Device A":[{"ts":1,"values":{"temperature":42}},{"ts":2,"values":{"temperature":91}}],"Device B":[{"values":{"temperature":20}}],"n":4}`,
		"Device A=42, Device A=91, Device B=20, n=missing"},
	{"OPC PubSub", "Messages.Payload.*", "Value", names("$key"), "", "",
		`{"Messages":[{"Payload":{"nsu=http://x/;s=Water.T":{"Value":19},"ns=2;s=Speed":{"Value":1450}}}]}`, "nsu=http://x/;s=Water.T=19, ns=2;s=Speed=1450"},
	{"positions", "datapoints", "1", names("2"), "", "", `{"datapoints":[[1586260104000,21.5,3],[1586260105000,22,4]]}`, "3=21.5, 4=22"},
	{"one object at the end", "readings", "t", names("s"), "", "", `{"readings":{"s":"a","t":1}}`, "a=1"},
	{"numbers at the end", "values", ".", names("site"), "", "", `{"site":"x","values":[1,"2,5",null]}`, "x=1, x=2.5, x=null"},
	{"one number at the end", "*", ".", names("$key"), "", "", `{"a":1,"b":"x"}`, "a=1, b=not_a_number"},
	{"body is an array on the way", "readings", "t", names("s"), "", "", `[{"readings":[{"s":"a","t":1}]},{"readings":{"s":"b","t":2}}]`, "a=1, b=2"},
	{"an array in the array is one measurement", "readings", "t", names("s"), "", "", `{"readings":[[{"t":1},{"t":3}],[{"t":2}]]}`, "=3, =2"},
	{"an array in an array on the way", "a.b", "t", nil, "", "", `{"a":[[{"b":{"t":1}}]]}`, "missing"},
	{"any case", "READINGS", "T", names("SENSOR"), "", "", `{"readings":[{"sensor":"a","t":1}]}`, "a=1"},
	{"name with dots", "a.b", "t", names("$key"), "", "", `{"a.b":[{"t":1}],"a":{"b":{"t":2}}}`, "a.b=1, b=2"},
	{"name with an escape", "r\u00e9.*", "t", names("$key"), "", "", `{"r\u00e9":{"\u0061\"b":{"t":1}}}`, `a"b=1`},
	{"star inside", "t*-*x", ".", names("$key"), "", "", `{"t1-2x":1,"t1x":2,"T-X":3,"t-x-":4}`, "t1-2x=1, T-X=3"},
	{"position on the way", "rows.1.cells", "t", nil, "", "", `{"rows":[{"cells":[{"t":1}]},{"cells":[{"t":2},{"t":3}]}]}`, "=2, =3"},
	{"JSON in text, on the way", "payload.readings", "t", names("s"), "gw", "x", `{"gw":"x","payload":"{\"readings\":[{\"s\":\"a\",\"t\":1},{\"s\":\"b\",\"t\":2}]}"}`,
		"a=1 around 1, b=2 around 1"},
	{"JSON in text, at the end", "payload", "t", names("s"), "gw", "y", `{"gw":"x","payload":"[{\"s\":\"a\",\"t\":1},{\"s\":\"b\",\"t\":2}]"}`, "a=1 around 0, b=2 around 0"},
	{"JSON in text, in the measurement", ".", "p.t", names("p.s"), "", "", `[{"p":"{\"s\":\"a\",\"t\":1}"},{"p":"{\"s\":\"b\""}]`, "a=1, =missing"},
	{"zlib, another checksum", "readings", "t", names("s"), "gw", "x", zlibOf("x", `{"gw":"x","readings":[{"s":"a","t":1}]}`), "a=1 damaged around 1"},
	{"nothing there", "readings", "t", nil, "", "", `{"t":1}`, "missing"},
	{"no JSON", "readings", "t", nil, "", "", `hello`, "malformed"},
	{"no body", "readings", "t", nil, "", "", ``, "empty"},
	{"too deep", "readings", "t", nil, "", "", strings.Repeat("[", 70) + `{"readings":[{"t":1}]}` + strings.Repeat("]", 70), "malformed"},

	// Where names are looked up.
	{"a field is not looked up outward", "r", "t", names("s"), "", "", `{"t":99,"s":"gw","r":[{"t":1,"s":"a"},{"s":"b"}]}`, "a=1, b=missing"},
	{"a sensor is", "r", "t", names("s"), "", "", `{"s":"gw","r":[{"t":1,"s":"a"},{"t":2}]}`, "a=1, gw=2"},
	{"but in no other element", "r", "t", names("r.s"), "", "", `{"r":[{"t":1,"s":"a"},{"t":2}]}`, "a=1, =2"},
	{"nor in another one further out", "g.r", "t", names("g.s", "r.u"), "", "", `{"s":"far","g":[{"s":"a","r":[{"t":1,"u":"x"}]},{"r":{"t":2,"u":"y"}}]}`, "a/x=1, y=2"},
	{"the nearest object counts", "g.r", "t", names("s"), "", "", `{"s":"far","g":[{"s":"near","r":[{"t":1}]},{"r":[{"t":2}]}]}`, "near=1, far=2"},
	{"not another element's", "g.r", "t", names("s"), "", "", `{"g":[{"s":"a","r":[{"t":1}]},{"r":[{"t":2}]},{"s":"c","r":[{"t":3}]}]}`, "a=1, =2, c=3"},
	{"another array", "r", "t", nil, "mode", "run", `{"modes":["run"],"mode":["stop","run"],"r":[{"t":1}]}`, "=1 around 1"},
	{"null is nothing", "r", "t", names("s"), "", "", `{"s":"gw","r":[{"t":1,"s":null}]}`, "gw=1"},
	{"a property", "r", "t", names("line"), "", "", `{"r":[{"t":1},{"t":2,"line":"own"}]}`, "line 4=1, own=2"},
	{"a property is no reading of a measurement", "r", "temperature", nil, "", "", `{"r":[{"t":1}]}`, "=missing"},
	{"a property by its own name", "r", "t", names("$property.line"), "", "", `{"line":"x","r":[{"t":1,"line":"own"}]}`, "line 4=1"},
	{"a property by its own name, and one around", "r", "t", names("$property.line,s"), "", "", `{"s":"gw","r":[{"t":1},{"t":2,"s":"own"}]}`, "line 4=1, line 4=2"},
	{"a property by its own name, after one around", "r", "t", names("s,$property.line"), "", "", `{"s":"gw","r":[{"t":1}]}`, "gw=1"},
	{"the hub's names", "r", "t", names("$module", "$component", "$device"), "", "", `{"r":[{"t":1,"$module":"x"}]}`, "furnace/probe/gw-12=1"},
	{"of a name twice the last", "r", "t", names("s"), "", "", `{"r":[{"t":1,"s":"a","s":"b"}]}`, "b=1"},
	{"of a field twice the worst", "r", "t", names("s"), "", "", `{"r":[{"t":2,"t":1,"s":"a"}]}`, "a=2"},
	{"one name after the other", "r", "t", names("id,name"), "", "", `{"r":[{"t":1,"name":"n","id":"i"},{"t":2,"name":"n"}]}`, "i=1, n=2"},
	{"number and boolean", "r", "t", names("id"), "", "", `{"r":[{"t":1,"id":7},{"t":2,"id":true},{"t":3,"id":{"x":1}}]}`, "7=1, true=2, =3"},
	{"a condition inside", "r", "t", names("s"), "s", "b", `{"s":"b","r":[{"t":1,"s":"a"},{"t":2,"s":"b"},{"t":3}]}`, "a=1 0, b=2 1, b=3 around 1"},

	// Damaged bodies.
	{"damaged", "r", "t", names("s"), "", "", `{"r":[{"s":"a","t":1,},{'s':'b','t':2}]}`, "a=1 damaged, b=2 damaged"},
	{"cut off", "r", "t", names("s"), "", "", `{"r":[{"s":"a","t":1},{"s":"b","t":2`, "a=1 damaged, b=malformed damaged"},
	{"numbers in an array", "r", ".", nil, "", "", `{"r":[20,91,],}`, "=malformed damaged, =malformed damaged"},
}

func names(all ...string) []string { return all }

// gateway returns an event with several names.
func gateway(body string) *telemetry.Event {
	return &telemetry.Event{
		Device: "gw-12", Module: "furnace", Component: "probe", Body: []byte(body),
		Properties: telemetry.EncodeProperties(map[string]telemetry.Property{
			"LINE": telemetry.Text("line 4"), "temperature": telemetry.Text("99"), "site": telemetry.Text("$twin.tags.site"),
		}),
	}
}

func TestMeasurements(t *testing.T) {
	for _, tt := range measured {
		t.Run(tt.name, func(t *testing.T) {
			each, err := telemetry.NewEach(tt.each)
			if err != nil {
				t.Fatal(err)
			}
			fields := []telemetry.Field{{Paths: tt.field}}
			for _, name := range tt.sensor {
				fields = append(fields, telemetry.Field{Paths: name, Text: true, Condition: true})
			}
			if tt.only != "" {
				fields = append(fields, telemetry.Field{Paths: tt.only, Words: []string{tt.value}, Condition: true})
			}
			d, err := telemetry.NewFieldsDecoder(fields...)
			if err != nil {
				t.Fatal(err)
			}

			m := telemetry.NewMeasurements(each)
			for range 2 { // it can be used again
				n, reason := m.Split(gateway(tt.body))
				var got []string
				found := make([]telemetry.Found, len(fields))
				for i := range n {
					m.Read(d, i, found)
					got = append(got, shown(m, found, len(tt.sensor)))
				}
				if n == 0 {
					got = append(got, reason.String())
				}
				if text := strings.Join(got, ", "); text != tt.want {
					t.Errorf("%s\ngot  %s\nwant %s", tt.body, text, tt.want)
				}
			}
		})
	}
}

// shown shows one measurement.
func shown(m *telemetry.Measurements, found []telemetry.Found, sensors int) string {
	var sensor []string
	for _, f := range found[1 : 1+sensors] {
		if f.Reason == telemetry.ReasonOK {
			sensor = append(sensor, string(m.AppendText(nil, f)))
		}
	}
	text := strings.Join(sensor, "/") + "=" + found[0].Reason.String()
	if found[0].Reason == telemetry.ReasonOK {
		text = strings.Join(sensor, "/") + "=" + strconv.FormatFloat(found[0].Value, 'f', -1, 64)
	}
	if found[0].Damaged {
		text += " damaged"
	}
	for _, f := range found[1+sensors:] {
		if f.Around {
			text += " around"
		}
		text += fmt.Sprint(" ", f.Value)
	}
	return text
}

// Without an Each, fields of one group are of one element wherever they are in the same array.
func TestGroups(t *testing.T) {
	eighty := 80.0
	for _, tt := range []struct {
		name, field, only, value string
		base, flag               string
		otherwise                *float64
		lowest                   bool
		body                     string
		want                     float64
		reason                   telemetry.Reason
		holds                    float64
	}{
		{name: "OPC Publisher", field: "Value.Value", only: "DisplayName", value: "Water",
			body: `[{"DisplayName":"Speed","Value":{"Value":1450}},{"DisplayName":"Water","Value":{"Value":37.1}}]`, want: 37.1, holds: 1},
		{name: "OPC Publisher, in turn", field: "Value.Value", only: "DisplayName", value: "Water",
			body: `[{"DisplayName":"Water","Value":{"Value":37.1}},{"DisplayName":"Speed","Value":{"Value":1450}}]`, want: 37.1, holds: 1},
		{name: "several JSON values", field: "v", only: "n", value: "temp", body: `{"n":"volt","v":230.2}` + "\n" + `{"n":"temp","v":23.1}`, want: 23.1, holds: 1},
		{name: "Modbus module", field: "Content.Data.Values.Value", only: "Content.Data.Values.DisplayName", value: "Battery",
			body: `{"Content":[{"Data":[{"Values":[{"DisplayName":"Power","Value":"2230"},{"DisplayName":"Battery","Value":"31"}]}]}]}`, want: 31, holds: 1},
		{name: "of an outer array", field: "c.d.v", only: "c.id", value: "b",
			body: `{"c":[{"id":"a","d":[{"v":99}]},{"id":"b","d":[{"v":1},{"v":3},{"v":2}]}]}`, want: 3, holds: 1},
		{name: "of two arrays", field: "c.d.v", only: "c.d.n", value: "t",
			body: `{"c":[{"d":[{"n":"x","v":99},{"n":"t","v":1}]},{"d":[{"n":"t","v":2},{"n":"x","v":98}]}]}`, want: 2, holds: 1},
		{name: "of another array", field: "d.v", only: "tags", value: "hot", body: `{"tags":["x","hot"],"d":[{"v":1},{"v":2}]}`, want: 2, holds: 1},
		{name: "the lowest", field: "v", only: "n", value: "t", lowest: true, body: `[{"n":"x","v":-9},{"n":"t","v":4},{"n":"t","v":3}]`, want: 3, holds: 1},
		{name: "none holds", field: "v", only: "n", value: "t", body: `[{"n":"x","v":5},{"n":"y","v":9}]`, want: 9, holds: 0},
		{name: "one without the name", field: "v", only: "n", value: "t", body: `[{"v":99},{"n":"t","v":3}]`, want: 3, holds: 1},
		{name: "holds, without a reading", field: "v", only: "n", value: "t", body: `[{"n":"x","v":5},{"n":"t"}]`, reason: telemetry.ReasonMissing, holds: 1},
		{name: "the first that holds has no reading", field: "v", only: "n", value: "t", body: `[{"n":"t"},{"n":"t","v":null},{"n":"t","v":6}]`, want: 6, holds: 1},
		{name: "a limit in each", field: "v", base: "max", body: `[{"v":90,"max":100},{"v":50,"max":45},{"v":99}]`, want: 50},
		{name: "a limit in each, with a clear", field: "v", base: "max", body: `[{"v":90,"max":100,"clear":1},{"v":50,"max":45,"clear":40}]`, want: 50},
		{name: "a limit in some", field: "v", base: "max", otherwise: &eighty, body: `[{"v":90,"max":100},{"v":50,"max":45},{"v":84}]`, want: 50},
		{name: "a limit in some, without", field: "v", base: "max", otherwise: &eighty, body: `[{"v":90,"max":100},{"v":50,"max":45},{"v":86}]`, want: 86},
		{name: "a flag in each", field: "v", flag: "q", value: "good", body: `[{"v":90,"q":"bad"},{"v":50,"q":"GOOD"},{"v":40}]`, want: 50},
		{name: "a flag for all", field: "v", flag: "q", value: "good", body: `{"q":"bad","v":[90,50]}`, reason: telemetry.ReasonInvalid},
		{name: "no flag", field: "v", flag: "q", value: "good", body: `{"v":90}`, want: 90},
		{name: "a position is no choice", field: "d.1.v", only: "d.0.n", value: "t", body: `{"d":[{"n":"t"},{"v":7,"n":"x"}]}`, want: 7, holds: 1},
		{name: "in text", field: "p.v", only: "p.n", value: "t", body: `{"p":"[{\"n\":\"x\",\"v\":99},{\"n\":\"t\",\"v\":3}]"}`, want: 3, holds: 1},
		{name: "array in an array", field: "v", only: "n", value: "t", body: `[[{"n":"x","v":99}],[{"n":"t","v":3},{"n":"x","v":98}]]`, want: 3, holds: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fields := []telemetry.Field{{Paths: tt.field, Lowest: tt.lowest, Group: 1}}
			if tt.only != "" {
				fields = append(fields, telemetry.Field{Paths: tt.only, Words: []string{tt.value}, Condition: true, Group: 1})
			}
			if tt.base != "" {
				fields = append(fields, telemetry.Field{Paths: tt.base, Condition: true, Limit: true, Otherwise: tt.otherwise, Group: 1}, telemetry.Field{Paths: "clear", Condition: true, Group: 1})
			}
			if tt.flag != "" {
				fields = append(fields, telemetry.Field{Paths: tt.flag, Words: []string{tt.value}, Flag: true, Condition: true, Group: 1})
			}
			// Another group, and fields without one, are on their own.
			others := slices.Clone(fields)
			for i := range others {
				others[i].Group = 2
			}
			others[0].Valid = &telemetry.Range{From: 1e9, To: 2e9}
			fields = append(append(fields, others...), telemetry.Field{Paths: tt.field})

			d, err := telemetry.NewFieldsDecoder(fields...)
			if err != nil {
				t.Fatal(err)
			}
			found := make([]telemetry.Found, len(fields))
			d.DecodeAll(&telemetry.Event{Device: "d", Body: []byte(tt.body)}, found)
			if f := found[0]; f.Value != tt.want || f.Reason != tt.reason {
				t.Errorf("got %v, %v; want %v, %v", f.Value, f.Reason, tt.want, tt.reason)
			}
			if tt.only != "" && found[1].Value != tt.holds {
				t.Errorf("the condition is %v, want %v", found[1], tt.holds)
			}
			want, reason := newDecoder(t, tt.field).Decode(&telemetry.Event{Device: "d", Body: []byte(tt.body)})
			if f := found[len(found)-1]; f.Value != want || f.Reason != reason {
				t.Errorf("without a group got %v, want %v, %v", f, want, reason)
			}
		})
	}
}

// Without an Each a reading may be an application property.
func TestPropertyAsReading(t *testing.T) {
	for _, tt := range []struct {
		name, field, body string
		want              float64
		reason            telemetry.Reason
	}{
		{"in the body", "", `{"temperature":1}`, 1, telemetry.ReasonOK},
		{"the other name in the body", "", `{"temp":1}`, 1, telemetry.ReasonOK},
		{"not in the body", "", `{"x":1}`, 99, telemetry.ReasonOK},
		{"no body", "", ``, 99, telemetry.ReasonOK},
		{"null in the body", "", `{"temperature":null}`, 0, telemetry.ReasonNull},
		{"no JSON", "", `hello`, 0, telemetry.ReasonMalformed},
		{"by its own name", "$property.temperature", `{"temperature":1}`, 99, telemetry.ReasonOK},
		{"first", "$property.temperature,temp", `{"temp":1}`, 99, telemetry.ReasonOK},
		{"second", "temp,$property.temperature", `{"temp":1}`, 1, telemetry.ReasonOK},
		{"second, first not there", "temp,$property.temperature", `{}`, 99, telemetry.ReasonOK},
		{"a property that is not there", "$property.x", `{"x":1}`, 0, telemetry.ReasonMissing},
		{"a path in the twin that is not there", "site", `{}`, 0, telemetry.ReasonMissing},
		{"text", "line", `{}`, 0, telemetry.ReasonNotANumber},
	} {
		got, reason := newDecoder(t, tt.field).Decode(gateway(tt.body))
		if got != tt.want || reason != tt.reason {
			t.Errorf("%s: got %v, %v; want %v, %v", tt.name, got, reason, tt.want, tt.reason)
		}
	}
}

func TestEachErrors(t *testing.T) {
	for path, want := range map[string]string{
		"":                             "it is empty",
		"a..b":                         "empty name",
		"readings[?(@.x)]":             "is JSONPath: write names joined by dots",
		"a.b[1]":                       "is JSONPath: write names joined by dots",
		"readings[*]":                  "is JSONPath: write names joined by dots",
		"$.readings":                   "is JSONPath: write names joined by dots",
		"$module":                      "is no place in a message",
		"$sensors":                     "is not known",
		"a,b":                          "has a comma",
		strings.Repeat("a.", 16) + "a": "has 17 names",
	} {
		if _, err := telemetry.NewEach(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", path, err, want)
		}
	}
}

func TestMeasurementsInTheirOrder(t *testing.T) {
	each, err := telemetry.NewEach(".")
	if err != nil {
		t.Fatal(err)
	}
	d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: "t"}, telemetry.Field{Paths: "ts", Time: true, Condition: true})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`[{"t":1,"ts":30},{"t":2,"ts":10},{"t":3,"ts":20},{"t":4,"ts":10}]`: "2 4 3 1",
		`[{"t":1,"ts":30},{"t":2},{"t":3,"ts":20}]`:                         "1 2 3",
	} {
		m := telemetry.NewMeasurements(each)
		n, _ := m.Split(gateway(body))
		var found [2]telemetry.Found
		m.Sort(func(i int) (int64, bool) {
			m.Read(d, i, found[:])
			return int64(found[1].Value), found[1].Reason == telemetry.ReasonOK
		})
		var got []string
		for i := range n {
			m.Read(d, i, found[:])
			got = append(got, fmt.Sprint(found[0].Value))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: got %s, want %s", body, text, want)
		}
	}
}

// Measurements allocate nothing once they have seen a message of that size.
func TestMeasurementsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	each, err := telemetry.NewEach("readings")
	if err != nil {
		t.Fatal(err)
	}
	d, err := telemetry.NewFieldsDecoder(gatewayFields...)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 10, 100, 1000} {
		m, e := telemetry.NewMeasurements(each), &telemetry.Event{Device: "gw-12", Body: []byte(gatewayBody(n))}
		if allocs := testing.AllocsPerRun(10, func() {
			if got := readAll(m, d, e); got != n {
				t.Errorf("%d of %d have a reading", got, n)
			}
		}); allocs != 0 {
			t.Errorf("%d measurements: %v allocations", n, allocs)
		}
	}
}

// However measurements are nested, a message takes time in proportion to its size: what is around many is read once.
func TestMeasurementsTakeLinearTime(t *testing.T) {
	wide := `{"mode":"run","pad":"` + strings.Repeat("x", 300_000) + `","readings":[` + strings.TrimSuffix(strings.Repeat(`{"t":1},`, 80_000), ",") + `]}`
	deep := strings.Repeat(`{"r":[`, 30) + strings.TrimSuffix(strings.Repeat(`{"t":1},`, 100_000), ",") + strings.Repeat(`]}`, 30)
	many := `{"mode":"run","r":[` + strings.TrimSuffix(strings.Repeat(`{"r":[{"t":1}]},`, 60_000), ",") + `]}`
	d, err := telemetry.NewFieldsDecoder(gatewayFields...)
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"readings": wide, strings.Repeat("r.", 15) + "r": deep, "r.r": many, "*": wide} {
		each, err := telemetry.NewEach(path)
		if err != nil {
			t.Fatal(err)
		}
		e := &telemetry.Event{Device: "gw-12", Body: []byte(body)}
		start := time.Now()
		m := telemetry.NewMeasurements(each)
		n, _ := m.Split(e)
		readAll(m, d, e)
		if took := time.Since(start); took > 30*time.Second { // some 0.1 s; in proportion to the square it would be minutes
			t.Errorf("each %s of %d bytes, %d measurements, took %v", path, len(body), n, took)
		}
	}
}
