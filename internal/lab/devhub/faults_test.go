package devhub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
)

// What a client loses for a moment it gets back, and no event twice or never.
func TestClientSurvives(t *testing.T) {
	for name, fault := range map[string]func(*devhub.Hub){
		"detach one": func(h *devhub.Hub) { h.Detach("0") },
		"detach all": func(h *devhub.Hub) { h.Detach("") },
		"reset":      func(h *devhub.Hub) { h.Reset() },
		"stall": func(h *devhub.Hub) {
			h.Stall()
			time.AfterFunc(20*time.Millisecond, h.Resume)
		},
		"reset and refused claims": func(h *devhub.Hub) {
			h.RefuseClaims(3, 500)
			h.Reset()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, devhub.Config{Partitions: 1})
			publishNumbers(t, h, 0, 3)
			p := reader(t, consumer(t, h, quickRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: ptr(int64(0))})
			expect(t, p, "0 1 2")
			fault(h)
			publishNumbers(t, h, 3, 6)
			expect(t, p, "3 4 5")
		})
	}
}

func TestDetachSaysHowMany(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 2})
	publishNumbers(t, h, 0, 1)
	p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	expect(t, p, "0")
	if n := h.Detach("1"); n != 0 {
		t.Errorf("detached %d from a partition that nobody reads", n)
	}
	if n := h.Detach("0"); n != 1 || h.Readers("") != 0 {
		t.Errorf("detached %d, %d are left", n, h.Readers(""))
	}
}

func TestStall(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 1)
	p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	expect(t, p, "0")
	h.Stall()
	h.Stall() // once is enough
	publishNumbers(t, h, 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e, err := p.ReceiveEvents(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %q, %v", bodies(e), err)
	}
	h.Resume()
	h.Resume()
	expect(t, p, "1 2")
}

// Nobody waits for a client that a stalled hub has nothing to say to.
func TestCloseWhileStalled(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 1)
	expect(t, reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest}), "0")
	h.Stall()
	publishNumbers(t, h, 1, 2)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	c := consumer(t, h, noRetries)
	h.RefuseClaims(1, 401)
	p := reader(t, c, "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	if _, err := p.ReceiveEvents(t.Context(), 1, nil); !isCode(err, azeventhubs.ErrorCodeUnauthorizedAccess) {
		t.Errorf("a refused claim: %v", err)
	}
	h.RefuseManagement(1, 404)
	if _, err := c.GetEventHubProperties(t.Context(), nil); err == nil {
		t.Error("a refused request was answered")
	}
	if _, err := c.GetEventHubProperties(t.Context(), nil); err != nil {
		t.Errorf("the next request: %v", err)
	}
	publishNumbers(t, h, 0, 1)
	expect(t, p, "0")
}

func TestLatency(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	c := consumer(t, h, noRetries)
	if _, err := c.GetEventHubProperties(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	h.SetLatency(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.GetEventHubProperties(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	// Close does not wait for it.
}

// Of a partition that has expired the numbers stay, and what comes goes on from them.
func TestExpire(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	publishNumbers(t, h, 0, 3)
	c := consumer(t, h, noRetries)
	h.Expire("0")
	h.Stale("0", 1)
	for _, last := range []int64{1, 2} { // the first answer is an old one
		end, err := c.GetPartitionProperties(t.Context(), "0", nil)
		if err != nil || !end.IsEmpty || end.LastEnqueuedSequenceNumber != last || end.BeginningSequenceNumber != 3 || end.LastEnqueuedOffset == "-1" {
			t.Errorf("%+v, %v: want nothing, after the number %d", end, err, last)
		}
	}
	publishNumbers(t, h, 3, 4)
	expect(t, reader(t, c, "0", azeventhubs.PartitionClientOptions{StartPosition: earliest}), "3")
}

// Links end with the claims that they have, and a claim may be lost on the way back.
func TestClaimsThatEnd(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	publishNumbers(t, h, 0, 1)
	p := reader(t, consumer(t, h, noRetries), "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	expect(t, p, "0")
	h.ExpireClaims()
	if n := h.Readers(""); n != 0 {
		t.Errorf("%d readers are left", n)
	}
	publishNumbers(t, h, 1, 2)
	expect(t, p, "1") // with another claim
	h.DropClaims(1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := consumer(t, h, noRetries).GetEventHubProperties(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want no answer", err)
	}
	if _, err := consumer(t, h, noRetries).GetEventHubProperties(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestRefuseLongNames(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	h.RefuseLongNames()
	publishNumbers(t, h, 0, 1)
	for length, ok := range map[int]bool{64: true, 65: false} {
		c, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, &azeventhubs.ConsumerClientOptions{InstanceID: strings.Repeat("n", length), RetryOptions: noRetries})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		if _, err := reader(t, c, "0", azeventhubs.PartitionClientOptions{StartPosition: earliest}).ReceiveEvents(t.Context(), 1, nil); (err == nil) != ok {
			t.Errorf("%d characters: %v", length, err)
		}
	}
}
