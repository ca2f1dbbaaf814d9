package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/ops/status"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// hubWith starts a hub of two partitions with an event of device d for each body.
func hubWith(t *testing.T, bodies ...string) *devhub.Hub {
	t.Helper()
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	for i, body := range bodies {
		m := devhub.Message{Device: fmt.Sprint("d", i%2), Body: []byte(body), Partition: fmt.Sprint(i % 2), Enqueued: time.Now()}
		if _, err := hub.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	return hub
}

// runCheck runs a check of hub, with stores in memory unless env says else. It
// returns what the check prints and its exit code.
func runCheck(t *testing.T, hub string, env map[string]string, args ...string) (output string, code int) {
	t.Helper()
	all := map[string]string{
		"EVENTHUB_CONNECTION_STRING": hub,
		"TEMPERATURE_THRESHOLD":      "80",
		"THROTTLE_STORE":             "memory",
		"CHECKPOINT_STORE":           "memory",
		"NOTIFY_URLS":                "log:",
		"REPLICA_NAME":               "test",
	}
	maps.Copy(all, env)
	environment(t, all)
	var b bytes.Buffer
	err := check(t.Context(), &b, args)
	if err != nil {
		code = exitFailed
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			code = coded.ExitCode()
		}
	}
	for name, value := range all {
		for part := range strings.SplitSeq(value, ";") {
			key, secret, ok := strings.Cut(part, "SharedAccessKey=")
			if !ok {
				key, secret, ok = strings.Cut(part, "AccountKey=")
			}
			if ok && key == "" && strings.Contains(b.String(), secret) {
				t.Errorf("%s's key is shown:\n%s", name, b.String())
			}
		}
	}
	if strings.Contains(b.String(), "/t0k3n") {
		t.Errorf("a receiver's path is shown:\n%s", b.String())
	}
	return b.String(), code
}

// line returns the line of a check about what.
func line(t *testing.T, output, what string) string {
	t.Helper()
	for l := range strings.Lines(output) {
		if regexp.MustCompile(`^\S ` + regexp.QuoteMeta(what) + `  `).MatchString(l) {
			return strings.TrimSuffix(l, "\n")
		}
	}
	t.Fatalf("no line about %s in:\n%s", what, output)
	return ""
}

// expect fails unless the line about what has the mark and holds all words.
func expect(t *testing.T, output, what, mark string, words ...string) {
	t.Helper()
	l := line(t, output, what)
	for _, word := range append(words, mark+" ") {
		if !strings.Contains(l, word) {
			t.Errorf("want %s and %q in %q", mark, words, l)
			return
		}
	}
}

// normal replaces what differs from run to run.
func normal(output string) string {
	for _, r := range []struct{ is, becomes string }{
		{`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"},
		{`\d+ ms`, "N ms"},
		{`\d+ s ago`, "N s ago"},
	} {
		output = regexp.MustCompile(r.is).ReplaceAllString(output, r.becomes)
	}
	return output
}

// receiverUp counts requests to a receiver that takes everything.
func receiverUp(t *testing.T, take func(*http.Request) int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(take(r)) }))
	t.Cleanup(server.Close)
	return server.URL + "/t0k3n"
}

// nobody returns an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

func TestCheckAllWell(t *testing.T) {
	requests := 0
	up := receiverUp(t, func(*http.Request) int { requests++; return http.StatusOK })
	hub := hubWith(t, `{"temperature":20}`, `{"temp":"93.5"}`, `{"temperature":null}`, `{`)
	output, code := runCheck(t, hub.ConnectionString(), map[string]string{"NOTIFY_URLS": "log:," + up + ",slack+" + up})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "check-well.golden", normal(output))
	if requests > 0 {
		t.Error("the receiver got a request")
	}
}

func TestCheckRules(t *testing.T) {
	hub := hubWith(t)
	for i, m := range []devhub.Message{
		{Body: []byte(`{"temperature":71}`), Properties: map[string]any{"maxTemp": "85", "mute": "false"}},
		{Body: []byte(`{"temp":72.5}`), Properties: map[string]any{"maxTemp": "$twin.tags.maxTemp", "mute": "$twin.tags.mute"}},
		{Body: []byte(`{"temperature":66}`)},
		{Body: []byte(`{"probe":{"temperature":4}}`), Properties: map[string]any{"mute": "yes"}},
	} {
		m.Device, m.Partition, m.Enqueued = fmt.Sprint("d", i%2), fmt.Sprint(i%2), time.Now()
		if _, err := hub.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const file = `rules:
- name: hot
  field: temperature, temp
  above: {warning: 70, critical: maxTemp or 80}
  clear: 65
  for: 2m
  window: 10m
  resolved: true
- {name: cold-chain, field: probe.temp, below: 2}
`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	output, code := runCheck(t, hub.ConnectionString(), map[string]string{"TEMPERATURE_THRESHOLD": "", "RULES_FILE": path})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "check-rules.golden", normal(output))
}

func TestCheckNothingWorks(t *testing.T) {
	hub := hubWith(t)
	wrongKey := strings.Replace(hub.ConnectionString(), "SharedAccessKey=", "SharedAccessKey=wrong", 1)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // that we do not trust it
	secure.StartTLS()
	defer secure.Close()
	output, code := runCheck(t, wrongKey, map[string]string{
		"THROTTLE_STORE":            "blob",
		"CHECKPOINT_STORE":          "blob",
		"STORAGE_CONNECTION_STRING": storage(t, http.StatusForbidden, "AuthorizationPermissionMismatch"),
		"NOTIFY_URLS": "http://" + nobody(t) + "/t0k3n," + secure.URL + "/t0k3n,https://receiver.invalid/t0k3n,https://" +
			strings.TrimPrefix(receiverUp(t, func(*http.Request) int { return http.StatusOK }), "http://"),
	})
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "check-broken.golden", normal(output))
}

// storage is an account that has no container and answers who wants one with
// the status and code given.
func storage(t *testing.T, status int, code string) (connectionString string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, code := status, code
		if r.Method != http.MethodPut {
			status, code = http.StatusNotFound, "ContainerNotFound"
		}
		w.Header().Set("x-ms-error-code", code)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>no</Message></Error>`, code)
		}
	}))
	t.Cleanup(server.Close)
	return "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=" + key64 + ";BlobEndpoint=" + server.URL + "/acc;"
}

func TestCheckDistinguishesHubs(t *testing.T) {
	hub := hubWith(t)
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"wrong name": {map[string]string{"EVENTHUB_CONNECTION_STRING": strings.Replace(hub.ConnectionString(), "EntityPath=", "EntityPath=x", 1)},
			"there is no event hub xtelemetry"},
		"nothing there": {map[string]string{"EVENTHUB_CONNECTION_STRING": strings.Replace(hub.ConnectionString(), hub.Addr(), nobody(t), 1)},
			"nothing listens at 127.0.0.1"},
		"no such host": {map[string]string{"EVENTHUB_CONNECTION_STRING": strings.Replace(hub.ConnectionString(), hub.Addr(), "nowhere.invalid", 1)},
			"cannot find the host nowhere.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			output, code := runCheck(t, "", test.env)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			expect(t, output, "hub", "✗", test.want, "check ")
			expect(t, output, "events", "–", "not checked")
			expect(t, output, "receiver", "·")
		})
	}
}

func TestCheckIoTHubFails(t *testing.T) {
	output, code := runCheck(t, "", map[string]string{
		"IOTHUB_CONNECTION_STRING": "HostName=hub.invalid;SharedAccessKeyName=service;SharedAccessKey=" + key64,
	})
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	expect(t, output, "IoT Hub", "✗", "cannot find the host hub.invalid", "check HostName")
	expect(t, output, "hub", "–", "not checked")
	expect(t, output, "events", "–", "not checked")
	expect(t, output, "throttle store", "✓")
}

func TestCheckWhileAWorkerReads(t *testing.T) {
	hub := hubWith(t, `{"temperature":20}`, `{"temperature":20}`)
	workerIn(t, hub, "$Default")
	output, code := runCheck(t, hub.ConnectionString(), nil)
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	expect(t, output, "hub", "✓", "2 being read in this consumer group")
	expect(t, output, "events", "✓", "2 read: 2 readings")
	if hub.Readers("") != 2 {
		t.Errorf("%d readers are left, want the worker's 2", hub.Readers(""))
	}

	workerIn(t, hub, "alertworker-check")
	output, code = runCheck(t, hub.ConnectionString(), nil)
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	expect(t, output, "events", "–", "a worker is reading them in the consumer group $Default", "add a consumer group alertworker-check")
	expect(t, output, "partitions", "–", "not checked: see events")
}

// workerIn reads a hub's two partitions in a consumer group as a worker does.
func workerIn(t *testing.T, hub *devhub.Hub, group string) {
	t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(hub.ConnectionString(), "", group, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	earliest, level := true, int64(0)
	for _, id := range []string{"0", "1"} {
		reader, err := client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{
			StartPosition: azeventhubs.StartPosition{Earliest: &earliest}, OwnerLevel: &level,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.ReceiveEvents(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckInvalidSettings(t *testing.T) {
	output, code := runCheck(t, "", nil)
	if code != 1 || output != "✗ settings  not valid, so nothing else was checked\n" {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestCheckNotify(t *testing.T) {
	type payload struct {
		Type, Subject string
		Data          struct {
			Temperature float64
			Test        bool
		}
	}
	var got []payload
	up := receiverUp(t, func(r *http.Request) int {
		var p payload
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		got = append(got, p)
		return http.StatusAccepted
	})
	gone := receiverUp(t, func(*http.Request) int { return http.StatusNotFound })
	output, code := runCheck(t, hubWith(t).ConnectionString(), map[string]string{"NOTIFY_URLS": up + "," + gone}, "--notify")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	expect(t, output, "receiver 1", "✓", "accepted a test alert")
	expect(t, output, "receiver 2", "✗", "answered 404", "check the path")
	if len(got) != 2 || got[0].Data.Temperature != 80 || got[0].Type != "alertworker.temperature.high" || got[1].Type != "alertworker.temperature.normal" {
		t.Errorf("the receiver got %+v, want an alert and its recovery", got)
	}
	for _, p := range got {
		if !p.Data.Test || p.Subject != "alertworker-check" {
			t.Errorf("the receiver got %+v, which is not marked as a test", p)
		}
	}
}

// Every channel gets a marked test, and each line says what came back.
func TestCheckNotifiesReceivers(t *testing.T) {
	answers := map[string]struct {
		code int
		body string
	}{
		"/teams":                             {202, ""},
		"/slack":                             {400, "user_not_found"},
		"/api/v2/alerts":                     {200, ""},
		"/":                                  {401, `{"code":40101,"http":401,"error":"unauthorized"}`}, // ntfy
		"/api/events?api-version=2018-01-01": {200, ""},
	}
	var marked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(string(body), "alertworker-check: 80, at or above 80 (test)") {
			marked.Add(1)
		}
		a := answers[r.URL.RequestURI()]
		w.WriteHeader(a.code)
		fmt.Fprint(w, a.body)
	}))
	defer server.Close()
	output, code := runCheck(t, hubWith(t).ConnectionString(), map[string]string{"NOTIFY_URLS": strings.Join([]string{
		"name=office teams+" + server.URL + "/teams", "slack+" + server.URL + "/slack", "alertmanager+" + server.URL,
		"ntfy+" + server.URL + "/t0k3n", strings.Replace("eventgrid+"+server.URL, "://", "://:t0k3n@", 1),
	}, "\n")}, "--notify")
	if code != 1 || marked.Load() != int64(len(answers)) {
		t.Errorf("exit code %d, %d marked tests", code, marked.Load())
	}
	_, receivers, _ := strings.Cut(normal(output), "✓ receiver 1")
	golden(t, "check-channels.golden", "✓ receiver 1"+receivers)
}

func TestCheckOnAzureStorage(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	hub := hubWith(t, `{"temperature":20}`, `{"temperature":21}`, `{"temperature":22}`)
	checkpoints, windows := azurite.NewContainer(), azurite.NewContainer()
	env := map[string]string{
		"THROTTLE_STORE":            "blob",
		"CHECKPOINT_STORE":          "blob",
		"CHECKPOINT_CONTAINER":      checkpoints,
		"THROTTLE_CONTAINER":        windows,
		"STORAGE_CONNECTION_STRING": azurite.ConnectionString,
	}
	for _, store := range []string{"blob", "blob-lease"} {
		env["THROTTLE_STORE"] = store
		for range 2 { // a check finds what the one before it left
			output, code := runCheck(t, hub.ConnectionString(), env)
			if code != 0 {
				t.Fatalf("exit code %d:\n%s", code, output)
			}
			expect(t, output, "checkpoints", "✓", "readable and writable", "no checkpoints yet: the first start begins at latest")
			expect(t, output, "throttle store", "✓", "acquired and released a lease")
			expect(t, output, "alerts", "–", "no replica is running")
			expect(t, output, "dead letters", "✓", "can be written")
		}
	}

	// It wrote in no consumer group but its own.
	pager := azurite.Container(t, checkpoints, nil).NewListBlobsFlatPager(nil)
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, blob := range page.Segment.BlobItems {
			if !strings.Contains(*blob.Name, "/alertworker-check/checkpoint/") {
				t.Errorf("a check wrote %s", *blob.Name)
			}
		}
	}

	// It finds what a worker wrote.
	settle(t, hub.ConnectionString(), 3, azurite.Container(t, checkpoints, nil))
	output, _ := runCheck(t, hub.ConnectionString(), env)
	expect(t, output, "checkpoints", "✓", "2 checkpoints")

	// Another program reads in the worker's consumer group: it owns nothing in these checkpoints.
	workerIn(t, hub, "$Default")
	output, _ = runCheck(t, hub.ConnectionString(), env)
	expect(t, output, "hub", "!", "2 being read in this consumer group", "another program reads the consumer group $Default")
}

// It says at once if running replicas decide by other rules: they themselves wait for longer than a rollout takes.
func TestCheckComparesRules(t *testing.T) {
	azurite, hub := emulators.StartAzurite(t), hubWith(t)
	env := map[string]string{
		"THROTTLE_STORE": "blob", "CHECKPOINT_STORE": "blob", "CHECKPOINT_CONTAINER": azurite.NewContainer(), "STORAGE_CONNECTION_STRING": azurite.ConnectionString,
		"TEMPERATURE_THRESHOLD": "80", "EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "REPLICA_NAME": "w1", "NOTIFY_URLS": "log:",
	}
	var settings []string
	for name, value := range env {
		settings = append(settings, name+"="+value)
	}
	runWorker(t, settings...).becomes(status.GoingOut, http.StatusOK)
	output, _ := runCheck(t, hub.ConnectionString(), env)
	expect(t, output, "replicas", "✓", "no replicas with other settings or rules are active")
	env["TEMPERATURE_THRESHOLD"] = "60"
	output, code := runCheck(t, hub.ConnectionString(), env)
	expect(t, output, "replicas", "!", "replica w1 has temperature above 80, here 60")
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

// settle reads a hub's n events as a worker does.
func settle(t *testing.T, hub string, n int32, c *container.Client) {
	t.Helper()
	store, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := eventhubs.New(eventhubs.Config{ConnectionString: hub, Start: eventhubs.Start{Earliest: true}, Records: records.Reliable(store)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var left atomic.Int32
	left.Store(n)
	_ = source.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		for {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			if err := p.Checkpoint(ctx, telemetry.Checkpoint{Position: events[len(events)-1].Position}); err != nil {
				return err
			}
			if left.Add(-int32(len(events))) == 0 {
				stop()
			}
		}
	})
}

// Each thing that is kept in an account that does not answer says what to do.
func TestCheckStorageIsDown(t *testing.T) {
	hub := hubWith(t)
	output, exit := runCheck(t, hub.ConnectionString(), map[string]string{
		"CHECKPOINT_STORE": "blob", "THROTTLE_STORE": "blob",
		"STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=" + key64 + ";BlobEndpoint=http://" + nobody(t) + "/acc;",
	})
	if exit != 1 {
		t.Errorf("exit code %d:\n%s", exit, output)
	}
	for _, step := range []string{"checkpoints", "throttle store", "dead letters"} {
		expect(t, output, step, "✗", "connection refused", "check the address in STORAGE_CONNECTION_STRING")
	}
	for _, step := range []string{"replicas", "alerts"} {
		expect(t, output, step, "–", "not checked")
	}
}

func TestCheckDistinguishesStorageFailures(t *testing.T) {
	hub := hubWith(t)
	for code, want := range map[string]string{
		"AuthenticationFailed":            "the credentials were rejected",
		"AuthorizationPermissionMismatch": "Storage Blob Data Contributor",
		"ContainerBeingDeleted":           "wait a minute",
	} {
		t.Run(code, func(t *testing.T) {
			status := http.StatusForbidden
			if code == "ContainerBeingDeleted" {
				status = http.StatusConflict
			}
			output, exit := runCheck(t, hub.ConnectionString(), map[string]string{
				"CHECKPOINT_STORE": "blob", "STORAGE_CONNECTION_STRING": storage(t, status, code),
			})
			if exit != 1 {
				t.Errorf("exit code %d", exit)
			}
			expect(t, output, "checkpoints", "✗", want)
			expect(t, output, "dead letters", "✗", want)
			expect(t, output, "throttle store", "✓")
		})
	}
}
