package blobrecord_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/azure"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease/blobrecord"
)

func list(t *testing.T, b *blobrecord.Blobs) (keys []string, last error) {
	t.Helper()
	for e, err := range b.List(t.Context(), "") {
		if last = err; err == nil {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return keys, last
}

// A list goes over any number of pages, asks again for one that failed, and leaves out what
// is no record.
func TestList(t *testing.T) {
	t.Parallel()
	azurite, name, s := open(t)
	var want []string
	for i := range 7 {
		want = append(want, strings.Repeat("#", 80*i)+fmt.Sprint(i)) // from 255 bytes on a name is a hash
		acquire(t, s, want[i], time.Minute)
	}
	slices.Sort(want)
	record := func(key string) map[string]string {
		return map[string]string{"id": "x", "token": "1", "claimed": "1", "hold": "1", "phase": "free", "key": base64.StdEncoding.EncodeToString([]byte(key))}
	}
	hash := blobrecord.Name(strings.Repeat("#", 300))
	c := azurite.Container(t, name, nil)
	put(t, c, "00/empty", "", nil)
	put(t, c, "00/foreign", "not a record", record(""))
	put(t, c, "00/foreign2", "", map[string]string{"x": "y"})
	put(t, c, "00/no name.", "", record(""))
	put(t, c, hash, "", record("another key"))
	put(t, c, hash[:20], "", record(""))

	var mu sync.Mutex
	failures, lists := 0, 0
	small := azurite.SharedContainer(t, name, via{azurite.Transport(), func(req *http.Request) *http.Response {
		q := req.URL.Query()
		if q.Get("comp") != "list" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		lists++
		q.Set("maxresults", "2")
		req.URL.RawQuery = q.Encode()
		if failures > 0 {
			failures--
			return answer(req, http.StatusServiceUnavailable, "ServerBusy")
		}
		return nil
	}}, sas.AccountPermissions{Read: true, Write: true, Create: true, List: true})
	blobs, err := blobrecord.Open(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	failures = 5
	if got, err := list(t, blobs); err != nil || !slices.Equal(got, want) {
		t.Errorf("listed are %q, want %q, %v", got, want, err)
	}
	if failures != 0 || lists < 256+5 {
		t.Errorf("%d calls, and %d failures to come", lists, failures)
	}

	lists = 0
	for range blobs.List(t.Context(), "") {
		break
	}
	if lists == 0 || lists >= 256 {
		t.Errorf("a list that is left after one record took %d calls", lists)
	}

	blind, err := blobrecord.Open(t.Context(), azurite.SharedContainer(t, name, nil, sas.AccountPermissions{Read: true, Write: true, Create: true}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := list(t, blind); err == nil || len(got) > 0 || !strings.Contains(err.Error(), "list blobs") {
		t.Errorf("without leave to list: %q, %v", got, err)
	}
}

// A page that takes longer than a gate's try is waited for: by List, Sweep and Open, with the
// retries of production.
func TestSlowPages(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	earlier(t, azurite.Container(t, name, nil), "s/r/d", "free", 0)
	slow := via{azurite.Transport(), func(req *http.Request) *http.Response {
		if req.URL.Query().Get("comp") == "list" {
			select {
			case <-time.After(azure.Once().TryTimeout * 3 / 2):
			case <-req.Context().Done():
			}
		}
		return nil
	}}
	c, err := container.NewClientFromConnectionString(azurite.ConnectionString, name, &container.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: azure.Once(), Transport: &http.Client{Transport: slow}},
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blobrecord.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := list(t, blobs); err != nil || !slices.Equal(got, []string{"s/r/d"}) {
		t.Errorf("listed are %q, %v", got, err)
	}
	if n, next, err := blobs.Sweep(t.Context(), "", 0, all); n != 1 || next != "" || err != nil {
		t.Errorf("%d removed, then %q, %v", n, next, err)
	}
}
