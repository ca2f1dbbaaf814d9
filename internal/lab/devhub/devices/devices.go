// Package devices makes telemetry: a [Fleet] of simulated devices hands its messages, one after the other
// and at its own pace, to a function that publishes them.
package devices

import (
	"context"
	"fmt"
	"time"

	"alertworker/internal/backoff"
)

// A Message is what one device sends.
type Message struct {
	Device        string         // any UTF-8 string
	Body          []byte         // the receiver's to keep
	MessageSource string         // iothub-message-source: Telemetry, "twinChangeEvents", …
	Properties    map[string]any // the same map in all messages of a device; not to be changed

	// IsTelemetry means that the body is a reading that every decoder must
	// understand, and that Temperature is its exact value. Other messages must
	// never raise an alert, whatever their bodies hold.
	IsTelemetry bool
	Temperature float64
}

// Names of the properties that the messages of a Fleet are enriched with from the
// device's twin, as text. Where the twin has no such tag, the value is the path itself, as IoT Hub
// leaves it: "$twin.tags.maxTemp".
const (
	MaxTemp = "maxTemp" // what is hot for this device: ovens can bear more than the others
	Quiet   = "quiet"   // "true" for a few
)

// OvensBear is how much more ovens can bear, in degrees.
const OvensBear = 8

// Telemetry is the MessageSource of readings, the broken ones included.
const Telemetry = "Telemetry"

// publishAt publishes m when it is due, at once if that has passed. It returns
// an error if publish failed or ctx ended before.
func publishAt(ctx context.Context, due time.Time, m Message, publish func(context.Context, Message) error) error {
	if !backoff.Sleep(ctx, time.Until(due)) {
		return ctx.Err()
	}
	if err := publish(ctx, m); err != nil {
		return fmt.Errorf("publish a message of %q: %w", m.Device, err)
	}
	return nil
}
