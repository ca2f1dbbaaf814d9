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

// A part of a message that a file has under one of some names.
type part int

const (
	timeOf part = iota
	deviceOf
	sourceOf
	moduleOf
	componentOf
	parts
)

// These are the names under which files have the parts of a message. The first that a message has counts. They are
// paths in a JSON object or an Avro record, and names of CSV columns; see fold for what may differ.
var (
	partNames = [parts][]string{
		timeOf: folded(
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
		deviceOf: folded(
			"SystemProperties.connectionDeviceId",          // routes to storage
			"SystemProperties.iothub-connection-device-id", // Capture, IoT Explorer
			"event.annotations.iothub-connection-device-id",
			"event.origin",
			"IoTHub.ConnectionDeviceId", // Stream Analytics; iothub-connection-device-id of ADX
			"ConnectionDeviceId",
			"device",
			"deviceId", // IoT Central
		),
		sourceOf: folded(
			"SystemProperties.iothub-message-source",
			"event.annotations.iothub-message-source",
			"messageSource",
		),
		moduleOf: folded(
			"SystemProperties.iothub-connection-module-id",
			"event.annotations.iothub-connection-module-id",
			"event.module",
			"iothub-connection-module-id",
		),
		componentOf: folded(
			"SystemProperties.dt-subject",
			"event.annotations.dt-subject",
			"event.component",
			"dt-subject",
			"component", // IoT Central
		),
	}
	payload = fold("event.payload")
	bodies  = []bodyName{
		{at: payload, isText: true},
		{at: fold("Body")},
		{at: fold("telemetry"), beside: fold("applicationId")}, // IoT Central; a device may send a field of that name
	}
	propertyNames = folded(
		"Properties",
		"applicationProperties", // Visual Studio Code
		"event.properties.application",
		"messageProperties", // IoT Central
		"enrichments",
	)
)

// A bodyName is where a message is. A message without any is the object itself.
type bodyName struct {
	at     string
	beside string // what has to be there, too; empty: nothing
	isText bool   // a text is the message; elsewhere it is in base64 if it can be
}

// fold returns a name or path without what may differ: case does not matter, nor what is no letter and no digit, such as
// the signs in iothub-connection-device-id, IoTHub.ConnectionDeviceId and iothub_connection_device_id. What is beyond ASCII
// is a letter.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf || strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

func folded(names ...string) []string {
	for i := range names {
		names[i] = fold(names[i])
	}
	return names
}

// An object is a JSON object or a line of CSV.
type object struct {
	names []string
	at    map[string][]byte // values as JSON, by their folded paths. Of those with one path the first counts
}

// asIs are options for JSON that is taken as it is.
var asIs = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// parse takes text apart, one JSON object, which is valid. Values alias it.
func parse(text []byte) object {
	o := object{at: map[string][]byte{}}
	o.names = o.add("", text)
	return o
}

// add adds the members of an object that is at a path, and returns their names.
func (o object) add(path string, text []byte) (names []string) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), asIs...)
	_, _ = d.ReadToken() // text is valid: nothing can fail
	for d.PeekKind() == '"' {
		token, _ := d.ReadToken()
		name := token.String()
		value, _ := d.ReadValue()
		end := d.InputOffset()
		value = text[end-int64(len(value)) : end]
		names = append(names, name)
		at := path + fold(name)
		if o.at[at] == nil {
			o.at[at] = value
		}
		if value.Kind() == '{' {
			o.add(at, value)
		}
	}

	return names
}

// text returns the text or number at the first of the paths that has one, empty if none has.
func (o object) text(paths []string) string {
	for _, p := range paths {
		if text, ok := scalar(o.at[p]); ok && text != "" {
			return text
		}
	}
	return ""
}

// body returns the message in o. isWhole reports that it is o itself.
func (o object) body() (body []byte, isWhole bool) {
	for _, name := range bodies {
		value := o.at[name.at]
		if value == nil || name.beside != "" && o.at[name.beside] == nil {
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

// addTo adds the texts, numbers and booleans among the members to properties.
func (o object) addTo(properties map[string]telemetry.Property) {
	for _, name := range o.names {
		if text, ok := scalar(o.at[fold(name)]); ok {
			properties[name] = telemetry.Text(text)
		}
	}
}

// scalar returns a JSON text without its quotes, or a number or boolean as it is.
func scalar(value []byte) (text string, ok bool) {
	switch jsontext.Value(value).Kind() {
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, value) // the error is about invalid UTF-8, which becomes U+FFFD
		return string(unquoted), true
	case '0', 't', 'f':
		return string(value), true
	}

	return "", false
}
