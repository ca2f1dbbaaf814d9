package backtesting

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"alertworker/internal/telemetry"
)

// Names are the column or path of the time and of the device in a file. Empty ones are looked up in the lists below.
type Names struct{ Time, Device string }

// These are the names under which files have the parts of a message. The first that a message has counts. They are
// paths in a JSON object or an Avro record, and names of CSV columns; see same for what may differ.
var (
	timeNames = []string{
		"EnqueuedTimeUtc",                       // routes to storage, Capture; "enqueuedtime [UTC]" of Log Analytics
		"event.annotations.iothub-enqueuedtime", // az iot hub monitor-events
		"event.annotations.x-opt-enqueued-time",
		"EventEnqueuedUtcTime", // Stream Analytics
		"IoTHub.EnqueuedTime",
		"enqueuedTime", // IoT Central, IoT Explorer, ADX
		"x-opt-enqueued-time",
		"timestamp",
		"TimeGenerated",
		"TimeGenerated [UTC]", // Log Analytics
	}
	deviceNames = []string{
		"SystemProperties.connectionDeviceId",          // routes to storage
		"SystemProperties.iothub-connection-device-id", // Capture, IoT Explorer
		"event.annotations.iothub-connection-device-id",
		"event.origin",
		"IoTHub.ConnectionDeviceId", // Stream Analytics; iothub-connection-device-id of ADX
		"ConnectionDeviceId",
		"device",
		"deviceId", // IoT Central
	}
	bodies = []bodyName{
		{path: "event.payload", isText: true},
		{path: "Body"},
		{path: "telemetry", beside: "applicationId"}, // IoT Central; a device may send a field of that name
	}
	propertyNames = []string{
		"Properties",
		"applicationProperties", // Visual Studio Code
		"event.properties.application",
		"messageProperties", // IoT Central
		"enrichments",
	}
	sourceNames = []string{
		"SystemProperties.iothub-message-source",
		"event.annotations.iothub-message-source",
		"messageSource",
	}
	moduleNames = []string{
		"SystemProperties.iothub-connection-module-id",
		"event.annotations.iothub-connection-module-id",
		"event.module",
		"iothub-connection-module-id",
	}
	componentNames = []string{
		"SystemProperties.dt-subject",
		"event.annotations.dt-subject",
		"event.component",
		"dt-subject",
		"component", // IoT Central
	}
	contentTypeNames     = []string{"SystemProperties.contentType", "event.properties.system.content_type"}
	contentEncodingNames = []string{"SystemProperties.contentEncoding", "event.properties.system.content_encoding"}
)

// A bodyName is where a message is. A message without any is the object itself.
type bodyName struct {
	path   string
	beside string // the name that has to be there, too
	isText bool   // a text is the message; elsewhere it is in base64 if it can be
}

// same reports whether a name is another one: case does not matter, nor what is no letter and no digit, such as the
// signs in iothub-connection-device-id, IoTHub.ConnectionDeviceId and iothub_connection_device_id.
func same(a, b string) bool {
	for {
		var x, y byte
		x, a = letter(a)
		y, b = letter(b)
		if x != y || x == 0 {
			return x == y
		}
	}
}

// letter returns the first letter or digit of a name, in lower case, and what follows; 0 if it has none. A byte beyond
// ASCII is a letter.
func letter(name string) (c byte, rest string) {
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A', name[i+1:]
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c >= utf8.RuneSelf:
			return c, name[i+1:]
		}
	}

	return 0, ""
}

// A member is one of a JSON object. The value aliases the object.
type member struct {
	name  string
	value []byte
	inner object // of value, once it was read
}

// An object has the members of a JSON object. It is not safe for concurrent use.
type object []member

// readObject reads text, which is one JSON object. ok is false if it is none.
func readObject(text []byte) (o object, ok bool) {
	d := jsontext.NewDecoder(
		bytes.NewBuffer(text),
		jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true),
	)
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, false
	}

	o = make(object, 0, 8)
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return nil, false
		}

		name := t.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, false
		}

		end := d.InputOffset()
		o = append(o, member{name: name, value: text[end-int64(len(value)) : end]})
	}

	_, err := d.ReadToken()

	return o, err == nil && len(bytes.TrimSpace(text[d.InputOffset():])) == 0
}

// find returns what is at path, nil if there is nothing. A name with dots is a path, too.
func (o object) find(path string) []byte {
	for _, m := range o {
		if same(m.name, path) {
			return m.value
		}
	}

	first, rest, ok := strings.Cut(path, ".")
	if !ok {
		return nil
	}

	for i := range o {
		if m := &o[i]; m.value[0] == '{' && same(m.name, first) {
			if m.inner == nil {
				m.inner, _ = readObject(m.value)
			}
			return m.inner.find(rest)
		}
	}

	return nil
}

// text returns the text or number at the first of the paths that has one, empty if none has.
func (o object) text(paths ...string) string {
	for _, path := range paths {
		if text, ok := scalar(o.find(path)); ok && text != "" {
			return text
		}
	}
	return ""
}

// body returns the message in o. isWhole reports that it is o itself.
func (o object) body() (body []byte, isWhole bool) {
	for _, name := range bodies {
		value := o.find(name.path)
		if value == nil || name.beside != "" && o.find(name.beside) == nil {
			continue
		}

		switch value[0] {
		case 'n':
			return nil, false
		case '"':
			text, _ := scalar(value)
			packed, err := base64.StdEncoding.DecodeString(text)
			if err == nil && !name.isText {
				return packed, false
			}
			return []byte(text), false
		}

		return bytes.Clone(value), false
	}

	return nil, true
}

// addTo adds the texts, numbers and booleans to properties.
func (o object) addTo(properties map[string]telemetry.Property) {
	for _, m := range o {
		if text, ok := scalar(m.value); ok {
			properties[m.name] = telemetry.Text(text)
		}
	}
}

// names lists the names of the members, for an error.
func (o object) names() string {
	var all []string
	for _, m := range o {
		all = append(all, m.name)
	}
	return list(all)
}

// scalar returns a JSON text without its quotes, or a number or boolean as it is.
func scalar(value []byte) (text string, ok bool) {
	if len(value) == 0 {
		return "", false
	}

	switch value[0] {
	case '{', '[', 'n':
		return "", false
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, value) // the error is about invalid UTF-8, which becomes U+FFFD
		return string(unquoted), true
	}

	return string(value), true
}

// list writes names for an error, at most 20 and 400 bytes of them.
func list(names []string) string {
	text := strings.ToValidUTF8(strings.Join(names[:min(len(names), 20)], ", "), "?")
	if len(text) > 400 {
		return strings.ToValidUTF8(text[:400], "") + "…"
	}
	return text
}
