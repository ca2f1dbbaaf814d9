package absence

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A silence by a rule that was added later is about the gap before the rule. The device was not heard there, so that its
// silence by another rule goes on.
func TestSilenceAboutAGapIsNoSignOfLife(t *testing.T) {
	column := func(name string) roster.Column { return roster.Column{Rule: name, Limit: time.Minute} }
	watched := []Rule{
		{Column: column("offline"), Forget: rules.DefaultForget},
		{Column: column("added"), Forget: rules.DefaultForget},
	}
	at := telemetry.Position{Generation: "hub", Sequence: 24, Offset: "1000", Time: time.UnixMilli(127_000)}
	known := roster.New(columns(watched))
	known.Position = at
	device := known.Add(sensor.Of("d1"))
	for rule := range watched {
		known.Hear(device, rule, roster.Heard{Sequence: 13, Time: 53_000})
	}

	open := []Open{
		{Rule: 0, Of: sensor.Of("d1"), Since: roster.Place{Sequence: 13, Time: 53_000}},
		{Rule: 1, Of: sensor.Of("d1"), Since: roster.Place{Sequence: 24, Time: 127_000}},
	}
	for owner := range 3 { // one after the other
		w := New(watched, nil, "", nil, zap.NewNop())
		w.found = true
		w.roster = known
		if _, ended := w.Begin(at, open); len(ended) > 0 {
			t.Errorf("owner %d: silences ended, although nothing was heard: %+v", owner, ended)
		}
		slices.Reverse(open)
	}
}
