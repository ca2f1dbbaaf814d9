package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/leader"
	"alertworker/internal/peers"
	"alertworker/internal/records"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// Each directory of testdata/releases is of one release. For each store it has
// everything that a worker of that release left in its containers, and in a golden file
// what that release itself read there. This version must read the same.
//
//	go test ./cmd/alertworker -run Releases -record v1.2.0
//
// records what this version leaves and reads: once for a release, and never again.
var record = flag.String("record", "", "record what this version leaves in its stores as the given release")

const releases = "testdata/releases"

func TestReleases(t *testing.T) {
	kept := []string{"blob", "blob-lease", "cosmos"}
	if *record != "" {
		for _, store := range kept {
			t.Run(*record+"/"+store, func(t *testing.T) { recordRelease(t, *record, store) })
		}
	}
	if testing.Short() {
		kept = kept[:1]
	}
	dirs, err := os.ReadDir(releases)
	if err != nil || len(dirs) == 0 {
		t.Fatal("no releases are recorded: ", err)
	}
	for _, dir := range dirs {
		for _, store := range kept {
			t.Run(dir.Name()+"/"+store, func(t *testing.T) {
				path := filepath.Join(releases, dir.Name(), store)
				want, err := os.ReadFile(path + ".golden")
				if err != nil {
					t.Fatal(err)
				}
				if got := readRelease(t, path+".json"); got != string(want) {
					t.Errorf("this version does not read what %s has left as that release did; it reads\n%s\nwant\n%s", dir.Name(), got, want)
				}
			})
		}
	}
}

// leftovers are what a worker left in its stores.
type leftovers struct {
	Environment map[string]string     `json:"environment"` // of the worker, but for what the stores need
	Blobs       map[string][]leftBlob `json:"blobs"`       // by container
	Documents   []json.RawMessage     `json:"documents,omitempty"`
}

type leftBlob struct {
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Body     json.RawMessage   `json:"body,omitempty"` // every body is JSON
}

// Devices, one for everything that can become of an alert.
const (
	taken    = "Größe 7/oven?#%"
	unknown  = "unknown" // the receiver's answer was lost
	sending  = "sending" // the receiver has not answered yet
	declined = "declined"
)

// hashed is a device whose name is too long for the names of blobs and documents.
var hashed = strings.Repeat("long", 300)

// recordRelease has a worker send alerts, and writes what it leaves while the last of
// them is on its way, and what this version reads of that.
func recordRelease(t *testing.T, release, store string) {
	azurite, cosmos := emulators.StartAzurite(t), emulators.StartCosmos(t)
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: 2, Key: "SAS_KEY_VALUE"})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	arrived, answer, beat := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct{ Subject string }
		_ = json.NewDecoder(r.Body).Decode(&event)
		switch event.Subject {
		case unknown:
			panic(http.ErrAbortHandler)
		case sending:
			arrived <- struct{}{}
			<-answer
		case "":
			select {
			case beat <- struct{}{}:
			default:
			}
		case declined:
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer receiver.Close()

	left := leftovers{Environment: map[string]string{
		"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "EVENTHUB_START": "earliest", "TEMPERATURE_THRESHOLD": "80",
		"NOTIFY_URLS": receiver.URL, "NOTIFY_TIMEOUT": "40s", "HTTP_ADDR": "", "BALANCE_INTERVAL": "1s", "CHECKPOINT_INTERVAL": "100ms",
		"THROTTLE_STORE": store, "HEARTBEAT_URL": "interval=1s " + receiver.URL, "REPLICA_NAME": "w1",
	}}
	env := maps.Clone(left.Environment)
	env["STORAGE_CONNECTION_STRING"], env["COSMOS_CONNECTION_STRING"] = azurite.ConnectionString, cosmos.ConnectionString
	environment(t, env)
	for i, device := range []string{taken, hashed, declined, unknown} {
		if _, err := hub.Publish(devhub.Message{Device: device, Body: []byte(`{"temperature":99}`), Partition: fmt.Sprint(i % 2)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()

	// The unknown answer holds the checkpoint of its partition; that of the other moves.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left.Blobs = dumpBlobs(t, azurite)
		var names []string
		for _, blobs := range left.Blobs {
			for _, b := range blobs {
				names = append(names, b.Name)
			}
		}
		all := strings.Join(names, "\n")
		if slices.ContainsFunc([]string{"/checkpoint/", "/ownership/", "/owner/", "/settings", "alerts/"}, func(part string) bool { return !strings.Contains(all, part) }) {
			if time.Now().After(deadline) {
				t.Fatalf("the worker has left nothing but\n%s", all)
			}
			continue
		}
		break
	}
	<-beat
	if _, err := hub.Publish(devhub.Message{Device: sending, Body: []byte(`{"temperature":99}`), Partition: "0"}); err != nil {
		t.Fatal(err)
	}
	<-arrived
	left.Blobs, left.Documents = dumpBlobs(t, azurite), dumpDocuments(t, cosmos, store)
	close(answer)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	path := filepath.Join(releases, release, store)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(left, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".golden", []byte(readRelease(t, path+".json")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// containers are the default names.
var containers = []string{"alertworker-checkpoints", "alertworker-throttle", "alertworker-deadletters"}

func dumpBlobs(t *testing.T, azurite *emulators.Azurite) map[string][]leftBlob {
	all := map[string][]leftBlob{}
	for _, name := range containers {
		c := azurite.RetryingContainer(t, name, nil)
		pager := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}})
		for pager.More() {
			page, err := pager.NextPage(t.Context())
			if err != nil {
				break // it is not there yet, or not needed
			}
			for _, item := range page.Segment.BlobItems {
				b := leftBlob{Name: *item.Name}
				for k, v := range item.Metadata {
					if b.Metadata == nil {
						b.Metadata = map[string]string{}
					}
					b.Metadata[strings.ToLower(k)] = *v
				}
				if resp, err := c.NewBlobClient(b.Name).DownloadStream(t.Context(), nil); err == nil {
					b.Body, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				all[name] = append(all[name], b)
			}
		}
	}
	return all
}

func documentsURL(cosmos *emulators.Cosmos) string {
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(cosmos.ConnectionString, "AccountEndpoint="), ";")
	return endpoint + "dbs/alertworker/colls/leases/docs"
}

func dumpDocuments(t *testing.T, cosmos *emulators.Cosmos, store string) []json.RawMessage {
	if store != "cosmos" {
		return nil
	}
	resp, err := http.Get(documentsURL(cosmos))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Documents []map[string]any }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	for _, d := range answer.Documents {
		maps.DeleteFunc(d, func(name string, _ any) bool { return strings.HasPrefix(name, "_") }) // the service's own
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

// readRelease puts back what was left and returns what this version reads. Times that the
// services set are now's, so whatever depends on them is left out.
func readRelease(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var left leftovers
	if err := json.Unmarshal(text, &left); err != nil {
		t.Fatal(err)
	}
	azurite := emulators.StartAzurite(t)
	left.Environment["STORAGE_CONNECTION_STRING"] = azurite.ConnectionString
	for name, blobs := range left.Blobs {
		c := azurite.RetryingContainer(t, name, nil)
		if _, err := c.Create(t.Context(), nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) { // a try before did it, unheard
			t.Fatal(err)
		}
		for _, b := range blobs {
			metadata := map[string]*string{}
			for k, v := range b.Metadata {
				metadata[k] = &v
			}
			_, err := c.NewBlockBlobClient(b.Name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader(b.Body)), &blockblob.UploadOptions{Metadata: metadata})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var cosmos *emulators.Cosmos
	if left.Documents != nil {
		cosmos = emulators.StartCosmos(t)
		left.Environment["COSMOS_CONNECTION_STRING"] = cosmos.ConnectionString
	}
	environment(t, left.Environment)
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	log := zap.NewNop()
	s, err := newStores(c, network{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c, s, err = s.open(t.Context(), c, log, false); err != nil {
		t.Fatal(err)
	}
	for _, d := range left.Documents {
		resp, err := http.Post(documentsURL(cosmos), "application/json", bytes.NewReader(d))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatal(resp.Status)
		}
	}

	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	group := eventhubs.NewGroup(c.Hub().Host, c.Hub().Name, c.EventHubConsumerGroup)
	checkpoints, unreadable, err := eventhubs.ReadCheckpoints(t.Context(), s.records, group)
	if err != nil || len(unreadable) > 0 {
		t.Error(err, unreadable)
	}
	for _, id := range slices.Sorted(maps.Keys(checkpoints)) {
		say("checkpoint of %s: %v", id, checkpoints[id].Values())
	}
	owned, err := ownership.List(t.Context(), s.records, string(group))
	if err != nil {
		t.Error(err)
	}
	for _, r := range owned.Partitions {
		say("owner of %s: %s", r.Partition, r.Owner)
	}
	for _, h := range owned.Heartbeats {
		say("heartbeat of %s: leaving %t", h.Owner, h.Leaving)
	}
	say("settings: %s", otherSettings(t, s.records, left, string(group)))

	rs, err := openReceivers(c, nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer rs[0].Close()
	for _, device := range []string{taken, hashed, declined, unknown, sending} {
		g := throttle.New(throttle.Config{Store: s.leases, Scope: c.Scope(), Receiver: rs[0].ID, Window: c.ThrottleWindow, SendTimeout: c.NotifyTimeout})
		st, err := g.Inspect(t.Context(), sensor.Of(device))
		if err != nil {
			t.Error(err)
		}
		say("device %.20s: alert %s, token %d, claimed %s, window recorded %t", device, st.AlertID, st.Token, instant(st.Claimed), !st.Quiet.IsZero())
		if st.Quiet.IsZero() {
			continue
		}
		var again throttle.Result
		for tries := 0; again.Outcome == throttle.Unavailable && tries < 20; tries++ { // the machine may be slow
			again, err = throttletest.Do(t.Context(), g, throttle.Request{Device: device, ID: "new", Enqueued: st.Claimed}, func(context.Context, throttle.Grant) throttle.Answer {
				t.Errorf("device %.20s: an alert is sent for a reading that the window covers", device)
				return throttle.NotTaken
			})
		}
		say("  a reading that the window covers: %v, %v", again.Outcome, err)
	}
	duties, err := s.leases.Read(t.Context(), leader.Key(c.Scope()))
	if err != nil {
		t.Error(err)
	}
	say("duties: term %d since %s", duties.Token, instant(duties.Claimed))
	for letters, err := range s.deadLetters.List(t.Context(), deadletter.Undelivered, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			a := l.Alert
			say("dead letter %s to %s: %s, broken %v", l.ID, l.Receiver, l.Reason, l.Broken)
			say("  alert %s from %s about %s: %v of %v at %s in %s/%d, window %v, token %d until %s, %d suppressed, by %s",
				a.ID, a.Source, a.Device, a.Temperature, a.Threshold, instant(a.Enqueued), a.Partition, a.Sequence, a.Window, a.Token, instant(a.Expires), a.Suppressed, a.Replica)
		}
	}
	return out.String()
}

// otherSettings returns how a replica with another window sees the settings that were left.
func otherSettings(t *testing.T, store records.Store, left leftovers, group string) string {
	for _, b := range left.Blobs[containers[0]] {
		if b.Name != group+"/settings" {
			continue
		}
		var mine peers.Settings
		if err := json.Unmarshal(b.Body, &mine); err != nil {
			t.Fatal(err)
		}
		for name, rule := range mine.Rules {
			rule.Window += time.Second
			mine.Rules[name] = rule
		}
		reason, err := peers.Open(store, group, mine, zap.NewNop()).Look(t.Context())
		if err != nil {
			t.Error(err)
		}
		_, reason, _ = strings.Cut(reason, "(")
		reason, _, _ = strings.Cut(reason, ")")
		return reason
	}
	t.Error("no settings were left")
	return ""
}

// instant formats t, which may be zero, for a golden file.
func instant(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339Nano)
}
