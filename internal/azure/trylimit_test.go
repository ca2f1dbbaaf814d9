package azure_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// slowly answers each request after as long as it says; negative: never.
type slowly func(*http.Request) time.Duration

func (s slowly) Do(r *http.Request) (*http.Response, error) {
	var answered <-chan time.Time
	if d := s(r); d >= 0 {
		answered = time.After(d)
	}
	select {
	case <-answered:
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// call makes a request that is repeated as stores do it.
func call(ctx context.Context, t *testing.T, c interface {
	Do(*http.Request) (*http.Response, error)
}, method string) (tries int, err error) {
	t.Helper()
	for try := 0; ; try++ {
		r, err := http.NewRequestWithContext(ctx, method, "https://acc.blob.core.windows.net/c/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err == nil {
			_ = resp.Body.Close()
			return try + 1, nil
		}
		if !azure.ShouldRetry(ctx, try, err) {
			return try + 1, err
		}
	}
}

// A request gets twice as long after one that was not answered in time, and what was learned is remembered, until
// everything has been fast for a while.
func TestSlowIsNotAway(t *testing.T) {
	for _, test := range []struct {
		takes time.Duration
		tries int // of the first call; the next ones need one
	}{
		{900 * time.Millisecond, 1},
		{1050 * time.Millisecond, 2},
		{2100 * time.Millisecond, 3},
		{5 * time.Second, 4},
		{7900 * time.Millisecond, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			takes := test.takes
			c := azure.LimitTries(slowly(func(*http.Request) time.Duration { return takes }))
			for n, want := range []int{test.tries, 1, 1} {
				if tries, err := call(t.Context(), t, c, http.MethodPut); err != nil || tries != want {
					t.Errorf("%v: call %d needed %d tries, want %d: %v", takes, n+1, tries, want, err)
				}
			}
			takes = 10 * time.Millisecond
			for range 200 { // fast again
				time.Sleep(time.Second)
				_, _ = call(t.Context(), t, c, http.MethodPut)
			}
			takes = -1
			start := time.Now()
			_, err := call(t.Context(), t, c, http.MethodPut)
			if took := time.Since(start); err == nil || took < 15*time.Second || took > 17*time.Second {
				t.Errorf("a service that never answers: %v after %v, want 1, 2, 4 and 8 s", err, took)
			}
		})
	}
}

// A request that got lost among others that are answered is repeated after a second, and takes no time from anybody.
func TestLostRequestTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := false
		c := azure.LimitTries(slowly(func(r *http.Request) time.Duration {
			if r.Context().Value(t) != nil && !lost {
				lost = true
				return -1
			}
			return 10 * time.Millisecond
		}))
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					_, _ = call(t.Context(), t, c, http.MethodPut)
				}
			}
		}()
		for range 5 {
			lost = false
			start := time.Now()
			_, err := call(context.WithValue(t.Context(), t, true), t, c, http.MethodPut)
			if took := time.Since(start); err != nil || took > 1200*time.Millisecond {
				t.Errorf("%v after %v", err, took)
			}
		}
		close(stop)
		synctest.Wait()
	})
}

// Slow writes are learned about though reads are fast.
func TestReadsAndWritesAreLearnedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := azure.LimitTries(slowly(func(r *http.Request) time.Duration {
			if r.Method == http.MethodPut {
				return 3 * time.Second
			}
			return 10 * time.Millisecond
		}))
		for range 3 {
			for _, method := range []string{http.MethodHead, http.MethodPut} {
				if _, err := call(t.Context(), t, c, method); err != nil {
					t.Error(err)
				}
			}
		}
		if tries, err := call(t.Context(), t, c, http.MethodPut); tries != 1 || err != nil {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}

// A body belongs to its request.
func TestSlowBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := azure.LimitTries(client).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if got := lease.Summary(err).Error(); !strings.Contains(got, "answers in more than 1s") {
		t.Errorf("%v, want that a service that is connected is slow", err)
	}
}

// Who connected is not told to check the address, and hears the limit that the try had.
func TestSlowSaysSo(t *testing.T) {
	never := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer never.Close()
	client := never.Client()
	defer client.CloseIdleConnections()
	for _, test := range []struct {
		name string
		c    interface {
			Do(*http.Request) (*http.Response, error)
		}
		has, lack string
	}{
		{"connected", client, "answers in more than 1s: it is slow", "address"},
		{"not connected", slowly(func(*http.Request) time.Duration { return -1 }), "no connection to ", "slow"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, never.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = azure.LimitTries(test.c).Do(r) //nolint:bodyclose // there is none
		got := lease.AddHint(lease.Summary(err), "STORAGE_CONNECTION_STRING").Error()
		if !strings.Contains(got, test.has) || strings.Contains(got, test.lack) {
			t.Errorf("%s: %q, want %q and not %q", test.name, got, test.has, test.lack)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the caller's time is said to be over", test.name)
		}
	}
}

// sluggish connects, and notices the end of a request's context a second later.
type sluggish struct{}

func (sluggish) Do(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	<-r.Context().Done()
	time.Sleep(time.Second)
	return nil, r.Context().Err()
}

// A caller that has less time hears what it had, also if a busy machine notices late that it is over.
func TestSlowIsNoticedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://acc.blob.core.windows.net/c/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = azure.LimitTries(sluggish{}).Do(r) //nolint:bodyclose // there is none
		if got := lease.Summary(err).Error(); !strings.Contains(got, "answers in more than 300ms") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, want what the request had, and that the caller's time is over", got)
		}
	})
}
