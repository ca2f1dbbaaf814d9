package caslease_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errConflict = &lease.Failure{Text: "conflict", Cause: lease.Conflict, Again: true}
	errLost     = errors.New("no answer")
)

var clock = caslease.Clock{Resolution: time.Second, Skew: time.Second}

// A fault befalls one call.
type fault string

const (
	none     fault = ""
	notDone  fault = "not done, no answer"
	done     fault = "done, no answer"
	outdated fault = "read before the last write"
)

// A service keeps records in memory. Its clock counts seconds.
type service struct {
	lags      bool
	unguarded bool // Write replaces whatever is there
	blind     bool // Write creates whatever is there

	mu       sync.Mutex
	versions map[string][]caslease.Record // by key, the newest last; one that does not exist was deleted
	written  int
	calls    []string
	faults   []fault // of the next calls
}

func newService() *service { return &service{versions: map[string][]caslease.Record{}} }

func (s *service) now() time.Time { return time.Now().Truncate(time.Second) }

// call takes a call down and returns what befalls it.
func (s *service) call(name string) fault {
	s.calls = append(s.calls, name)
	if len(s.faults) == 0 {
		return none
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

func (s *service) newest(key string, age int) caslease.Record {
	if n := len(s.versions[key]); n > age {
		return s.versions[key][n-1-age]
	}
	return caslease.Record{}
}

func (s *service) Read(ctx context.Context, key string) (caslease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return caslease.Record{}, err
	}
	age := 0
	switch s.call("read") {
	case notDone, done:
		return caslease.Record{}, errLost
	case outdated:
		age = 1
	}
	r := s.newest(key, age)
	r.Now = s.now()
	return r, nil
}

// latest is Read without what befalls a read.
func (s *service) latest(ctx context.Context, key string) (caslease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call("latest") == notDone {
		return caslease.Record{}, errLost
	}
	r := s.newest(key, 0)
	r.Now = s.now()
	return r, ctx.Err()
}

func (s *service) Write(ctx context.Context, key string, prev, next caslease.Record) (version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	f := s.call("write")
	there := s.newest(key, 0)
	switch {
	case f == notDone:
		return "", errLost
	case prev.Exists && there.Version != prev.Version && !s.unguarded, !prev.Exists && there.Exists && !s.blind:
		return "", errConflict
	}
	s.written++
	next.Written, next.Exists, next.Version = s.now(), true, fmt.Sprint(s.written)
	s.versions[key] = append(s.versions[key], next)
	if f == done {
		return "", errLost
	}
	return next.Version, nil
}

func (s *service) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[key] = append(s.versions[key], caslease.Record{})
}

// will adds faults to the next calls and forgets the ones so far.
func (s *service) will(faults ...fault) { s.calls, s.faults = nil, faults }

func (s *service) store() *caslease.Store {
	service := caslease.Service{Clock: clock}
	if s.lags {
		service.Latest = s.latest
	}
	return caslease.New(s, service)
}

func harness(s func() *service, store func(*service) lease.Store) leasetest.Harness {
	return leasetest.Harness{
		New: func(testing.TB) leasetest.Backend {
			s := s()
			return leasetest.Backend{
				Open:   func(http.RoundTripper) (lease.Store, error) { return store(s), nil },
				Delete: func(_ context.Context, key string) error { s.remove(key); return nil },
				Wire:   func() leasetest.Wire { return &wire{service: s} },
			}
		},
		Bubble: synctest.Test,
		Lag:    3 * time.Second,
	}
}

func open(s *service) lease.Store { return s.store() }

// What is there and is no lease is not asked for again: it answers.
func TestUnreadable(t *testing.T) {
	_, err := caslease.Document{Phase: "odd"}.Record(time.Now())
	u := &unreadable{newService(), err, 0}
	store := caslease.New(u, caslease.Service{Clock: clock})
	if _, err := store.Read(t.Context(), "key"); lease.CauseOf(err) != lease.Wrong || u.reads != 1 {
		t.Errorf("after %d reads: %v", u.reads, err)
	}
}

type unreadable struct {
	*service
	err   error
	reads int
}

func (u *unreadable) Read(context.Context, string) (caslease.Record, error) {
	u.reads++
	return caslease.Record{}, u.err
}

func TestStore(t *testing.T) {
	for _, lags := range []bool{false, true} {
		t.Run(fmt.Sprintf("lags %t", lags), func(t *testing.T) {
			leasetest.Run(t, harness(func() *service { s := newService(); s.lags = lags; return s }, open))
		})
	}
}

// The suite sees records that do not keep their promise.
func TestMutants(t *testing.T) {
	for _, m := range []struct {
		name, check string
		records     func(*service)
		service     caslease.Service
	}{
		{"versions do not guard", "OneWinner", func(s *service) { s.unguarded = true }, caslease.Service{Clock: clock}},
		{"the first write does not guard", "OneWinner", func(s *service) { s.blind = true }, caslease.Service{Clock: clock}},
		{"a clock that counts seconds is taken for an exact one", "Expiry", func(*service) {}, caslease.Service{}},
	} {
		t.Run(m.name, func(t *testing.T) {
			leasetest.MustFail(t, harness(
				func() *service { s := newService(); m.records(s); return s },
				func(s *service) lease.Store { return caslease.New(yielding{s}, m.service) },
			), m.check)
		})
	}
}

// yielding lets others run between a read and a write.
type yielding struct{ *service }

func (y yielding) Read(ctx context.Context, key string) (caslease.Record, error) {
	r, err := y.service.Read(ctx, key)
	time.Sleep(time.Nanosecond)
	return r, err
}

// operations leave the note "done", with what has to be there first.
var operations = []struct {
	name   string
	before func(t *testing.T, s *caslease.Store) lease.Lease
	do     func(ctx context.Context, s *caslease.Store, l lease.Lease) error
	calls  []string // without a fault
}{
	{"acquire an absent key", func(*testing.T, *caslease.Store) lease.Lease { return lease.Lease{} }, acquireKey, []string{"read", "write"}},
	{"acquire an expired key", func(t *testing.T, s *caslease.Store) lease.Lease {
		l := acquire(t, s, time.Second)
		time.Sleep(4 * time.Second)
		return l
	}, acquireKey, []string{"read", "write"}},
	{"extend", held, func(ctx context.Context, s *caslease.Store, l lease.Lease) error {
		_, err := s.Extend(ctx, l, "done", time.Minute)
		return err
	}, []string{"write"}},
	{"release", held, func(ctx context.Context, s *caslease.Store, l lease.Lease) error { return s.Release(ctx, l, "done") }, []string{"write"}},
}

func held(t *testing.T, s *caslease.Store) lease.Lease { return acquire(t, s, time.Minute) }

func acquireKey(ctx context.Context, s *caslease.Store, _ lease.Lease) error {
	_, err := s.Acquire(ctx, "key", time.Minute, with("done"))
	return err
}

func acquire(t *testing.T, s *caslease.Store, ttl time.Duration) lease.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), "key", ttl, with("claim"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func with(note string) func(lease.Record) (string, error) {
	return func(lease.Record) (string, error) { return note, nil }
}

// Every operation makes the calls that it promises, and mends one lost request
// or answer at each of them.
func TestLostAnswers(t *testing.T) {
	for _, op := range operations {
		for n := range len(op.calls) + 1 { // the last time without a fault
			for _, f := range []fault{notDone, done} {
				t.Run(fmt.Sprintf("%s, call %d %s", op.name, n+1, f), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						records := newService()
						s := records.store()
						l := op.before(t, s)
						faults := make([]fault, n, n+1)
						if n < len(op.calls) {
							faults = append(faults, f)
						}
						records.will(faults...)
						if err := op.do(t.Context(), s, l); err != nil {
							t.Fatal(err)
						}
						if n == len(op.calls) && !slices.Equal(records.calls, op.calls) {
							t.Errorf("calls %v, want %v", records.calls, op.calls)
						}
						if len(records.calls) > len(op.calls)+2 {
							t.Errorf("%d calls: %v", len(records.calls), records.calls)
						}
						if got := records.newest("key", 0); got.Note != "done" {
							t.Errorf("the record is %+v", got)
						}
					})
				})
			}
		}
	}
}

// What is never answered is neither a refusal nor a loss.
func TestOutage(t *testing.T) {
	for _, op := range operations {
		synctest.Test(t, func(t *testing.T) {
			records := newService()
			s := records.store()
			l := op.before(t, s)
			records.will(slices.Repeat([]fault{notDone}, 20)...)
			if err := op.do(t.Context(), s, l); !errors.Is(err, errLost) || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost) {
				t.Errorf("%s: %v, want the service's error", op.name, err)
			}
		})
	}
}

// A record that was deleted is a lost lease, however late a lost answer brings
// that out. One that a lagging read does not show is none.
func TestGone(t *testing.T) {
	for _, test := range []struct {
		name          string
		lags, deleted bool
		faults        []fault
		want          error
	}{
		{"deleted", false, true, nil, lease.ErrLost},
		{"deleted, no answer", false, true, []fault{notDone}, lease.ErrLost},
		{"lags, deleted", true, true, nil, lease.ErrLost},
		{"lags, deleted, no answer", true, true, []fault{notDone}, lease.ErrLost},
		{"lags, outdated", true, false, []fault{notDone, outdated, notDone, outdated}, nil},
		{"lags, outdated after it was done", true, false, []fault{done, outdated}, nil},
	} {
		for _, before := range []string{"absent", "expired"} {
			t.Run(test.name+", "+before+" before", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					records := newService()
					records.lags = test.lags
					s := records.store()
					if before == "expired" {
						acquire(t, s, time.Second)
						time.Sleep(4 * time.Second)
					}
					l := acquire(t, s, time.Minute)
					if test.deleted {
						records.remove("key")
					}
					records.will(test.faults...)
					if _, err := s.Extend(t.Context(), l, "window", time.Minute); !errors.Is(err, test.want) {
						t.Errorf("Extend: %v, want %v", err, test.want)
					}
					if err := s.Release(t.Context(), l, ""); err != nil {
						t.Errorf("Release: %v", err)
					}
				})
			})
		}
	}
}

func TestFree(t *testing.T) {
	written := time.Unix(100, 0)
	tests := []struct {
		name string
		r    caslease.Record
		want bool
	}{
		{"never taken", caslease.Record{}, true},
		{"released", caslease.Record{ID: "id", Released: true, Record: lease.Record{Written: written, Now: written}}, true},
		{"held", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute, Now: written.Add(59 * time.Second)}}, false},
		{"at the end, which may be up to a second early", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute, Now: written.Add(60 * time.Second)}}, false},
		{"a second later, which another machine's clock may be ahead", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute, Now: written.Add(61 * time.Second)}}, false},
		{"two seconds later", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute, Now: written.Add(62 * time.Second)}}, true},
		{"a fraction is rounded up", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute + 1, Now: written.Add(62 * time.Second)}}, false},
		{"the clock went back", caslease.Record{ID: "id", Record: lease.Record{Written: written, Hold: time.Minute, Now: written.Add(-time.Hour)}}, false},
	}
	for _, test := range tests {
		if got := test.r.Free(clock); got != test.want {
			t.Errorf("%s: free is %t, want %t", test.name, got, test.want)
		}
	}
}
