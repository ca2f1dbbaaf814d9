package eventhubs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
)

const connection = "Endpoint=sb://Telemetry.servicebus.windows.net/;SharedAccessKeyName=listen;SharedAccessKey=s3cr3tKey"

func TestNew(t *testing.T) {
	store := &records.Memory{}
	credential, err := azidentity.NewClientSecretCredential("tenant", "client", "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config eventhubs.Config
		names  string
		wrong  []string // what the error says; none if there is no error
	}{
		"connection string": {
			config: eventhubs.Config{ConnectionString: connection + ";EntityPath=Readings", Records: store},
			names:  "telemetry.servicebus.windows.net/readings/$default",
		},
		"hub beside the string": {
			config: eventhubs.Config{ConnectionString: connection, Hub: "readings", ConsumerGroup: "Alerts", Records: store},
			names:  "telemetry.servicebus.windows.net/readings/alerts",
		},
		"hub named twice, the same": {
			config: eventhubs.Config{ConnectionString: connection + ";EntityPath=readings", Hub: "readings", Records: store},
			names:  "telemetry.servicebus.windows.net/readings/$default",
		},
		"emulator": {
			config: eventhubs.Config{ConnectionString: "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;EntityPath=readings", Records: store},
			names:  "127.0.0.1:5672/readings/$default",
		},
		"keyless": {
			config: eventhubs.Config{Namespace: "telemetry.servicebus.windows.net", Credential: credential, Hub: "readings", Records: store},
			names:  "telemetry.servicebus.windows.net/readings/$default",
		},
		"broken string": {
			config: eventhubs.Config{ConnectionString: "SharedAccessKey=s3cr3tKey", Hub: "h", Records: store},
			wrong:  []string{"connection string"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := eventhubs.New(test.config)
			if len(test.wrong) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if got := source.Names(); got != test.names {
					t.Errorf("records are named %s, want %s", got, test.names)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.wrong {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("error %q contains a secret", err)
			}
		})
	}
}

func TestOwnersAreDistinct(t *testing.T) {
	config := eventhubs.Config{ConnectionString: connection, Hub: "h", Owner: "replica", Records: &records.Memory{}}
	one, _ := eventhubs.New(config)
	two, _ := eventhubs.New(config)
	if one.Owner() == two.Owner() || !strings.HasPrefix(one.Owner(), "replica-") {
		t.Errorf("owners %s and %s: want two that begin with replica-", one.Owner(), two.Owner())
	}
}

// Azure takes no other characters in the metadata that holds it.
func TestOwnerIsPlain(t *testing.T) {
	s, err := eventhubs.New(eventhubs.Config{ConnectionString: connection, Hub: "h", Owner: "Halle 3/Süd", Records: &records.Memory{}})
	if err != nil || !strings.HasPrefix(s.Owner(), "Halle_3_S_d-") {
		t.Errorf("the owner is %s, %v", s.Owner(), err)
	}
}

func TestStart(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]eventhubs.Start{
		"":                     {},
		"latest":               {},
		"earliest":             {Earliest: true},
		"2026-01-02T03:04:05Z": {Time: at},
	} {
		var got eventhubs.Start
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
		if text != "" && got.String() != text {
			t.Errorf("%q prints as %q", text, got)
		}
	}
	var start eventhubs.Start
	if err := start.UnmarshalText([]byte("yesterday")); err == nil {
		t.Error(`"yesterday" was taken`)
	}
}
