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
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/config"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/eventhubs/blobcheckpoint"
	"alertworker/internal/telemetry/ownership"
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
		m := devhub.Message{Device: "d", Body: []byte(body), Partition: fmt.Sprint(i % 2), Enqueued: time.Now()}
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
	err := checkTo(t.Context(), report{w: &b}, args)
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
				t.Errorf("%s's key is told:\n%s", name, b.String())
			}
		}
	}
	if strings.Contains(b.String(), "/t0k3n") {
		t.Errorf("a receiver's path is told:\n%s", b.String())
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
		{`\d+s ago`, "Ns ago"},
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
	output, code := runCheck(t, hub.ConnectionString(), map[string]string{"NOTIFY_URLS": "log:," + up})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "check-well.golden", normal(output))
	if requests > 0 {
		t.Error("the receiver got a request")
	}
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

func TestCheckTellsHubsApart(t *testing.T) {
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
			expect(t, output, "events", "–", "not tried")
			expect(t, output, "receiver", "✓")
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
	expect(t, output, "hub", "–", "not tried")
	expect(t, output, "events", "–", "not tried")
	expect(t, output, "throttle store", "✓")
}

func TestCheckWhileAWorkerReads(t *testing.T) {
	hub := hubWith(t, `{"temperature":20}`, `{"temperature":20}`)
	client, err := azeventhubs.NewConsumerClientFromConnectionString(hub.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
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
	output, code := runCheck(t, hub.ConnectionString(), nil)
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	expect(t, output, "hub", "✓", "a worker reads 2 of them")
	expect(t, output, "events", "–", "a worker is reading them")
	if hub.Readers("") != 2 {
		t.Errorf("%d readers are left, want the worker's 2", hub.Readers(""))
	}
}

func TestCheckInvalidSettings(t *testing.T) {
	output, code := runCheck(t, "", nil)
	if code != 1 || output != "✗ settings  not valid, so nothing was tried\n" {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestCheckNotify(t *testing.T) {
	type payload struct {
		Subject string
		Data    struct {
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
	expect(t, output, "receiver 1", "✓", "took a test alert")
	expect(t, output, "receiver 2", "✗", "answered 404", "check the path")
	if len(got) != 1 || !got[0].Data.Test || got[0].Subject != checkDevice || got[0].Data.Temperature != 80 {
		t.Errorf("the receiver got %+v", got)
	}
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
			expect(t, output, "checkpoints", "✓", "reads and writes", "no checkpoint yet, the first start begins at latest")
			expect(t, output, "throttle store", "✓", "a lease taken and given back")
			expect(t, output, "dead letters", "✓", "writes and lists; 0 letters of today's readings")
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
			if !strings.Contains(*blob.Name, "/"+checkGroup+"/checkpoint/") {
				t.Errorf("a check wrote %s", *blob.Name)
			}
		}
	}

	// It finds what a worker wrote.
	settle(t, hub.ConnectionString(), 3, azurite.Container(t, checkpoints, nil))
	output, _ := runCheck(t, hub.ConnectionString(), env)
	expect(t, output, "checkpoints", "✓", "2 checkpoints, 0 events behind")
}

// settle reads a hub's n events as a worker does.
func settle(t *testing.T, hub string, n int32, c *container.Client) {
	t.Helper()
	source, err := eventhubs.New(eventhubs.Config{ConnectionString: hub, Start: eventhubs.Start{Earliest: true}, Checkpoints: blobcheckpoint.New(c), Ownership: &ownership.Memory{}})
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
			if err := p.Checkpoint(ctx, events[len(events)-1].Position); err != nil {
				return err
			}
			if left.Add(-int32(len(events))) == 0 {
				stop()
			}
		}
	})
}

func TestCheckTellsStorageFailuresApart(t *testing.T) {
	hub := hubWith(t)
	for code, want := range map[string]string{
		"AuthenticationFailed":            "the credentials were refused",
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
	for variable, k := range map[string]checkup{
		"STORAGE_CONNECTION_STRING": {config: config.Config{StorageConnectionString: config.NewSecret("x")}},
		"STORAGE_ACCOUNT_URL":       {},
	} {
		if err := k.storageError(errors.New("no answer from x")); !strings.Contains(err.Error(), "check the address in "+variable) {
			t.Errorf("got %q", err)
		}
	}
}

func TestProgress(t *testing.T) {
	hub := hubWith(t, "1", "2", "3", "4", "5") // sequences 0 to 2 and 0 to 1
	environment(t, map[string]string{
		"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "TEMPERATURE_THRESHOLD": "80",
		"THROTTLE_STORE": "memory", "CHECKPOINT_STORE": "memory", "NOTIFY_URLS": "log:",
	})
	c, log, rs, err := configure()
	if err != nil {
		t.Fatal(err)
	}
	k, err := newCheckup(t.Context(), c, rs, log)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	at := func(sequences ...int64) map[string]eventhubs.Checkpoint {
		all := map[string]eventhubs.Checkpoint{}
		for i, sequence := range sequences {
			all[strconv.Itoa(i)] = eventhubs.Checkpoint{Position: telemetry.Position{Sequence: sequence}}
		}
		return all
	}
	others := at(1, 100)
	others["1"] = eventhubs.Checkpoint{Position: others["1"].Position, HubCreated: time.Now().Add(-time.Hour)}
	for want, written := range map[string]map[string]eventhubs.Checkpoint{
		"no checkpoint yet, the first start begins at latest": nil,
		"1 checkpoint, 2 events behind":                       at(0),
		"2 checkpoints, 1 event behind":                       at(1, 1),
		"2 checkpoints, 0 events behind":                      at(9, 1),
		"2 checkpoints, 1 event behind; 1 is of another hub of this name, deleted or failed over: workers start over there": others,
	} {
		if got := k.progress(written); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Steps run side by side, each within its limit, and print in order.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		var b bytes.Buffer
		start := time.Now()
		err := report{w: &b, color: true}.run(t.Context(), []step{
			{"slow", 2 * time.Second, slow},
			{"slow too", 3 * time.Second, slow},
			{"quick", time.Second, func(context.Context) (string, error) { return "well\n\x1b[31mred", nil }},
			{"odd", time.Second, func(context.Context) (string, error) { return "", undecided("who knows") }},
		})
		want := "\x1b[31m✗\x1b[0m slow      no answer within 2s\n" +
			"\x1b[31m✗\x1b[0m slow too  no answer within 3s\n" +
			"\x1b[32m✓\x1b[0m quick     well \uFFFD[31mred\n" +
			"\x1b[33m–\x1b[0m odd       who knows\n" +
			"\n1 of 4 checks passed, 1 could not be tried\n"
		if b.String() != want || err == nil {
			t.Errorf("got %v and:\n%s\nwant:\n%s", err, b.String(), want)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v: one after the other?", took)
		}
	})
	if err := (report{w: io.Discard}).run(t.Context(), []step{{"odd", time.Second, func(context.Context) (string, error) { return "", undecided("") }}}); err != nil {
		t.Errorf("nothing failed: %v", err)
	}
}

func TestSample(t *testing.T) {
	const none = "<none>"
	event := func(device, source, body string) telemetry.Event {
		return telemetry.Event{Device: device, MessageSource: source, Body: []byte(body)}
	}
	hot := event("d", "", `{"temperature":93.5,"temp":1}`)
	for name, test := range map[string]struct {
		fields    string
		events    []telemetry.Event
		want, err string
		undecided bool
	}{
		"all well": {"temperature,temp", []telemetry.Event{hot, event("d", "Telemetry", `{"temp":20}`)},
			"2 read: temperature in 1, temp in 1, hottest 93.5 with the limit at 80", none, false},
		"the hotter of two": {"temperature,temp", []telemetry.Event{event("d", "", `[{"temperature":20},{"temp":95}]`)},
			"1 read: temp in 1, hottest 95 with the limit at 80", none, false},
		"some not": {"temperature", []telemetry.Event{hot, event("d", "", "{"), event("d", "", "{"), event("d", "twinChangeEvents", "{}")},
			"4 read: temperature in 1, hottest 93.5 with the limit at 80; 3 not decoded: not_telemetry 1, malformed 2", none, false},
		"another field": {"temperature , temp", []telemetry.Event{event("d", "", `{"machine":{"rpm":900,"coreTemp":71}}`), event("d", "", `{"machine":{"rpm":900}}`)},
			"", "no reading in 2 events at temperature or temp (missing 2); numbers are at machine.coreTemp (1), machine.rpm (2): set TEMPERATURE_FIELD=machine.coreTemp if that is the reading", false},
		"no likely field": {"temp", []telemetry.Event{event("d", "", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`)},
			"", "no reading in 1 event at temp (missing 1); numbers are at a (1), b (1), c (1), d (1), e (1): set TEMPERATURE_FIELD to the one that is the reading", false},
		"no numbers": {"temp", []telemetry.Event{event("d", "", `{"temp":"hot"}`), event("d", "", "")},
			"", "no reading in 2 events at temp (empty 1, not_a_number 1); they hold no number that could be one", false},
		"no IoT Hub": {"temp", []telemetry.Event{event("", "", `{"temp":1}`)},
			"", "none of 1 event names a device: only what comes through an IoT Hub does, so this event hub is not an IoT Hub's", false},
		"no telemetry": {"temp", []telemetry.Event{event("d", "deviceLifecycleEvents", `{"temp":1}`)},
			"", "1 event read, none of them telemetry (twin changes, lifecycle events): check again when devices send some", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSample(test.fields)
			if err != nil {
				t.Fatal(err)
			}
			for i := range test.events {
				s.add(&test.events[i])
			}
			got, err := s.verdict(80)
			text := none
			if err != nil {
				text = err.Error()
			}
			if got != test.want || text != test.err || errors.As(err, new(undecided)) != test.undecided {
				t.Errorf("got %q, %q", got, text)
			}
		})
	}
}
