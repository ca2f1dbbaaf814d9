package config

import "testing"

// Alert ids and sources outlive the fail-over of an IoT Hub.
func TestOrigin(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"string":    {Config{EventHubConnectionString: NewSecret(hubString)}, "ns/telemetry"},
		"namespace": {Config{EventHubNamespace: "NS.servicebus.windows.net", EventHubName: "Telemetry"}, "ns/telemetry"},
		"iot hub":   {Config{EventHubConnectionString: NewSecret(hubString), IoTHubConnectionString: NewSecret(iotString)}, "hub"},
	} {
		if got := test.config.Origin(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
