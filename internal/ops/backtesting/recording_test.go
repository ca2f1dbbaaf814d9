package backtesting_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
)

func write(t testing.TB, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// read returns the events of a recording as text, one in a line, and what was skipped.
func read(name, field string, names backtesting.Names) (string, backtesting.Skipped, error) {
	r, err := backtesting.Open(name, field, names)
	if err != nil {
		return "", backtesting.Skipped{}, err
	}
	defer r.Close()
	var b strings.Builder
	for {
		_, events, err := r.Next(context.Background())
		if err == io.EOF {
			return b.String(), r.Skipped, nil
		}
		if err != nil {
			return b.String(), r.Skipped, err
		}
		for _, e := range events {
			b.WriteString(e.Enqueued.Format(time.RFC3339Nano) + " " + e.Device + " " + string(e.Body))
			if site, ok := e.Properties.Find([]byte("site")).Text(); ok {
				b.WriteString(" site " + string(site))
			}
			if e.Module+e.Component != "" {
				b.WriteString(" from " + e.Module + "/" + e.Component)
			}
			b.WriteByte('\n')
		}
	}
}

func TestRecordings(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		skipped          backtesting.Skipped
	}{
		{"CSV", "timestamp,value\n2014-01-01 00:00:00,31\n2014-01-01T00:00:05Z,31.5\n",
			"2014-01-01T00:00:00Z readings {\"temperature\":31}\n2014-01-01T00:00:05Z readings {\"temperature\":31.5}\n", backtesting.Skipped{}},
		{"CSV with devices and fields", "\xef\xbb\xbfDevice,timestamp,temperature, door\noven,1388534400,31,open\nkiln,1388534401000,,ajar\n",
			"2014-01-01T00:00:00Z oven {\"temperature\":31,\"door\":\"open\"}\n2014-01-01T00:00:01Z kiln {\"door\":\"ajar\"}\n", backtesting.Skipped{}},
		{"lines that are no readings", "timestamp,device,value\n2014-01-01 00:00:09,oven,\nsoon,oven,3\n2014-01-01 00:00:09,oven,1\n2014-01-01 00:00:09,oven\n2014-01-01 00:00:08,oven,2\n2014-01-01 00:00:10,,2\n",
			"2014-01-01T00:00:09Z oven {\"temperature\":1}\n2014-01-01T00:00:09Z oven {\"temperature\":2}\n", backtesting.Skipped{Empty: 1, Malformed: 3, Unordered: 1}},
		{"what a route writes", `{"EnqueuedTimeUtc":"2026-03-01T14:00:00.1230000Z","Properties":{"site":"berlin"},"SystemProperties":{"connectionDeviceId":"oven-7","contentType":"application/json","contentEncoding":"utf-8"},"Body":{"temperature":91.5}}` + "\n" +
			`{"EnqueuedTimeUtc":"2026-03-01T14:00:01Z","Properties":{},"SystemProperties":{"connectionDeviceId":"oven-7"},"Body":"eyJ0ZW1wZXJhdHVyZSI6OTJ9"}`,
			"2026-03-01T14:00:00.123Z oven-7 {\"temperature\":91.5} site berlin\n2026-03-01T14:00:01Z oven-7 {\"temperature\":92}\n", backtesting.Skipped{}},
		{"lines of JSON", `{"timestamp":"2026-03-01T14:00:00Z","device":"oven","temperature":1}` + "\n\n?\n" + `{"timestamp":1772373601,"device":"oven","body":{"temp":2},"properties":{"site":7}}`,
			"2026-03-01T14:00:00Z oven {\"timestamp\":\"2026-03-01T14:00:00Z\",\"device\":\"oven\",\"temperature\":1}\n2026-03-01T14:00:01Z oven {\"temp\":2} site 7\n", backtesting.Skipped{Malformed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, skipped, err := read(write(t, "readings.csv", tt.text), "temperature", backtesting.Names{})
			if err != nil || got != tt.want || skipped != tt.skipped {
				t.Errorf("it reads\n%s\n%+v, %v; want\n%s\n%+v", got, skipped, err, tt.want, tt.skipped)
			}
		})
	}
}

// A message of oven-7 at 91.5 degrees, in the files that people have.
func TestKnownFiles(t *testing.T) {
	const object = `{"temperature":91.5}`
	powerShell := func(s string) string {
		b := []byte("\xff\xfe")
		for _, c := range utf16.Encode([]rune(s)) {
			b = append(b, byte(c), byte(c>>8))
		}
		return string(b)
	}
	monitored := `{
    "event": {
        "origin": "oven-7",
        "module": "",
        "properties": {
            "application": {"site": "berlin"},
            "system": {"content_encoding": "utf-8", "content_type": "application/json"}
        },
        "annotations": {
            "iothub-enqueuedtime": 1773335898542,
            "iothub-message-source": "Telemetry",
            "x-opt-enqueued-time": 1773335898558
        },
        "payload": {
            "temperature": 91.5
        }
    }
}
`
	const monitoredEvent = "2026-03-12T17:18:18.542Z oven-7 {\n            \"temperature\": 91.5\n        } site berlin\n"
	const event = "2026-03-12T17:18:18.542Z oven-7 " + object + "\n"
	const second = "2026-03-12T17:18:18Z oven-7 " + object + "\n"
	for _, tt := range []struct {
		name, text, want string
		names            backtesting.Names
		skipped          backtesting.Skipped
	}{
		{"monitor-events", "Starting event monitor, use ctrl-c to stop...\n" + monitored + monitored, monitoredEvent + monitoredEvent, backtesting.Names{}, backtesting.Skipped{Malformed: 1}},
		{"monitor-events in UTF-16, as PowerShell writes it", powerShell(strings.ReplaceAll(monitored, "\n", "\r\n")), strings.ReplaceAll(monitoredEvent, "{\n            \"temperature\": 91.5\n", "{\r\n            \"temperature\": 91.5\r\n"), backtesting.Names{}, backtesting.Skipped{}},
		{"monitor-events that was interrupted, and begun again", monitored[:len(monitored)/2] + "\n" + monitored, monitoredEvent, backtesting.Names{}, backtesting.Skipped{Malformed: 1}},
		{"monitor-events that was interrupted between two lines", strings.SplitAfter(monitored, "\n")[0] + monitored, monitoredEvent, backtesting.Names{}, backtesting.Skipped{Malformed: 1}},
		{"a line that breaks off in an array", `{"timestamp":"2026-03-12T17:18:18Z","body":[` + "\n" + `{"timestamp":"2026-03-12T17:18:18Z","device":"oven-7","body":{"temperature":91.5}}` + "\n", second, backtesting.Names{}, backtesting.Skipped{Malformed: 1}},
		{"monitor-events of text", `{"event":{"origin":"oven-7","annotations":{"x-opt-enqueued-time":1773335898542},"payload":"{\"temperature\":91.5}"}}` + "\n" + `{"event":{"origin":"oven-7","annotations":{"x-opt-enqueued-time":1773335898542},"payload":"9150"}}`,
			event + "2026-03-12T17:18:18.542Z oven-7 9150\n", backtesting.Names{}, backtesting.Skipped{}},
		{"lines of a log with objects", `2026-03-12 17:18 INFO {"timestamp":"2026-03-12T17:18:18Z","device":"oven-7","body":{"temperature":91.5}}` + "\n2026-03-12 17:18 INFO {oven-7} is here\n",
			second, backtesting.Names{}, backtesting.Skipped{Malformed: 1}},
		{"IoT Explorer", `[` + "\n" + ` {"body":{"temperature":91.5},"enqueuedTime":"2026-03-12T17:18:18.542Z","properties":{},"systemProperties":{"iothub-connection-device-id":"oven-7"}},{"body":{"temperature":91.5},"enqueuedTime":"2026-03-12T17:18:18.542Z","properties":{},"systemProperties":{"iothub-connection-device-id":"oven-7"}}` + "\n]\n",
			event + event, backtesting.Names{}, backtesting.Skipped{}},
		{"Stream Analytics", `{"temperature":91.5,"EventProcessedUtcTime":"2026-03-12T17:18:20Z","EventEnqueuedUtcTime":"2026-03-12T17:18:18.5420000Z","IoTHub":{"ConnectionDeviceId":"oven-7"},"site":"berlin"}`,
			`2026-03-12T17:18:18.542Z oven-7 {"temperature":91.5,"EventProcessedUtcTime":"2026-03-12T17:18:20Z","EventEnqueuedUtcTime":"2026-03-12T17:18:18.5420000Z","IoTHub":{"ConnectionDeviceId":"oven-7"},"site":"berlin"} site berlin` + "\n", backtesting.Names{}, backtesting.Skipped{}},
		{"Stream Analytics as CSV", "\ufefftemperature,EventEnqueuedUtcTime,IoTHub.ConnectionDeviceId,deviceId\r\n91.5,2026-03-12T17:18:18.5420000Z,oven-7,probe\r\n",
			`2026-03-12T17:18:18.542Z oven-7 {"temperature":91.5,"deviceId":"probe"}` + "\n", backtesting.Names{}, backtesting.Skipped{}},
		{"monitor-events of modules and components", `{"event":{"origin":"oven-7","module":"furnace","component":"thermostat1","annotations":{"x-opt-enqueued-time":1773335898542},"payload":{"temperature":91.5}}}`,
			strings.TrimSpace(event) + " from furnace/thermostat1\n", backtesting.Names{}, backtesting.Skipped{}},
		{"modules and components as CSV", "timestamp,iothub-connection-device-id,iothub_connection_module_id,dt-subject,temperature\n2026-03-12 17:18:18,oven-7,furnace,thermostat1,91.5\n",
			`2026-03-12T17:18:18Z oven-7 {"iothub_connection_module_id":"furnace","dt-subject":"thermostat1","temperature":91.5} from furnace/thermostat1` + "\n", backtesting.Names{}, backtesting.Skipped{}},
		{"IoT Central", `{"applicationId":"a","deviceId":"oven-7","enqueuedTime":"2026-03-12T17:18:18.542Z","messageSource":"telemetry","messageProperties":{"site":"berlin"},"telemetry":{"temperature":91.5}}`,
			strings.TrimSpace(event) + " site berlin\n", backtesting.Names{}, backtesting.Skipped{}},
		{"a field that is called as in IoT Central", `{"timestamp":"2026-03-12T17:18:18.542Z","device":"oven-7","telemetry":{"temperature":91.5}}`,
			`2026-03-12T17:18:18.542Z oven-7 {"timestamp":"2026-03-12T17:18:18.542Z","device":"oven-7","telemetry":{"temperature":91.5}}` + "\n", backtesting.Names{}, backtesting.Skipped{}},
		{"Log Analytics and ADX", "\"enqueuedtime [UTC]\",deviceId,temperature\n\"3/12/2026, 5:18:18.542 PM\",oven-7,91.5\n\"3/12/2026, 5:18:18.542\u202fPM\",oven-7,91.5\n", event + event, backtesting.Names{}, backtesting.Skipped{}},
		{"ADX with the hub's names", "iothub_enqueuedtime,x-opt-enqueued-time,iothub-connection-device-id,temperature\n2026-03-12 17:18:18.542 UTC,2026-03-12 17:18:19 UTC,oven-7,91.5\n", "2026-03-12T17:18:18.542Z oven-7 {\"x-opt-enqueued-time\":\"2026-03-12 17:18:19 UTC\",\"temperature\":91.5}\n", backtesting.Names{}, backtesting.Skipped{}},
		{"Excel in German", "\ufefftimestamp;device;value;note\r\n12.03.2026 17:18:18;oven-7;91,5;\r\n12.03.2026 17:19;oven-7;1.234,567;a, b\r\n13.03.2026 17:19;oven-7;21.125;\r\n",
			second + `2026-03-12T17:19:00Z oven-7 {"temperature":1234.567,"note":"a, b"}` + "\n" + `2026-03-13T17:19:00Z oven-7 {"temperature":21.125}` + "\n", backtesting.Names{}, backtesting.Skipped{}},
		{"semicolons, as Excel likes to be told", "sep=;\ntimestamp;device;value\n2026-03-12 17:18:18;oven-7;91,5\n", second, backtesting.Names{}, backtesting.Skipped{}},
		{"tabs", "timestamp\tdevice\tvalue\n2026-03-12 17:18:18\toven-7\t91.5\n", second, backtesting.Names{}, backtesting.Skipped{}},
		{"names of a CSV file", "When,Machine,device,temperature\n2026-03-12 17:18:18,oven-7,x,91.5\n", `2026-03-12T17:18:18Z oven-7 {"device":"x","temperature":91.5}` + "\n", backtesting.Names{Time: "when", Device: "Machine"}, backtesting.Skipped{}},
		{"names in JSON", `[IoTHubMonitor] [11:52:41 AM] Message received from [oven-7]:` + "\n{\n" + `  "body": {"at":"2026-03-12T17:18:18Z","temperature":91.5,"id":"oven-7"},` + "\n" + `  "applicationProperties": {"site":"berlin"}` + "\n}\n",
			`2026-03-12T17:18:18Z oven-7 {"at":"2026-03-12T17:18:18Z","temperature":91.5,"id":"oven-7"} site berlin` + "\n", backtesting.Names{Time: "body.at", Device: "body.id"}, backtesting.Skipped{Malformed: 1}},
		{"a column is a property", "timestamp,device,temperature,site\n2026-03-12 17:18:18,oven-7,91.5,berlin\n", `2026-03-12T17:18:18Z oven-7 {"temperature":91.5,"site":"berlin"} site berlin` + "\n", backtesting.Names{}, backtesting.Skipped{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, skipped, err := read(write(t, "file", tt.text), "temperature", tt.names)
			if err != nil || got != tt.want || skipped != tt.skipped {
				t.Errorf("it reads\n%s\n%+v, %v; want\n%s\n%+v", got, skipped, err, tt.want, tt.skipped)
			}
		})
	}
}

// routeSchema is that of files that an IoT Hub's route writes, captureSchema that of Capture.
const (
	routeSchema = `{"type":"record","name":"Message","namespace":"Microsoft.Azure.Devices","fields":[
		{"name":"EnqueuedTimeUtc","type":"string"},
		{"name":"Properties","type":{"type":"map","values":"string"}},
		{"name":"SystemProperties","type":{"type":"map","values":"string"}},
		{"name":"Body","type":["null","bytes"]}]}`
	captureSchema = `{"type":"record","name":"EventData","namespace":"Microsoft.ServiceBus.Messaging","fields":[
		{"name":"SequenceNumber","type":"long"},
		{"name":"Offset","type":"string"},
		{"name":"EnqueuedTimeUtc","type":"string"},
		{"name":"SystemProperties","type":{"type":"map","values":["long","double","string","bytes"]}},
		{"name":"Properties","type":{"type":"map","values":["long","double","string","bytes","null"]}},
		{"name":"Body","type":["null","bytes"]}]}`
)

// avroFile returns an Avro object container.
func avroFile(t testing.TB, schema string, codec ocf.Codec, records ...map[string]any) string {
	t.Helper()
	var b strings.Builder
	w, err := ocf.NewWriter(&b, avro.MustParse(schema), ocf.WithCodec(codec))
	for i := range records {
		if err == nil {
			err = w.Encode(records[i])
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// nullCodec does not compress.
type nullCodec struct{}

func (nullCodec) Name() string                        { return "null" }
func (nullCodec) Compress(b []byte) ([]byte, error)   { return b, nil }
func (nullCodec) Decompress(b []byte) ([]byte, error) { return b, nil }
func (nullCodec) Close() error                        { return nil }

// message is a record of routeSchema. A body of nil is null.
func message(at, device string, body any) map[string]any {
	return map[string]any{
		"EnqueuedTimeUtc": at, "Properties": map[string]any{"site": "berlin"}, "Body": body,
		"SystemProperties": map[string]any{"connectionDeviceId": device, "contentType": "application/json", "contentEncoding": "utf-8"},
	}
}

func TestAvro(t *testing.T) {
	messages := []map[string]any{
		message("2026-03-01T14:00:00.1230000Z", "oven-7", []byte(`{"temperature":91.5}`)),
		message("soon", "oven-7", []byte(`{"temperature":92}`)),
		message("2026-03-01T14:00:01.0000000Z", "oven-7", nil),
		message("2026-03-01T14:00:02.0000000Z", "kiln", []byte("\xff")),
	}
	want := "2026-03-01T14:00:00.123Z oven-7 {\"temperature\":91.5} site berlin\n2026-03-01T14:00:02Z kiln \xff site berlin\n"
	captured := map[string]any{
		"SequenceNumber": int64(7), "Offset": "4096", "EnqueuedTimeUtc": "3/1/2026 2:00:03 PM", "Body": []byte(`{"temperature":93}`),
		"SystemProperties": map[string]any{"x-opt-sequence-number": int64(7), "iothub-connection-device-id": "oven-7"}, "Properties": map[string]any{"site": int64(4), "none": nil},
	}
	for _, tt := range []struct {
		name, file, want string
		skipped          backtesting.Skipped
	}{
		{"null", avroFile(t, routeSchema, nullCodec{}, messages...), want, backtesting.Skipped{Empty: 1, Malformed: 1}},
		{"deflate", avroFile(t, routeSchema, ocf.DeflateCodec(6), messages...), want, backtesting.Skipped{Empty: 1, Malformed: 1}},
		{"Capture", avroFile(t, captureSchema, ocf.DeflateCodec(6), captured), "2026-03-01T14:00:03Z oven-7 {\"temperature\":93} site 4\n", backtesting.Skipped{}},
	} {
		if got, skipped, err := read(write(t, "messages.avro", tt.file), "temperature", backtesting.Names{}); err != nil || got != tt.want || skipped != tt.skipped {
			t.Errorf("%s reads\n%s\n%+v, %v; want\n%s\n%+v", tt.name, got, skipped, err, tt.want, tt.skipped)
		}
	}
}

func TestFilesThatAreNoRecordings(t *testing.T) {
	routed := avroFile(t, routeSchema, nullCodec{}, message("2026-03-01T14:00:00Z", "oven-7", []byte(`{"temperature":91.5}`)))
	for _, tt := range []struct {
		name, text, field, want string
		names                   backtesting.Names
	}{
		{"empty", "", "temperature", "it is empty", backtesting.Names{}},
		{"a damaged head of Avro", "Obj\x01\x04\x14avro.codec", "temperature", "begins like Avro", backtesting.Names{}},
		{"other Avro", avroFile(t, `{"type":"record","name":"user","fields":[{"name":"name","type":"string"}]}`, ocf.SnappyCodec(), map[string]any{"name": "ann"}), "temperature", "it has no time (timestamp, EnqueuedTimeUtc, EventEnqueuedUtcTime, enqueuedTime, …): name the time with --time; it has name", backtesting.Names{}},
		{"Avro cut off", routed[:len(routed)-20], "temperature", "record 1: it is cut off or damaged", backtesting.Names{}},
		{"damaged Avro", routed[:len(routed)-40] + strings.Repeat("x", 40), "temperature", "record 1: it is cut off or damaged", backtesting.Names{}},
		{"compressed", "\x1f\x8b\x08\x00", "temperature", "unpack it first", backtesting.Names{}},
		{"no columns", "2014-01-01 00:00:00,31\n2014-01-01 00:00:05,31\n", "temperature", "it has no time (timestamp, EnqueuedTimeUtc, EventEnqueuedUtcTime, enqueuedTime, …): name the time with --time; it has 2014-01-01 00:00:00, 31", backtesting.Names{}},
		{"nothing but the time", "timestamp,device\n2014-01-01 00:00:00,oven\n", "temperature", "no reading in 1 lines", backtesting.Names{}},
		{"a value of which field", "timestamp,value\n2014-01-01 00:00:00,31\n", "", "give the column the name of one", backtesting.Names{}},
		{"no readings", "timestamp,value\n" + strings.Repeat("yesterday,31\n", 1000), "temperature", "no reading in 100 lines", backtesting.Names{}},
		{"only a header", "timestamp,value\n", "temperature", "no reading in 0 lines", backtesting.Names{}},
		{"other JSON", `{"a":1}`, "temperature", "no reading in 1 lines", backtesting.Names{}},
		{"a line without end", `{"a":` + strings.Repeat(" ", 2<<20), "temperature", "line 1", backtesting.Names{}},
		{"a time of another name", "temperature,When,deviceId\n91.5,2026-03-12,oven-7\n", "temperature", "has no time (timestamp, EnqueuedTimeUtc, EventEnqueuedUtcTime, enqueuedTime, …): name the time with --time; it has temperature, When, deviceId", backtesting.Names{}},
		{"no column of that time", "timestamp,value\n2026-03-12 17:18:18,31\n", "temperature", "has no When; it has timestamp, value", backtesting.Names{Time: "When"}},
		{"no column of that device", "timestamp,value\n2026-03-12 17:18:18,31\n", "temperature", "has no Machine; it has timestamp, value", backtesting.Names{Device: "Machine"}},
		{"no such device in JSON", `{"timestamp":1772373601,"temperature":31}`, "temperature", "it has no Machine; it has timestamp, temperature", backtesting.Names{Device: "Machine"}},
		{"no such time in JSON", `{"timestamp":1772373601,"temperature":31}`, "temperature", "it has no When; it has timestamp, temperature", backtesting.Names{Time: "When"}},
		{"monitor-events without times", `{"event":{"origin":"oven-7","payload":{"temperature":91.5}}}`, "temperature", "az iot hub monitor-events --properties all", backtesting.Names{}},
		{"the newest first", "timestamp,value\n2026-03-12 17:18:20,31\n2026-03-12 17:18:20,31\n2026-03-12 17:18:19,31\n2026-03-12 17:18:18,31\n", "temperature", "its newest readings come first", backtesting.Names{}},
		{"a date that may be in March or December", "timestamp,value\n3/12/2026 17:18,31\n", "temperature", `its time is "3/12/2026 17:18"`, backtesting.Names{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _, err := read(write(t, "file", tt.text), tt.field, tt.names); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
	if _, _, err := read("nowhere.csv", "", backtesting.Names{}); err == nil {
		t.Error("a file that is not there can be read")
	}
}

// Whatever a file holds, reading it ends, without a panic, and time never goes back.
func FuzzRecording(f *testing.F) {
	f.Add("timestamp,device,value\n2014-01-01 00:00:00,oven,31\n2013-01-01 00:00:00,oven,\n")
	f.Add(avroFile(f, routeSchema, ocf.DeflateCodec(6), message("2026-03-01T14:00:00Z", "oven-7", []byte(`{"temperature":91.5}`)), message("", "", nil)))
	f.Add(`{"EnqueuedTimeUtc":"2026-03-01T14:00:00Z","Properties":{"a":null},"SystemProperties":{"connectionDeviceId":"oven"},"Body":"eyJ9"}` + "\n{}")
	f.Add("Starting event monitor\n{\n \"event\": {\"origin\": \"oven\", \"annotations\": {\"iothub-enqueuedtime\": 1773335898542},\n \"payload\": \"{\\\"temperature\\\": 20.1}\"}}\n{\"event\": [\n{}")
	f.Add(`[{"body":{"temperature":1},"enqueuedTime":"2026-03-12T17:18:18Z","systemProperties":{"iothub-connection-device-id":"oven"}},{"a`)
	f.Add(`{"temperature":1,"EventEnqueuedUtcTime":"2026-03-12T17:18:18Z","IoTHub":{"ConnectionDeviceId":"oven"}}`)
	f.Add(`{"applicationId":"a","deviceId":"oven","enqueuedTime":"2026-03-12T17:18:18Z","telemetry":{"temperature":1}}`)
	f.Add("\ufeffsep=;\ntimestamp;device;value\n12.03.2026 17:18:18;oven;1.234,5\n")
	f.Add("\xff\xfet\x00i\x00m\x00e\x00s\x00t\x00a\x00m\x00p\x00,\x00v\x00a\x00l\x00u\x00e\x00\n\x001\x00,\x001\x00")
	f.Add("\"enqueuedtime [UTC]\"\tdeviceId\ttemperature\n3/12/2026, 5:18:18 PM\toven\t1\n")
	decoder, err := telemetry.NewDecoder("temperature")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := telemetry.NewMeasurements(nil)
		r, err := backtesting.Open(write(t, "file", text), "temperature", backtesting.Names{})
		if err != nil {
			return
		}
		defer r.Close()
		var last time.Time
		for {
			_, events, err := r.Next(t.Context())
			if err != nil {
				return
			}
			for i := range events {
				if e := &events[i]; e.Enqueued.Before(last) || e.Device == "" {
					t.Errorf("%v of %q after %v", e.Enqueued, e.Device, last)
				}
				last = events[i].Enqueued
				m.Split(&events[i])
				m.Read(decoder, 0, make([]telemetry.Found, 1))
			}
		}
	})
}
