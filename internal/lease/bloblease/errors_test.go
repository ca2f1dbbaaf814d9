package bloblease_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/azure"
	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
)

// What is set up wrongly is told apart, with what to do, and without secrets.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	client := azure.NewHTTPClient()
	defer client.CloseIdleConnections()
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{Retry: azure.Once(), Transport: client}}
	from := func(connection string) *container.Client {
		c, err := container.NewClientFromConnectionString(connection, azurite.NewContainer(), options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	open := func(c *container.Client) error {
		_, err := bloblease.OpenETag(t.Context(), c, nil)
		return err
	}
	const signature = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	unsigned := func(url string) *container.Client {
		c, err := container.NewClientWithNoCredential(url+"?sv=2024-11-04&sp=rw&sig="+signature, options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	wrongKey := base64.StdEncoding.EncodeToString([]byte("wrong"))

	tests := []struct {
		name string
		do   func() error
		want []string
	}{
		{"wrong key", func() error {
			return open(from(strings.Replace(azurite.ConnectionString, emulators.AzuriteKey, wrongKey, 1)))
		}, []string{"open lease records", "403", "key"}},
		{"wrong signature", func() error { return open(unsigned(azurite.URL + "/container")) }, []string{"403", "signature"}},
		{"not allowed", func() error {
			return open(azurite.SharedContainer(t, azurite.NewContainer(), nil, sas.AccountPermissions{Read: true}))
		}, []string{"403", "can read, write and create"}},
		{"no such account", func() error { return open(unsigned("http://no-such-account.invalid/c")) },
			[]string{"no answer from no-such-account.invalid", "check the account's name"}},
		{"nobody listens", func() error { return open(unsigned("http://127.0.0.1:1/c")) }, []string{"no answer from 127.0.0.1:1", "refused"}},
		{"container deleted by who may create it again, which we may not", func() error {
			name := azurite.NewContainer()
			c := azurite.Container(t, name, nil)
			if _, err := c.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			s, err := bloblease.OpenETag(t.Context(), azurite.Container(t, name, uncreating{azurite.Transport()}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Delete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			_, err = s.Acquire(t.Context(), "device", time.Minute, func(lease.Record) (string, error) { return "", nil })
			return err
		}, []string{`acquire lease "device"`, "does not exist and could not be created", "create it", "403"}},
		{"not a lease", func() error {
			c := azurite.Container(t, azurite.NewContainer(), nil)
			s, err := bloblease.OpenETag(t.Context(), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			value := "x"
			b := c.NewAppendBlobClient(bloblease.Name("device"))
			if _, err := b.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := b.SetMetadata(t.Context(), map[string]*string{"record": &value}, nil); err != nil {
				t.Fatal(err)
			}
			_, err = s.Acquire(t.Context(), "device", time.Minute, func(lease.Record) (string, error) { return "", nil })
			return err
		}, []string{`/device"`, `metadata "record"`, "delete the blob"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.do()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			for _, secret := range []string{wrongKey, emulators.AzuriteKey, signature, "sig="} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q has a secret in it", err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
		})
	}
}

// An identity that may not create containers is content with one that exists.
func TestOpenNeedsNoRightToCreateContainers(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	if _, err := azurite.Container(t, name, nil).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds a store that is in use
		s, err := bloblease.OpenETag(t.Context(), azurite.SharedContainer(t, name, azurite.Transport(), sas.AccountPermissions{Read: true, Write: true}), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), "probe", time.Minute, func(lease.Record) (string, error) { return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), l, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// A container that is deleted while replicas work is made again, and they go on: one creates
// it, however many find it missing.
func TestDeletedContainerIsMadeAgain(t *testing.T) {
	t.Parallel()
	busytest.Run(t, deletedContainerIsMadeAgain)
}

func deletedContainerIsMadeAgain(t *busytest.Attempt) {
	azurite := emulators.StartAzurite(t.T)
	name := azurite.NewContainer()
	made := &creations{next: azurite.Transport()}
	var told atomic.Int64
	s, err := bloblease.OpenETag(t.Context(), azurite.Container(t.T, name, made), func(string) { told.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	note := func(lease.Record) (string, error) { return "", nil }
	l, err := s.Acquire(t.Context(), "before", time.Minute, note)
	if err != nil {
		t.Fatal(err)
	}
	made.n.Store(0)
	c := azurite.Container(t.T, name, nil)
	_, err = c.Delete(t.Context(), nil)
	if errors.Is(err, io.EOF) { // Azurite ends connections that were idle
		_, err = c.Delete(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		all.Go(func() { _, errs[i] = s.Acquire(t.Context(), fmt.Sprint("device ", i), time.Minute, note) })
	}
	all.Wait()
	err = errors.Join(errs...)
	switch n := made.n.Load(); {
	case made.isLate.Load():
		t.Missed("a request was not answered in time; the container was created in %d attempts: %v", n, err)
	case err != nil:
		t.Error(err)
	case n != 1 || told.Load() != 1:
		t.Errorf("%d attempts to create the container, told of %d, want one", n, told.Load())
	}
	if _, err := s.Extend(t.Context(), l, "window", time.Minute); !errors.Is(err, lease.ErrLost) {
		t.Errorf("a lease from before: %v, want ErrLost", err)
	}
}

// uncreating is a service that lets nobody create a container, which Azurite does not keep anybody from.
type uncreating struct{ next http.RoundTripper }

func (u uncreating) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut && req.URL.Query().Get("restype") == "container" {
		return &http.Response{
			StatusCode: http.StatusForbidden, Status: "403 Forbidden", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"X-Ms-Error-Code": {"AuthorizationPermissionMismatch"}}, Body: http.NoBody, Request: req,
		}, nil
	}
	return u.next.RoundTrip(req)
}

// creations counts the attempts to create a container, and sees whether a request has as long as one has at first.
type creations struct {
	next   http.RoundTripper
	n      atomic.Int64
	isLate atomic.Bool
}

func (c *creations) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	defer func() {
		if time.Since(began) > 800*time.Millisecond { // of a second
			c.isLate.Store(true)
		}
	}()
	if req.Method == http.MethodPut && req.URL.Query().Get("restype") == "container" {
		c.n.Add(1)
	}
	return c.next.RoundTrip(req)
}

// Open returns when its context ends, whoever does not answer.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c, err := container.NewClientWithNoCredential("http://account.invalid/c", &container.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: azure.Once(), Transport: &http.Client{Transport: silent{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bloblease.OpenETag(ctx, c, nil); err == nil || ctx.Err() == nil {
		t.Errorf("Open returned %v before its context ended", err)
	}
}

// silent is a network that never answers.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}
