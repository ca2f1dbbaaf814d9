// Package telemetrytest makes the properties of events, for tests.
package telemetrytest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/Azure/go-amqp"

	"alertworker/internal/telemetry"
)

// Properties encodes properties in the order of their names. Text may be any bytes.
func Properties(all map[string]any) telemetry.Properties {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(append(b, 0xb1), uint32(len(s))), s...)
	}
	var entries []byte
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = text(entries, name)

		switch v := all[name].(type) {
		case nil:
			entries = append(entries, 0x40)

		case string:
			entries = text(entries, v)

		default:
			section, err := (&amqp.Message{Value: v}).MarshalBinary()
			if err != nil {
				panic(fmt.Sprintf("encode property %s: %v", name, err))
			}
			entries = append(entries, section[len("\x00\x53\x77"):]...)
		}
	}

	b := binary.BigEndian.AppendUint32([]byte{0xd1}, uint32(len(entries)+4))

	return append(binary.BigEndian.AppendUint32(b, uint32(2*len(all))), entries...)
}
