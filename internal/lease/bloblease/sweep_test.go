package bloblease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/cloud"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
)

func all(string) bool { return true }

func note(lease.Record) (string, error) { return "note", nil }

func acquire(t *testing.T, s lease.Store, key string, ttl time.Duration) lease.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), key, ttl, note)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, s lease.Store, l lease.Lease) {
	t.Helper()
	if err := s.Release(t.Context(), l, "free"); err != nil {
		t.Fatal(err)
	}
}

// names returns the blobs that c has.
func names(t *testing.T, c *container.Client) (all []string) {
	t.Helper()
	for pages := c.NewListBlobsFlatPager(nil); pages.More(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			all = append(all, *item.Name)
		}
	}
	slices.Sort(all)
	return all
}

func TestSweep(t *testing.T) { // not beside tests that are about time: it keeps Azurite busy
	azurite := emulators.StartAzurite(t)
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busytest.Run(t, func(a *busytest.Attempt) {
				t := a.T
				c := azurite.Container(t, azurite.NewContainer(), nil)
				s, err := open(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				old := acquire(t, s, "old", time.Minute)
				release(t, s, old)
				release(t, s, acquire(t, s, "older/with a name#", time.Minute))
				held := acquire(t, s, "held", time.Minute)
				put(t, c, bloblease.Name("empty"), "", bloblease.Empty("empty"))       // a key whose first taking failed
				put(t, c, bloblease.Name("foreign")+".txt", "not a record", nil)       // not ours
				put(t, c, bloblease.Name("foreign2"), "", map[string]string{"x": "y"}) // nor this
				release(t, s, acquire(t, s, "other scope's", time.Minute))
				mine := func(key string) bool { return !strings.HasPrefix(key, "other scope") }
				time.Sleep(a.Time(5 * time.Second))
				if n, next, err := s.Sweep(t.Context(), "", time.Hour, mine); n != 0 || next != "" || err != nil {
					t.Errorf("of what is younger than an hour %d were removed, then %q, %v", n, next, err)
				}
				began := time.Now()
				release(t, s, acquire(t, s, "young", time.Minute))
				n, next, err := s.Sweep(t.Context(), "", a.Time(3*time.Second), mine)
				if time.Since(began) >= a.Time(3*time.Second) {
					a.Missed("what is young is not any more")
				}
				if n != 3 || next != "" || err != nil {
					t.Errorf("%d were removed, want 3, then %q, %v", n, next, err)
				}
				want := append(sharded("foreign2", "held", "young", "other scope's"), bloblease.Name("foreign")+".txt")
				slices.Sort(want)
				if got := names(t, c); !slices.Equal(got, want) {
					t.Errorf("left are %q, want %q", got, want)
				}
				if _, err := s.Extend(t.Context(), held, "", time.Minute); err != nil {
					t.Errorf("the lease that is held: %v", err)
				}
				if again := acquire(t, s, "old", time.Minute); again.Token <= old.Token {
					t.Errorf("after the removal token %d, before it %d", again.Token, old.Token)
				}
				if _, err := s.Extend(t.Context(), old, "", time.Minute); !errors.Is(err, lease.ErrLost) {
					t.Errorf("a lease from before the removal: %v, want ErrLost", err)
				}
			})
		})
	}
}

func put(t *testing.T, c *container.Client, name, content string, metadata map[string]string) {
	t.Helper()
	o := &blockblob.UploadBufferOptions{Metadata: map[string]*string{}}
	for k, v := range metadata {
		o.Metadata[k] = to.Ptr(v)
	}
	if _, err := c.NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte(content), o); err != nil {
		t.Fatal(err)
	}
}

// A via is a way to the service that lets a test act before a request is sent, and
// answer in its place.
type via struct {
	next   http.RoundTripper
	before func(*http.Request) *http.Response
}

func (v via) RoundTrip(req *http.Request) (*http.Response, error) {
	if resp := v.before(req); resp != nil {
		return resp, nil
	}
	return v.next.RoundTrip(req)
}

// What is taken, changed or removed between being listed and being deleted is let be.
func TestSweepRaces(t *testing.T) {
	t.Parallel()
	azurite, name, s := open(t)
	for _, key := range []string{"taken", "released", "removed", "stays"} {
		release(t, s, acquire(t, s, key, time.Minute))
	}
	time.Sleep(3 * time.Second)

	var mu sync.Mutex
	var taken lease.Lease
	acted := map[string]bool{}
	c := azurite.Container(t, name, via{azurite.Transport(), func(req *http.Request) *http.Response {
		key := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
		mu.Lock()
		defer mu.Unlock()
		if req.Method != http.MethodDelete || acted[key] {
			return nil
		}
		acted[key] = true
		switch key {
		case "taken":
			taken = acquire(t, s, key, time.Minute)
		case "released":
			release(t, s, acquire(t, s, key, time.Minute))
		case "removed":
			if _, err := azurite.Container(t, name, nil).NewBlobClient(bloblease.Name(key)).Delete(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	blobs, err := bloblease.OpenETag(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, err := blobs.Sweep(t.Context(), "", time.Second, all); n != 1 || err != nil {
		t.Errorf("%d were removed, want the one that nobody touched, %v", n, err)
	}
	if got, want := names(t, c), sharded("released", "taken"); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if _, err := s.Extend(t.Context(), taken, "", time.Minute); err != nil {
		t.Errorf("the lease that was taken meanwhile: %v", err)
	}
}

// A sweep that is cut short says where to go on, and goes on there; a busy service
// is asked again; a refusal is told.
func TestSweepGoesOn(t *testing.T) { // not beside tests that are about time: it keeps Azurite busy
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	s, err := bloblease.OpenETag(t.Context(), azurite.Container(t, name, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	const records = 40
	for i := range records {
		release(t, s, acquire(t, s, fmt.Sprint("key ", i), time.Minute))
	}
	time.Sleep(3 * time.Second)

	var mu sync.Mutex
	ctx, stop := context.WithCancel(t.Context())
	busy, deny, lists, deletes, stopAt := map[string]int{}, false, 0, 0, 0
	may := sas.AccountPermissions{Read: true, Write: true, Create: true, List: true, Delete: true}
	small := azurite.SharedContainer(t, name, via{azurite.Transport(), func(req *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		if q := req.URL.Query(); q.Get("comp") == "list" {
			if q.Get("maxresults") != "1000" {
				t.Errorf("a page of %q", q.Get("maxresults"))
			}
			q.Set("maxresults", "3")
			req.URL.RawQuery = q.Encode()
			lists++
		}
		if req.Method == http.MethodDelete {
			if deny {
				return answer(req, http.StatusForbidden, "AuthorizationPermissionMismatch")
			}
			if deletes++; deletes == stopAt {
				stop()
			}
		}
		if busy[req.Method]++; busy[req.Method] <= 3 && req.Method != http.MethodHead {
			return answer(req, http.StatusServiceUnavailable, "ServerBusy")
		}
		return nil
	}}, may)
	blobs, err := bloblease.OpenETag(t.Context(), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := func(key string) bool { return strings.HasPrefix(key, "key ") }
	deny = true
	if n, _, err := blobs.Sweep(t.Context(), "", time.Second, mine); n != 0 || err == nil || !strings.Contains(err.Error(), "delete blob") {
		t.Errorf("without leave to delete: %d, %v", n, err)
	}
	deny, stopAt = false, records/2
	removed, next, err := blobs.Sweep(ctx, "", time.Second, mine)
	if removed < records/4 || removed == records || next == "" || !errors.Is(err, context.Canceled) {
		t.Errorf("cut short: %d removed, then %q, %v", removed, next, err)
	}
	lists = 0
	rest, last, err := blobs.Sweep(t.Context(), next, time.Second, mine)
	if last != "" || err != nil {
		t.Errorf("%d and %d removed of %d, then %q, %v", removed, rest, records, last, err)
	}
	if left := names(t, azurite.Container(t, name, nil)); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
	if lists >= 256 {
		t.Errorf("it went on at %q with %d lists, want fewer than from the beginning", next, lists)
	}
	if _, next, err := blobs.Sweep(t.Context(), "no shard", time.Second, mine); next != "" {
		t.Errorf("what is no shard leads to %q, %v", next, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Removals are made side by side, within bounds. The listing costs a call for each shard, as long as
// those have no more than 1,000 records. On virtual time no call is too slow, so that none is tried again.
func TestSweepIsParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 600
		var mu sync.Mutex
		var lists, deletes, underWay, most int
		direct := cloud.Direct{Service: &cloud.Blobs{}, Latency: 20 * time.Millisecond}
		s, err := bloblease.OpenETag(t.Context(), memoryContainer(t, roundTrip(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			if req.URL.Query().Get("comp") == "list" {
				lists++
			}
			if req.Method == http.MethodDelete {
				deletes++
				underWay++
				most = max(most, underWay)
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					underWay--
				}()
			}
			mu.Unlock()
			return direct.RoundTrip(req)
		})), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			release(t, s, acquire(t, s, fmt.Sprint(i), time.Minute))
		}
		time.Sleep(3 * time.Second)

		if n, next, err := s.Sweep(t.Context(), "", time.Second, all); n != records || next != "" || err != nil {
			t.Errorf("%d removed, then %q, %v", n, next, err)
		}
		if deletes != records || lists != 256 || most < 8 || most > 32 {
			t.Errorf("%d records: %d deletes, %d lists, at most %d deletes at a time", records, deletes, lists, most)
		}
		t.Logf("%d records: %d lists, %d deletes, up to %d at a time", records, lists, deletes, most)
	})
}

// sharded returns the names of all blobs of a container with just these keys.
func sharded(keys ...string) []string {
	var all []string
	for _, key := range keys {
		all = append(all, bloblease.Name(key))
	}
	slices.Sort(all)
	return all
}

func answer(req *http.Request, status int, code string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"X-Ms-Error-Code": {code}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:    io.NopCloser(strings.NewReader("")),
		Request: req,
	}
}

// open returns a store on a new container.
func open(t *testing.T) (azurite *emulators.Azurite, container string, s lease.Store) {
	t.Helper()
	azurite = emulators.StartAzurite(t)
	container = azurite.NewContainer()
	s, err := bloblease.OpenETag(t.Context(), azurite.Container(t, container, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return azurite, container, s
}
