// Package telemetrytest makes the properties of events, for tests.
package telemetrytest

import (
	"fmt"

	"github.com/Azure/go-amqp"

	"alertworker/internal/telemetry"
)

// Properties encodes properties in the order of their names. Text may be any bytes.
func Properties(all map[string]any) telemetry.Properties {
	values := map[string]telemetry.Property{}
	for name, v := range all {
		switch v := v.(type) {
		case nil:
			values[name] = telemetry.Property{0x40}

		case string:
			values[name] = telemetry.Text(v)

		default:
			section, err := (&amqp.Message{Value: v}).MarshalBinary()
			if err != nil {
				panic(fmt.Sprintf("encode property %s: %v", name, err))
			}
			values[name] = section[len("\x00\x53\x77"):]
		}
	}

	return telemetry.EncodeProperties(values)
}
