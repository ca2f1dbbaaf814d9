package checkup

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// The cases are those of KEDA's GetUnprocessedEventCountInPartition and what it calls;
// internal/lab/e2e compares with KEDA itself.
func TestKEDACount(t *testing.T) {
	state := func(first, last int64) eventhubs.PartitionState {
		return eventhubs.PartitionState{ID: "0", First: first, Last: last}
	}
	const none = -1
	for name, test := range map[string]struct {
		partition  eventhubs.PartitionState
		checkpoint int64
		want       int64
		ahead      bool
	}{
		"never an event":                      {state(0, -1), none, 0, false},
		"never an event, an old checkpoint":   {state(0, -1), 50_000, 0, false},
		"no checkpoint":                       {state(7, 9), none, 3, false},
		"no checkpoint, the first event":      {state(0, 0), none, 1, false},
		"no checkpoint, the only event left":  {state(7, 7), none, 0, false},
		"all read":                            {state(0, 9), 9, 0, false},
		"behind":                              {state(0, 9), 4, 5, false},
		"ahead of an answer that is older":    {state(0, 9), 10_008, 0, false},
		"ahead of a hub that was made again":  {state(0, 9), 10_009, 0, true},
		"behind what the hub has kept (lost)": {state(100, 109), 4, 105, false},
	} {
		t.Run(name, func(t *testing.T) {
			checkpoints := map[string]eventhubs.StoredCheckpoint{}
			if test.checkpoint != none {
				checkpoints["0"] = eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: test.checkpoint}}}
			}
			n, ahead := kedaCount([]eventhubs.PartitionState{test.partition}, checkpoints)
			if n != test.want || ahead != test.ahead {
				t.Errorf("got %d, ahead %v, want %d, %v", n, ahead, test.want, test.ahead)
			}
		})
	}
}

func TestKEDAAdvice(t *testing.T) {
	for _, test := range []struct {
		arrived  int64
		interval time.Duration
		want     string
	}{
		{0, 5 * time.Second, "no event arrived within 2s: check at a busy time"},
		{4, 5 * time.Second, "2 events/s arrive: set unprocessedEventThreshold to at least 64,"}, // KEDA's default
		{26, 5 * time.Second, "13 events/s arrive: set unprocessedEventThreshold to at least 130,"},
		{20_001, 30 * time.Second, "10000.5 events/s arrive: set unprocessedEventThreshold to at least 600030,"},
	} {
		if got := kedaAdvice(test.arrived, 2*time.Second, test.interval); !strings.HasPrefix(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestKEDATrigger(t *testing.T) {
	key := func(s string) config.Config {
		return config.Config{EventHubConnectionString: config.NewSecret(s), EventHubConsumerGroup: "$Default", CheckpointContainer: "cp"}
	}
	keyless := config.Config{EventHubNamespace: "Contoso.servicebus.windows.net", EventHubName: "Telemetry", EventHubConsumerGroup: "Alerts", CheckpointContainer: "cp", StorageAccountURL: "https://store.blob.core.windows.net"}
	const pair = ";SharedAccessKeyName=n;SharedAccessKey=k3y;EntityPath="
	for want, c := range map[string]config.Config{
		"checkpointStrategy blobMetadata, blobContainer cp, consumerGroup alerts, storageAccountName store, eventHubNamespace contoso, eventHubName telemetry":                                                        keyless,
		"checkpointStrategy blobMetadata, blobContainer cp, consumerGroup $default, connection with Endpoint=sb://a.example.com/ and EntityPath=hub":                                                                  key("Endpoint=sb://a.example.com/" + pair + "hub"),
		"checkpointStrategy blobMetadata, blobContainer cp, consumerGroup $default, connection with Endpoint=sb://a.example.com/ and EntityPath=myhub, in lower case as here: with capitals KEDA finds no checkpoint": key("Endpoint=sb://a.example.com/" + pair + "MyHub"),
	} {
		k := newCheckup(t.Context(), c, nil, Services{Resolve: func() (config.Config, error) { return c, nil }})
		got, err := k.kedaTrigger(t.Context())
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
