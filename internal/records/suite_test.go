package records_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
	"alertworker/internal/records/recordstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulators.Share(m)) }

// A tester is the part of testing.TB that a check uses.
type tester interface {
	Context() context.Context
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// checks are what every store keeps. open returns a client of its own of the same records, of which there are none yet.
var checks = []struct {
	name string
	run  func(t tester, open func() records.Store)
}{
	{"Absent", checkAbsent},
	{"Replace", checkReplace},
	{"Any", checkAny},
	{"Values", checkValues},
	{"Content", checkContent},
	{"Names", checkNames},
	{"Fresh", checkFresh},
	{"OneWinner", checkOneWinner},
	{"Clock", checkClock},
	{"Pages", checkPages},
	{"EndedContext", checkEndedContext},
	{"Faults", checkFaults},
}

func TestStores(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	for name, open := range map[string]func(t *testing.T) func() records.Store{
		"memory": func(*testing.T) func() records.Store {
			m := &records.Memory{}
			return func() records.Store { return m }
		},
		"blobs": func(t *testing.T) func() records.Store {
			name := azurite.NewContainer()
			return func() records.Store { return openBlobs(t, azurite, name) }
		},
		"reliable": func(t *testing.T) func() records.Store {
			name := azurite.NewContainer()
			return func() records.Store { return records.Reliable(openBlobs(t, azurite, name)) }
		},
	} {
		for _, c := range checks {
			if name == "reliable" && (c.name == "Pages" || c.name == "Faults") {
				continue // Pages would be the same once more, and Faults has a reliable store of its own
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && name == "blobs" && (c.name == "Faults" || c.name == "Pages") {
					t.Skip("thousands of requests")
				}
				c.run(t, open(t))
			})
		}
	}
}

func openBlobs(t *testing.T, azurite *emulators.Azurite, container string) *records.Blobs {
	t.Helper()
	b, err := records.OpenBlobs(t.Context(), azurite.Container(t, container, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const name = "ns.servicebus.windows.net/hub/$default/ledger/0"

// There is nothing where nothing was written, and nothing that could be replaced.
func checkAbsent(t tester, open func() records.Store) {
	store := open()
	isAbsent(t, store, name)
	refused(t, store, records.Record{Name: name, ETag: `"unknown"`})
	refused(t, store, records.Record{Name: name, Content: []byte("x"), ETag: `"unknown"`})
	if err := store.Delete(t.Context(), name, `"unknown"`); !errors.Is(err, records.ErrConflict) {
		t.Errorf("deleting what is not there: %v, want ErrConflict", err)
	}
	if err := store.Delete(t.Context(), name, records.Any); err != nil {
		t.Errorf("deleting whatever is there: %v", err)
	}
	isAbsent(t, store, name)
	list(t, store, "")
}

// Only who knows what is there replaces or deletes it.
func checkReplace(t tester, open func() records.Store) {
	a, b := open(), open()
	first := write(t, a, record("1"))
	refused(t, b, record("2"))
	is(t, a, first)
	next := record("2")
	next.ETag = first.ETag
	second := write(t, b, next)
	is(t, a, second)
	refused(t, a, first)
	is(t, b, second)
	third := write(t, b, second) // the same again
	if third.ETag == second.ETag {
		t.Errorf("a write left the ETag %q as it was", third.ETag)
	}
	next.ETag, next.Content = second.ETag, []byte("3")
	refused(t, b, next)
	if err := a.Delete(t.Context(), name, second.ETag); !errors.Is(err, records.ErrConflict) {
		t.Errorf("deleting what was replaced: %v, want ErrConflict", err)
	}
	is(t, a, third)
	if err := a.Delete(t.Context(), name, third.ETag); err != nil {
		t.Errorf("delete: %v", err)
	}
	isAbsent(t, b, name)
	refused(t, b, third)
	is(t, b, write(t, a, record("4")))
}

// Who does not care writes and deletes whatever there is.
func checkAny(t tester, open func() records.Store) {
	a, b := open(), open()
	for _, content := range [][]byte{nil, []byte("content")} {
		r := records.Record{Name: name, Values: map[string]string{"n": "1"}, Content: content, ETag: records.Any}
		first := write(t, a, r)
		is(t, b, first)
		r.Values = map[string]string{"n": "2"}
		second := write(t, b, r)
		is(t, a, second)
		if first.ETag == second.ETag {
			t.Errorf("two writes have the ETag %q", first.ETag)
		}
		if err := a.Delete(t.Context(), name, records.Any); err != nil {
			t.Errorf("delete: %v", err)
		}
		isAbsent(t, b, name)
	}
}

// Values are replaced together, with or without the content.
func checkValues(t tester, open func() records.Store) {
	store := open()
	r := write(t, store, records.Record{Name: name, Values: map[string]string{"sequencenumber": "1", "offset": "@latest", "enqueuedtime": "2026-01-02T03:04:05.678Z"}})
	is(t, store, r)
	r.Values = map[string]string{"offset": "2"}
	r = write(t, store, r)
	is(t, store, r)
	r.Content = []byte("content")
	r = write(t, store, r)
	is(t, store, r)
	r.Content, r.Values = nil, map[string]string{"a": "b"}
	r = write(t, store, r)
	r.Content = []byte("content")
	is(t, store, r)
	r.Content, r.Values = []byte{}, nil
	is(t, store, write(t, store, r))
}

// Content comes back as it was, however much it is, as far as it is wanted.
func checkContent(t tester, open func() records.Store) {
	random := rand.NewChaCha8([32]byte{})
	store, r := open(), records.Record{Name: name}
	for _, n := range []int{0, 1, 1 << 10, 6 << 20} {
		r.Content = make([]byte, n)
		_, _ = random.Read(r.Content)
		r = write(t, store, r)
		for _, limit := range []int{n, n / 2} {
			there, err := store.Read(t.Context(), name, limit)
			if want := r.Content[:min(n, limit+1)]; err != nil || !bytes.Equal(there.Content, want) {
				t.Errorf("%d bytes of %d are %d that differ, %v", len(want), n, len(there.Content), err)
			}
			clear(there.Content) // the reader may
		}
		is(t, store, r)
	}
}

// Distinct names have distinct records.
func checkNames(t tester, open func() records.Store) {
	store := open()
	written := map[string]records.Record{}
	for i, name := range []string{name, name + "0", "ns.servicebus.windows.net/hub/$default/ledger/1", "ns.servicebus.windows.net/hub/other/ledger/0", "ns/hub/ledger/0"} {
		written[name] = write(t, store, records.Record{Name: name, Values: map[string]string{"n": fmt.Sprint(i)}, Content: []byte(name)})
	}
	for _, r := range written {
		is(t, store, r)
	}
	list(t, store, "ns.servicebus.windows.net/hub/$default/ledger/0", written[name], written[name+"0"])
	list(t, store, "ns/", written["ns/hub/ledger/0"])
	if err := store.Delete(t.Context(), name, records.Any); err != nil {
		t.Errorf("delete: %v", err)
	}
	is(t, store, written[name+"0"])
}

// A reader never sees what a write has replaced.
func checkFresh(t tester, open func() records.Store) {
	stores := []records.Store{open(), open(), open()}
	r := record("")
	for i := range 30 {
		r.Values, r.Content = map[string]string{"n": fmt.Sprint(i)}, []byte{byte(i)}
		r = write(t, stores[i%3], r)
		for _, store := range stores {
			is(t, store, r)
		}
	}
}

// Of those that replace the same record one does.
func checkOneWinner(t tester, open func() records.Store) {
	store := open()
	for _, content := range []bool{true, false} {
		r := records.Record{Name: name}
		if !content {
			r.Name += "/values"
		}
		for round := range 5 {
			var mu sync.Mutex
			var won []records.Record
			sideBySide(8, func(i int) {
				next := r
				next.Values = map[string]string{"writer": fmt.Sprint(round, "-", i)}
				if content {
					next.Content = []byte{byte(i)}
				}
				etag, err := store.Write(t.Context(), next)
				switch {
				case err == nil:
					next.ETag = etag
					mu.Lock()
					won = append(won, next)
					mu.Unlock()
				case !errors.Is(err, records.ErrConflict):
					t.Errorf("one of several writers: %v, want ErrConflict", err)
				}
			})
			if len(won) != 1 {
				t.Fatalf("round %d has %d winners", round, len(won))
			}
			r = won[0]
			is(t, store, r)
		}
	}
}

// An age is never more than the truth, and at most two seconds less.
func checkClock(t tester, open func() records.Store) {
	store := open()
	if r, err := store.Stat(t.Context(), name); !errors.Is(err, records.ErrNotFound) || time.Since(r.Now).Abs() > time.Minute {
		t.Errorf("without a record the clock says %v, %v", r.Now, err)
	}
	for _, content := range [][]byte{[]byte("content"), nil} {
		began := time.Now()
		write(t, store, records.Record{Name: name, Content: content, ETag: records.Any})
		written := time.Now()
		for time.Since(written) < 2500*time.Millisecond {
			least := max(0, time.Since(written)-2*time.Second)
			read, err := store.Read(t.Context(), name, 10)
			stat, err2 := store.Stat(t.Context(), name)
			page, err3 := store.List(t.Context(), name, "")
			if err := errors.Join(err, err2, err3); err != nil || len(page.Records) != 1 {
				t.Fatalf("%v, %v", page, err)
			}
			most := time.Since(began)
			for _, r := range []records.Record{read, stat, page.Records[0]} {
				if age := r.Age(); age < least || age > most {
					t.Errorf("the age is %v, want %v to %v", age, least, most)
				}
			}
			time.Sleep(50 * time.Millisecond) // between two looks
		}
	}
}

// A listing has every record once, in the order of names.
func checkPages(t tester, open func() records.Store) {
	store := open()
	const n = 1010
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("many/%04d", i))
	}
	patient := records.Reliable(store) // a busy emulator drops one of so many requests now and then
	sideBySide(16, func(i int) {
		for ; i < n; i += 16 {
			write(t, patient, records.Record{Name: want[i], Values: map[string]string{"n": fmt.Sprint(i)}})
		}
	})
	write(t, store, records.Record{Name: "other"})
	var names []string
	pages := 0
	for page, err := range records.Pages(t.Context(), patient, "many/") {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		pages++
		for _, r := range page {
			names = append(names, r.Name)
			if r.Values["n"] != fmt.Sprint(len(names)-1) || r.ETag == "" || r.Locked {
				t.Errorf("%+v", r)
			}
		}
	}
	if !slices.Equal(names, want) || pages != 2 {
		t.Errorf("%d names on %d pages", len(names), pages)
	}
	all, err := records.All(t.Context(), store, "many/")
	if err != nil || len(all) != n {
		t.Errorf("%d, %v", len(all), err)
	}
}

// A context that has ended ends every call, which then has done nothing.
func checkEndedContext(t tester, open func() records.Store) {
	store := open()
	before := write(t, store, record("1"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, read := store.Read(ended, name, 10)
	_, stat := store.Stat(ended, name)
	_, write := store.Write(ended, records.Record{Name: name, Content: []byte("late"), ETag: before.ETag})
	_, list := store.List(ended, "", "")
	_, all := records.All(ended, store, "")
	for what, err := range map[string]error{"Read": read, "Stat": stat, "Write": write, "Delete": store.Delete(ended, name, before.ETag), "List": list, "All": all} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", what, err)
		}
	}
	is(t, store, before)
}

// Whatever single fault befalls a reliable store, its user does not notice.
func checkFaults(t tester, open func() records.Store) {
	clean := open()
	for _, content := range [][]byte{nil, []byte("content")} {
		for _, fault := range recordstest.Faults {
			for n := 0; ; n++ {
				var network recordstest.Network
				store := records.Reliable(network.Via(clean))
				network.Arm(fault, n)
				r := write(t, store, records.Record{Name: name, Values: map[string]string{"n": "1"}, Content: content})
				stale := r
				r.Values = map[string]string{"n": "2"}
				r = write(t, store, r)
				stale.Values = map[string]string{"n": "stale"}
				refused(t, store, stale)
				is(t, store, r)
				if err := store.Delete(t.Context(), name, r.ETag); err != nil && !(fault == recordstest.Repeated && errors.Is(err, records.ErrConflict)) {
					t.Errorf("%s at call %d: delete: %v", fault, n+1, err)
				}
				isAbsent(t, clean, name)
				if !network.Disarm() {
					break
				}
			}
		}
	}
}

// record returns one with this content.
func record(content string) records.Record {
	return records.Record{Name: name, Values: map[string]string{"owner": "owner-" + content}, Content: []byte(content)}
}

// write returns r with its new ETag.
func write(t tester, store records.Store, r records.Record) records.Record {
	t.Helper()
	etag, err := store.Write(t.Context(), r)
	if err != nil || etag == "" || etag == records.Any {
		t.Fatalf("write over the ETag %q: the new one is %q, %v", r.ETag, etag, err)
	}
	r.ETag = etag
	return r
}

func refused(t tester, store records.Store, r records.Record) {
	t.Helper()
	if _, err := store.Write(t.Context(), r); !errors.Is(err, records.ErrConflict) {
		t.Errorf("write over the ETag %q, which is not that of the record: %v, want ErrConflict", r.ETag, err)
	}
}

// is says that want is the record, for every kind of call.
func is(t tester, store records.Store, want records.Record) {
	t.Helper()
	read, err := store.Read(t.Context(), want.Name, 100<<20)
	stat, err2 := store.Stat(t.Context(), want.Name)
	page, err3 := store.List(t.Context(), want.Name, "")
	if err := errors.Join(err, err2, err3); err != nil || len(page.Records) == 0 {
		t.Fatalf("%s: %v, listed %v", want.Name, err, page.Records)
	}
	if !bytes.Equal(read.Content, want.Content) || len(stat.Content)+len(page.Records[0].Content) > 0 {
		t.Errorf("%s has %d bytes, want %d", want.Name, len(read.Content), len(want.Content))
	}
	for _, r := range []records.Record{read, stat, page.Records[0]} {
		if r.Name != want.Name || !maps.Equal(r.Values, want.Values) || r.ETag != want.ETag {
			t.Errorf("%s is %s: %v at %s; want %v at %s", want.Name, r.Name, r.Values, r.ETag, want.Values, want.ETag)
		}
	}
}

func isAbsent(t tester, store records.Store, name string) {
	t.Helper()
	read, err := store.Read(t.Context(), name, 10)
	stat, err2 := store.Stat(t.Context(), name)
	for _, r := range []records.Record{read, stat} {
		if r.ETag != "" || len(r.Values)+len(r.Content) > 0 || r.Now.IsZero() {
			t.Errorf("%s is %+v, want nothing but the clock", name, r)
		}
	}
	if !errors.Is(err, records.ErrNotFound) || !errors.Is(err2, records.ErrNotFound) {
		t.Errorf("%s: %v, %v; want ErrNotFound", name, err, err2)
	}
}

func list(t tester, store records.Store, prefix string, want ...records.Record) {
	t.Helper()
	all, err := records.All(t.Context(), store, prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	if !slices.EqualFunc(all, want, func(a, b records.Record) bool {
		return a.Name == b.Name && a.ETag == b.ETag && maps.Equal(a.Values, b.Values)
	}) {
		t.Errorf("at %q there are %+v, want %+v", prefix, all, want)
	}
}

// sideBySide calls f with 0 to n-1 at once.
func sideBySide(n int, f func(i int)) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		all.Go(func() { f(i) })
	}
}
