package azure_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// Many who miss a container make one attempt to create it, and none but its outcome for a while.
func TestContainerIsCreatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts, created atomic.Int64
		answer := answered(403, "AuthorizationPermissionMismatch")
		c := azure.NewContainer("leases", azure.ContainerMissing, func(context.Context) error {
			attempts.Add(1)
			time.Sleep(time.Second)
			return answer
		})
		c.Created = func(string) { created.Add(1) }
		everybody := func() (errs []error) {
			var all sync.WaitGroup
			errs = make([]error, 100)
			for i := range errs {
				all.Go(func() {
					missing := true
					errs[i] = c.Do(t.Context(), func() error {
						if missing {
							missing = false
							return answered(404, "ContainerNotFound")
						}
						return nil
					})
				})
			}
			all.Wait()
			return errs
		}
		for _, err := range append(everybody(), everybody()...) {
			if !errors.As(err, new(*lease.Failure)) || !strings.Contains(err.Error(), `"leases"`) || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "create it") {
				t.Fatalf("%v, want what is missing, why and what to do", err)
			}
			if azure.ShouldRetry(t.Context(), 0, err) {
				t.Fatal("it would be tried again at once")
			}
		}
		if attempts.Load() != 1 || created.Load() != 0 {
			t.Errorf("%d attempts, created %d times", attempts.Load(), created.Load())
		}
		time.Sleep(5 * time.Second)
		answer = nil
		for _, err := range everybody() {
			if err != nil {
				t.Fatal(err)
			}
		}
		if attempts.Load() != 2 || created.Load() != 1 {
			t.Errorf("%d attempts, created %d times", attempts.Load(), created.Load())
		}
	})
}

// A caller whose context ends says nothing about the container: the next one tries.
func TestContainerOutlivesACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := azure.NewContainer("leases", azure.ContainerMissing, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
				return nil
			}
		})
		missing := func() error { return answered(404, "ContainerNotFound") }
		once := func() func() error {
			first := true
			return func() error {
				if !first {
					return nil
				}
				first = false
				return missing()
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := c.Do(short, missing); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		all.Go(func() {
			time.Sleep(time.Millisecond)
			if err := c.Do(t.Context(), once()); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	})
}

func TestContainerMissing(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                                               false,
		errors.New("ContainerNotFound"):                   false,
		answered(404, "ContainerNotFound"):                true,
		answered(409, "ContainerBeingDeleted"):            true,
		answered(404, "BlobNotFound"):                     false,
		azure.Explain(answered(404, "ContainerNotFound")): true,
	} {
		if got := azure.ContainerMissing(err); got != want {
			t.Errorf("ContainerMissing(%v) is %t", err, got)
		}
	}
}
