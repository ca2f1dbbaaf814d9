package partition

import (
	"math"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// A DeviceState is what a worker knows of one device: its alarms, when it was heard, and its alerts that are not settled.
type DeviceState struct {
	Partitions []string `json:"partitions"` // that are being read, in no particular order
	// its last messages cannot be read; nil: they can, or nothing is known of them
	Unreadable *Unreadable `json:"unreadable,omitempty"`
	// in the order of the rules and levels, and then those that are not configured any more
	Alarms     []AlarmState     `json:"alarms,omitempty"`
	Heard      []HeardState     `json:"heard,omitempty"` // for each rule about silence that knows it
	Deliveries []delivery.State `json:"waiting,omitempty"`

	// one that has an alarm or sent something, and whose name differs only in case; empty: there is none, or the device
	// itself is known
	Similar string `json:"-"`
}

// WasHeard reports whether a rule about silence has heard the device.
func (d *DeviceState) WasHeard() bool {
	return len(d.Heard) > 0
}

// A HeardState says when a device was heard last in a partition, as a rule about silence counts it.
type HeardState struct {
	Partition string    `json:"partition"`
	Sensor    string    `json:"sensor,omitempty"` // of the device; empty: the device
	Rule      string    `json:"rule"`
	At        time.Time `json:"at"`                 // when the hub took the last event that counts
	Deadline  time.Time `json:"deadline,omitzero"`  // from when on the device is silent; zero: nothing is expected of it
	Excluded  bool      `json:"excluded,omitempty"` // nothing is expected of it because of the rule's Only
	AsOf      time.Time `json:"asOf,omitzero"`      // the partition is known up to then; zero: it is being read
}

// HeardIn returns what a partition's roster has of a sensor, or of a device with all of its sensors.
func HeardIn(r *roster.Roster, partition string, of sensor.ID, set *rules.Set) (all []HeardState) {
	sensors := r.Covered(of)
	for i := range set.Rules {
		rule := &set.Rules[i]
		if !rule.Silence() {
			continue
		}

		for _, about := range sensors {
			h := r.Last(about, rule.Name)
			if h == (roster.Heard{}) {
				continue
			}

			state := HeardState{Partition: partition, Sensor: about.Name, Rule: rule.Name, At: time.UnixMilli(h.Time).UTC()}
			state.Excluded = h.Quiet == roster.Excluded
			if _, deadline := r.Silence(r.Column(rule.Name), h); !state.Excluded && deadline < math.MaxInt64 {
				state.Deadline = time.UnixMilli(deadline).UTC()
			}

			all = append(all, state)
		}
	}

	return all
}
