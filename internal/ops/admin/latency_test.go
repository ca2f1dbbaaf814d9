package admin_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/observe"
)

// rows returns what the page says about each operation: calls, p50, p95 and errors.
func (w *world) rows() map[string]string {
	all := map[string]string{}
	cells := strings.Repeat(`<td class="n(?: mid| bad)?">([^<]*)</td>`, 4)
	for _, m := range regexp.MustCompile(`<tr><th scope="row" title="[^"]*">(\w+)</th>`+cells).FindAllStringSubmatch(w.do("GET", "/").Body.String(), -1) {
		all[m[1]] = html.UnescapeString(strings.Join(m[2:], " | "))
	}
	return all
}

func wantRow(t *testing.T, w *world, operation, want string) {
	t.Helper()
	if got := w.rows()[operation]; got != want {
		t.Errorf("%s: %q, want %q", operation, got, want)
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next := &fakeStore{}
		store := observe.Store(next, w.recorder.Store())
		if body := w.do("GET", "/").Body.String(); !strings.Contains(body, "No calls.") {
			t.Error("the page does not say that the store was not called")
		}

		ctx := t.Context()
		for i := range 20 { // 1 to 20 ms
			next.takes = time.Duration(20-i) * time.Millisecond
			if l, err := store.Acquire(ctx, "k", time.Minute, nil); err != nil || l.Token != 7 {
				t.Errorf("%+v, %v", l, err)
			}
		}
		wantRow(t, w, "Acquire", "20 | 10 ms | 19 ms | 0")
		next.takes = 1250 * time.Millisecond
		if l, err := store.Extend(ctx, lease.Lease{Token: 9}, "", time.Minute); err != nil || l.Token != 9 {
			t.Errorf("%+v, %v", l, err)
		}
		wantRow(t, w, "Extend", "1 | 1.2 s | 1.2 s | 0")
		next.takes = 1500 * time.Microsecond
		for range 3 {
			if err := store.Release(ctx, lease.Lease{}, ""); err != nil {
				t.Error(err)
			}
			next.takes *= 2
		}
		wantRow(t, w, "Release", "3 | 3 ms | 6 ms | 0")

		time.Sleep(5*time.Minute - time.Second)
		wantRow(t, w, "Release", "3 | 3 ms | 6 ms | 0")
		time.Sleep(2 * time.Second)
		wantRow(t, w, "Release", "")
		next.takes = 0
		for range 1234 {
			_, _ = store.Acquire(ctx, "k", time.Minute, nil)
		}
		wantRow(t, w, "Acquire", "1,000+ | 0 ms | 0 ms | 0")
	})
}

// A refusal is an answer; only an outage is an error. The caller sees both as they are.
func TestStoreErrors(t *testing.T) {
	var outage, declined = errors.New("service unavailable"), errors.New("not wanted")
	held := &lease.HeldError{Key: "k"}
	for _, test := range []struct {
		name                     string
		next                     *fakeStore
		acquire, extend, release string
	}{
		{"well", &fakeStore{}, "0", "0", "0"},
		{"held", &fakeStore{err: fmt.Errorf("acquire: %w", held)}, "0", "0", "0"},
		{"lost", &fakeStore{err: fmt.Errorf("extend: %w", lease.ErrLost)}, "0", "0", "0"},
		{"outage", &fakeStore{err: outage}, "1", "1", "1"},
		{"declined", &fakeStore{record: &lease.Record{Token: 3}, err: outage}, "0", "1", "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			store := observe.Store(test.next, w.recorder.Store())
			want := test.next.err
			if test.next.record != nil {
				want = declined
			}
			if _, err := store.Acquire(t.Context(), "k", time.Minute, func(r lease.Record) (string, error) {
				if r != *test.next.record {
					t.Errorf("next got %+v", r)
				}
				return "", declined
			}); err != want {
				t.Errorf("%s: acquire: %v, want %v", test.name, err, want)
			}
			if _, err := store.Extend(t.Context(), lease.Lease{}, "", time.Minute); err != test.next.err {
				t.Errorf("%s: extend: %v", test.name, err)
			}
			if err := store.Release(t.Context(), lease.Lease{}, ""); err != test.next.err {
				t.Errorf("%s: release: %v", test.name, err)
			}
			wantRow(t, w, "Acquire", "1 | 0 ms | 0 ms | "+test.acquire)
			wantRow(t, w, "Extend", "1 | 0 ms | 0 ms | "+test.extend)
			wantRow(t, w, "Release", "1 | 0 ms | 0 ms | "+test.release)
		})
	}
}

// What is recorded and what is shown do not get into each other's way.
func TestRecorderAtOnce(t *testing.T) {
	w := newWorld(t)
	store := observe.Store(&fakeStore{}, w.recorder.Store())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				_, _ = store.Acquire(context.Background(), "k", time.Minute, nil)
			}
		})
	}
	for range 10 {
		w.do("GET", "/")
	}
	all.Wait()
	if got := w.rows()["Acquire"]; !strings.HasPrefix(got, "400 | ") {
		t.Errorf("%q, want 400 calls", got)
	}
}
