package telemetry_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"go.uber.org/goleak"

	"alertworker/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A body that is seen in the wild, or might be, and what becomes of it.
var bodies = []struct {
	name   string
	fields string // "" is the default
	body   string
	want   float64
	reason telemetry.Reason
}{
	// Where the reading is.
	{"temperature", "", `{"temperature":21.4}`, 21.4, telemetry.ReasonOK},
	{"temp", "", `{"temp":21.4}`, 21.4, telemetry.ReasonOK},
	{"first field counts", "", `{"temp":99,"temperature":21.4}`, 21.4, telemetry.ReasonOK},
	{"first field's order is the list's", "temp,temperature", `{"temperature":21.4,"temp":99}`, 99, telemetry.ReasonOK},
	{"unreadable first field", "", `{"temperature":null,"temp":99}`, 99, telemetry.ReasonOK},
	{"both unreadable", "", `{"temp":"off","temperature":null}`, 0, telemetry.ReasonNull},
	{"any case", "", `{"TEMPERATURE":21.4}`, 21.4, telemetry.ReasonOK},
	{"any case, beyond ASCII", "größe,kühler", "{\"\u212aÜHLER\":21.4}", 21.4, telemetry.ReasonOK},
	{"escaped name", "", `{"temper\u0061ture":21.4}`, 21.4, telemetry.ReasonOK},
	{"longer name", "", `{"temperature2":21.4}`, 0, telemetry.ReasonMissing},
	{"nested", "machine.temperature", `{"machine":{"temperature":101,"pressure":10},"ambient":{"temperature":21}}`, 101, telemetry.ReasonOK},
	{"nested, not asked for", "", `{"machine":{"temperature":101},"ambient":{"temperature":21}}`, 0, telemetry.ReasonMissing},
	{"nested in an array", "machine.temperature", `[{"machine":{"temperature":99}},{"machine":{"temperature":101}}]`, 101, telemetry.ReasonOK},
	{"array in between", "machine.temperature", `{"machine":[{"temperature":101},{"temperature":99}]}`, 101, telemetry.ReasonOK},
	{"envelope", "telemetry.temperature", `{"deviceId":"x","telemetry":{"temperature":21.4}}`, 21.4, telemetry.ReasonOK},
	{"envelope, not asked for", "", `{"telemetry":{"temperature":21.4}}`, 0, telemetry.ReasonMissing},
	{"name with dots", "machine.temperature", `{"machine.temperature":5}`, 5, telemetry.ReasonOK},
	{"name with dots, in part", "a.b.c.d", `{"a":{"b.c":{"d":5}}}`, 5, telemetry.ReasonOK},
	{"name with dots and nested", "a.b", `{"a":{"b":4},"a.b":5}`, 5, telemetry.ReasonOK},
	{"name in between is no object", "a.b", `{"a":5}`, 0, telemetry.ReasonMissing},
	{"field is an object", "", `{"temperature":{"value":21.4}}`, 0, telemetry.ReasonNotANumber},
	{"field is an object, field within", "temperature,temperature.value", `{"temperature":{"value":21.4}}`, 21.4, telemetry.ReasonOK},
	{"missing", "", `{"pressure":10}`, 0, telemetry.ReasonMissing},
	{"empty object", "", `{}`, 0, telemetry.ReasonMissing},
	{"bare number", "", `21.4`, 0, telemetry.ReasonMissing},
	{"bare numbers", "", `[21.4,22]`, 0, telemetry.ReasonMissing},
	{"bare null", "", `null`, 0, telemetry.ReasonMissing},
	{"twin-like", "temperature", `{"properties":{"reported":{"temperature":99}}}`, 0, telemetry.ReasonMissing},

	// The body itself, positions, and JSON in text.
	{"bare number, asked for", ".", `21.4`, 21.4, telemetry.ReasonOK},
	{"bare number in a string, asked for", ".", `"21,4"`, 0, telemetry.ReasonMalformed},
	{"bare numbers, asked for", ".", `[21.4,"22"]`, 22, telemetry.ReasonOK},
	{"object, the body asked for", ".", `{"temperature":21.4}`, 0, telemetry.ReasonNotANumber},
	{"the body or a field", "temperature,.", `{"temperature":21.4}`, 21.4, telemetry.ReasonOK},
	{"bare decimal comma", ".", `21,4`, 0, telemetry.ReasonMalformed},
	{"position", "values.1", `{"values":[20,21.4,99]}`, 21.4, telemetry.ReasonOK},
	{"position in the body", "0", `[21.4,99]`, 21.4, telemetry.ReasonOK},
	{"position that is missing", "values.3", `{"values":[20,21.4,99]}`, 0, telemetry.ReasonMissing},
	{"position of an object", "values.1.t", `{"values":[{"t":99},{"t":21.4},{"t":99}]}`, 21.4, telemetry.ReasonOK},
	{"position in a position", "values.1.0", `{"values":[[98,99],[21.4,99]]}`, 21.4, telemetry.ReasonOK},
	{"position in another array", "values.1", `{"values":[[98,99],[21.4,99]]}`, 99, telemetry.ReasonOK},
	{"number that is a name", "values.1", `{"values":{"1":21.4}}`, 21.4, telemetry.ReasonOK},
	{"number that is a name, in an array", "1", `[{"1":20},{"1":21.4}]`, 21.4, telemetry.ReasonOK},
	{"number with a leading zero", "values.01", `{"values":[20,99]}`, 0, telemetry.ReasonMissing},
	{"JSON in text", "objectJSON.temperature", `{"devEUI":"aa","objectJSON":"{\"temperature\": 21.4}"}`, 21.4, telemetry.ReasonOK},
	{"JSON in text in JSON in text", "a.b.c", `{"a":"{\"b\":\"[{\\\"c\\\":20},{\\\"c\\\":21.4}]\"}"}`, 21.4, telemetry.ReasonOK},
	{"JSON in text beside objects", "a.b", `[{"a":"{\"b\":20}"},{"a":{"b":21.4}}]`, 21.4, telemetry.ReasonOK},
	{"JSON in text, broken", "a.b", `{"a":"{\"b\":21.4,"}`, 0, telemetry.ReasonMissing},
	{"JSON in text, nearly", "a.b", `{"a":"{'b':21.4}"}`, 0, telemetry.ReasonMissing},
	{"JSON in text, in a position", "a.1.b", `{"a":["{\"b\":99}","{\"b\":21.4}"]}`, 21.4, telemetry.ReasonOK},
	{"JSON in text that is not asked for", "a", `{"a":"{\"b\":21.4}"}`, 0, telemetry.ReasonNotANumber},
	{"JSON in text, too deep", "a.b", `{"a":"` + strings.Repeat("[", 64) + `{\"b\":1}` + strings.Repeat("]", 64) + `"}`, 0, telemetry.ReasonMissing},

	// Several readings: the hottest.
	{"array", "", `[{"temperature":20},{"temperature":30},{"temperature":25}]`, 30, telemetry.ReasonOK},
	{"array, below zero", "", `[{"temperature":-20},{"temperature":-30}]`, -20, telemetry.ReasonOK},
	{"array of different fields", "", `[{"temperature":20},{"temp":99}]`, 99, telemetry.ReasonOK},
	{"array of different fields, another beside it", "m.temperature,temperature,m.temp", `{"m":[{"temperature":20},{"temp":99}],"temperature":50}`, 99, telemetry.ReasonOK},
	{"array of arrays", "", `[[{"temperature":20}],[{"temperature":30}]]`, 30, telemetry.ReasonOK},
	{"array of values", "", `{"temperature":[20,"30",25]}`, 30, telemetry.ReasonOK},
	{"array with the unreadable", "", `[{"temperature":null},{"temperature":"off"},{"temperature":1e400},{},7,{"temperature":30}]`, 30, telemetry.ReasonOK},
	{"array of the unreadable", "", `[{},{"temperature":null},{"temperature":"off"}]`, 0, telemetry.ReasonNull},
	{"empty array", "", `[]`, 0, telemetry.ReasonMissing},
	{"field is an empty array", "", `{"temperature":[]}`, 0, telemetry.ReasonMissing},
	{"lines", "", "{\"temperature\":20}\n{\"temperature\":30}\r\n{\"temperature\":25}\n", 30, telemetry.ReasonOK},
	{"name twice", "", `{"temperature":99,"temperature":20}`, 99, telemetry.ReasonOK},
	{"name twice, in two cases", "", `{"temperature":20,"Temperature":99}`, 99, telemetry.ReasonOK},
	{"name twice, once null", "", `{"temperature":99,"temperature":null}`, 99, telemetry.ReasonOK},
	{"parent twice", "a.b", `{"a":{"b":99},"a":{}}`, 99, telemetry.ReasonOK},

	// Numbers.
	{"zero", "", `{"temperature":0}`, 0, telemetry.ReasonOK},
	{"negative", "", `{"temperature":-40}`, -40, telemetry.ReasonOK},
	{"exponent", "", `{"temperature":2.14E+1}`, 21.4, telemetry.ReasonOK},
	{"tiny", "", `{"temperature":1e-400}`, 0, telemetry.ReasonOK},
	{"long", "", `{"temperature":21.` + strings.Repeat("3", 5000) + `}`, 64.0 / 3, telemetry.ReasonOK},
	{"string", "", `{"temperature":"21.4"}`, 21.4, telemetry.ReasonOK},
	{"string with spaces", "", `{"temperature":" 21.4\t\n"}`, 21.4, telemetry.ReasonOK},
	{"string with escapes", "", `{"temperature":"\u0032\u0031.4"}`, 21.4, telemetry.ReasonOK},
	{"string with a plus", "", `{"temperature":"+21.4"}`, 21.4, telemetry.ReasonOK},
	{"decimal comma", "", `{"temperature":"21,4"}`, 21.4, telemetry.ReasonOK},
	{"decimal comma, below zero", "", `{"temperature":" -0,25 "}`, -0.25, telemetry.ReasonOK},
	{"decimal comma, many digits", "", `{"temperature":"21,4375"}`, 21.4375, telemetry.ReasonOK},
	{"comma that may be of thousands", "", `{"temperature":"1,234"}`, 0, telemetry.ReasonNotANumber},
	{"comma and point", "", `{"temperature":"1,234.5"}`, 0, telemetry.ReasonNotANumber},
	{"point and comma", "", `{"temperature":"1.234,5"}`, 0, telemetry.ReasonNotANumber},
	{"two commas", "", `{"temperature":"1,2,3"}`, 0, telemetry.ReasonNotANumber},
	{"comma without digits behind", "", `{"temperature":"1,"}`, 0, telemetry.ReasonNotANumber},
	{"comma without digits before", "", `{"temperature":",5"}`, 0, telemetry.ReasonNotANumber},
	{"comma and exponent", "", `{"temperature":"1,5e3"}`, 0, telemetry.ReasonNotANumber},
	{"comma and two signs", "", `{"temperature":"--1,5"}`, 0, telemetry.ReasonNotANumber},
	{"with a unit", "", `{"temperature":"21.4 °C"}`, 0, telemetry.ReasonNotANumber},
	{"hexadecimal", "", `{"temperature":"0x15"}`, 0, telemetry.ReasonNotANumber},
	{"empty string", "", `{"temperature":""}`, 0, telemetry.ReasonNotANumber},
	{"letters of numbers", "", `{"temperature":"e+-."}`, 0, telemetry.ReasonNotANumber},
	{"true", "", `{"temperature":true}`, 1, telemetry.ReasonOK},
	{"false", "", `{"temperature":false}`, 0, telemetry.ReasonOK},
	{"null", "", `{"temperature":null}`, 0, telemetry.ReasonNull},
	{"huge", "", `{"temperature":1e400}`, 0, telemetry.ReasonNotFinite},
	{"huge, in a string", "", `{"temperature":"-1e400"}`, 0, telemetry.ReasonNotFinite},
	{"string NaN", "", `{"temperature":"NaN"}`, 0, telemetry.ReasonNotFinite},
	{"string Infinity", "", `{"temperature":"-Infinity"}`, 0, telemetry.ReasonNotFinite},
	{"bare NaN", "", `{"temperature":NaN}`, 0, telemetry.ReasonNotFinite},
	{"bare Infinity", "", `{"temperature": -Infinity}`, 0, telemetry.ReasonNotFinite},
	{"bare nan of C", "", `{"temperature":-nan}`, 0, telemetry.ReasonNotFinite},
	{"bare NaN elsewhere", "", `{"note":"a \"NaN","humidity":NaN,"temperature":99}`, 99, telemetry.ReasonOK},
	{"bare NaN in an array", "", `{"temperature":[NaN,99,Infinity]}`, 99, telemetry.ReasonOK},
	{"other bare words", "", `{"temperature":undefined}`, 0, telemetry.ReasonMalformed},

	// What is not JSON.
	{"nothing", "", ``, 0, telemetry.ReasonEmpty},
	{"white space", "", " \r\n\t", 0, telemetry.ReasonEmpty},
	{"byte order mark alone", "", "\ufeff", 0, telemetry.ReasonEmpty},
	{"text", "", `temperature=99`, 0, telemetry.ReasonMalformed},
	{"text that is base64 of nothing", "", `temperature`, 0, telemetry.ReasonMalformed},
	{"XML", "", `<temperature>99</temperature>`, 0, telemetry.ReasonMalformed},
	{"single quotes", "", `{'temperature':99}`, 99, telemetry.ReasonDamaged},
	{"leading zero", "", `{"temperature":099}`, 0, telemetry.ReasonMalformed},
	{"invalid UTF-8 in a value", "", "{\"unit\":\"\xb0C\",\"temperature\":99}", 99, telemetry.ReasonOK},
	{"invalid UTF-8 in a name", "", "{\"\xff\":1,\"temperature\":99}", 99, telemetry.ReasonOK},
	{"lone surrogate", "", `{"x":"\ud800","temperature":99}`, 99, telemetry.ReasonOK},

	// What is broken from some place on: what is certain to have been complete before counts.
	{"broken off", "", `{"temperature":99,"hum`, 99, telemetry.ReasonDamaged},
	{"broken off in the number", "", `{"temperature":9`, 0, telemetry.ReasonMalformed},
	{"broken off behind the number", "", `{"temperature":99`, 0, telemetry.ReasonMalformed},
	{"broken off in the exponent", "", `{"temperature":9e`, 0, telemetry.ReasonMalformed},
	{"broken off in a buffer of C", "", "{\"temperature\":9\x00", 0, telemetry.ReasonMalformed},
	{"broken off in the string", "", `{"temperature":"9`, 0, telemetry.ReasonMalformed},
	{"broken off behind the string", "", `{"temperature":"99"`, 0, telemetry.ReasonMalformed},
	{"broken off in the name", "", `{"temp":99,"temperatur`, 99, telemetry.ReasonDamaged},
	{"broken off in the first field", "", `{"temp":99,"temperature":10`, 99, telemetry.ReasonDamaged},
	{"broken off in the array", "", `[{"temperature":99}`, 99, telemetry.ReasonDamaged},
	{"broken off in an array of values", "", `{"temperature":[99,10`, 0, telemetry.ReasonMalformed},
	{"broken off in a line", "", "{\"temperature\":20}\n{\"temperature\":99}\n{\"temperature\":10", 99, telemetry.ReasonDamaged},
	{"broken off in the first line", "", "{\"temperature\":20", 0, telemetry.ReasonMalformed},
	{"broken off behind null", "", `{"temperature":null,"temp":9`, 0, telemetry.ReasonMalformed},
	{"broken off in UTF-16", "", utf16Text(binary.LittleEndian, `{"temperature":99,"hum`) + "i", 99, telemetry.ReasonDamaged},
	{"broken off in UTF-16, in the number", "", utf16Text(binary.LittleEndian, `{"temperature":9`), 0, telemetry.ReasonMalformed},
	{"broken off in base64", "", base64.StdEncoding.EncodeToString([]byte(`{"temperature":99,"hum`)), 99, telemetry.ReasonDamaged},
	{"broken off behind a bare NaN", "", `[{"temperature":20,"humidity":NaN},{"temperature":99},{"temperature":10`, 99, telemetry.ReasonDamaged},
	{"garbage behind", "", `{"temperature":99}}`, 99, telemetry.ReasonDamaged},
	{"garbage behind a line", "", "{\"temperature\":99}\nBye!", 99, telemetry.ReasonDamaged},
	{"garbage before", "", `!{"temperature":99}`, 0, telemetry.ReasonMalformed},
	{"comma at the end", "", `{"temperature":99,}`, 99, telemetry.ReasonDamaged},
	{"comma missing", "", `{"temp":99 "temperature":10}`, 0, telemetry.ReasonMalformed},
	{"unit behind the number", "", `{"temperature":99°}`, 0, telemetry.ReasonMalformed},
	{"blank in the number", "", `{"temperature":1 099}`, 0, telemetry.ReasonMalformed},
	{"space behind the number", "", `{"temperature":99 ,"hum`, 99, telemetry.ReasonDamaged},

	// How it comes.
	{"byte order mark", "", "\ufeff{\"temperature\":21.4}", 21.4, telemetry.ReasonOK},
	{"C string", "", "{\"temperature\":21.4}\n\x00\x00", 21.4, telemetry.ReasonOK},
	{"UTF-16LE, marked", "", "\xff\xfe" + utf16Text(binary.LittleEndian, `{"ort":"Öl 😀","temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"UTF-16BE, marked", "", "\xfe\xff" + utf16Text(binary.BigEndian, `{"ort":"Öl 😀","temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"UTF-16LE", "", utf16Text(binary.LittleEndian, ` {"temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"UTF-16BE", "", utf16Text(binary.BigEndian, `[{"temperature":21.4}]`), 21.4, telemetry.ReasonOK},
	{"UTF-16, broken surrogates", "", utf16Text(binary.BigEndian, `{"temperature":21.4,"x":"`) + "\xd8\x00\x00\"\x00}", 21.4, telemetry.ReasonOK},
	{"UTF-16, the mark alone", "", "\xff\xfe", 0, telemetry.ReasonEmpty},
	{"UTF-32BE, marked", "", "\x00\x00\xfe\xff" + utf32Text(binary.BigEndian, `{"temperature":21.4}`), 0, telemetry.ReasonUnsupportedEncoding},
	{"UTF-32BE", "", utf32Text(binary.BigEndian, `{"temperature":21.4}`), 0, telemetry.ReasonUnsupportedEncoding},
	{"gzip", "", gzipText(`{"temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"gzip of UTF-16", "", gzipText(utf16Text(binary.LittleEndian, `{"temperature":21.4}`)), 21.4, telemetry.ReasonOK},
	{"gzip of nothing", "", gzipText(``), 0, telemetry.ReasonEmpty},
	{"gzip, broken off", "", gzipText(`{"temperature":21.4}`)[:30], 0, telemetry.ReasonMalformed},
	{"gzip, broken", "", "\x1f\x8b\x08", 0, telemetry.ReasonMalformed},
	{"gzip bomb", "", gzipText(strings.Repeat(" ", 8<<20)), 0, telemetry.ReasonTooLarge},
	{"zlib", "", zlibText(`{"temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"zlib, broken off", "", zlibText(`{"temperature":21.4}`)[:20], 0, telemetry.ReasonMalformed},
	{"zlib, a byte changed", "", zlibOf(`{"temperature":91.5}`, `{"temperature":21.5}`), 21.5, telemetry.ReasonDamaged},
	{"zlib, without its checksum", "", cutOff(zlibText(`{"temperature":91.5}`), 4), 91.5, telemetry.ReasonDamaged},
	{"zlib, its checksum cut off", "", cutOff(zlibText(`{"temperature":91.5}`), 1), 91.5, telemetry.ReasonDamaged},
	{"zlib, more behind it", "", zlibText(`{"temperature":21.4}`) + "\r\n", 21.4, telemetry.ReasonOK},
	{"zlib of UTF-16, another checksum", "", zlibOf("x", "\xff\xfe"+utf16Text(binary.LittleEndian, `{"temperature":21.4}`)), 0, telemetry.ReasonUnsupportedEncoding},
	{"base64 of zlib, a byte changed", "", base64.StdEncoding.EncodeToString([]byte(zlibOf(`{"temperature":91.5}`, `{"temperature":21.5}`))), 21.5, telemetry.ReasonDamaged},
	{"zlib, a byte changed, an array", "", zlibOf("x", `{"temperature":[91.5,20]}`), 91.5, telemetry.ReasonDamaged},
	{"zlib, a byte changed, no JSON", "", zlibOf("x", `{"temperature":91.5,}`), 91.5, telemetry.ReasonDamaged},
	{"zlib, a byte changed, other text", "", zlibOf("x", `temperature=99`), 0, telemetry.ReasonUnsupportedEncoding},
	{"zlib bomb, a byte changed", "", zlibOf("x", strings.Repeat(" ", 8<<20)), 0, telemetry.ReasonTooLarge},
	{"zlib of a number", ".", zlibText(`91.5`), 91.5, telemetry.ReasonOK},
	{"zlib of UTF-16", "", zlibText("\xff\xfe" + utf16Text(binary.LittleEndian, `{"temperature":21.4}`)), 21.4, telemetry.ReasonOK},
	{"zlib of base64", "", zlibText(`eyJ0ZW1wZXJhdHVyZSI6MjEuNH0=`), 21.4, telemetry.ReasonOK},
	{"zlib of gzip", "", zlibText(gzipText(`{"temperature":21.4}`)), 21.4, telemetry.ReasonOK},
	{"zlib of deflate", "", zlibText(flateText(`{"temperature":21.4}`)), 21.4, telemetry.ReasonOK},
	{"zlib of nothing", "", zlibText(``), 0, telemetry.ReasonEmpty},
	{"zlib of text", "", zlibText(`temperature=99`), 0, telemetry.ReasonMalformed},
	{"zlib bomb", "", zlibText(strings.Repeat(" ", 8<<20)), 0, telemetry.ReasonTooLarge},
	{"deflate", "", flateText(`{"temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"deflate, large", "", flateText(`[` + strings.Repeat(`{"ts":1795833600,"x":"abc"},`, 500) + `{"temperature":21.4}]`), 21.4, telemetry.ReasonOK},
	{"deflate of something else", "", flateText(`temperature=99`), 0, telemetry.ReasonUnsupportedEncoding},
	{"base64 of zlib", "", base64.StdEncoding.EncodeToString([]byte(zlibText(`{"temperature":21.4}`))), 21.4, telemetry.ReasonOK},
	{"base64 of deflate", "", base64.StdEncoding.EncodeToString([]byte(flateText(`{"temperature":21.4}`))), 21.4, telemetry.ReasonOK},
	{"base64", "", base64.StdEncoding.EncodeToString([]byte(`{"temperature":21.4, "x":"??>>"}`)), 21.4, telemetry.ReasonOK},
	{"base64 for URLs", "", base64.RawURLEncoding.EncodeToString([]byte(`{"temperature":21.4, "x":"??>>"}`)), 21.4, telemetry.ReasonOK},
	{"base64 in lines", "", "eyJ0ZW1wZXJh\r\ndHVyZSI6MjEuNH0=\r\n", 21.4, telemetry.ReasonOK},
	{"base64 in a JSON string", "", `"eyJ0ZW1wZXJhdHVyZSI6MjEuNH0="`, 21.4, telemetry.ReasonOK},
	{"base64 of gzip", "", base64.StdEncoding.EncodeToString([]byte(gzipText(`{"temperature":21.4}`))), 21.4, telemetry.ReasonOK},
	{"JSON in a JSON string", "", `"{\"temperature\":21.4}"`, 21.4, telemetry.ReasonOK},
	{"text in a JSON string", "", `"hello"`, 0, telemetry.ReasonMalformed},
	{"packed too often", "", quoted(6, `{"temperature":21.4}`), 0, telemetry.ReasonMalformed},
	{"packed often", "", quoted(5, `{"temperature":21.4}`), 21.4, telemetry.ReasonOK},
	{"CBOR", "", "\xa1\x6btemperature\xf9\x4d\x5a", 0, telemetry.ReasonUnsupportedEncoding},
	{"MessagePack", "", "\x81\xabtemperature\xcb\x40\x35\x66\x66\x66\x66\x66\x66", 0, telemetry.ReasonUnsupportedEncoding},
	{"Protocol Buffers", "", "\x0a\x04pump\x11fffff5@", 0, telemetry.ReasonUnsupportedEncoding},

	// Bounds.
	{"as large as can be", "", `{"temperature":21.4` + strings.Repeat(" ", telemetry.MaxBody-20) + `}`, 21.4, telemetry.ReasonOK},
	{"too large", "", `{"temperature":21.4` + strings.Repeat(" ", telemetry.MaxBody-19) + `}`, 0, telemetry.ReasonTooLarge},
	{"as deep as can be", "", `{"temperature":21.4,"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, 21.4, telemetry.ReasonOK},
	{"too deep behind the field", "", `{"temperature":21.4,"x":` + nested(64) + `}`, 21.4, telemetry.ReasonDamaged},
	{"too deep before the field", "", `{"x":` + nested(64) + `,"temperature":21.4}`, 0, telemetry.ReasonMalformed},
	{"too deep and broken off", "", `{"temperature":21.4,"x":` + nested(500_000), 21.4, telemetry.ReasonDamaged},
	{"too deep", "", strings.Repeat("[", 64) + `{"temperature":21.4}` + strings.Repeat("]", 64), 0, telemetry.ReasonMalformed},
	{"too deep in the field", "", `{"temperature":` + nested(64) + `}`, 0, telemetry.ReasonMalformed},
	{"too deep in the field, another", "", `{"temperature":` + nested(64) + `,"temp":99}`, 0, telemetry.ReasonMalformed},
	{"too deep on the way", "", strings.Repeat("[", 500_000), 0, telemetry.ReasonMalformed},
	{"too deep in objects", "", strings.Repeat(`{"temperature":`, 60_000), 0, telemetry.ReasonMalformed},
}

func TestDecodeBodies(t *testing.T) {
	for _, tt := range bodies {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			got, reason := newDecoder(t, tt.fields).Decode(&telemetry.Event{Device: "d", Body: body})
			if got != tt.want || reason != tt.reason {
				t.Errorf("got %v, %v; want %v, %v", got, reason, tt.want, tt.reason)
			}
			if string(body) != tt.body {
				t.Error("Decode wrote to the body")
			}
		})
	}
}

// What devices in public reports send. The source is that of the report.
func TestDecodeReported(t *testing.T) {
	zlibBody, err := hex.DecodeString("789cab562a49cd2d482d4a2c292d4a55b2b234d433ad05003f0d05c1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		source, fields, body string
		want                 float64
		reason               telemetry.Reason
	}{
		{"Azure/azure-sdk-for-c#2032", "", `[{"name":"A","temperature":20,},{"name":"B","temperature":91.5,},]`, 91.5, telemetry.ReasonDamaged},
		{"Azure/iot-edge-opc-publisher-v1#115", "", `{"NodeId":"a","temperature":20},{"NodeId":"b","temperature":91.5}`, 91.5, telemetry.ReasonDamaged},
		{"home-assistant/core#42393", "temp", `{'connected': True, 'hum': 66.5, 'temp': 91.8}`, 91.8, telemetry.ReasonDamaged},
		{"raw line break", "", "[{\"temperature\":20,\"msg\":\"ok\"},{\"msg\":\"line 1\nline 2\",\"temperature\":91.5}]", 91.5, telemetry.ReasonDamaged},
		{"bad escape", "", `[{"temperature":20},{"file":"C:\data","temperature":91.5}]`, 91.5, telemetry.ReasonDamaged},
		{"nan", "", `[{"temperature":20},{"hum":nan,"temperature":91.5}]`, 91.5, telemetry.ReasonOK},
		{"openhab/openhab-addons#14118", "", `{"temperature":80,9,"humidity":40,2}`, 0, telemetry.ReasonMalformed},
		{"bachya/ecowitt2mqtt#1014", "", `{"temperature":"91,5","humidity":"40,2"}`, 91.5, telemetry.ReasonOK},
		{"bersim/OpenKPs#4", ".", `91,50`, 0, telemetry.ReasonMalformed},
		{"MicrosoftDocs/azure-docs#51723", "", `{ Temperature: 4095}`, 4095, telemetry.ReasonDamaged},
		{"Azure/azure-sdk-for-c#2172", "", `{\"temperature\":91.5,\"id\":\"a\"}`, 91.5, telemetry.ReasonDamaged},
		{"Azure/azure-sdk-for-c#2294", "", `{"temperature":91.5,"humidity":60`, 91.5, telemetry.ReasonDamaged},
		{"Azure/iot-edge-opc-publisher-v1#138", "Value.Value.sensordata.msrvalue",
			`{"NodeId": "nsu=http://x;i=2", "Value": {"Value": "{\"sensordata\": [{\"msrname\": \"t4012\", \"msrvalue\": 91.5}]}"}}`, 91.5, telemetry.ReasonOK},
		{"LoRaWAN servers", "objectJSON.temperature,temperature", `{"devEUI": "aa", "objectJSON": "{\"temperature\": 91.5}"}`, 91.5, telemetry.ReasonOK},
		{"hardwario/mqtt2influxdb#14", ".", `91.5`, 91.5, telemetry.ReasonOK},
		{"Azure/azure-iot-explorer#498", ".", `[91.5,40.2]`, 91.5, telemetry.ReasonOK},
		{"home-assistant/core#48225", ".", `OFFLINE`, 0, telemetry.ReasonMalformed},
		{"Azure/azure-iot-explorer#383", "", string(zlibBody), 91.5, telemetry.ReasonDamaged}, // its checksum is wrong
		{"a position", "values.0", `{"ts": 1690000000, "values": [21.5, 91, 1013]}`, 21.5, telemetry.ReasonOK},
		{"comment", "", `{/* oven */"temperature":91.5}`, 91.5, telemetry.ReasonDamaged},
		{"a point first", "", `{"temperature":.5,"temp":91.5}`, 91.5, telemetry.ReasonDamaged},
		{"lines of CSV", "", `91.5,40.2,1013`, 0, telemetry.ReasonMalformed},
		{"names and values", "", `temperature=91.5;humidity=40`, 0, telemetry.ReasonMalformed},
	} {
		value, reason := newDecoder(t, tt.fields).Decode(&telemetry.Event{Device: "d", Body: []byte(tt.body)})
		if value != tt.want || reason != tt.reason {
			t.Errorf("%s: %s: got %v, %v; want %v, %v", tt.source, tt.body, value, reason, tt.want, tt.reason)
		}
	}
}

func TestDecodeMetadata(t *testing.T) {
	const hot = `{"temperature":99,"deviceId":"body"}`
	for _, tt := range []struct {
		name  string
		event telemetry.Event
		want  telemetry.Reason
	}{
		{"telemetry", telemetry.Event{Device: "d", MessageSource: "Telemetry", Body: []byte(hot)}, telemetry.ReasonOK},
		{"telemetry, other case", telemetry.Event{Device: "d", MessageSource: "TELEMETRY", Body: []byte(hot)}, telemetry.ReasonOK},
		{"no source", telemetry.Event{Device: "d", Body: []byte(hot)}, telemetry.ReasonOK},
		{"twin change", telemetry.Event{Device: "d", MessageSource: "twinChangeEvents", Body: []byte(hot)}, telemetry.ReasonNotTelemetry},
		{"lifecycle, no device", telemetry.Event{MessageSource: "deviceLifecycleEvents"}, telemetry.ReasonNotTelemetry},
		{"no device", telemetry.Event{Body: []byte(hot)}, telemetry.ReasonNoDevice},
		{"message that cannot be decoded", telemetry.Event{Device: "d", MessageSource: "twinChangeEvents", Undecodable: "char", Body: []byte(hot)}, telemetry.ReasonUndecodableMessage},
		{"blank device", telemetry.Event{Device: " ", Body: []byte(hot)}, telemetry.ReasonOK},
		{"unreadable body", telemetry.Event{Device: "d", Body: []byte("xyz")}, telemetry.ReasonMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := newDecoder(t, "").Decode(&tt.event); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDecodeConcurrently(t *testing.T) {
	d := newDecoder(t, "machine.temperature,temperature")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				want := float64(g*1000 + i)
				body := fmt.Appendf(nil, `{"x\n":[{}],"machine":{"temperature":"\u0020%v"}}`, want)
				if i%10 == 0 {
					body = []byte(gzipText(string(body)))
				}
				if got, reason := d.Decode(&telemetry.Event{Device: "d", Body: body}); got != want || reason != telemetry.ReasonOK {
					t.Errorf("got %v, %v; want %v", got, reason, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestDecodeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items at random under the race detector")
	}
	for _, tt := range []struct{ name, fields, body string }{
		{"flat", "", flatBody},
		{"nested", "machine.temperature", nestedBody},
		{"array", "", "[" + flatBody + "," + flatBody + "]"},
		{"string", "", `{"Temperature":" 21.4 "}`},
		{"decimal comma", "", `{"temperature":"21,4"}`},
		{"escaped", "", `{"temper\u0061ture":"\u00321.4"}`},
		{"missing", "", `{"pressure":10.2,"vibration":[1,2,3]}`},
		{"text", "", `{"temperature":"off"}`},
	} {
		d := newDecoder(t, tt.fields)
		e := &telemetry.Event{Device: "d", MessageSource: "Telemetry", Body: []byte(tt.body)}
		if n := testing.AllocsPerRun(500, func() { d.Decode(e) }); n != 0 {
			t.Errorf("%s: %v allocations per event", tt.name, n)
		}
	}

	fields := []telemetry.Field{{}, {Paths: "machine.temperature", Lowest: true}, {Paths: "humidity"}, {Paths: "ambient.temperature,temp"}}
	d, err := telemetry.NewFieldsDecoder(fields...)
	if err != nil {
		t.Fatal(err)
	}
	found := make([]telemetry.Found, len(fields))
	for _, body := range []string{flatBody, nestedBody, "[" + nestedBody + "," + flatBody + "]"} {
		e := &telemetry.Event{Device: "d", MessageSource: "Telemetry", Body: []byte(body)}
		if n := testing.AllocsPerRun(500, func() { d.DecodeAll(e, found) }); n != 0 {
			t.Errorf("four fields of %s: %v allocations per event", body, n)
		}
	}
}

func TestDecodeAll(t *testing.T) {
	const body = `[{"temperature":21,"pressure":3,"door":null},{"temperature":19,"pressure":7}]`
	fields := []telemetry.Field{{}, {Lowest: true}, {Paths: "pressure"}, {Paths: "door"}, {Paths: "humidity"}}
	for _, tt := range []struct {
		name   string
		event  telemetry.Event
		want   []telemetry.Found
		reason telemetry.Reason
	}{
		{
			"highest and lowest", telemetry.Event{Device: "d", Body: []byte(body)},
			[]telemetry.Found{{Value: 21}, {Value: 19}, {Value: 7}, {Reason: telemetry.ReasonNull}, {Reason: telemetry.ReasonMissing}}, telemetry.ReasonOK,
		},
		{
			"one is enough", telemetry.Event{Device: "d", Body: []byte(`{"humidity":51,"door":"open"}`)},
			[]telemetry.Found{{Reason: telemetry.ReasonMissing}, {Reason: telemetry.ReasonMissing}, {Reason: telemetry.ReasonMissing}, {Reason: telemetry.ReasonNotANumber}, {Value: 51}}, telemetry.ReasonOK,
		},
		{
			"the first that is there", telemetry.Event{Device: "d", Body: []byte(`{"door":null,"pressure":"high"}`)},
			[]telemetry.Found{{Reason: telemetry.ReasonMissing}, {Reason: telemetry.ReasonMissing}, {Reason: telemetry.ReasonNotANumber}, {Reason: telemetry.ReasonNull}, {Reason: telemetry.ReasonMissing}}, telemetry.ReasonNotANumber,
		},
		{
			"no telemetry", telemetry.Event{Device: "d", MessageSource: "twinChangeEvents", Body: []byte(body)},
			slices.Repeat([]telemetry.Found{{Reason: telemetry.ReasonNotTelemetry}}, 5), telemetry.ReasonNotTelemetry,
		},
		{
			"too deep for some", telemetry.Event{Device: "d", Body: []byte(`{"temperature":20,"pressure":` + nested(70) + `}`)},
			[]telemetry.Found{{Value: 20, Damaged: true}, {Value: 20, Damaged: true}, {Reason: telemetry.ReasonMalformed, Damaged: true}, {Reason: telemetry.ReasonMalformed, Damaged: true}, {Reason: telemetry.ReasonMalformed, Damaged: true}},
			telemetry.ReasonDamaged,
		},
		{
			"found in what is packed", telemetry.Event{Device: "d", Body: []byte(`{"pressure":3,"temperature":NaN,"humidity":51}`)},
			[]telemetry.Found{{Reason: telemetry.ReasonNotFinite}, {Reason: telemetry.ReasonNotFinite}, {Value: 3}, {Reason: telemetry.ReasonMissing}, {Value: 51}}, telemetry.ReasonOK,
		},
	} {
		d, err := telemetry.NewFieldsDecoder(fields...)
		if err != nil {
			t.Fatal(err)
		}
		found := make([]telemetry.Found, len(fields))
		if got := d.DecodeAll(&tt.event, found); got != tt.reason || !slices.Equal(found, tt.want) {
			t.Errorf("%s: got %v, %v; want %v, %v", tt.name, got, found, tt.reason, tt.want)
		}
	}

	all := make([]telemetry.Field, 512)
	found := make([]telemetry.Found, 512)
	d, err := telemetry.NewFieldsDecoder(all...)
	if err != nil {
		t.Fatal(err)
	}
	if reason := d.DecodeAll(&telemetry.Event{Device: "d", Body: []byte(body)}, found); reason != telemetry.ReasonOK || found[511].Value != 21 {
		t.Errorf("512 fields: got %v, %v", reason, found[511])
	}
	if _, err := telemetry.NewFieldsDecoder(append(all, telemetry.Field{})...); err == nil || !strings.Contains(err.Error(), "at most 512") {
		t.Errorf("513 fields: %v", err)
	}
	if _, err := telemetry.NewFieldsDecoder(telemetry.Field{}, telemetry.Field{Paths: "a..b"}); err == nil || !strings.Contains(err.Error(), "a..b") {
		t.Errorf("a wrong path: %v", err)
	}
}

func TestNewDecoderErrors(t *testing.T) {
	for _, tt := range []struct{ fields, want string }{
		{"temperature,", `field 2 of 2: it is empty`},
		{"temperature,,temp", `field 2 of 3: it is empty`},
		{"machine..temperature", `"machine..temperature" has an empty name`},
		{".temperature", `empty name`},
		{"temperature.", `empty name`},
		{"machine. temperature", `a space beside a dot`},
		{"temp, temperature ,TEMP", `field 3 of 3: "TEMP" is field 1 already`},
		{"a\xff", `not valid UTF-8`},
		{strings.Repeat("a", 257), `has 257 bytes: use at most 256`},
		{strings.Repeat("a,", 16) + "a", `17 fields are too many: name at most 16`},
		{"$.temperature", `field 1 of 1: "$.temperature" is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only`},
		{"a.b[1]", `"a.b[1]" is JSONPath`},
		{"temp,$.a['b c'][0].d", `field 2 of 2: "$.a['b c'][0].d" is JSONPath`},
		{"readings[*].t", `"readings[*].t" is JSONPath`},
		{"readings[?(@.x)]", `"readings[?(@.x)]" is JSONPath`},
		{"readings[-1].t", `is JSONPath`},
		{"readings[0:2].t", `is JSONPath`},
		{"$", `"$" is JSONPath`},
		{"$[0]", `"$[0]" is JSONPath`},
	} {
		_, err := telemetry.NewDecoder(tt.fields)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got error %v, want one with %q", tt.fields, err, tt.want)
		}
	}
	for _, fields := range []string{"", "  ", telemetry.DefaultFields, " a.b , c ", "größe", strings.Repeat("a.", 127) + "a", ".", "a,.", "a.0", "0", "a[b]", "nsu=http://x;s=[y]"} {
		if _, err := telemetry.NewDecoder(fields); err != nil {
			t.Errorf("%q: %v", fields, err)
		}
	}
}

func TestReasonNames(t *testing.T) {
	label := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	for r := range telemetry.Reason(telemetry.ReasonCount) {
		name := r.String()
		if !label.MatchString(name) || seen[name] {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[name] = true
	}
	if telemetry.ReasonOK != 0 || telemetry.ReasonOK.String() != "ok" {
		t.Error("the zero reason is not ok")
	}
}

// Every reason but those of TestDecodeMetadata has a body that gets it.
func TestEveryReasonHasABody(t *testing.T) {
	seen := map[telemetry.Reason]bool{telemetry.ReasonNotTelemetry: true, telemetry.ReasonNoDevice: true, telemetry.ReasonUndecodableMessage: true,
		telemetry.ReasonInvalid: true} // of TestValid
	for _, b := range bodies {
		seen[b.reason] = true
	}
	for r := range telemetry.Reason(telemetry.ReasonCount) {
		if !seen[r] {
			t.Errorf("no body is %v", r)
		}
	}
}

func TestValid(t *testing.T) {
	d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: "a,b", Valid: &telemetry.Range{From: -60, To: 60}})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]telemetry.Found{
		`{"a":-60}`:            {Value: -60},
		`{"a":60}`:             {Value: 60},
		`{"a":-127}`:           {Reason: telemetry.ReasonInvalid},
		`{"a":85,"b":4}`:       {Value: 4},
		`{"a":[85,20,"-127"]}`: {Value: 20},
		`{"a":"off","b":85}`:   {Reason: telemetry.ReasonNotANumber},
	} {
		value, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(body)})
		if got := (telemetry.Found{Value: value, Reason: reason}); got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}

func TestUnit(t *testing.T) {
	for _, tt := range []struct {
		unit, text string
		want       float64 // 0: it is no number
	}{
		{"°C", "21.4 °C", 21.4},
		{"°C", "21,4°C", 21.4},
		{"°C", " -21.4C ", -21.4},
		{"°C", "21.4 ºC", 21.4},
		{"°C", "21.4 \u2103", 21.4},
		{"°C", "21.4 \u2109", 0},
		{"°C", "21.4 \xb0C", 21.4},
		{"°C", "21.4 Â°C", 21.4},
		{"C", "21.4 °C", 21.4},
		{" °F", "21.4 F", 21.4},
		{"K", "294.5 K", 294.5},
		{"%", "60 %", 60},
		{"°", "60°", 60},
		{"", "60", 60},
		{"%", "60", 60},
		{"°C", "21.4 °F", 0},
		{"°C", "1,234 °C", 0},
		{"°C", "°C", 0},
		{"°C", "21.4 °C 22 °C", 0},
		{"°F", "21.4 µF", 0},
		{"µm", "21.4 m", 0},
		{"\u00b5m", "21.4 \u00b5m", 21.4},
		{"\u00b5m", "21.4 \u03bcm", 21.4},
		{"\u03bcF", "21.4 \u00b5F", 21.4},
		{"k\u2126", "21.4 k\u03a9", 21.4},
		{"mV", "21.4 MV", 0},
		{"mC", "21.4 °C", 0},
		{"", "21.4 °C", 0},
		{"1/min", "1450 1/min", 1450},
		{"1/min", "14501/min", 1450},
		{"1/min", "1450 /min", 0},
		{"+mm", "2.5 +mm", 2.5},
		{"\u00b5g/m3", "35 \u03bcg/m3", 35},
		{"°C", "9.15e1 °C", 91.5},
		{"°C", "9.15e1C", 91.5},
		{"°C", "9150E-2 \u2103", 91.5},
		{"eV", "5 eV", 5},
		{"e3/h", "5 e3/h", 5},
		{"1", "911", 911},
	} {
		d, err := telemetry.NewFieldsDecoder(telemetry.Field{Unit: tt.unit})
		if err != nil {
			t.Fatal(err)
		}
		body := `{"temperature":"` + tt.text + `"}`
		got, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(body)})
		if got != tt.want || (reason == telemetry.ReasonOK) != (tt.want != 0) {
			t.Errorf("%q in %q: %v, %v; want %v", tt.text, tt.unit, got, reason, tt.want)
		}
	}
}

func TestWords(t *testing.T) {
	d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: "door", Words: []string{"open", "ajar", "3", "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]telemetry.Found{
		`{"door":"open"}`:            {Value: 1},
		`{"door":" Ajar "}`:          {Value: 2},
		`{"door":"\u006fpen"}`:       {Value: 1},
		`{"door":3.0}`:               {Value: 3},
		`{"door":true}`:              {Value: 4},
		`{"door":"closed"}`:          {},
		`{"door":4}`:                 {},
		`{"door":""}`:                {},
		`{"door":["closed","ajar"]}`: {Value: 2},
		`{"door":null}`:              {Reason: telemetry.ReasonNull},
		`{"door":{}}`:                {Reason: telemetry.ReasonNotANumber},
		`{"window":"open"}`:          {Reason: telemetry.ReasonMissing},
	} {
		value, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(body)})
		if got := (telemetry.Found{Value: value, Reason: reason}); got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}

func TestTextAt(t *testing.T) {
	for _, tt := range []struct{ body, path, want string }{
		{`{"a":"x","b":{"c":[{"d":21.5},{"d":22}]},"e":null}`, "a", `"x"`},
		{`{"a":"x","b":{"c":[{"d":21.5},{"d":22}]},"e":null}`, "B.c.d", `21.5`},
		{`{"e":null}`, "e", ""},
		{`{"e":1}`, "f", ""},
		{`{"a":{}}`, "a", ""},
		{`"{\"a\":true}"`, "a", "true"},
		{`{"a":"{\"b\":\"x y\"}"}`, "a.b", `"x y"`},
		{`{'a':'x',}`, "a", `"x"`},
		{`{"a":"` + strings.Repeat("x", 100) + `"}`, "a", `"` + strings.Repeat("x", 63)},
		{`91.5`, ".", `91.5`},
		{`{"a":1}`, "a..b", ""},
		{`temperature=1`, "temperature", ""},
	} {
		if got := telemetry.TextAt([]byte(tt.body), tt.path); got != tt.want {
			t.Errorf("%s: %s is %s, want %s", tt.body, tt.path, got, tt.want)
		}
	}
}

func utf16Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

func utf32Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, r := range text {
		b = order.AppendUint32(b, uint32(r))
	}
	return string(b)
}

// quoted returns text as a JSON string in a JSON string, n times.
func quoted(n int, text string) string {
	for range n {
		text = strconv.Quote(text)
	}
	return text
}

// nested returns n arrays, one in the other.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func gzipText(text string) string {
	return packed(text, func(to io.Writer) io.WriteCloser { return gzip.NewWriter(to) })
}

func zlibText(text string) string {
	return packed(text, func(to io.Writer) io.WriteCloser { return zlib.NewWriter(to) })
}

// zlibOf returns zlib of packed with the checksum of text.
func zlibOf(text, packed string) string {
	sum := zlibText(text)
	return cutOff(zlibText(packed), 4) + sum[len(sum)-4:]
}

func cutOff(text string, n int) string { return text[:len(text)-n] }

func flateText(text string) string {
	return packed(text, func(to io.Writer) io.WriteCloser {
		w, err := flate.NewWriter(to, flate.DefaultCompression)
		if err != nil {
			panic(err) // the level is one
		}
		return w
	})
}

func packed(text string, with func(io.Writer) io.WriteCloser) string {
	var b bytes.Buffer
	w := with(&b)
	_, err := io.WriteString(w, text)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
	return b.String()
}
