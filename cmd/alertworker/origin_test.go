package main

import "testing"

// Alert ids and sources outlive the fail-over of an IoT Hub.
func TestOrigin(t *testing.T) {
	for name, test := range map[string]struct {
		config config
		want   string
	}{
		"string":    {config{EventHubConnectionString: newSecret(hubString)}, "ns/telemetry"},
		"namespace": {config{EventHubNamespace: "NS.servicebus.windows.net", EventHubName: "Telemetry"}, "ns/telemetry"},
		"iot hub":   {config{EventHubConnectionString: newSecret(hubString), IoTHubConnectionString: newSecret(iotString)}, "hub"},
	} {
		if got := origin(test.config); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
