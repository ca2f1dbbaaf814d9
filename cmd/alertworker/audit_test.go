package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/rules"
)

// audited runs an audit, and returns how many notices are accounted for in each way, and what is missing.
func audited(t *testing.T) (counts map[string]int, missing []string) {
	t.Helper()
	var out strings.Builder
	err := runAudit(t.Context(), &out, []string{"--since", "1h", "--group", "auditors", "--rate", "0", "--json"})
	var report struct {
		Counts  map[string]int
		Missing []struct {
			Device   string
			Recovery bool
		}
	}
	if jsonErr := json.Unmarshal([]byte(out.String()), &report); jsonErr != nil {
		t.Fatalf("%v, %v: %s", err, jsonErr, out.String())
	}
	for _, m := range report.Missing {
		missing = append(missing, fmt.Sprint(m.Device, " ", m.Recovery))
	}
	slices.Sort(missing)
	var silent *silentError
	if (len(missing) > 0) != (errors.As(err, &silent) && silent.code == exitFailed) || err != nil && silent == nil {
		t.Errorf("%d are missing: %v", len(missing), err)
	}
	return report.Counts, missing
}

// An audit accounts for everything that a worker has done, and finds exactly what was lost when records
// were deleted or a checkpoint was set forward.
func TestAudit(t *testing.T) {
	storage := emulators.StartAzurite(t).ConnectionString
	hub := hubWith(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "refused") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer receiver.Close()
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage, "NOTIFY_URLS="+receiver.URL,
		"NOTIFY_RESOLVED=true", "THROTTLE_WINDOW=10s")
	w.logs("starting to read") // its containers are there
	publish := func(device string, temperatures ...float64) {
		t.Helper()
		for _, temperature := range temperatures {
			if _, err := hub.Publish(devhub.Message{Device: device, Body: fmt.Appendf(nil, `{"temperature":%v}`, temperature)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	becomes := func(want map[string]int, wantMissing ...string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			counts, missing := audited(t)
			if maps.Equal(counts, want) && slices.Equal(missing, wantMissing) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("accounted for: %v, missing %q; want %v, %q", counts, missing, want, wantMissing)
			}
		}
	}
	for i := range 5 {
		publish(fmt.Sprint("oven", i), 70, 90, 91, 70)
	}
	publish("kiln", 90, 91)
	publish("refused", 90)
	becomes(map[string]int{"recorded": 6, "dead letter": 1})

	w.stop()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := w.get("/healthz"); code == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the worker does not stop")
		}
	}
	publish("late", 90)
	becomes(map[string]int{"recorded": 6, "dead letter": 1, "unsettled": 1})

	blobs := func(name string, change func(c *container.Client, blob *container.BlobItem)) {
		t.Helper()
		c, err := container.NewClientFromConnectionString(storage, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		for pager := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}}); pager.More(); {
			page, err := pager.NextPage(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, blob := range page.Segment.BlobItems {
				change(c, blob)
			}
		}
	}
	blobs("alertworker-checkpoints", func(c *container.Client, blob *container.BlobItem) {
		if strings.Contains(*blob.Name, "/checkpoint/") {
			forward := map[string]*string{}
			for name, value := range blob.Metadata {
				if forward[name] = value; strings.EqualFold(name, "sequencenumber") {
					n, _ := strconv.Atoi(*value)
					forward[name] = new(strconv.Itoa(n + 1000))
				}
			}
			if _, err := c.NewBlobClient(*blob.Name).SetMetadata(t.Context(), forward, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	becomes(map[string]int{"recorded": 6, "dead letter": 1, "missing": 1}, "late false")

	blobs("alertworker-throttle", func(c *container.Client, blob *container.BlobItem) {
		if strings.Contains(*blob.Name, "kiln") || strings.Contains(*blob.Name, "oven0") {
			if _, err := c.NewBlobClient(*blob.Name).Delete(t.Context(), nil); err != nil { // as if the container had been wiped
				t.Fatal(err)
			}
		}
	})
	becomes(map[string]int{"recorded": 4, "dead letter": 1, "missing": 3}, "kiln false", "late false", "oven0 true")

	// Nothing was lost of a rule that no worker has had yet.
	t.Setenv("TEMPERATURE_THRESHOLD", "")
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const added = `rules:
- {name: temperature, field: "temperature, temp", above: 80}
- {name: warm, field: temperature, above: 75}
`
	if err := os.WriteFile(path, []byte(added), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RULES_FILE", path)
	becomes(map[string]int{"recorded": 4, "dead letter": 1, "missing": 3, "before rule": 8}, "kiln false", "late false", "oven0 true")
	t.Setenv("RULES_FILE", "")
	t.Setenv("TEMPERATURE_THRESHOLD", "80")

	var out strings.Builder
	if err := runAudit(t.Context(), &out, []string{"--since", "1h", "--group", "auditors"}); err == nil || !strings.Contains(out.String(), "3  missing") || !strings.Contains(out.String(), "oven0   temperature  -      recovery") {
		t.Errorf("%v: %s", err, out.String())
	}
	w.logs("reading up to ", " that the hub holds, which takes up to ", "(--rate)") // stderr, which the worker has too
	// One that is missing is named, and not created.
	t.Setenv("THROTTLE_CONTAINER", "alertworker-absent")
	for range 2 {
		err := runAudit(t.Context(), io.Discard, []string{"--since", "1h", "--group", "auditors"})
		if err == nil || !strings.Contains(err.Error(), "THROTTLE_STORE=blob") || !strings.Contains(err.Error(), `alertworker-absent": it does not exist, and this command creates nothing`) {
			t.Errorf("without a container: %v", err)
		}
	}
	if err := why(t.Context(), io.Discard, []string{"kiln"}); err == nil || !strings.Contains(err.Error(), "creates nothing") {
		t.Errorf("why, without a container: %v", err)
	}
	t.Log(out.String()) // docs/questions.md shows it
	t.Setenv("CHECKPOINT_STORE", "memory")
	for _, tt := range []struct{ args, want string }{{"", "--since"}, {"--since 1h", "only the worker knows"}, {"--since -1h", "--since -1h"}} {
		if err := runAudit(t.Context(), io.Discard, strings.Fields(tt.args)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// Whether an alarm began before a silence until normal is not known if that began before the readings: then all that it
// may be about counts as muted.
func TestAuditUntilNormal(t *testing.T) {
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	mute := func(from, until time.Duration, normal bool) rules.Mute {
		return rules.Mute{Device: "oven", From: since.Add(from), Until: since.Add(until), UntilNormal: normal}
	}
	mutes := rules.Mutes{mute(-1, time.Hour, true), mute(0, time.Hour, true), mute(-2, -1, true), mute(-1, time.Hour, false)}
	saysUnjudged(mutes, since)
	for i, want := range []bool{false, true, true, false} {
		if mutes[i].UntilNormal != want {
			t.Errorf("%+v", mutes[i])
		}
	}
}
