package incident_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/incident"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
	"alertworker/internal/records/recordstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulators.Share(m)) }

// stores are those of records that a Book can have.
func stores(t *testing.T) map[string]func(t *testing.T) records.Store {
	azurite := emulators.StartAzurite(t)
	return map[string]func(t *testing.T) records.Store{
		"memory": func(*testing.T) records.Store { return &records.Memory{} },
		"blobs": func(t *testing.T) records.Store {
			b, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	}
}

var berlin = incident.Group{Rule: "hot", Level: "high", Per: "site", Value: "berlin"}

// at is an entry as of a place in the log.
func at(sequence int64, members int) incident.Entry {
	return incident.Entry{Members: members, First: "freezer", Position: incident.Position{Log: "log", Sequence: sequence}}
}

// An incident of two partitions goes its way whichever call of the store is lost, answered twice, or comes late.
func TestBook(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			for _, fault := range append([]recordstest.Fault{""}, recordstest.Faults...) {
				for in := range 12 {
					if fault == "" && in > 0 || name == "blobs" && in > 1 {
						break
					}
					t.Run(fmt.Sprint(fault, in), func(t *testing.T) {
						var network recordstest.Network
						network.Arm(fault, in)
						goItsWay(t, &incident.Book{Store: network.Via(open(t)), Prefix: "incidents/", IDs: "hub/"})
					})
				}
			}
		})
	}
}

func goItsWay(t *testing.T, b *incident.Book) {
	try := func(call func() error) {
		t.Helper()
		for range 3 {
			if call() == nil {
				return
			}
		}
		t.Fatal(call())
	}
	sync := func(partition string, e incident.Entry) (result incident.Result) {
		t.Helper()
		try(func() (err error) { result, err = b.Sync(t.Context(), berlin, partition, e); return err })
		return result
	}

	first := sync("0", at(1, 1))
	if !strings.HasPrefix(first.Incident, "hub/") || first.Began.IsZero() {
		t.Fatalf("it began: %+v", first)
	}
	if second := sync("1", at(1, 2)); second.Incident != first.Incident {
		t.Errorf("the second is a member of %q, the first of %q", second.Incident, first.Incident)
	}
	if left := sync("0", at(2, 0)); left.End != (incident.End{}) {
		t.Errorf("the first has left, and it is over: %+v", left)
	}
	if late := sync("0", at(1, 1)); !late.Behind || late.Incident != "" {
		t.Errorf("a former owner: %+v", late)
	}
	end := sync("1", at(3, 0)).End
	if end.Incident != first.Incident || end.Overs != 1 {
		t.Errorf("the last has left: %+v", end)
	}
	try(func() error { return b.Close(t.Context(), berlin, end) })

	var r incident.Record
	var now time.Time
	try(func() (err error) { r, now, err = b.Read(t.Context(), berlin); return err })
	if now.IsZero() || r.State != incident.Closed || r.ID != first.Incident {
		t.Errorf("closed: %+v at %v", r, now)
	}
	if next := sync("1", at(4, 1)); next.Incident == first.Incident || next.Incident == "" {
		t.Errorf("the next one is %q, after %q", next.Incident, first.Incident)
	}
}

// Owners of many partitions who write at once are members of one incident.
func TestBookOfManyOwners(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			b := &incident.Book{Store: open(t), Prefix: "incidents/"}
			ids := make([]string, 6)
			var all sync.WaitGroup
			for i := range ids {
				all.Go(func() {
					for ids[i] == "" { // ErrConflict after some rounds: the caller repeats it
						result, err := b.Sync(t.Context(), berlin, fmt.Sprint(i), at(1, 1))
						if err != nil && t.Context().Err() != nil {
							return
						}
						ids[i] = result.Incident
					}
				})
			}
			all.Wait()
			r, _, err := b.Read(t.Context(), berlin)
			if err != nil || r.Partitions() != len(ids) {
				t.Errorf("%+v, %v", r, err)
			}
			for i, id := range ids {
				if id != r.ID {
					t.Errorf("%d is a member of %q, not of %q", i, id, r.ID)
				}
			}
		})
	}
}

// A record that is damaged is as one that is gone: its incident begins anew, and nothing waits for somebody who mends it.
func TestDamagedRecord(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			b := &incident.Book{Store: open(t), Prefix: "incidents/"}
			was, err := b.Sync(t.Context(), berlin, "0", at(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			page, err := b.Store.List(t.Context(), b.Prefix, "")
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			damaged := page.Records[0]
			damaged.Content, damaged.ETag = []byte(`{"group":`), records.Any
			if _, err := b.Store.Write(t.Context(), damaged); err != nil {
				t.Fatal(err)
			}

			if open, _, err := b.Open(t.Context(), 10, 0); len(open) != 0 || err != nil {
				t.Errorf("open are %+v, %v", open, err)
			}
			if done, _, err := b.Sweep(t.Context(), "", time.Hour, func(string) bool { return false }); done != (incident.Swept{}) || err != nil {
				t.Errorf("swept %+v, %v", done, err)
			}
			if r, _, err := b.Read(t.Context(), berlin); r.MayAlert("0", was.Incident) || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
			is, err := b.Sync(t.Context(), berlin, "0", at(2, 1))
			if err != nil || is.Incident == "" || is.Incident == was.Incident {
				t.Errorf("%+v after %+v, %v", is, was, err)
			}
		})
	}
}

// What is listed, and what becomes of it: also of records in which no incident ever was.
func TestBookLists(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			b := &incident.Book{Store: open(t), Prefix: "incidents/"}
			of := func(value string) incident.Group { return incident.Group{Rule: "hot", Per: "site", Value: value} }
			write := func(value, partition string, e incident.Entry) incident.Result {
				t.Helper()
				result, err := b.Sync(t.Context(), of(value), partition, e)
				if err != nil {
					t.Fatal(value, err)
				}
				return result
			}
			longest := strings.Repeat("ß", incident.MaxValue/2)
			write("none", "0", at(1, 0))
			write(longest, "7", at(1, 1))
			write(longest, "0", at(1, 0))
			write("over", "0", at(1, 1))
			write("over", "0", at(2, 0))
			write("closed", "0", at(1, 1))
			if err := b.Close(t.Context(), of("closed"), write("closed", "0", at(2, 0)).End); err != nil {
				t.Fatal(err)
			}

			expect := func(when string, want map[string]incident.State) {
				t.Helper()
				found, all, err := b.Open(t.Context(), 10, 0)
				if err != nil || !all || len(found) != len(want) {
					t.Errorf("%s: open are %+v, all: %t, %v", when, found, all, err)
				}
				for _, l := range found {
					if isOver := l.Record.State == incident.Over; want[l.Group.Value] != l.Record.State || isOver != (l.Record.End().Overs == 1) || l.Age < 0 || l.Age > time.Hour {
						t.Errorf("%s: %s is %s since %v, over %d times", when, l.Group.Value, l.Record.State, l.Age, l.Record.End().Overs)
					}
				}
			}
			expect("at first", map[string]incident.State{longest: incident.Running, "over": incident.Over})
			if found, all, err := b.Open(t.Context(), 1, 0); err != nil || all || len(found) != 1 {
				t.Errorf("one of two: %+v, all: %t, %v", found, all, err)
			}

			sweep := func(retention time.Duration, has func(string) bool, want incident.Swept) {
				t.Helper()
				done, next, err := b.Sweep(t.Context(), "", retention, has)
				if done != want || next != "" || err != nil {
					t.Errorf("swept %+v, next %q, %v, want %+v", done, next, err, want)
				}
			}
			sweep(time.Hour, nil, incident.Swept{})
			sweep(time.Hour, func(partition string) bool { return partition == "0" }, incident.Swept{Entries: 1})
			expect("without its partition", map[string]incident.State{longest: incident.Over, "over": incident.Over})
			sweep(-1, nil, incident.Swept{Removed: 4})
			expect("removed", nil)
		})
	}
}

// A sweep that is cut short goes on where it was, and leaves what somebody has written since it was listed.
func TestSweepGoesOn(t *testing.T) {
	network := recordstest.Network{}
	b := &incident.Book{Store: network.Via(&records.Memory{}), Prefix: "incidents/"}
	for i := range 3 {
		if _, err := b.Sync(t.Context(), incident.Group{Value: fmt.Sprint(i)}, "0", at(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, next, err := b.Sweep(ended, "x", 0, nil); err == nil || next != "x" {
		t.Errorf("next %q, %v", next, err)
	}
	for _, tt := range []struct {
		fails   error
		removed int
	}{{records.ErrConflict, 0}, {recordstest.ErrReset, 0}, {nil, 3}} {
		network.Fail = func(op records.Op, _ string) error {
			if op == records.OpDelete {
				return tt.fails
			}
			return nil
		}
		fails := tt.fails != nil && !errors.Is(tt.fails, records.ErrConflict)
		if done, next, err := b.Sweep(t.Context(), "", -1, nil); (err != nil) != fails || next != "" || done.Removed != tt.removed {
			t.Errorf("if removing fails with %v: %+v, next %q, %v", tt.fails, done, next, err)
		}
	}
}
