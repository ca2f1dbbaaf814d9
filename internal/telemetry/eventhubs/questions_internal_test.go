package eventhubs

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// An answer of another form is none, whichever part of it: of a partition whose last offset was not known, a first start read
// everything.
func TestAnswersOfAnotherForm(t *testing.T) {
	hub := map[string]any{"created_at": time.Now(), "partition_ids": []string{"0"}}
	partition := map[string]any{
		"partition": "0", "begin_sequence_number": int64(0), "last_enqueued_sequence_number": int64(7), "last_enqueued_offset": "70",
		"last_enqueued_time_utc": time.Now(), "is_partition_empty": false,
	}
	for name, tt := range map[string]struct {
		whole map[string]any
		read  func(any) bool
	}{
		"hub":       {hub, func(v any) bool { _, ok := readHub(v); return ok }},
		"partition": {partition, func(v any) bool { _, ok := readEnd(v); return ok }},
	} {
		if !tt.read(tt.whole) {
			t.Errorf("%s: not read: %v", name, tt.whole)
		}
		if tt.read(nil) || tt.read("text") {
			t.Errorf("%s: what is no map is read", name)
		}
		for field := range tt.whole {
			for _, other := range []any{nil, 3.5, []byte("70"), []any{}} {
				odd := maps.Clone(tt.whole)
				odd[field] = other
				if tt.read(odd) {
					t.Errorf("%s: read although its %s is %T", name, field, other)
				}
			}
		}
	}
	partition["last_enqueued_offset"] = int64(70)
	if _, ok := readEnd(partition); ok {
		t.Error("an offset that is a number is read")
	}
	partition["last_enqueued_offset"], partition["last_enqueued_sequence_number"] = "70", int32(7)
	if end, ok := readEnd(partition); !ok || end.LastEnqueuedSequenceNumber != 7 {
		t.Errorf("a number of 32 bits is not read: %+v", end)
	}
}

// What a partition waits for is asked first, and what people are shown last. A question about the hub, whose answer serves all who
// wait for it, takes turns with those that are as urgent.
func TestOrderOfQuestions(t *testing.T) {
	q := newQuestions(&Source{})
	defer q.end()
	q.asking = true // nobody asks
	for _, about := range []string{"a", "b"} {
		q.put(toShow, about)
	}
	q.put(toDecide, "c")
	for _, about := range []string{"d", "e", "f", "g", "h", aboutHub, "i"} {
		q.put(toRead, about)
	}
	shared := q.put(toRead, "b")
	if shared.waiting != 2 || len(q.queued) != 10 {
		t.Errorf("%d wait for one of %d questions, want 2 for one of 10", shared.waiting, len(q.queued))
	}

	var order []string
	for len(q.queued) > 0 {
		o := q.next()
		order = append(order, o.about)
	}
	if want := []string{"b", "d", "e", "f", aboutHub, "g", "h", "i", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("asked in the order %q, want %q", order, want)
	}
}
