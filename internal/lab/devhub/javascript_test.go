package devhub_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
)

// The official JavaScript client takes the hub for a real one. It differs from the Go client
// in that its link for replies has a name and no address.
func TestJavaScriptClient(t *testing.T) {
	h := listen(t, devhub.Config{Hub: "telemetry", Partitions: 2})
	said := emulators.Node(t, regexp.MustCompile(`^saw (.*)$`), "internal/lab/devhub/testdata/client.mjs", h.ConnectionString())
	type partition struct {
		PartitionID                string
		IsEmpty                    bool
		LastEnqueuedSequenceNumber int64
	}
	type event struct {
		Body       any
		Properties map[string]any
		Key        string
		Sequence   int64
		Enqueued   int64 // in milliseconds
	}
	var saw struct {
		Hub struct {
			Name         string
			PartitionIDs []string
		}
		Empty, Full partition
		Events      []event

		Starts          map[string]any
		Last            int64
		Stolen, Refused string
		Buffered        []string
	}
	if err := json.Unmarshal([]byte(said), &saw); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	if saw.Hub.Name != "telemetry" || !slices.Equal(saw.Hub.PartitionIDs, []string{"0", "1"}) {
		t.Errorf("hub %+v", saw.Hub)
	}
	if want := (partition{PartitionID: "0", IsEmpty: true, LastEnqueuedSequenceNumber: -1}); saw.Empty != want {
		t.Errorf("partition %+v, want %+v", saw.Empty, want)
	}
	if saw.Full.PartitionID != "1" || saw.Full.IsEmpty || saw.Full.LastEnqueuedSequenceNumber < 1 {
		t.Errorf("partition %+v, want one with two events", saw.Full)
	}
	var got []string
	for _, e := range saw.Events {
		b, _ := json.Marshal(e.Body)
		got = append(got, string(b)+" "+e.Key)
	}
	slices.Sort(got)
	if want := `"text" ` + "\n" + `{"temperature":21.5} ` + "\n" + `{"temperature":99} oven/7`; strings.Join(got, "\n") != want {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	first, second, last := saw.Events[0], saw.Events[1], saw.Events[2]
	sameTime := second
	if first.Enqueued == second.Enqueued {
		sameTime = first
	}
	starts := map[string]any{
		"at the start": first.Body, "at the end": last.Body, "at a time": sameTime.Body,
		"at an offset": second.Body, "after a number": second.Body, "at a number": second.Body,
	}
	if !reflect.DeepEqual(saw.Starts, starts) {
		t.Errorf("it started at %v, want %v", saw.Starts, starts)
	}
	if saw.Last != 2 || !slices.Equal(saw.Buffered, []string{"1"}) {
		t.Errorf("the last number %d, and %q of the buffered producer; want 2 and 1", saw.Last, saw.Buffered)
	}
	if !strings.Contains(saw.Stolen, "is getting disconnected") || !strings.Contains(saw.Refused, "cannot be created") {
		t.Errorf("epochs: %q and %q", saw.Stolen, saw.Refused)
	}
	if kind := saw.Events[0].Properties["kind"]; kind != "reading" && saw.Events[0].Key == "" {
		t.Errorf("an event has the properties %v", saw.Events[0].Properties)
	}
}
