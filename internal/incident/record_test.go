package incident_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/incident"
	_ "alertworker/internal/lab/seeded"
)

// Whatever owners, zombies among them, write in whatever order: a record runs if and only if a partition has members, its
// positions never go back, and an id stays until the incident is closed.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r incident.Record
		var ends []incident.End
		ids := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			was := clone(r)
			partition := rapid.SampledFrom([]string{"0", "1", "2"}).Draw(t, "partition")
			before, had := r.Entries[partition]
			next := r
			removed := false
			switch rapid.SampledFrom([]string{"sync", "sync", "sync", "close", "remove"}).Draw(t, "step") {
			case "sync":
				ids++
				e := incident.Entry{
					Members:  rapid.IntRange(0, 2).Draw(t, "members"),
					First:    "freezer",
					Position: incident.Position{Log: rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "log"), Sequence: rapid.Int64Range(0, 20).Draw(t, "sequence")},
				}
				var result incident.Result
				next, result = r.Sync(partition, e, fmt.Sprint(ids), time.Unix(int64(ids), 0).UTC())
				checkSync(t, r, next, partition, e, result)
				if result.End != (incident.End{}) {
					ends = append(ends, result.End)
				}

			case "close":
				if len(ends) == 0 {
					continue
				}
				end := rapid.SampledFrom(ends).Draw(t, "end")
				var changed bool
				next, changed = r.Closed(end)
				if may := r.MayEnd(end); changed != may || changed != (next.State == incident.Closed && r.State == incident.Over) {
					t.Fatalf("closed %+v: %t of %+v", end, changed, r)
				}

			case "remove":
				next, removed = r.Without(partition)
				if _, still := next.Entries[partition]; still || removed != had {
					t.Fatalf("%s is taken out: %t, of %+v", partition, removed, r)
				}
			}

			if !reflect.DeepEqual(r, was) {
				t.Fatalf("a step has changed the record that it was given: %+v, and it was %+v", r, was)
			}
			if (next.State == incident.Running) != (next.Partitions() > 0) {
				t.Fatalf("%+v", next)
			}
			if next.ID != r.ID && r.State != incident.None && r.State != incident.Closed {
				t.Fatalf("a new id after %+v: %+v", r, next)
			}
			if at := next.Entries[partition].Position; !removed && at.Log == before.Position.Log && at.Sequence < before.Position.Sequence {
				t.Fatalf("the position of %s goes back: %+v, after %+v", partition, next, r)
			}
			if over := next.State == incident.Over && r.State == incident.Running; over != (next.ID == r.ID && next.Overs == r.Overs+1) {
				t.Fatalf("over: %t, after %+v: %+v", over, r, next)
			}
			r = next
		}
	})
}

func checkSync(t *rapid.T, r, next incident.Record, partition string, e incident.Entry, result incident.Result) {
	switch {
	case result.Behind && !reflect.DeepEqual(r, next):
		t.Fatalf("behind, and written: %+v, after %+v", next, r)
	case !result.Behind && e.Members > 0 && (result.Incident != next.ID || !next.MayAlert(partition, next.ID)):
		t.Fatalf("%+v of %+v", result, next)
	case (result.Incident != "") != (next.Entries[partition].Members > 0):
		t.Fatalf("%+v, and the record has %+v", result, next.Entries[partition])
	case result.End != (incident.End{}) && (e.Members > 0 || !next.MayEnd(result.End)):
		t.Fatalf("the end %+v is due with %+v by %+v", result.End, e, next)
	case e.Members == 0 && next.State == incident.Over && result.End != next.End():
		t.Fatalf("%+v of %+v: whoever finds it over ends it", result, next)
	}
	if repeated, again := next.Sync(partition, e, "another", next.Entries[partition].Written); !reflect.DeepEqual(repeated, next) || again != result {
		t.Fatalf("written once more: %+v, %+v, and once: %+v, %+v", repeated, again, next, result)
	}
}

func clone(r incident.Record) (c incident.Record) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		panic(err)
	}
	return c
}

// What people read of many partitions.
func TestRecordOfManyPartitions(t *testing.T) {
	at := time.Unix(1e9, 0)
	var r incident.Record
	for i := range 3 {
		e := incident.Entry{Members: i + 1, First: fmt.Sprint("freezer-", i), Since: at.Add(-time.Duration(i) * time.Minute)}
		r, _ = r.Sync(fmt.Sprint(i), e, "a", at.Add(time.Duration(i)*time.Minute))
	}
	if n, atLeast := r.Members(at); n != 6 || atLeast {
		t.Errorf("%d members, at least: %t", n, atLeast)
	}
	if n, atLeast := r.Members(at.Add(1)); n != 6 || !atLeast {
		t.Errorf("%d members, at least: %t, with an entry from before", n, atLeast)
	}
	if first := r.First().First; first != "freezer-2" {
		t.Errorf("the first is %s", first)
	}
}

// A record of as many partitions as a hub has, with the longest names, is read whole.
func TestRecordFits(t *testing.T) {
	const partitions, most = 2000, 1 << 20
	r := incident.Record{ID: strings.Repeat("i", 400), State: incident.Running, Began: time.Now(), Overs: math.MaxInt32, Entries: map[string]incident.Entry{}}
	for i := range partitions {
		r.Entries[fmt.Sprint(i)] = incident.Entry{
			Members:  math.MaxInt32,
			First:    strings.Repeat("d", 128),
			Since:    time.Now(),
			Written:  time.Now(),
			Position: incident.Position{Log: strings.Repeat("l", 18), Sequence: math.MaxInt64},
		}
	}
	text, err := json.Marshal(r)
	if err != nil || len(text) > most {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
