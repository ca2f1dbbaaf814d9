package eventhubs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A naiveLog is a partition in a test: all its events, and which of them a cursor has followed.
type naiveLog struct {
	events []naiveEvent
	next   int          // index of the event that comes next
	came   map[int]bool // indices
	first  int          // index of the first event that may come
	gaps   int64        // events that are missing between two that told their place, up to the last that did
}

type naiveEvent struct {
	telemetry.Position
	numbered, offset, decodable bool // what of it can be read
}

func (e naiveEvent) placed() bool { return e.numbered && e.offset }

// handed returns the event as the reader gets it.
func (e naiveEvent) handed() telemetry.Event {
	h := telemetry.Event{Position: e.Position, Enqueued: e.Time}
	if !e.numbered {
		h.Sequence = amqpfilter.Unnumbered
	}
	if !e.offset {
		h.Offset = ""
	}
	if !e.decodable {
		h.Undecodable = "poison"
	}
	return h
}

// after returns the index of the first event that a hub selects by s.
func (l *naiveLog) after(s selector) int {
	parts := strings.Split(string(s), "'")
	number, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		panic(err)
	}
	selected := func(e naiveEvent) bool {
		switch {
		case strings.Contains(parts[0], "offset"):
			offset, _ := strconv.ParseInt(e.Offset, 10, 64)
			return offset > number
		case strings.Contains(parts[0], "sequence"):
			return e.Sequence > number
		}
		return e.Time.UnixMilli() >= number
	}
	if i := slices.IndexFunc(l.events, selected); i >= 0 {
		return i
	}
	return len(l.events)
}

// missed returns the first event that may come and has not.
func (l *naiveLog) missed() int {
	i := l.first
	for l.came[i] {
		i++
	}
	return i
}

func (l *naiveLog) last() (end azeventhubs.PartitionProperties) {
	e := l.events[len(l.events)-1]
	end.LastEnqueuedSequenceNumber = e.Sequence
	end.LastEnqueuedOn = e.Time
	return end
}

// Whatever messages tell of their places, and wherever links begin again, nothing is passed over, nothing is counted as
// missing that was not, and no position that can become a checkpoint is beyond its event.
func TestCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compacted := rapid.Bool().Draw(t, "compacted")
		l := &naiveLog{came: map[int]bool{}}
		began := time.UnixMilli(1_700_000_000_000).UTC()
		at := telemetry.Position{Sequence: rapid.Int64Range(-1, 3).Draw(t, "before"), Time: began}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			at.Sequence++
			if compacted {
				at.Sequence += rapid.Int64Range(0, 2).Draw(t, "gap")
			}
			at.Offset = strconv.FormatInt(at.Sequence*100, 10)
			at.Time = at.Time.Add(time.Hour)
			whole := rapid.IntRange(0, 2).Draw(t, "whole") > 0
			l.events = append(l.events, naiveEvent{
				Position:  at,
				numbered:  whole || rapid.Bool().Draw(t, "numbered"),
				offset:    whole || rapid.Bool().Draw(t, "offset"),
				decodable: whole || rapid.Bool().Draw(t, "decodable"),
			})
		}

		c := cursorAt(Start{Earliest: true})
		placed := -1 // index of the last event that told its place, or of the checkpoint's
		if l.first = rapid.IntRange(0, len(l.events)).Draw(t, "settled"); l.first > 0 {
			placed = l.first - 1
			c = cursorAfter(l.events[placed].Position)
		}
		l.next = l.after(c.restart()[0])
		counted := int64(0)
		again := false // what did not tell its number may come twice, and seem two
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			if rapid.IntRange(0, 4).Draw(t, "step") == 0 { // the link fails
				all := c.restart()
				refused := rapid.IntRange(0, len(all)-1).Draw(t, "refused")
				l.next = l.after(all[refused])
				again = true
				if l.next > l.missed() {
					t.Fatalf("%q passes over event %d", all[refused], l.missed())
				}
				continue
			}
			if l.next == len(l.events) {
				continue
			}
			i := l.next
			truth := l.events[i]
			e := truth.handed()
			counted += c.follow(&e)
			l.came[i] = true
			l.next++
			if truth.placed() && i > placed {
				if placed >= 0 {
					l.gaps += truth.Sequence - l.events[placed].Sequence - int64(i-placed)
				}
				placed = i
			}

			if counted > l.gaps || counted < l.gaps && !again {
				t.Fatalf("%d events are counted as missing, want %d", counted, l.gaps)
			}
			if truth.numbered && e.Sequence != truth.Sequence {
				t.Fatalf("event %d has the number %d, want %d", i, e.Sequence, truth.Sequence)
			}
			if e.Offset != "" && l.after(afterOffset(e.Offset)) > l.missed() {
				t.Fatalf("the offset of event %d, %q, is beyond event %d, which has not come", i, e.Offset, l.missed())
			}
			if e.Offset == "" && truth.placed() {
				t.Fatalf("event %d has lost its offset", i)
			}
			next := l.missed()
			exact := c.reached() == l.events[next-1].Sequence
			if got, want := c.behind(l.last()), next < len(l.events); got != want && exact {
				t.Fatalf("behind is %v, and %d of %d events have come", got, next, len(l.events))
			}
		}
	})
}

// What an undecodable message says of its place counts, because the hub says it. Without that, a partition of nothing
// else would never have a checkpoint.
func TestCursorFollowsUndecodable(t *testing.T) {
	poison := func(sequence int64, offset string) *telemetry.Event {
		return &telemetry.Event{
			Position: telemetry.Position{Sequence: sequence, Offset: offset}, Undecodable: "poison",
		}
	}
	c := cursorAt(Start{Earliest: true})
	for i, e := range []*telemetry.Event{poison(0, "0"), poison(1, "100"), poison(amqpfilter.Unnumbered, ""), poison(3, "")} {
		if missing := c.follow(e); missing != 0 || e.Sequence != int64(i) || e.Offset != fmt.Sprint(min(i, 1)*100) &&
			!(i == 0 && e.Offset == "0") {
			t.Errorf("event %d is at %+v, and %d are missing", i, e.Position, missing)
		}
	}
	if c.last.Sequence != 1 || !c.known {
		t.Errorf("the last event that told its place is %+v, want that of number 1", c.last)
	}
	if got := c.restart()[0]; got != "amqp.annotation.x-opt-sequence-number > '1'" {
		t.Errorf("reading continues at %q", got)
	}
}

// A hub that is empty has dropped what had not come, also before the first start, and says nothing about what it never
// had.
func TestCursorExpired(t *testing.T) {
	end := azeventhubs.PartitionProperties{
		LastEnqueuedSequenceNumber: 7, LastEnqueuedOffset: "700", LastEnqueuedOn: time.Unix(1_700_000_000, 0),
	}
	for name, test := range map[string]struct {
		cursor cursor
		empty  bool
		want   bool
	}{
		"behind":              {cursorAfter(telemetry.Position{Sequence: 3, Offset: "300"}), true, true},
		"at its end":          {cursorAfter(telemetry.Position{Sequence: 7, Offset: "700"}), true, false},
		"the hub has events":  {cursorAfter(telemetry.Position{Sequence: 3, Offset: "300"}), false, false},
		"nothing was settled": {cursorAt(Start{Earliest: true}), true, true},
	} {
		end.IsEmpty = test.empty
		e, got := test.cursor.expired(end)
		if got != test.want || got && (e.Sequence != 7 || e.Offset != beforeFirst || e.MessageSource != telemetry.SourceExpired) {
			t.Errorf("%s: %v, %+v", name, got, e)
		}
	}
}
