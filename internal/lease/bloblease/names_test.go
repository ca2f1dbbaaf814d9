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
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/azure"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
)

// Names are for ever: other versions look for them.
func TestName(t *testing.T) {
	for key, want := range map[string]string{
		"ns/hub/group/r/device-7": "b6/ns~2Fhub~2Fgroup~2Fr~2Fdevice-7",
		"":                        "e3/",
	} {
		if got := bloblease.Name(key); got != want {
			t.Errorf("Name(%q) is %q, want %q", key, got, want)
		}
	}
	perShard := map[string]int{}
	for i := range 25_600 {
		perShard[bloblease.Name(fmt.Sprintf("ns/hub/group/r/device-%06d", i))[:3]]++
	}
	for shard, n := range perShard {
		if n > 200 {
			t.Errorf("of 25,600 keys that are alike %d are in %q, want about 100", n, shard)
		}
	}
	if len(perShard) != 256 {
		t.Errorf("%d shards", len(perShard))
	}
}

var stores = map[string]func(context.Context, *container.Client) (*bloblease.Store, error){
	"etag": func(ctx context.Context, c *container.Client) (*bloblease.Store, error) {
		return bloblease.OpenETag(ctx, c, nil)
	},
	"native": func(ctx context.Context, c *container.Client) (*bloblease.Store, error) {
		return bloblease.OpenNative(ctx, c, nil)
	},
}

// What earlier versions wrote is found, goes on under its name, and new records in
// that container get names of the same kind: replicas of both versions
// exclude each other, also on keys that nobody had before.
func TestEarlierNames(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := azurite.Container(t, azurite.NewContainer(), nil)
			earlier(t, c, "~duties/s", "free", 0)
			earlier(t, c, "s/r/window", "held", time.Hour)
			s, err := open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !s.PlainNames() {
				t.Error("the names are not those of earlier versions")
			}
			var held *lease.HeldError
			if _, err := s.Acquire(t.Context(), "s/r/window", time.Minute, note); !errors.As(err, &held) || held.Record.Note != "note of s/r/window" || held.Record.Token != 1795261928000 {
				t.Errorf("a window of an earlier version: %v", err)
			}
			earlier(t, c, "s/r/free", "free", 0) // by a replica of that version, which still runs
			var prev lease.Record
			l, err := s.Acquire(t.Context(), "s/r/free", time.Minute, func(r lease.Record) (string, error) { prev = r; return "", nil })
			if err != nil || prev.Note != "note of s/r/free" || l.Token <= prev.Token {
				t.Errorf("a record of an earlier version: %+v after %+v, %v", l, prev, err)
			}
			acquire(t, s, "s/r/new", time.Minute)
			want := []string{azure.Name("s/r/free"), azure.Name("s/r/new"), azure.Name("s/r/window"), azure.Name("~duties/s")}
			if got := names(t, c); !slices.Equal(got, want) {
				t.Errorf("the blobs are %q, want %q", got, want)
			}
		})
	}
}

// In a container that no earlier version has used names have shards, whoever creates it,
// and however many open it at once.
func TestNewNames(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	for name, open := range stores {
		for _, prepared := range []string{"missing", "empty", "with a foreign blob", "without its marker"} {
			t.Run(name+", "+prepared, func(t *testing.T) {
				t.Parallel()
				c := azurite.Container(t, azurite.NewContainer(), nil)
				if prepared != "missing" {
					if _, err := c.Create(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				switch prepared {
				case "with a foreign blob":
					put(t, c, "readme.txt", "not a record", nil)
				case "without its marker": // the container was deleted and made again by somebody else
					put(t, c, bloblease.Name("a"), "", map[string]string{"id": "x", "token": "1", "claimed": "1", "hold": "1", "phase": "free"})
				}
				opened := make([]*bloblease.Store, 4)
				var opening sync.WaitGroup
				for i := range opened {
					opening.Go(func() {
						var err error
						if opened[i], err = open(t.Context(), c); err != nil {
							t.Error(err)
						}
					})
				}
				opening.Wait()
				if t.Failed() {
					return
				}
				acquire(t, opened[0], "s/r/d", time.Minute)
				for _, s := range opened[1:] {
					if _, err := s.Acquire(t.Context(), "s/r/d", time.Minute, note); !errors.Is(err, lease.ErrHeld) {
						t.Errorf("another replica: %v", err)
					}
				}
				if got := names(t, c); !slices.Contains(got, bloblease.Name("s/r/d")) || !slices.Contains(got, "names/sharded") {
					t.Errorf("the blobs are %q", got)
				}
			})
		}
	}
}

// A container that is deleted while replicas work is made again with shards and their
// marker, whatever names its blobs had: those who have missed it and those who open it
// later exclude each other.
func TestNamesInAContainerMadeAgain(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	for name, open := range stores {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain names %t", name, plain), func(t *testing.T) {
				t.Parallel()
				container := azurite.NewContainer()
				c := azurite.Container(t, container, nil)
				if plain {
					earlier(t, c, "~duties/s", "free", 0)
				}
				// The real service takes its time to delete a container: all replicas miss it.
				var deleting atomic.Bool
				slow := via{azurite.Transport(), func(req *http.Request) *http.Response {
					if deleting.Load() {
						return answer(req, http.StatusConflict, "ContainerBeingDeleted")
					}
					return nil
				}}
				var replicas []*bloblease.Store
				for range 3 {
					s, err := open(t.Context(), azurite.Container(t, container, slow))
					if err != nil {
						t.Fatal(err)
					}
					if s.PlainNames() != plain {
						t.Fatalf("plain names: %t", s.PlainNames())
					}
					replicas = append(replicas, s)
				}
				acquire(t, replicas[0], "s/r/before", time.Minute)

				_, err := c.Delete(t.Context(), nil)
				if errors.Is(err, io.EOF) { // Azurite ends connections that were idle
					_, err = c.Delete(t.Context(), nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				deleting.Store(true)
				for _, s := range replicas[1:] {
					var missing *azure.MissingError
					if _, err := s.Acquire(t.Context(), "s/r/d", time.Minute, note); !errors.As(err, &missing) {
						t.Fatalf("while the container is being deleted: %v", err)
					}
				}
				deleting.Store(false)
				acquire(t, replicas[0], "s/r/d", time.Minute)
				if got := names(t, c); !slices.Contains(got, bloblease.Name("s/r/d")) || !slices.Contains(got, "names/sharded") || slices.Contains(got, azure.Name("s/r/d")) {
					t.Errorf("the blobs are %q", got)
				}
				late, err := open(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range append(replicas, late) {
					if _, err := s.Acquire(t.Context(), "s/r/d", time.Minute, note); !errors.Is(err, lease.ErrHeld) || s.PlainNames() {
						t.Errorf("replica %d: %v, plain names: %t", i, err, s.PlainNames())
					}
				}
			})
		}
	}
}

// Who may not list cannot know whether an earlier version uses a container without a
// marker, and takes it that one does. All who may not come to the same answer; who created
// the container knows better.
func TestNamesWithoutLeaveToList(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	may := sas.AccountPermissions{Read: true, Write: true, Create: true}
	name := azurite.NewContainer()
	if _, err := azurite.Container(t, name, nil).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		container string
		plain     bool
	}{{name, true}, {azurite.NewContainer(), false}} {
		for range 2 {
			b, err := bloblease.OpenETag(t.Context(), azurite.SharedContainer(t, test.container, nil, may), nil)
			if err != nil {
				t.Fatal(err)
			}
			if b.PlainNames() != test.plain {
				t.Errorf("plain names: %t, want %t", b.PlainNames(), test.plain)
			}
		}
	}
	if got := strings.Join(names(t, azurite.Container(t, name, nil)), " "); got != "" {
		t.Errorf("the container has %s", got)
	}
}
