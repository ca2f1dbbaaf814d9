package backtesting

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"alertworker/internal/telemetry"
)

// Names are the column or path of the time and of the device in a file. Empty ones are looked up in the lists below.
type Names struct{ Time, Device string }

// A part of a message that a file has under one of some names.
type part int

const (
	timeOf part = iota
	deviceOf
	sourceOf
	moduleOf
	componentOf
	contentTypeOf
	contentEncodingOf
	parts
)

// These are the names under which files have the parts of a message. The first that a message has counts. They are
// paths in a JSON object or an Avro record, and names of CSV columns; see fold for what may differ.
var (
	partNames = [parts][]*path{
		timeOf: paths(
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
		),
		deviceOf: paths(
			"SystemProperties.connectionDeviceId",          // routes to storage
			"SystemProperties.iothub-connection-device-id", // Capture, IoT Explorer
			"event.annotations.iothub-connection-device-id",
			"event.origin",
			"IoTHub.ConnectionDeviceId", // Stream Analytics; iothub-connection-device-id of ADX
			"ConnectionDeviceId",
			"device",
			"deviceId", // IoT Central
		),
		sourceOf: paths(
			"SystemProperties.iothub-message-source",
			"event.annotations.iothub-message-source",
			"messageSource",
		),
		moduleOf: paths(
			"SystemProperties.iothub-connection-module-id",
			"event.annotations.iothub-connection-module-id",
			"event.module",
			"iothub-connection-module-id",
		),
		componentOf: paths(
			"SystemProperties.dt-subject",
			"event.annotations.dt-subject",
			"event.component",
			"dt-subject",
			"component", // IoT Central
		),
		contentTypeOf:     paths("SystemProperties.contentType", "event.properties.system.content_type"),
		contentEncodingOf: paths("SystemProperties.contentEncoding", "event.properties.system.content_encoding"),
	}
	payload = pathOf("event.payload")
	bodies  = []bodyName{
		{at: payload, isText: true},
		{at: pathOf("Body")},
		{at: pathOf("telemetry"), beside: pathOf("applicationId")}, // IoT Central; a device may send a field of that name
	}
	propertyNames = paths(
		"Properties",
		"applicationProperties", // Visual Studio Code
		"event.properties.application",
		"messageProperties", // IoT Central
		"enrichments",
	)
)

// A bodyName is where a message is. A message without any is the object itself.
type bodyName struct {
	at     *path
	beside *path // what has to be there, too; nil: nothing
	isText bool  // a text is the message; elsewhere it is in base64 if it can be
}

// fold returns a name without what may differ: case does not matter, nor what is no letter and no digit, such as the
// signs in iothub-connection-device-id, IoTHub.ConnectionDeviceId and iothub_connection_device_id. What is beyond ASCII is
// a letter.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf || strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

// A path is where something is in an object: a name, or several with dots between them. A name with dots is a path, too.
type path struct {
	text   string
	folded string // all of it
	first  string // folded: the name before the first dot
	rest   *path  // behind that; nil: there is no dot
}

func pathOf(text string) *path {
	p := &path{text: text, folded: fold(text)}
	if first, rest, ok := strings.Cut(text, "."); ok {
		p.first, p.rest = fold(first), pathOf(rest)
	}

	return p
}

func paths(all ...string) (list []*path) {
	for _, text := range all {
		list = append(list, pathOf(text))
	}
	return list
}

// An objectReader reads one JSON object after the other. It is not safe for concurrent use.
type objectReader struct {
	decoder *jsontext.Decoder
	text    bytes.Buffer
	members []member          // of the objects so far
	names   map[string]naming // by how they are written
}

// naming is what a name is, and what of it counts.
type naming struct{ name, folded string }

// maxNames is how many names an objectReader remembers. Recordings have few, unless names are ids.
const maxNames = 4096

// An object has the members of a JSON object. The next one that is read ends it.
type object struct {
	members []member
	by      *objectReader
}

// A member is one of a JSON object. The value aliases the object.
type member struct {
	naming
	value []byte
	inner *object // of value, once it was read
}

// next reads text, which is one JSON object, after which those before are not used any more.
func (r *objectReader) next(text []byte) (o object, ok bool) {
	clear(r.members)
	r.members = r.members[:0]

	return r.read(text)
}

// read reads text, which is one JSON object. ok is false if it is none.
func (r *objectReader) read(text []byte) (o object, ok bool) {
	d := r.decoder
	r.text = *bytes.NewBuffer(text)
	d.Reset(&r.text, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return o, false
	}

	begin := len(r.members)
	for d.PeekKind() == '"' {
		quoted, err := d.ReadValue()
		if err != nil {
			return o, false
		}

		name := r.nameIn(quoted)
		value, err := d.ReadValue()
		if err != nil {
			return o, false
		}

		end := d.InputOffset()
		r.members = append(r.members, member{naming: name, value: text[end-int64(len(value)) : end]})
	}

	_, err := d.ReadToken()
	ok = err == nil && len(bytes.TrimSpace(text[d.InputOffset():])) == 0

	return object{slices.Clip(r.members[begin:]), r}, ok
}

// nameIn returns the name that is written so.
func (r *objectReader) nameIn(quoted []byte) naming {
	n, ok := r.names[string(quoted)]
	if ok {
		return n
	}

	text, _ := jsontext.AppendUnquote(nil, quoted) // the error is about invalid UTF-8, which becomes U+FFFD
	n = naming{string(text), fold(string(text))}
	if len(r.names) < maxNames {
		r.names[string(quoted)] = n
	}

	return n
}

// find returns what is at p, nil if there is nothing.
func (o object) find(p *path) []byte {
	for i := range o.members {
		if o.members[i].folded == p.folded {
			return o.members[i].value
		}
	}

	if p.rest == nil {
		return nil
	}

	for i := range o.members {
		if m := &o.members[i]; m.value[0] == '{' && m.folded == p.first {
			if m.inner == nil {
				inner, _ := o.by.read(m.value)
				m.inner = &inner
			}
			return m.inner.find(p.rest)
		}
	}

	return nil
}

// text returns the text or number at the first of the paths that has one, empty if none has.
func (o object) text(paths ...*path) string {
	for _, p := range paths {
		if text, ok := scalar(o.find(p)); ok && text != "" {
			return text
		}
	}
	return ""
}

// body returns the message in o. isWhole reports that it is o itself.
func (o object) body() (body []byte, isWhole bool) {
	for _, name := range bodies {
		value := o.find(name.at)
		if value == nil || name.beside != nil && o.find(name.beside) == nil {
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
	for _, m := range o.members {
		if text, ok := scalar(m.value); ok {
			properties[m.name] = telemetry.Text(text)
		}
	}
}

// names lists the names of the members, for an error.
func (o object) names() string {
	var all []string
	for _, m := range o.members {
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
