//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/telemetry/eventhubs"
)

// How long do partitions go unread when workers end, and what do ownerships
// cost, with the default OWNERSHIP_EXPIRY and BALANCE_INTERVAL?
//
//	go test -run TakeoverTime -v ./internal/lab/e2e -takeover
func TestTakeoverTime(t *testing.T) {
	if !*takeover {
		t.Skip("takes minutes: set -takeover to measure")
	}
	storage, counted := counting(t, emulators.StartAzurite(t).ConnectionString)
	for _, test := range []struct {
		name       string
		partitions int
		workers    []string
		ended      []string
		end        func(w *world, names ...string)
	}{
		{"kill -9, 1 of 3", 8, []string{"a", "b", "c"}, []string{"a"}, killAll},
		{"SIGTERM, 1 of 3", 8, []string{"a", "b", "c"}, []string{"a"}, (*world).stop},
		{"kill -9, 3 of 6", 32, []string{"a", "b", "c", "d", "e", "f"}, []string{"a", "b", "c"}, killAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			busytest.Run(t, func(t *busytest.Attempt) {
				w := newWorld(t, storage, settings{partitions: test.partitions, env: []string{
					fmt.Sprint("OWNERSHIP_EXPIRY=", eventhubs.DefaultOwnershipExpiry), fmt.Sprint("BALANCE_INTERVAL=", eventhubs.DefaultBalanceInterval)}})
				w.start(test.workers...)
				w.ready()
				var times []time.Duration
				for range 5 {
					w.pass(w.between(10*time.Second, 15*time.Second)) // whoever joined has got its share
					began := time.Now()
					test.end(w, test.ended...)
					eventually(time.Second, func() bool { return w.devhub.Readers("") < test.partitions }) // the hub has noticed
					within(t, 2*startWithin, "all partitions are read again", func() bool { w.alive(); return w.devhub.Readers("") == test.partitions })
					times = append(times, time.Since(began).Round(10*time.Millisecond))
					w.start(test.ended...)
					w.ready()
				}
				slices.Sort(times)
				t.Logf("%s: all %d partitions are read again within %v", test.name, test.partitions, times)
			})
		})
	}
	t.Run("operations", func(t *testing.T) {
		busytest.Run(t, func(t *busytest.Attempt) {
			w := newWorld(t, storage, settings{partitions: 32, env: []string{
				fmt.Sprint("OWNERSHIP_EXPIRY=", eventhubs.DefaultOwnershipExpiry), fmt.Sprint("BALANCE_INTERVAL=", eventhubs.DefaultBalanceInterval)}})
			w.start("a", "b", "c")
			w.ready()
			w.pass(20 * time.Second)
			counted()
			began := time.Now()
			w.pass(time.Minute)
			requests := counted()
			sum := 0
			for _, n := range requests {
				sum += n
			}
			t.Logf("3 replicas with 32 partitions: %.2f operations a second: %v", float64(sum)/time.Since(began).Seconds(), requests)
		})
	})
}

func killAll(w *world, names ...string) {
	for _, name := range names {
		w.kill(name)
	}
}

// counting puts a proxy in front of a storage account. The returned function
// tells which requests about ownerships came since it was last called.
func counting(t *testing.T, storage string) (through string, counted func() map[string]int) {
	t.Helper()
	const endpoint = "BlobEndpoint="
	_, rest, ok := strings.Cut(storage, endpoint)
	address, _, _ := strings.Cut(rest, ";")
	to, err := url.Parse(address)
	if !ok || err != nil {
		t.Fatal("storage has no usable endpoint: ", storage, err)
	}
	var mu sync.Mutex
	requests := map[string]int{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		what := r.In.Method
		prefix := r.In.URL.Query().Get("prefix")
		switch {
		case strings.Contains(prefix, "/owner"):
			what = "list"
		case !strings.Contains(r.In.URL.Path, "/owner"):
			return
		}
		mu.Lock()
		defer mu.Unlock()
		requests[what]++
	}, Transport: &http.Transport{MaxIdleConnsPerHost: 64}})
	t.Cleanup(proxy.Close)
	return strings.Replace(storage, endpoint+address, endpoint+proxy.URL+to.Path, 1), func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		defer clear(requests)
		return maps.Clone(requests)
	}
}
