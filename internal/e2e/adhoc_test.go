//go:build unix

package e2e_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lease/blobetag"
	"alertworker/internal/standin"
	"alertworker/internal/throttle"
)

type counting struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func TestAdhocBusy(t *testing.T) {
	a := standin.StartAzurite(t)
	via := &counting{RoundTripper: a.Transport()}
	s, err := blobetag.Open(t.Context(), a.Container(t, a.NewContainer(), via))
	if err != nil {
		t.Fatal(err)
	}
	g := throttle.New(throttle.Config{Store: s, Scope: "a/b/c", Receiver: "r", Window: 3 * time.Second, SendTimeout: time.Second})
	sent := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if g.Recent("d") {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		r, err := g.Do(t.Context(), throttle.Request{Device: "d", ID: "x", Enqueued: time.Now()}, func(context.Context, throttle.Grant) throttle.Answer { sent++; return throttle.Taken })
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == throttle.Busy {
			time.Sleep(time.Until(r.Retry)) // as the flight does
		}
	}
	t.Logf("%d alerts of one device, %d requests", sent, via.n.Load())
}
