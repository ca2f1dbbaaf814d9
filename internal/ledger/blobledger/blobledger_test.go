package blobledger_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/ledger"
	"alertworker/internal/ledger/blobledger"
	"alertworker/internal/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "ns/hub/$default/ledger/0"

// newContainer returns an empty container whose requests go through via, if not nil.
func newContainer(t testing.TB, azurite *emulators.Azurite, via http.RoundTripper) *container.Client {
	t.Helper()
	name := azurite.NewContainer()
	if _, err := azurite.RetryingContainer(t, name, nil).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return azurite.RetryingContainer(t, name, via)
}

func TestStore(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	ledgertest.Run(t, ledgertest.Harness{New: func(t testing.TB) ledgertest.Backend {
		c := newContainer(t, azurite, nil)
		return ledgertest.Backend{
			Open: func() ledger.Store { return blobledger.New(c) },
			Delete: func(ctx context.Context, name string) error {
				_, err := c.NewBlobClient(name).Delete(ctx, nil)
				if bloberror.HasCode(err, bloberror.BlobNotFound) {
					return nil
				}
				return err
			},
		}
	}})
}

// A wire loses the answer to the next write, and notes what is asked.
type wire struct {
	http.RoundTripper
	lose  atomic.Bool
	asked atomic.Value // the last request's method
	n     atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.asked.Store(req.Method)
	w.n.Add(1)
	resp, err := w.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodPut && w.lose.CompareAndSwap(true, false) {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return resp, err
}

// A write whose answer is lost is tried again by azblob, and then is a conflict with itself. Its
// owner is not taken in by that.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	w := &wire{RoundTripper: azurite.Transport()}
	store := blobledger.New(newContainer(t, azurite, w))
	for range 2 { // created, and taken over
		w.lose.Store(true)
		l, _, err := ledger.Open(t.Context(), store, name)
		if err != nil || w.lose.Load() {
			t.Fatalf("%v; lost: %t", err, !w.lose.Load())
		}
		w.lose.Store(true)
		if err := l.Write(t.Context(), ledger.Content{}); err != nil || w.lose.Load() {
			t.Errorf("%v; lost: %t", err, !w.lose.Load())
		}
		if err := l.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What people and other tools find: the owner can be asked for without the content, and the
// content says what it is.
func TestBlob(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	w := &wire{RoundTripper: azurite.Transport()}
	c := newContainer(t, azurite, w)
	l, _, err := ledger.Open(t.Context(), blobledger.New(c), name)
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		http.MethodHead: func() error { return l.Check(t.Context()) },
		http.MethodPut:  func() error { return l.Write(t.Context(), ledger.Content{}) },
	} {
		w.n.Store(0)
		if err := call(); err != nil || w.n.Load() != 1 || w.asked.Load() != what {
			t.Errorf("%d requests, the last one %v, %v; want one %s", w.n.Load(), w.asked.Load(), err, what)
		}
	}
	there, err := c.NewBlobClient(name).GetProperties(t.Context(), nil)
	if err != nil || *there.ContentType != "application/gzip" || len(there.Metadata) != 1 {
		t.Errorf("%v, %v, %v", *there.ContentType, there.Metadata, err)
	}
}

// An error says what was attempted, on what, and nothing secret.
func TestErrors(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	store := blobledger.New(azurite.RetryingContainer(t, azurite.NewContainer(), nil)) // it does not exist
	_, read := store.Read(t.Context(), name)
	_, owner := store.Owner(t.Context(), name)
	_, write := store.Write(t.Context(), name, ledger.Record{Owner: "a"})
	for what, err := range map[string]error{"read blob " + name: read, "look up blob " + name: owner, "write blob " + name: write} {
		if err == nil || !strings.HasPrefix(err.Error(), what+": 404 ContainerNotFound: ") || errors.Is(err, ledger.ErrConflict) || strings.Contains(err.Error(), emulators.AzuriteKey) {
			t.Errorf("%v: want %q and ContainerNotFound", err, what)
		}
	}
}
