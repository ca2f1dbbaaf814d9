package partition

import (
	"testing"
	"time"

	"alertworker/internal/rules"
)

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
