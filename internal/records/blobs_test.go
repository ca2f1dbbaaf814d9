package records_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
)

// A wire counts requests, and loses the answer to the next write.
type wire struct {
	http.RoundTripper
	lose atomic.Bool
	n    atomic.Int64
	last atomic.Value // the method of the last one
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.n.Add(1)
	w.last.Store(req.Method)
	resp, err := w.RoundTripper.RoundTrip(req)
	if err == nil && (req.Method == http.MethodPut || req.Method == http.MethodDelete) && w.lose.CompareAndSwap(true, false) {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return resp, err
}

// What calls cost, and how a blob looks to others.
func TestRequests(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	w := &wire{RoundTripper: azurite.Transport()}
	c := azurite.Container(t, azurite.NewContainer(), w)
	b, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := records.Reliable(b)
	var etag string
	write := func(content []byte, over string) func() error {
		return func() (err error) {
			etag, err = store.Write(t.Context(), records.Record{Name: name, Values: map[string]string{"owner": "a"}, Content: content, Type: "application/gzip", ETag: over})
			return err
		}
	}
	for _, step := range []struct {
		what, method string
		call         func() error
		n            int64
	}{
		{"create", http.MethodPut, write([]byte("x"), ""), 1},
		{"replace", http.MethodPut, func() error { return write([]byte("y"), etag)() }, 1},
		{"replace values", http.MethodPut, func() error { return write(nil, etag)() }, 1},
		{"write", http.MethodPut, write(nil, records.Any), 1},
		{"conflict", http.MethodHead, func() error {
			if err := write(nil, `"unknown"`)(); !errors.Is(err, records.ErrConflict) && err != nil {
				return err
			}
			return nil
		}, 2},
		{"read", http.MethodGet, func() error { _, err := store.Read(t.Context(), name, 10); return err }, 1},
		{"stat", http.MethodHead, func() error { _, err := store.Stat(t.Context(), name); return err }, 1},
		{"list", http.MethodGet, func() error { _, err := records.All(t.Context(), store, "ns"); return err }, 1},
		{"delete", http.MethodDelete, func() error { return store.Delete(t.Context(), name, records.Any) }, 1},
		{"write a new one", http.MethodPut, write(nil, records.Any), 2},
	} {
		if step.what == "delete" {
			there, err := c.NewBlobClient(name).GetProperties(t.Context(), nil)
			if err != nil || *there.ContentType != "application/gzip" || len(there.Metadata) != 1 || *there.ContentLength != 1 {
				t.Errorf("%v, %v, %v", *there.ContentType, there.Metadata, err)
			}
		}
		w.n.Store(0)
		if err := step.call(); err != nil || w.n.Load() != step.n || w.last.Load() != step.method {
			t.Errorf("%s: %d requests, the last one %v, %v; want %d, %s", step.what, w.n.Load(), w.last.Load(), err, step.n, step.method)
		}
	}
}

// The answer to a write or a deletion is lost on its way.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	w := &wire{RoundTripper: azurite.Transport()}
	b, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), w), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := records.Reliable(b)
	for _, content := range [][]byte{nil, []byte("content")} {
		r := records.Record{Name: name, Content: content}
		for _, value := range []string{"created", "replaced", "replaced"} {
			r.Values = map[string]string{"value": value}
			w.lose.Store(true)
			if r.ETag, err = store.Write(t.Context(), r); err != nil || w.lose.Load() {
				t.Fatalf("%s: %v; lost: %t", value, err, !w.lose.Load())
			}
			is(t, store, r)
		}
		w.lose.Store(true)
		if err := store.Delete(t.Context(), name, r.ETag); err != nil || w.lose.Load() {
			t.Errorf("delete: %v; lost: %t", err, !w.lose.Load())
		}
	}
}

// Who deletes the container while it is in use gets another one.
func TestContainerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	c := azurite.Container(t, azurite.NewContainer(), nil)
	created := 0
	b, err := records.OpenBlobs(t.Context(), c, func(string) { created++ })
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"write":   func() error { _, err := b.Write(t.Context(), records.Record{Name: name}); return err },
		"replace": func() error { _, err := b.Write(t.Context(), records.Record{Name: name, ETag: `"x"`}); return err },
		"read":    func() error { _, err := b.Read(t.Context(), name, 1); return err },
		"stat":    func() error { _, err := b.Stat(t.Context(), name); return err },
		"list":    func() error { _, err := b.List(t.Context(), "ns", ""); return err },
		"delete":  func() error { return b.Delete(t.Context(), name, records.Any) },
	} {
		created = 0
		if _, err := c.Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := call(); err != nil && !errors.Is(err, records.ErrNotFound) && !errors.Is(err, records.ErrConflict) || created != 1 {
			t.Errorf("%s: %v, created %d times", what, err, created)
		}
	}
}

// An error says what was attempted, on what, and nothing secret.
func TestErrors(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	refuse := &refusing{next: azurite.Transport()}
	b, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), refuse), nil)
	if err != nil {
		t.Fatal(err)
	}
	refuse.now.Store(true)
	_, read := b.Read(t.Context(), name, 1)
	_, stat := b.Stat(t.Context(), name)
	_, write := b.Write(t.Context(), records.Record{Name: name})
	_, list := b.List(t.Context(), name, "")
	for what, err := range map[string][]error{"read blob": {read, stat}, "write blob": {write}, "list blobs": {list}, "delete blob": {b.Delete(t.Context(), name, "x")}} {
		for _, err := range err {
			if err == nil || !strings.HasPrefix(err.Error(), what+" \""+name+"\" in \"http://127.0.0.1:") || !strings.Contains(err.Error(), ": 403: not permitted: check the key") ||
				errors.Is(err, records.ErrConflict) || errors.Is(err, records.ErrNotFound) || strings.Contains(err.Error(), emulators.AzuriteKey) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

type refusing struct {
	next http.RoundTripper
	now  atomic.Bool
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if !r.now.Load() {
		return r.next.RoundTrip(req)
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// A store that does not answer stops nobody for longer than one call may take.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := records.Reliable(records.Around(&records.Memory{}, func(ctx context.Context, _ records.Op, _ string, _ func(context.Context) error) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		for what, call := range map[string]func() error{
			"read":   func() error { _, err := stalled.Read(t.Context(), name, 1); return err },
			"stat":   func() error { _, err := stalled.Stat(t.Context(), name); return err },
			"write":  func() error { _, err := stalled.Write(t.Context(), records.Record{Name: name}); return err },
			"delete": func() error { return stalled.Delete(t.Context(), name, "x") },
			"list":   func() error { _, err := stalled.List(t.Context(), name, ""); return err },
		} {
			start := time.Now()
			err := call()
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 20s") || took != records.CallLimit {
				t.Errorf("%s after %v: %v", what, took, err)
			}
		}
	})
}
