package blobcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/eventhubs/blobcheckpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newContainer returns an empty container whose requests go through via, if not nil.
func newContainer(t *testing.T, azurite *emulators.Azurite, via http.RoundTripper) *container.Client {
	t.Helper()
	name := azurite.NewContainer()
	if _, err := azurite.RetryingContainer(t, name, nil).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return azurite.RetryingContainer(t, name, via)
}

// What every implementation of Records keeps.
func TestRecords(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { conforms(t, &eventhubs.MemoryCheckpoints{}) })
	t.Run("blobs", func(t *testing.T) {
		conforms(t, blobcheckpoint.New(newContainer(t, emulators.StartAzurite(t), nil)))
	})
}

func conforms(t *testing.T, records eventhubs.Records) {
	ctx := t.Context()
	const name = "ns/hub/group/checkpoint/0"
	is := func(what string, values map[string]string, etag string) {
		t.Helper()
		r, err := records.Read(ctx, name)
		if err != nil || !maps.Equal(r.Values, values) || r.ETag != etag {
			t.Errorf("%s: %+v, %v; want %v at %q", what, r, err, values, etag)
		}
	}
	values := func(n int) map[string]string {
		return map[string]string{"sequencenumber": fmt.Sprint(n), "offset": "@latest", "enqueuedtime": "2026-01-02T03:04:05.678Z"}
	}

	if _, err := records.Read(ctx, name); !errors.Is(err, eventhubs.ErrNoRecord) {
		t.Errorf("reading what is not there: %v", err)
	}
	if all, err := records.List(ctx, "ns/"); err != nil || len(all) != 0 {
		t.Errorf("listing nothing: %v, %v", all, err)
	}
	if _, err := records.Write(ctx, name, values(0), "unknown"); !errors.Is(err, eventhubs.ErrConflict) {
		t.Errorf("replacing what is not there: %v", err)
	}
	first, err := records.Write(ctx, name, values(1), "")
	if err != nil || first == "" {
		t.Fatalf("creating: %q, %v", first, err)
	}
	is("created", values(1), first)
	if _, err := records.Write(ctx, name, values(9), ""); !errors.Is(err, eventhubs.ErrConflict) {
		t.Errorf("creating what is there: %v", err)
	}
	second, err := records.Write(ctx, name, values(2), first)
	if err != nil || second == first {
		t.Fatalf("replacing: %q, %v", second, err)
	}
	if _, err := records.Write(ctx, name, values(9), first); !errors.Is(err, eventhubs.ErrConflict) {
		t.Errorf("replacing what somebody else replaced: %v", err)
	}
	is("replaced", values(2), second)
	if third, err := records.Write(ctx, name, values(2), second); err != nil || third == second {
		t.Errorf("replacing by the same values: %q, %v; want another ETag", third, err)
	}

	for _, other := range []string{"ns/hub/group/checkpoint/1", "ns/hub/group2/checkpoint/0", "ns2/hub/group/checkpoint/0"} {
		if _, err := records.Write(ctx, other, values(3), ""); err != nil {
			t.Fatal(err)
		}
	}
	all, err := records.List(ctx, "ns/hub/group/checkpoint/")
	if err != nil || len(all) != 2 || !maps.Equal(all[name].Values, values(2)) || !maps.Equal(all["ns/hub/group/checkpoint/1"].Values, values(3)) {
		t.Errorf("listing: %v, %v; want the two of that group", all, err)
	}
	if one := all[name]; one.ETag != "" {
		if _, err := records.Write(ctx, name, values(4), one.ETag); err != nil {
			t.Errorf("replacing by the ETag of a list: %v", err)
		}
	}

	t.Run("one winner", func(t *testing.T) {
		etag := ""
		for round := range 5 {
			var won atomic.Int64
			var next atomic.Value
			var racers sync.WaitGroup
			for range 8 {
				racers.Go(func() {
					got, err := records.Write(ctx, "ns/race", values(round), etag)
					switch {
					case err == nil:
						won.Add(1)
						next.Store(got)
					case !errors.Is(err, eventhubs.ErrConflict):
						t.Error(err)
					}
				})
			}
			racers.Wait()
			if won.Load() != 1 {
				t.Fatalf("round %d has %d winners", round, won.Load())
			}
			etag = next.Load().(string)
		}
	})

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := records.Read(ended, name); !errors.Is(err, context.Canceled) {
		t.Errorf("reading with a context that has ended: %v", err)
	}
}

// azeventhubs reads what we write, and we read what it writes: so do KEDA and
// older versions.
func TestLayoutIsThatOfAzeventhubs(t *testing.T) {
	t.Parallel()
	c := newContainer(t, emulators.StartAzurite(t), nil)
	store := blobcheckpoint.New(c)
	theirs, err := checkpoints.NewBlobStore(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	group := eventhubs.NewGroup("NS.servicebus.windows.net", "Hub", "$Default")
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	ours := eventhubs.Checkpoint{Position: telemetry.Position{Sequence: 41, Offset: "4100", Time: at, Generation: "4f1c09ab37e2d680"}, Ledger: "A7Q2"}
	if _, err := store.Write(t.Context(), group.Checkpoint("3"), ours.Values(), ""); err != nil {
		t.Fatal(err)
	}
	read, _, err := eventhubs.ReadCheckpoints(t.Context(), store, group)
	if c := read["3"]; err != nil || c.Position != ours.Position || c.Ledger != ours.Ledger {
		t.Errorf("we read %+v, %v; want %+v", read, err, ours)
	}
	all, err := theirs.ListCheckpoints(t.Context(), "ns.servicebus.windows.net", "hub", "$default", nil)
	if err != nil || len(all) != 1 || all[0].PartitionID != "3" || *all[0].SequenceNumber != 41 || *all[0].Offset != "4100" {
		t.Fatalf("azeventhubs reads %+v, %v", all, err)
	}
	// KEDA opens the body and never closes it: each look would cost it a connection.
	blob, err := c.NewBlobClient(group.Checkpoint("3")).GetProperties(t.Context(), nil)
	if err != nil || *blob.ContentLength != 0 {
		t.Errorf("a checkpoint has a body of %d bytes, %v; want none", *blob.ContentLength, err)
	}

	*all[0].SequenceNumber = 42
	all[0].Offset = to.Ptr("4200")
	if err := theirs.SetCheckpoint(t.Context(), all[0], nil); err != nil {
		t.Fatal(err)
	}
	read, _, err = eventhubs.ReadCheckpoints(t.Context(), store, group)
	if c := read["3"]; err != nil || c.Position != (telemetry.Position{Sequence: 42, Offset: "4200"}) || c.Ledger != "" {
		t.Errorf("of azeventhubs' we read %+v, %v", read, err)
	}
}

// A write whose answer is lost is tried again by azblob, and then is a conflict with
// itself. The store does not hide it: who wrote reads what is there.
func TestLostAnswerIsAConflict(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	lose := &losing{RoundTripper: azurite.Transport()}
	store := blobcheckpoint.New(newContainer(t, azurite, lose))
	etag, err := store.Write(t.Context(), "ns/0", map[string]string{"offset": "1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	lose.next.Store(true)
	if _, err := store.Write(t.Context(), "ns/0", map[string]string{"offset": "2"}, etag); !errors.Is(err, eventhubs.ErrConflict) {
		t.Errorf("the write whose answer was lost ended with %v", err)
	}
	if r, err := store.Read(t.Context(), "ns/0"); err != nil || r.Values["offset"] != "2" {
		t.Errorf("there is %v, %v", r, err)
	}
}

// losing loses the answer to the next write.
type losing struct {
	http.RoundTripper
	next atomic.Bool
}

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	r, err := l.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodPut && l.next.CompareAndSwap(true, false) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return r, err
}

// A container that is gone is no conflict.
func TestErrorsSayWhat(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	store := blobcheckpoint.New(azurite.RetryingContainer(t, azurite.NewContainer(), nil))
	_, write := store.Write(t.Context(), "ns/0", nil, "")
	_, replace := store.Write(t.Context(), "ns/0", nil, "etag")
	_, read := store.Read(t.Context(), "ns/0")
	_, list := store.List(t.Context(), "ns/")
	for _, err := range []error{write, replace, read, list} {
		if err == nil || errors.Is(err, eventhubs.ErrConflict) || errors.Is(err, eventhubs.ErrNoRecord) || !strings.Contains(err.Error(), "ns/") || !strings.Contains(err.Error(), "ContainerNotFound") {
			t.Errorf("got %v", err)
		}
	}
}
