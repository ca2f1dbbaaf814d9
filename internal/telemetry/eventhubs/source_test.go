package eventhubs_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// azeventhubs, by which tests read too, renews a client's claim until that
		// ends, even after the client was closed: hours.
		goleak.IgnoreAnyFunction("github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/internal.(*Namespace).startNegotiateClaimRenewer.func3"))
}

// A hub is what the Sources of a test share.
type hub struct {
	*devhub.Hub
	store     *faultyStore
	transport transport.Transport
}

// overBoth runs a test over AMQP and over WebSockets.
func overBoth(t *testing.T, test func(t *testing.T, over transport.Transport)) {
	t.Parallel()
	for _, over := range []transport.Transport{transport.AMQP, transport.WebSocket} {
		t.Run(string(over), func(t *testing.T) {
			t.Parallel()
			test(t, over)
		})
	}
}

// over makes the hub's sources use a transport.
func (h *hub) over(t transport.Transport) *hub {
	h.transport = t
	return h
}

func newHub(t *testing.T, partitions int) *hub {
	t.Helper()
	return newHubOf(t, devhub.Config{Partitions: partitions})
}

func newHubOf(t *testing.T, c devhub.Config) *hub {
	t.Helper()
	c.Hub = "Telemetry"
	c.EchoEvery = 100 * time.Millisecond
	h, err := devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return &hub{Hub: h, store: newFaultyStore()}
}

func (h *hub) config() eventhubs.Config {
	return eventhubs.Config{
		ConnectionString: h.ConnectionString(),
		Transport:        h.transport,
		Start:            eventhubs.Start{Earliest: true},
		BalanceInterval:  100 * time.Millisecond,
		OwnershipExpiry:  time.Second,
		Records:          h.store,
	}
}

func (h *hub) source(t *testing.T, config eventhubs.Config) *eventhubs.Source {
	t.Helper()
	s, err := eventhubs.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.SetLimits(200*time.Millisecond, time.Hour, time.Minute, 300*time.Millisecond, time.Hour)
	return s
}

func (h *hub) Partitions() []string { return []string{"0", "1"} }

func (h *hub) Source(t *testing.T) telemetry.Source {
	return h.source(t, h.config())
}

func (h *hub) Publish(t *testing.T, partition string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if _, err := h.Hub.Publish(devhub.Message{Device: "device", Partition: partition, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
}
