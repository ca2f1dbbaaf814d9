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
		about string
	}{
		"hub":       {hub, aboutHub},
		"partition": {partition, "0"},
	} {
		read := func(answer any) bool {
			q := &question{about: tt.about}
			return q.read(endpoint{}, answer) == nil
		}
		if !read(tt.whole) {
			t.Errorf("%s: not read: %v", name, tt.whole)
		}
		if read(nil) || read("text") {
			t.Errorf("%s: what is no map is read", name)
		}
		for field := range tt.whole {
			for _, other := range []any{nil, 3.5, []byte("70"), []any{}} {
				odd := maps.Clone(tt.whole)
				odd[field] = other
				if read(odd) {
					t.Errorf("%s: read although its %s is %T", name, field, other)
				}
			}
		}
	}
	partition["last_enqueued_sequence_number"] = int32(7)
	q := &question{about: "0"}
	if err := q.read(endpoint{}, partition); err != nil || q.end.LastEnqueuedSequenceNumber != 7 {
		t.Errorf("a number of 32 bits is not read: %+v, %v", q.end, err)
	}
	partition["last_enqueued_offset"] = int64(70)
	if q.read(endpoint{}, partition) == nil {
		t.Error("an offset that is a number is read")
	}
	partition["last_enqueued_offset"], partition["partition"] = "70", "1"
	if q.read(endpoint{}, partition) == nil {
		t.Error("the answer about another partition is read")
	}
}

// What a partition waits for is asked first, and what people are shown last. Who wants to know the same shares a question
// that was not sent yet, or an answer that is new enough.
func TestOrderOfQuestions(t *testing.T) {
	q := newQuestions(&Source{})
	defer q.end()
	q.asking = true // nobody asks
	ask := func(u urgency, all ...string) {
		for _, about := range all {
			q.put(u, about, time.Now())
		}
	}
	ask(toShow, "a", "b")
	ask(toDecide, "c")
	ask(toRead, "d", aboutHub, "e", "b", aboutHub, "d")

	var order []string
	for len(q.queued) > 0 {
		o := q.take()
		order = append(order, o.about)
	}
	if want := []string{"b", "d", aboutHub, "e", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("asked in the order %q, want %q", order, want)
	}

	sent := time.Now()
	answer := &question{about: "a", sent: sent}
	q.answered["a"] = answer
	if q.put(toShow, "a", sent.Add(-1)) != answer {
		t.Error("a new answer is asked for again")
	}
	if q.put(toShow, "a", sent) == answer || q.put(toShow, "b", sent.Add(-1)) == answer {
		t.Error("an old answer, or another's, is given")
	}
	answer.at.hub = "elsewhere"
	if q.put(toShow, "a", sent.Add(-1)) == answer {
		t.Error("an answer of another hub is given")
	}
}
