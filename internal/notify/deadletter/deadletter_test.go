package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/records"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const receiver = "example.com-1a2b3c4d"

func refused(n int) notify.DeadLetter {
	d := notify.DeadLetter{Alert: notifytest.Alert(n), Receiver: receiver, Name: "example.com", Reason: `refused for good: answered 422 Unprocessable Entity ("no <such> device")`}
	d.Alert.Enqueued = d.Alert.Enqueued.Add(time.Duration(n) * time.Minute)
	return d
}

func open(t *testing.T, c *container.Client) *deadletter.Store {
	t.Helper()
	blobs, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return deadletter.New(records.Reliable(blobs), zap.NewNop())
}

func keep(t *testing.T, s *deadletter.Store, letters ...notify.DeadLetter) {
	t.Helper()
	for _, d := range letters {
		if err := s.Keep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// list returns all letters since a time, and the sizes of the pages.
func list(t *testing.T, s *deadletter.Store, since time.Time) (letters []deadletter.Letter, pages []int) {
	t.Helper()
	for page, err := range s.List(t.Context(), deadletter.Undelivered, since) {
		if err != nil {
			t.Fatal(err)
		}
		letters, pages = append(letters, page...), append(pages, len(page))
	}
	return letters, pages
}

// names returns what blobs c has.
func names(t *testing.T, c *container.Client) (all []string) {
	t.Helper()
	pager := c.NewListBlobsFlatPager(nil)
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Segment.BlobItems {
			all = append(all, *b.Name)
		}
	}
	return all
}

// A transport carries requests as it likes.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAzurite(t *testing.T) {
	azurite := emulators.StartAzurite(t)

	t.Run("what is kept comes back", func(t *testing.T) {
		s := open(t, azurite.Container(t, azurite.NewContainer(), nil))
		d := refused(1)
		keep(t, s, d)
		letters, _ := list(t, s, time.Time{})
		if len(letters) != 1 {
			t.Fatalf("%d letters, want 1", len(letters))
		}
		l := letters[0]
		if l.Alert != d.Alert || l.Receiver != d.Receiver || l.Reason != d.Reason || l.Broken != nil || time.Since(l.Kept).Abs() > time.Minute {
			t.Errorf("%+v, want %+v", l, d)
		}
		if again, err := s.Get(t.Context(), deadletter.Undelivered, l.ID); err != nil || again.Alert != d.Alert {
			t.Errorf("Get: %+v, %v", again, err)
		}
	})

	t.Run("rules, levels and resolved", func(t *testing.T) {
		s := open(t, azurite.Container(t, azurite.NewContainer(), nil))
		critical, warning := notifytest.Sustained(), notifytest.Sustained() // about one reading
		warning.ID, warning.Source, warning.Level = strings.Replace(warning.ID, "critical", "warning", 1), strings.Replace(warning.Source, "critical", "warning", 1), "warning"
		want := map[string]notify.Alert{}
		for _, a := range []notify.Alert{critical, warning, notifytest.Resolved(critical), notifytest.Below(), notifytest.Resolved(notifytest.Below())} {
			want[a.ID] = a
			keep(t, s, notify.DeadLetter{Alert: a, Receiver: receiver, Reason: "refused"})
		}
		letters, _ := list(t, s, time.Time{})
		for _, l := range letters {
			if l.Alert != want[l.Alert.ID] || l.Broken != nil {
				t.Errorf("got  %+v, %v\nwant %+v", l.Alert, l.Broken, want[l.Alert.ID])
			}
		}
		if len(letters) != len(want) {
			t.Errorf("%d letters, want %d", len(letters), len(want))
		}
	})

	t.Run("a try is no letter", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		s := open(t, c)
		for range 2 {
			if err := s.Try(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if letters, _ := list(t, s, time.Time{}); len(letters) != 0 {
			t.Errorf("%d letters", len(letters))
		}
		if len(names(t, c)) == 0 {
			t.Error("nothing was written")
		}
	})

	t.Run("keeping again makes no second one", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		s := open(t, c)
		other := refused(1)
		other.Receiver = "example.org-1a2b3c4d"
		later := refused(1)
		later.Reason = "another"
		keep(t, s, refused(1), later, other)
		if all := names(t, c); len(all) != 2 {
			t.Errorf("blobs %q, want two letters", all)
		}
		// A replay that read the first may be about to delete it.
		letters, _ := list(t, s, time.Time{})
		for _, l := range letters {
			if l.Reason != refused(1).Reason {
				t.Errorf("the first letter was replaced by %+v", l)
			}
		}
	})

	t.Run("a lost answer makes no second one", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		open(t, c)
		lost := 0
		s := open(t, azurite.RetryingContainer(t, c.URL()[strings.LastIndexByte(c.URL(), '/')+1:], transport(func(r *http.Request) (*http.Response, error) {
			resp, err := azurite.Transport().RoundTrip(r)
			if r.Method == http.MethodPut && lost == 0 && err == nil {
				lost++
				_ = resp.Body.Close()
				return nil, errors.New("connection reset by peer")
			}
			return resp, err
		})))
		keep(t, s, refused(1))
		if all := names(t, c); lost != 1 || len(all) != 1 {
			t.Errorf("%d answers lost, blobs %q, want one of each", lost, all)
		}
	})

	t.Run("the container is deleted", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		s := open(t, c)
		open(t, c) // it is there
		if _, err := c.Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), deadletter.Undelivered, "20260301T120000.250Z-0123456789abcdef"); !errors.Is(err, deadletter.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		keep(t, s, refused(1))
		if all := names(t, c); len(all) != 1 {
			t.Errorf("blobs %q, want one", all)
		}
	})

	t.Run("pages, oldest first", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		s := open(t, c)
		const n = 150
		var writing sync.WaitGroup
		for i := range n {
			writing.Go(func() {
				if err := s.Keep(t.Context(), refused(i)); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
		upload(t, c, "alerts/README.json", "not a letter")

		letters, pages := list(t, s, time.Time{})
		if len(letters) != n || len(pages) < 3 || slices.Max(pages) > 64 {
			t.Fatalf("%d letters in pages of %d, want %d in at least 3 of at most 64", len(letters), pages, n)
		}
		for i, l := range letters {
			if l.Alert != refused(i).Alert {
				t.Fatalf("letter %d is about %s", i, l.Alert.Device)
			}
		}
		if letters, _ := list(t, s, refused(n-10).Alert.Enqueued); len(letters) != 10 || letters[0].Alert != refused(n-10).Alert {
			t.Errorf("%d letters since the tenth last", len(letters))
		}
		for range s.List(t.Context(), deadletter.Undelivered, time.Time{}) {
			break
		}
	})

	t.Run("what cannot be read is no end of the list", func(t *testing.T) {
		name := azurite.NewContainer()
		s := open(t, azurite.Container(t, name, transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".json") {
				return nil, errors.New("connection reset by peer")
			}
			return azurite.Transport().RoundTrip(r)
		})))
		keep(t, s, refused(1))
		failed := false
		for _, err := range s.List(t.Context(), deadletter.Undelivered, time.Time{}) {
			failed = failed || err != nil
		}
		if !failed {
			t.Error("no error although a letter could not be read")
		}
	})

	t.Run("only the letter that was read is deleted", func(t *testing.T) {
		c := azurite.Container(t, azurite.NewContainer(), nil)
		s := open(t, c)
		keep(t, s, refused(1), refused(2))
		letters, _ := list(t, s, time.Time{})
		upload(t, c, names(t, c)[0], "{}")
		if err := s.Delete(t.Context(), letters[0]); !errors.Is(err, deadletter.ErrNotFound) {
			t.Errorf("Delete of what was changed: %v", err)
		}
		if err := s.Delete(t.Context(), letters[1]); err != nil {
			t.Errorf("Delete: %v", err)
		}
		if err := s.Delete(t.Context(), letters[1]); !errors.Is(err, deadletter.ErrNotFound) {
			t.Errorf("Delete of what is gone: %v", err)
		}
		left, _ := list(t, s, time.Time{})
		if len(left) != 1 || left[0].ID != letters[0].ID || left[0].Broken == nil {
			t.Errorf("left: %+v", left)
		}
	})

	t.Run("an alert that no receiver can be told", func(t *testing.T) {
		s := open(t, azurite.Container(t, azurite.NewContainer(), nil))
		d := refused(1)
		d.Alert.ID, d.Alert.Enqueued = "", time.Date(12026, 3, 1, 0, 0, 0, 0, time.UTC)
		keep(t, s, d)
		letters, _ := list(t, s, time.Time{})
		if len(letters) != 1 || letters[0].Broken == nil || !strings.Contains(letters[0].Broken.Error(), "device-1") || letters[0].Reason != d.Reason {
			t.Errorf("letters: %+v", letters)
		}
	})

	t.Run("secrets are not told", func(t *testing.T) {
		name := azurite.NewContainer()
		var told []error
		open(t, azurite.Container(t, name, nil))
		s := open(t, azurite.SharedContainer(t, name, nil, sas.AccountPermissions{Read: true}))
		told = append(told, s.Keep(t.Context(), refused(1)), s.Delete(t.Context(), deadletter.Letter{Kind: deadletter.Undelivered, ID: "20260301T120000.250Z-0123456789abcdef"}))
		for _, err := range s.List(t.Context(), deadletter.Undelivered, time.Time{}) {
			told = append(told, err)
		}
		for i, err := range told {
			if err == nil {
				t.Errorf("call %d: no error although it is not allowed", i)
				continue
			}
			if text := fmt.Sprintf("%+v", err); strings.Contains(text, "sig=") || strings.Contains(text, "?") || !strings.Contains(text, name) {
				t.Errorf("call %d: %s", i, text)
			}
		}
	})
}

func upload(t *testing.T, c *container.Client, name, content string) {
	t.Helper()
	if _, err := c.NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(strings.NewReader(content)), nil); err != nil {
		t.Fatal(err)
	}
}

// A service is a container that may refuse everything.
type service struct {
	records.Memory
	refuses bool
}

func (s *service) Write(ctx context.Context, r records.Record) (string, error) {
	if s.refuses {
		return "", errors.New("403 AuthorizationFailure")
	}
	return s.Memory.Write(ctx, r)
}

// blobs returns what it has.
func (s *service) blobs(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := records.All(t.Context(), &s.Memory, "")
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	for _, r := range all {
		r, err := s.Read(t.Context(), r.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		blobs[r.Name] = r.Content
	}
	return blobs
}

// onService returns a store on a service that answers well.
func onService(log *zap.Logger) (*deadletter.Store, *service) {
	service := &service{}
	return deadletter.New(service, log), service
}

// The log says of each letter which rule and level its alert is about, and whether it is resolved.
func TestLine(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	s, _ := onService(zap.New(core))
	keep(t, s, refused(1), notify.DeadLetter{Alert: notifytest.Resolved(notifytest.Sustained()), Receiver: receiver, Reason: "refused"})
	first, second := lines.All()[0].ContextMap(), lines.All()[1].ContextMap()
	if first["alert_level"] != "" || first["rule"] != "temperature" || first["resolved"] != false {
		t.Errorf("the line has %v", first)
	}
	if second["rule"] != "hot" || second["alert_level"] != "critical" || second["resolved"] != true {
		t.Errorf("the line has %v", second)
	}
}

func TestAlertsAreNotBoundedButTheirLinesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		s, service := onService(zap.New(core))
		for i := range 500 {
			keep(t, s, refused(i))
		}
		if len(service.blobs(t)) != 500 || lines.Len() != 10 {
			t.Errorf("%d blobs and %d lines, want 500 and 10", len(service.blobs(t)), lines.Len())
		}
		if got := lines.All()[0].ContextMap(); got["device"] != "device-0" || got["receiver"] != "example.com" || got["id"] != refused(0).Alert.ID {
			t.Errorf("the first line has %v", got)
		}
	})
}

func TestContent(t *testing.T) {
	for name, content := range map[string]notify.DeadLetter{
		"alert":    refused(7),
		"resolved": notify.DeadLetter{Alert: notifytest.Resolved(notifytest.Sustained()), Receiver: receiver, Name: "example.com", Reason: "refused for good"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, service := onService(zap.NewNop())
				err := s.Keep(t.Context(), content)
				if err != nil || len(service.blobs(t)) != 1 {
					t.Fatalf("%d blobs, %v", len(service.blobs(t)), err)
				}
				for path, body := range service.blobs(t) {
					golden(t, name+".json", fmt.Appendf(nil, "/letters/%s\n%s", path, body))
				}
			})
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (go test -update writes it anew); got:\n%s", file, got)
	}
}
