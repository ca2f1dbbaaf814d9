package partition

import (
	"strconv"
	"testing"
	"time"

	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// Messages of devices beyond those that a partition watches for silence are counted, and no others.
func TestUnwatchedDevicesAreCounted(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{{Name: "offline", Silent: time.Hour, Forget: rules.DefaultForget, Levels: []rules.Level{{}}}}}
	s := benchRules(t, set)
	defer func() { s.box.Close(); s.box.Wait() }()
	s.register.take([]telemetry.Event{exactEvent(1, "oven", "20")})
	s.register.unheard.View(func(r *roster.Roster) {
		for i := range roster.MaxDevices - 1 {
			r.Add(sensor.Of(strconv.Itoa(i)))
		}
	})
	s.register.take([]telemetry.Event{exactEvent(2, "oven", "20"), exactEvent(3, "kiln", "20")})
	if n := s.config.Evaluator.book.Counters.Unwatched.Load(); n != 1 {
		t.Errorf("%d messages of devices are counted for which there is no room, want 1", n)
	}
}

// An alarm that opens is counted once, however often its device is hot, and so is its end; each reading at its limit counts.
func TestAlarmsAreCounted(t *testing.T) {
	set := rules.Threshold("temperature,temp", 30, time.Hour)
	set.Rules[0].Resolved, set.Rules[0].Levels[0].Clear = true, 20
	s := statefulStream(t, set, "")

	events := batch(hotBody)
	clear := batch(`{"temperature":19}`)
	for i := range clear {
		events[i].Sequence++
		clear[i].Sequence += int64(len(events)) + 1
	}

	s.register.take(events)
	if of := &s.config.Evaluator.book.Counters.Levels[0]; of.Opened.Load() != 1 || of.Cleared.Load() != 0 || of.Over.Load() != 100 {
		t.Errorf("%d opened, %d cleared, %d readings at the limit", of.Opened.Load(), of.Cleared.Load(), of.Over.Load())
	}

	s.register.take(clear)
	if of := &s.config.Evaluator.book.Counters.Levels[0]; of.Opened.Load() != 1 || of.Cleared.Load() != 1 || of.Over.Load() != 100 {
		t.Errorf("%d opened, %d cleared, %d readings at the limit", of.Opened.Load(), of.Cleared.Load(), of.Over.Load())
	}

	s.box.Close()
	s.box.Wait()
}
