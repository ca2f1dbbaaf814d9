package blobrecord_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"go.uber.org/goleak"

	"alertworker/internal/lease"
	"alertworker/internal/lease/blobetag"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/blobrecord"
	"alertworker/internal/standin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A sweeper is either of the stores in blobs.
type sweeper interface {
	lease.Store
	Sweep(ctx context.Context, olderThan time.Duration, limit int) (int, error)
}

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

func TestSweep(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	stores := map[string]func(context.Context, *container.Client) (sweeper, error){
		"blobetag":  func(ctx context.Context, c *container.Client) (sweeper, error) { return blobetag.Open(ctx, c) },
		"bloblease": func(ctx context.Context, c *container.Client) (sweeper, error) { return bloblease.Open(ctx, c) },
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := azurite.Container(t, azurite.NewContainer(), nil)
			s, err := open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			old := acquire(t, s, "old", time.Minute)
			release(t, s, old)
			release(t, s, acquire(t, s, "older/with a name#", time.Minute))
			held := acquire(t, s, "held", time.Minute)
			put(t, c, "empty", "", nil)                            // a key whose first taking failed
			put(t, c, "foreign", "not a record", nil)              // not ours
			put(t, c, "foreign2", "", map[string]string{"x": "y"}) // nor this
			time.Sleep(5 * time.Second)
			release(t, s, acquire(t, s, "young", time.Minute))

			if n, err := s.Sweep(t.Context(), time.Hour, 10); n != 0 || err != nil {
				t.Errorf("of what is younger than an hour %d were removed, %v", n, err)
			}
			if n, err := s.Sweep(t.Context(), 3*time.Second, 10); n != 3 || err != nil {
				t.Errorf("%d were removed, want 3, %v", n, err)
			}
			if got, want := names(t, c), []string{"foreign", "foreign2", "held", "young"}; !slices.Equal(got, want) {
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

	var taken lease.Lease
	acted := map[string]bool{}
	c := azurite.Container(t, name, via{azurite.Transport(), func(req *http.Request) *http.Response {
		key := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
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
			if _, err := azurite.Container(t, name, nil).NewBlobClient(key).Delete(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	blobs, err := blobrecord.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := blobs.Sweep(t.Context(), time.Second, 10); n != 1 || err != nil {
		t.Errorf("%d were removed, want the one that nobody touched, %v", n, err)
	}
	if got, want := names(t, c), []string{"released", "taken"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if _, err := s.Extend(t.Context(), taken, "", time.Minute); err != nil {
		t.Errorf("the lease that was taken meanwhile: %v", err)
	}
}

// A run ends at its limit, and the next one goes on, over any number of pages; a busy
// service is asked again; a refusal is told.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	azurite, name, s := open(t)
	for i := range 7 {
		release(t, s, acquire(t, s, fmt.Sprint(i), time.Minute))
	}
	time.Sleep(3 * time.Second)

	busy, deny := map[string]int{}, false
	may := sas.AccountPermissions{Read: true, Write: true, Create: true, List: true, Delete: true}
	small := azurite.SharedContainer(t, name, via{azurite.Transport(), func(req *http.Request) *http.Response {
		if req.URL.Query().Get("comp") == "list" {
			req.URL.RawQuery += "&maxresults=2"
		}
		if deny && req.Method == http.MethodDelete {
			return answer(req, http.StatusForbidden, "AuthorizationPermissionMismatch")
		}
		if busy[req.Method]++; busy[req.Method] <= 5 && !deny { // the SDK repeats 2 times
			return answer(req, http.StatusServiceUnavailable, "ServerBusy")
		}
		return nil
	}}, may)
	busy[http.MethodHead] = 5 // Open's look
	blobs, err := blobrecord.Open(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	deny = true
	if n, err := blobs.Sweep(t.Context(), time.Second, 3); n != 0 || err == nil || !strings.Contains(err.Error(), "delete blob") {
		t.Errorf("without leave to delete: %d, %v", n, err)
	}
	deny = false
	for _, want := range []int{3, 3, 1, 0} {
		if n, err := blobs.Sweep(t.Context(), time.Second, 3); n != want || err != nil {
			t.Errorf("%d were removed, want %d, %v", n, want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := blobs.Sweep(ctx, time.Second, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
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
func open(t *testing.T) (azurite *standin.Azurite, container string, s lease.Store) {
	t.Helper()
	azurite = standin.StartAzurite(t)
	container = azurite.NewContainer()
	s, err := blobetag.Open(t.Context(), azurite.Container(t, container, nil))
	if err != nil {
		t.Fatal(err)
	}
	return azurite, container, s
}
