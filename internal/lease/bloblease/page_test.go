package bloblease_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/azure"
	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease/bloblease"
)

// A sweep finds keys of any length, and leaves what is no record where it is.
func TestSweepOfStrangeBlobs(t *testing.T) { // not beside tests that are about time: it keeps Azurite busy
	azurite, name, s := open(t)
	for i := range 7 {
		release(t, s, acquire(t, s, strings.Repeat("#", 80*i)+fmt.Sprint(i), time.Minute)) // from 255 bytes on a name is a hash
	}
	record := func(key string) map[string]string {
		return map[string]string{"record": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"key":%q,"leaseId":"x","phase":"free","token":1}`, key))}
	}
	hash := bloblease.Name(strings.Repeat("#", 300))
	c := azurite.Container(t, name, nil)
	put(t, c, "00/empty", "", nil)
	put(t, c, "00/foreign", "not a record", record(""))
	put(t, c, "00/foreign2", "", map[string]string{"x": "y"})
	put(t, c, "00/no name.", "", record(""))
	put(t, c, hash, "", record("another key"))
	put(t, c, hash[:20], "", record(""))
	time.Sleep(3 * time.Second)

	blind, err := bloblease.OpenETag(t.Context(), azurite.SharedContainer(t, name, nil, sas.AccountPermissions{Read: true, Write: true, Create: true}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, err := blind.Sweep(t.Context(), "", time.Second, all); n != 0 || err == nil || !strings.Contains(err.Error(), "list blobs") {
		t.Errorf("without leave to list: %d removed, %v", n, err)
	}
	sweeping, err := bloblease.OpenETag(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, next, err := sweeping.Sweep(t.Context(), "", time.Second, all); n != 7 || next != "" || err != nil {
		t.Errorf("%d removed, want 7, then %q, %v", n, next, err)
	}
	want := []string{"00/empty", "00/foreign", "00/foreign2", "00/no name.", hash, hash[:20]}
	slices.Sort(want)
	if got := names(t, c); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// A page that takes longer than a gate's try is waited for, with the retries of production.
func TestSlowPages(t *testing.T) {
	t.Parallel()
	busytest.Run(t, slowPages)
}

func slowPages(a *busytest.Attempt) {
	t := a.T
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	s, err := bloblease.OpenETag(t.Context(), azurite.Container(t, name, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	release(t, s, acquire(t, s, "s/r/d", time.Minute))
	time.Sleep(2 * time.Second) // longer than the clock's resolution
	slow := via{azurite.Transport(), func(req *http.Request) *http.Response {
		if req.URL.Query().Get("comp") == "list" {
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-req.Context().Done():
			}
		}
		return nil
	}}
	c, err := container.NewClientFromConnectionString(azurite.ConnectionString, name, &container.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: azure.Once(), Transport: azure.LimitTries(&http.Client{Transport: slow})},
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := bloblease.OpenETag(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, next, err := blobs.Sweep(t.Context(), "", 0, all)
	if err != nil && strings.Contains(err.Error(), "answers in more than") { // a page took longer than pages may
		a.Missed("a sweep: %v", err)
	}
	if n != 1 || next != "" || err != nil {
		t.Errorf("%d removed, then %q, %v", n, next, err)
	}
}
