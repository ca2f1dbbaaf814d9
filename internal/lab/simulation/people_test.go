package simulation

import (
	"slices"
	"testing"

	"alertworker/internal/sensor"
)

// What people are told is read in their words.
func TestAlerted(t *testing.T) {
	for text, want := range map[string][]sensor.ID{
		"device-07: 91.5, at or above 80\nDevice: device-07\nValue: 91.5":                                       {sensor.Of("device-07"), sensor.Of("device-07")},
		"device-07: 3.5, normal again, above 3\nDevice: device-07":                                              nil,
		"device-07: the rule temperature no longer applies (kind is x), its alarm has ended\nDevice: device-07": nil,
		"temperature: 3 devices at or above 30\ndevice-01: 31, limit 30\nand 2 more: device-02, device-03": {
			sensor.Of("device-01"), sensor.Of("device-02"), sensor.Of("device-03"),
		},
		"3 devices: 2 alerts, 1 normal again\ntemperature: 2 devices at or above 30\ndevice-01: 31\ndevice-02: 32\n" +
			"temperature: 1 device normal again\ndevice-03: 20": {sensor.Of("device-01"), sensor.Of("device-02")},
		"temperature: 2 sensors at or above 30\ndevice-01 / probe: 31\ndevice-01 / inlet: 32": {
			{Device: "device-01", Name: "probe"}, {Device: "device-01", Name: "inlet"},
		},
		"2 devices normal again\ndevice-01: 20\ndevice-02: 20": nil,
	} {
		if got := alerted(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
