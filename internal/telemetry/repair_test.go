package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/telemetry"
)

// damagedBodies are nearly JSON, with the lowest and the highest number that may be read at temperature.
var damagedBodies = []struct {
	name, body      string
	lowest, highest float64
	reason          telemetry.Reason
}{
	{"trailing commas", `[{"temperature": 20,}, {"temperature": 91.5,},]`, 20, 91.5, telemetry.ReasonDamaged},
	{"objects joined by commas", `{"temperature":20},{"temperature":91.5}`, 20, 91.5, telemetry.ReasonDamaged},
	{"Python words", `[{"temperature":20},{"x":None,"ok":True,"temperature":91.5}]`, 20, 91.5, telemetry.ReasonDamaged},
	{"raw line break in text", "[{\"temperature\":20},{\"msg\":\"line1\nline2\",\"temperature\":91.5}]", 20, 91.5, telemetry.ReasonDamaged},
	{"bad escape", `[{"temperature":20},{"path":"C:\data\x","temperature":91.5}]`, 20, 91.5, telemetry.ReasonDamaged},
	{"decimal comma in an object", `{"temperature":80,9,"humidity":40,2}`, 0, 0, telemetry.ReasonMalformed},
	{"decimal comma alone", `{"temperature":91,50}`, 0, 0, telemetry.ReasonMalformed},
	{"decimal commas in an array", `{"temperature":[20,5, 91,5]}`, 5, 91, telemetry.ReasonOK},
	{"names without quotes, tight", `{temperature:91.5,humidity:60}`, 91.5, 91.5, telemetry.ReasonDamaged},
	{"Python str(dict)", `{'connected': True, 'hum': 66.5, 'temperature': 91.8, 'n': None}`, 91.8, 91.8, telemetry.ReasonDamaged},
	{"backslash before each quote", `{\"temperature\":91.5,\"id\":\"a\"}`, 91.5, 91.5, telemetry.ReasonDamaged},
	{"plus sign", `{"temperature":+91.5}`, 0, 0, telemetry.ReasonMalformed},
	{"leading zero", `{"temperature":091.5}`, 0, 0, telemetry.ReasonMalformed},
	{"two commas", `{"humidity":40,,"temperature":91.5}`, 91.5, 91.5, telemetry.ReasonDamaged},
	{"no value before it", `{"humidity":,"temperature":91.5}`, 91.5, 91.5, telemetry.ReasonDamaged},
	{"-nan(ind), 1.#QNAN beside it", `{"humidity":-nan(ind),"p":1.#QNAN,"temperature":91.5}`, 91.5, 91.5, telemetry.ReasonDamaged},
	{"1.#QNAN itself", `{"temperature":1.#QNAN}`, 0, 0, telemetry.ReasonMalformed},
	{"cut in the number, point left", `{"humidity":40,"temperature":91.`, 0, 0, telemetry.ReasonMalformed},
	{"cut in the number, a digit left", `{"humidity":40,"temperature":9`, 0, 0, telemetry.ReasonMalformed},
	{"cut after the minus", `{"temperature":-`, 0, 0, telemetry.ReasonMalformed},
	{"cut in the exponent", `{"temperature":9.15e`, 0, 0, telemetry.ReasonMalformed},
	{"the next message runs in", `{"temperature":9{"temperature":91.5}`, 0, 0, telemetry.ReasonMalformed},
	{"line broken in the number", "{\"temperature\":9\r\n1.5,\"humidity\":40}", 0, 0, telemetry.ReasonMalformed},
	{"comma missing, two numbers in an array", `{"temperature":[20 91.5]}`, 0, 0, telemetry.ReasonMalformed},
	{"comma or point lost", `{"temperature":91 5,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"point without digits", `{"temperature":91.,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"two points", `{"temperature":9.1.5,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"two minuses", `{"temperature":--12.5}`, 0, 0, telemetry.ReasonMalformed},
	{"number glued to a unit", `{"temperature":91.5C,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"degrees and minutes", `{"temperature":12:30,"x":1}`, 0, 0, telemetry.ReasonMalformed},
	{"leading zero that may be octal", `{temperature: 0100, x: 1}`, 0, 0, telemetry.ReasonMalformed},
	{"word for a number", `{temperature: on, x: 1}`, 0, 0, telemetry.ReasonMalformed},
	{"comma missing after the number", `{"temperature":91.5 "humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"function around a number", `{"temperature":scale(3),"u":np.float64(4)}`, 0, 0, telemetry.ReasonMalformed},
	{"two strings to be joined", `{"temperature":"9" + "1.5"}`, 0, 0, telemetry.ReasonMalformed},
	{"hexadecimal", `{"temperature":0x5B}`, 0, 0, telemetry.ReasonMalformed},
	{"quotes inside of a text", `{"note":"operator "temperature":99, set","temperature":20}`, 0, 0, telemetry.ReasonMalformed},
	{"closing quote missing, text before", `{"note":"set to "temperature":99,"temperature":20}`, 0, 0, telemetry.ReasonMalformed},
	{"closing quote of the value missing", `{"temperature":"91.5,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"closing quote of the name missing", `{"temperature:91.5,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"opening quote of the name missing", `{temperature":91.5,"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"apostrophe in Python text", `{'note': 'it's 'temperature': 99', 'temperature': 20}`, 0, 0, telemetry.ReasonMalformed},
	{"comments that hold an old value", "{/* \"temperature\": 999, */ \"temperature\": 20 // was 91.5\n}", 20, 20, telemetry.ReasonDamaged},
	{"# comment", "{\"temperature\": 20 # \"temperature\": 99\n}", 0, 0, telemetry.ReasonMalformed},
	{"closing brace missing inside", `{"limit":{"temperature":99,"temperature":20}`, 20, 99, telemetry.ReasonDamaged},
	{"wrong bracket", `{"limit":{"temperature":99],"temperature":20}`, 0, 0, telemetry.ReasonMalformed},
	{"a brace too many", `{"limit":{"a":1}},"temperature":99}`, 0, 0, telemetry.ReasonMalformed},
	{"one name twice, unquoted", `{temperature: 91.5, temperature: 20}`, 20, 91.5, telemetry.ReasonDamaged},
	{"two objects without a comma", `[{temperature:20}{temperature:91.5}]`, 20, 91.5, telemetry.ReasonDamaged},
	{"ellipsis", `{"temperature":[20, ..., 91.5]}`, 0, 0, telemetry.ReasonMalformed},
	{"text before", `Data: {"temperature":91.5}`, 0, 0, telemetry.ReasonMalformed},
	{"STX and ETX around", "\x02{\"temperature\":91.5}\x03", 0, 0, telemetry.ReasonMalformed},
	{"semicolons", `{"temperature":91.5;"humidity":40}`, 0, 0, telemetry.ReasonMalformed},
	{"equals signs", `{"temperature"=91.5,"humidity"=40}`, 0, 0, telemetry.ReasonMalformed},
	{"no braces", `"temperature":91.5,"humidity":40`, 0, 0, telemetry.ReasonMalformed},
	{"thousands in groups", `{temperature: 1_091, x: 1}`, 0, 0, telemetry.ReasonMalformed},
	{"decimal comma, then a name without quotes", `{temperature: 80,9, humidity: 40}`, 0, 0, telemetry.ReasonMalformed},
	{"decimal comma with spaces, single quotes", `{'temperature': 80, 9, 'humidity': 40}`, 0, 0, telemetry.ReasonMalformed},
}

func TestDamagedBodies(t *testing.T) {
	fields := []telemetry.Field{{Paths: "temperature,limit.temperature"}, {Paths: "temperature,limit.temperature", Lowest: true}}
	d, err := telemetry.NewFieldsDecoder(fields...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range damagedBodies {
		found := make([]telemetry.Found, 2)
		reason := d.DecodeAll(&telemetry.Event{Device: "d", Body: []byte(tt.body)}, found)
		if reason != tt.reason || found[0].Value != tt.highest || found[1].Value != tt.lowest {
			t.Errorf("%s: %s: got %v, %v; want %v to %v, %v", tt.name, tt.body, found, reason, tt.lowest, tt.highest, tt.reason)
		}
		damage := telemetry.DamageOf([]byte(tt.body)).Text("d")
		if isJSON := tt.reason == telemetry.ReasonOK; isJSON != (damage == "") || isJSON && found[0].Damaged || tt.reason == telemetry.ReasonDamaged && !found[0].Damaged {
			t.Errorf("%s: %s: damaged %v, %q", tt.name, tt.body, found[0].Damaged, damage)
		}
	}
}

// What is on the list of damage beside those, and what is not.
func TestRepair(t *testing.T) {
	for _, tt := range []struct {
		body string
		want float64 // 0: nothing may be read
	}{
		{`{"temperature":91.5,}`, 91.5},
		{`{"a":[1,2,],"temperature":91.5}`, 91.5},
		{`[{"temperature":91.5},,{"a":1}]`, 91.5},
		{`{"temperature":91.5},`, 91.5},
		{`[{"temperature":91.5}{"a":1}]`, 91.5},
		{`{"a":{"b":1}"temperature":91.5}`, 91.5},
		{`{"a":[1]"temperature":91.5}`, 91.5},
		{"{\"a\":\"x\"\n\"temperature\":91.5}", 91.5},
		{"{'a':'x'\r\ntemperature:91.5}", 91.5},
		{"{“temperature”: “91.5”, “a”: 1}", 91.5},
		{"{„temperature“: 91.5, ‘a’: ‘it's “x”’}", 91.5},
		{`{'a': "it's", 'temperature': 91.5}`, 91.5},
		{`{'a': 'it\'s "x"', 'temperature': '91.5'}`, 91.5},
		{`{'temperature': true,}`, 1},
		{`{'temperature': True, 'a': 1}`, 1},
		{`{"a":nan(ind),"temperature":91.5}`, 91.5},
		{`{"a":40%,"b":°C,"temperature":91.5}`, 91.5},
		{`{"a":,"b":,"temperature":91.5}`, 91.5},
		{`{"temperature":91.5,"a":}`, 91.5},
		{"{\"temperature\": 91.5 // , \"temperature\": 999\n, /* \"temperature\": 999 */ \"a\":1}", 91.5},
		{"{\"a\":\"x\ty\x01z\",\"temperature\":91.5}", 91.5},
		{`{"a":"\x41\d\'\u12","temperature":91.5}`, 91.5},
		{`{\"a\":\"x\", \"temperature\":\"91.5\"}`, 91.5},
		{`{\"temperature\":91.5, \"a\":\"x`, 91.5},
		{` [{\"temperature\":91.5,},]`, 91.5},
		{`{\"temperature\":91.5,\"fw\":\"v1\/2\"}`, 91.5},
		{`{\"temperature\":91.5,\"n\":\"a\\nb\"}`, 91.5},
		{`{\"temperature\":91.5,\"n\":\"C:\\\\x\"}`, 91.5},
		{`{\"temperature\":91.5,\"n\":\"say \\\"hi\\\"\"}`, 91.5},
		{`{\"temperature\":91.5,\"mode\":\"heating\"}"`, 91.5},
		{`"{\"temperature\":91.5,\"mode\":\"heating\"}`, 0},
		{`{\"n\":\"a\\nb\",\"temperature\":91.5}`, 0},
		{`{_a-b.c$: 1, größe: 2, temperature: 91.5}`, 91.5},
		{"\ufeff {'temperature':91.5,'a':1}\x00", 91.5},
		{`{"temperature":91.5,"a`, 91.5},
		{`{"temperature":91.5,"a"`, 91.5},
		{`{"temperature":91.5,a`, 91.5},
		{`{"temperature":91.5,"a":`, 91.5},
		{`{'temperature':91.5,'a':NaN}`, 91.5},
		{`{"a":NaN,"temperature":91.5,}`, 91.5},
		{`{"temperature":91.5}]`, 91.5},
		{`{"temperature":91.5} Bye!`, 91.5},
		{`[{"temperature":91.5},{"a":[}]`, 91.5},

		{`{"temperature":91.5`, 0},
		{`{"temperature":91.5,`, 0},
		{`{"temperature":91.5,/* a`, 0},
		{`{"temperature":"91.5"`, 0},
		{`{"temperature":"91.5",`, 0},
		{`{"temperature":true,`, 0},
		{`{"temperature":91.5,5`, 0},
		{`{"temperature":91.5,,"a":1}`, 0},
		{`{"temperature":91.5,"a" 1}`, 0},
		{`{"temperature":91.5,a 1}`, 0},
		{`{"temperature":91.5]`, 0},
		{`{"temperature":[91.5],}`, 0},
		{`{"temperature":["91.5"],}`, 0},
		{`{"temperature":91.5 /**/ 5,}`, 0},
		{"{\"temperature\":\"91.5\"\n\"a\":1}", 0},
		{`{"temperature":"91,5",}`, 0},
		{`{"temperature":" 91.5",}`, 0},
		{`{"temperature":"+91.5",}`, 0},
		{`{"temperature":"\u0039",}`, 0},
		{`{"temperature":.5,"a":1}`, 0},
		{`{"temperature":TRUE,"a":1}`, 0},
		{`{"temperature":"{\"a\":91.5}",}`, 0},
		{`{\"a\":\"x\\\"y\", \"temperature\":91.5}`, 0},
		{`{\"a\":"x", "temperature":91.5}`, 0},
		{`{\"a\":\"x\n\", \"temperature\":91.5}`, 0},
		{`{"a":1, \"temperature\":91.5}`, 0},
		{`{,"temperature":91.5}`, 0},
		{`{"a":"b" "temperature":91.5}`, 0},
		{`{"a":1} 5 {"temperature":91.5,}`, 0},
		{`{"a":"x" + "y","temperature":91.5}`, 0},
		{`{"a":(1),"b":(1,2),"temperature":91.5}`, 0},
		{`{"a":<1/2>,"temperature":91.5}`, 0},
		{`["a":1,"temperature":91.5]`, 0},
		{`{{"temperature":91.5,}}`, 0},
		{`temperature: 91.5`, 0},
		{`'temperature': 91.5`, 0},
	} {
		value, reason := newDecoder(t, "temperature").Decode(&telemetry.Event{Device: "d", Body: []byte(tt.body)})
		want := telemetry.ReasonDamaged
		if tt.want == 0 {
			want = telemetry.ReasonMalformed
		}
		isText := reason == telemetry.ReasonNotANumber && want == telemetry.ReasonMalformed // in the field, and no number
		if value != tt.want || reason != want && !isText {
			t.Errorf("%s: got %v, %v; want %v, %v", tt.body, value, reason, tt.want, want)
		}
	}
}

// Conditions and words are read by the same rule.
func TestWordsOfDamagedBodies(t *testing.T) {
	field := telemetry.Field{Paths: "mode", Words: []string{"run", "true", "7"}}
	d, err := telemetry.NewFieldsDecoder(field)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]telemetry.Found{
		`{'mode':'run'}`:              {Value: 1, Damaged: true},
		"{\"mode\":\"run\"\n\"a\":1}": {Value: 1, Damaged: true},
		`{'mode':True}`:               {Value: 2, Damaged: true},
		`{mode:7,a:1}`:                {Value: 3, Damaged: true},
		`{'mode':'stop',}`:            {Damaged: true},
		"{\"mode\":\"run\r\"}":        {Value: 1, Damaged: true},
		"{\"mode\":\"\t\nrun\"}":      {Value: 1, Damaged: true},
		"{\"mode\":\"run\x01\"}":      {Damaged: true},
		`{"mode":"run"`:               {Reason: telemetry.ReasonMalformed, Damaged: true},
		`{"mode":run,"a":1}`:          {Reason: telemetry.ReasonMalformed, Damaged: true},
		`{"mode":"run" "a":1}`:        {Reason: telemetry.ReasonMalformed, Damaged: true},
		`{"mode":"run,"a":"b"}`:       {Reason: telemetry.ReasonMalformed, Damaged: true},
		`{'mode':['run']}`:            {Reason: telemetry.ReasonMalformed, Damaged: true},
		`{'mode':None}`:               {Reason: telemetry.ReasonNull, Damaged: true},
		`{'other':1}`:                 {Reason: telemetry.ReasonMissing, Damaged: true},
		`{"other":1,"mode`:            {Reason: telemetry.ReasonMalformed, Damaged: true},
	} {
		var found [1]telemetry.Found
		d.DecodeAll(&telemetry.Event{Device: "d", Body: []byte(body)}, found[:])
		if found[0] != want {
			t.Errorf("%s: got %v, want %v", body, found[0], want)
		}
	}
}

func TestDamageText(t *testing.T) {
	for body, want := range map[string]string{
		`[{"temperature": 20,'b':1}]`:        `not JSON at byte 20 of a message of oven-7: found ' where a name in double quotes must begin`,
		`{"temperature": 20,}`:               `not JSON at byte 19 of a message of oven-7: found } where a name in double quotes must begin`,
		"  {temperature: 20}":                `not JSON at byte 3 of a message of oven-7: found t where a name in double quotes must begin`,
		`{"a":None}`:                         `not JSON at byte 5 of a message of oven-7: found N where a value must begin`,
		`{"a":1;"b":2}`:                      `not JSON at byte 6 of a message of oven-7: found ; where a comma or a closing bracket must follow`,
		`{"a" 1}`:                            `not JSON at byte 5 of a message of oven-7: found 1 where a colon must follow a name`,
		"{\"a\":\"b\nc\"}":                   `not JSON at byte 7 of a message of oven-7: found a line break inside text, where it must be escaped`,
		`{"a":"\d"}`:                         `not JSON at byte 7 of a message of oven-7: found d after a backslash, with which it is no escape`,
		`{"a":"b`:                            `not JSON at byte 7 of a message of oven-7: found the end inside text that has no closing quote`,
		`{"a":1`:                             `not JSON at byte 6 of a message of oven-7: found the end where a comma or a closing bracket must follow`,
		`{\"a\":1,}`:                         `not JSON at byte 1 of a message of oven-7: found \ where a name in double quotes must begin`,
		`temperature=99`:                     `not JSON at byte 0 of a message of oven-7: found t where an object or an array must begin`,
		gzipText(`{"a":1,}`):                 `not JSON at byte 7 of a message of oven-7: found } where a name in double quotes must begin`,
		zlibOf(`x`, `{"a":1}`):               `the checksum in a message of oven-7 is not that of what is packed in it`,
		zlibOf(`x`, `{"a":1,}`):              `not JSON at byte 7 of a message of oven-7: found } where a name in double quotes must begin`,
		zlibText(strings.Repeat(" ", 2<<20)): ``,
		zlibText(`temperature=99`):           `not JSON at byte 0 of a message of oven-7: found t where an object or an array must begin`,
		`{"a":1}`:                            ``,
		`{"a":NaN}`:                          ``,
		gzipText(`{"a":1}`)[:9]:              ``,
		"\xa1\x61a\x01":                      `not JSON at byte 0 of a message of oven-7: found the character U+FFFD where an object or an array must begin`,
	} {
		if got := telemetry.DamageOf([]byte(body)).Text("oven-7"); got != want {
			t.Errorf("%q:\n got %s\nwant %s", body, got, want)
		}
	}
}

// certain is how a value stands in the bytes of a body if it counts, whatever else is in that: behind a colon, as it
// would be in JSON or in quotes, and before a brace, or a comma and then a brace or a name as far as the body goes.
var certain = regexp.MustCompile(`(?s)[\pL\pN_$"'‘-‟.-]` + gap + `:` + gap +
	`(?:\\?["'‘-‟])?(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|True|False)(?:\\?["'‘-‟])?` + gap +
	`(?:\}|,` + gap + `(?:\}|["'‘-‟\\\pL_$]))`)

// gap is what does not count as something beside a value.
const gap = `(?:[ \t\r\n]|/\*.*?\*/|//[^\r\n]*[\r\n])*`

// checkCertain sees that what is read of a body is a value that stands in it with certainty. It is about what is around
// the value, and knows nothing of how bodies are repaired.
func checkCertain(t interface{ Errorf(string, ...any) }, body []byte, value float64) {
	for at := 0; ; {
		m := certain.FindSubmatchIndex(body[at:])
		if m == nil {
			t.Errorf("%q: %v is read, and is not certain", body, value)
			return
		}
		text := strings.ToLower(string(body[at+m[2] : at+m[3]]))
		number, err := strconv.ParseFloat(text, 64)
		if err == nil && number == value || text == "true" && value == 1 || text == "false" && value == 0 {
			return
		}
		at += m[2]
	}
}

// What is made of a damaged body is JSON or nothing, and not much larger; JSON has no damage; and what is read of a
// damaged body is certain.
func FuzzRepair(f *testing.F) {
	for _, b := range damagedBodies {
		f.Add([]byte(b.body))
	}
	for _, b := range bodies {
		if len(b.body) < 4096 {
			f.Add([]byte(b.body))
		}
	}
	f.Add([]byte(`{'a':[1,{"temperature":91.5,},"x\d"],/**/b:None,"c":“d” // e`))
	d := newDecoder(f, "temperature,a,b,c,a.b,data.temperature")
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) < 4096 { // the check is not linear
			checkRepair(t, d, body)
		}
	})
}

func checkRepair(t interface{ Errorf(string, ...any) }, d *telemetry.Decoder, body []byte) {
	before := bytes.Clone(body)
	text, damage := telemetry.Repair(body)
	if !bytes.Equal(body, before) {
		t.Errorf("%q was written to", before)
	}
	if len(text) > 3*len(body)+64 {
		t.Errorf("%q: %d bytes became %d", body, len(body), len(text))
	}
	for to := json.NewDecoder(bytes.NewReader(text)); to.More(); {
		var v json.RawMessage
		if err := to.Decode(&v); err != nil {
			t.Errorf("%q became %q, which is not JSON: %v", body, text, err)
			break
		}
	}
	if damage := telemetry.DamageOf(body); json.Valid(body) && isPlain(body) && damage != (telemetry.Damage{}) && !strings.Contains(damage.Text(""), "inside 64") {
		t.Errorf("%q is JSON: %s", body, damage.Text("d"))
	}
	trimmed := bytes.TrimSpace(body)
	if isNested := json.Valid(body) && strings.ContainsAny(string(trimmed[:1]), "{["); isNested && bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) <= 64 {
		var compact bytes.Buffer
		if err := json.Compact(&compact, trimmed); err != nil || damage != (telemetry.Damage{}) || !bytes.Equal(text, compact.Bytes()) {
			t.Errorf("%q is JSON, and became %q: %s", body, text, damage.Text("d"))
		}
	}
	if value, reason := d.Decode(&telemetry.Event{Device: "d", Body: body}); reason == telemetry.ReasonDamaged && isPlain(body) {
		checkCertain(t, body, value)
	}
}

// isPlain reports whether nothing is packed in a body.
func isPlain(body []byte) bool {
	text := strings.TrimLeft(strings.TrimPrefix(string(body), "\ufeff"), " \t\r\n")
	return text != "" && strings.ContainsAny(text[:1], "{[") && (len(body) < 2 || body[0] != 0 && body[1] != 0)
}

// Time and memory are linear in the body, whatever it is.
func TestRepairIsLinear(t *testing.T) {
	for _, of := range []string{
		"[", "{", `{"a":`, `{a:`, "[[],", `{"temperature":`, `{"temperature":[`, `"`, `'`, `{"a":"`, "{'", `{"\`, `{\"`, `{"a":"\"`, "{\"a\":\"\x01", "/*", "//", "{/*",
		"/**/", ",", "{},", "{,", "[1,,", "[,", "}", "]", "-", "{a:1", "{a:1e", "{a:NaN,", "{a:(", "{a:,", "a", "é", "{“", "{“a”:“", "[None,", "\x00", "\xff", "{a:\n",
		`{"temperature":91.5,},`, "{\"a\":\"b\"\n", `{"a":91,5,`, "[1 2 ", `{"a":{}`,
	} {
		body := []byte(strings.Repeat(of, telemetry.MaxBody/len(of)))
		began := time.Now()
		text, _ := telemetry.Repair(body)
		newDecoder(t, "temperature,a").Decode(&telemetry.Event{Device: "d", Body: body})
		if took := time.Since(began); took > 30*time.Second { // nearly as many minutes if it is quadratic
			t.Errorf("1 MiB of %q takes %v", of, took)
		}
		if len(text) > 3*len(body)+64 {
			t.Errorf("%d bytes of %q became %d", len(body), of, len(text))
		}
	}
}

// Of bodies that are damaged at random few false numbers are read: those with digits lost inside a number, and with
// brackets lost or put in, where nobody can see it.
func TestDamagedAtRandom(t *testing.T) {
	each := 4000
	if testing.Short() {
		each = 1000
	}
	d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: "temperature,data.temperature"}, telemetry.Field{Paths: "temperature,data.temperature", Lowest: true})
	if err != nil {
		t.Fatal(err)
	}
	all, wrong := 0, 0
	for kind, atMost := range map[string]float64{ // of a hundred
		"bytes lost": 0.1, "byte put in": 0.4, "cut": 0, "many bytes lost": 0.2, "decimal commas": 0, "decimal commas, bare names": 0,
		"Python": 0, "Python, bytes lost": 5, "bare names": 0, "bare names, bytes lost": 5.3, "trailing commas": 0, "run together": 0,
	} {
		r := rand.New(rand.NewPCG(1, uint64(len(kind))))
		broken, wrongs, read := 0, 0, 0
		for range each {
			body, values := randomBody(r)
			other, others := randomBody(r)
			if kind == "run together" {
				body, values = body[:r.IntN(len(body))]+other, append(values, others...)
			}
			body = damage(r, kind, body)
			found := make([]telemetry.Found, 2)
			reason := d.DecodeAll(&telemetry.Event{Device: "d", Body: []byte(body)}, found)
			if reason == telemetry.ReasonOK || json.Valid([]byte(body)) { // or several JSON values
				continue
			}
			broken++
			if reason != telemetry.ReasonDamaged {
				continue
			}
			read++
			if slices.ContainsFunc(found, func(f telemetry.Found) bool {
				return f.Reason == telemetry.ReasonOK && !slices.Contains(values, f.Value)
			}) {
				wrongs++
			}
			for _, f := range found {
				checkCertain(t, []byte(body), f.Value)
			}
		}
		t.Logf("%s: %d of %d are not JSON, %d are read, %d wrongly", kind, broken, each, read, wrongs)
		if float64(wrongs) > atMost*float64(broken)/100 {
			t.Errorf("%s: of %d bodies %d are read wrongly, more than %v %%", kind, broken, wrongs, atMost)
		}
		all, wrong = all+broken, wrong+wrongs
	}
	if share := float64(wrong) / float64(all); share > 0.01 {
		t.Errorf("of %d bodies %d are read wrongly", all, wrong)
	}
}

// randomBody returns a body of one of five shapes, and its temperatures.
func randomBody(r *rand.Rand) (body string, values []float64) {
	number := func() string {
		return strconv.FormatFloat(float64(r.IntN(2000)-500)/float64([]int{1, 10, 10, 100}[r.IntN(4)]), 'f', -1, 64)
	}
	value := func() string {
		n := number()
		f, _ := strconv.ParseFloat(n, 64)
		values = append(values, f)
		return n
	}
	switch r.IntN(5) {
	case 0:
		body = fmt.Sprintf(`{"deviceId":"pump-%d","temperature":%s,"humidity":%s,"ok":true,"x":null}`, r.IntN(100), value(), number())
	case 1:
		body = fmt.Sprintf(`{"name":"a b","data":{"temperature":%s,"humidity":%s},"door":false}`, value(), number())
	case 2:
		body = fmt.Sprintf(`[{"ts":%d,"temperature":%s},{"ts":%d,"temperature":%s},{"temperature":%s}]`, r.IntN(1e9), value(), r.IntN(1e9), value(), value())
	case 3:
		body = fmt.Sprintf(`{"temperature":[%s,%s],"unit":"C"}`, value(), value())
	default:
		body = fmt.Sprintf(`{"temperature":"%s","note":"set, to: {9}","humidity":"%s"}`, value(), number())
	}
	return body, values
}

var (
	aNumber = regexp.MustCompile(`(-?\d+)\.(\d+)`)
	aName   = regexp.MustCompile(`"(\w+)":`)
	aWord   = regexp.MustCompile(`\b(true|false|null)\b`)
	aClose  = regexp.MustCompile(`[}\]]`)
)

// damage damages a body in one way.
func damage(r *rand.Rand, kind, body string) string {
	kind, after, _ := strings.Cut(kind, ", ")
	switch kind {
	case "bytes lost":
		at := r.IntN(len(body))
		body = body[:at] + body[min(at+1+r.IntN(3), len(body)):]
	case "byte put in":
		at := r.IntN(len(body) + 1)
		const bytes = `{}[]",:'.-0123456789eE +/\ ` + "\n"
		body = body[:at] + string(bytes[r.IntN(len(bytes))]) + body[at:]
	case "cut":
		body = body[:r.IntN(len(body))]
	case "many bytes lost":
		at := r.IntN(len(body))
		body = body[:at] + body[min(at+4+r.IntN(17), len(body)):]
	case "decimal commas":
		body = aNumber.ReplaceAllString(body, "$1,$2")
	case "Python":
		words := map[string]string{"true": "True", "false": "False", "null": "None"}
		body = strings.ReplaceAll(aWord.ReplaceAllStringFunc(body, func(w string) string { return words[w] }), `"`, "'")
	case "bare names":
		body = aName.ReplaceAllString(body, "$1:")
	case "trailing commas":
		body = aClose.ReplaceAllString(body, ",$0")
	}
	if after == "" {
		return body
	}
	return damage(r, after, body)
}
