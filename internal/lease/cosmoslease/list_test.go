package cosmoslease_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// count returns how many records s lists.
func count(t *testing.T, s lease.Store) (n int) {
	t.Helper()
	for _, err := range lease.List(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A list goes over any number of pages, empty ones too, and asks again for one that failed.
func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		const n = 250
		for i := range n {
			if _, err := s.Acquire(t.Context(), fmt.Sprint(i), time.Minute, with("")); err != nil {
				t.Fatal(err)
			}
		}
		f.will()
		if got := count(t, s); got != n {
			t.Errorf("%d records of %d", got, n)
		}
		if calls, _ := f.left(); len(calls) != 5 {
			t.Errorf("3 pages and 2 empty ones took %v", calls)
		}
		f.will(fault{method: "QUERY", status: http.StatusTooManyRequests}, fault{method: "QUERY", status: http.StatusServiceUnavailable},
			fault{method: "QUERY"}, fault{method: "QUERY", hang: true})
		if got := count(t, s); got != n {
			t.Errorf("with faults %d records of %d", got, n)
		}
		if _, faults := f.left(); faults != 0 {
			t.Errorf("%d faults did not befall a page", faults)
		}

		f.will()
		for range s.List(t.Context(), "") {
			break
		}
		if calls, _ := f.left(); len(calls) != 1 {
			t.Errorf("a list that is left after one record took %v", calls)
		}
		f.will(slices.Repeat([]fault{{method: "QUERY", status: http.StatusForbidden}}, 9)...)
		for _, err := range s.List(t.Context(), "") {
			if err == nil || !strings.Contains(err.Error(), "list the items") || strings.Contains(err.Error(), fakeKey) {
				t.Errorf("a refusal is told as %v", err)
			}
		}
	})
}

// What is no record is left out.
func TestListOfStrangeItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		acquire(t, s, time.Minute)
		hash := azure.Name(strings.Repeat("#", 200))
		for id, item := range map[string]map[string]any{
			"foreign":    {"_ts": int64(1)},
			"no phase":   {"leaseId": "x", "_ts": int64(1)},
			"other name": {"leaseId": "x", "phase": "free", "_ts": int64(1)},
			hash:         {"leaseId": "x", "phase": "free", "_ts": int64(1), "key": "another"},
			"~~short":    {"leaseId": "x", "phase": "free", "_ts": int64(1)},
		} {
			item["id"], item["_etag"] = id, "1"
			f.items[id] = []map[string]any{item}
		}
		for e, err := range s.List(t.Context(), "") {
			if err != nil || e.Key != "key" {
				t.Errorf("%q, %v", e.Key, err)
			}
		}
	})
}
