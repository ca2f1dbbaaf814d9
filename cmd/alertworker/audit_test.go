package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
)

// audited runs an audit, and returns how many notices are accounted for in each way, and what is missing.
func (w *runningWorker) audited(t *testing.T) (counts map[string]int, missing []string) {
	t.Helper()
	out, said, code := w.run("audit", "--since", "1h", "--group", "auditors", "--rate", "0", "--json")
	var report struct {
		Counts  map[string]int
		Missing []struct {
			Device   string
			Recovery bool
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v, exit code %d, %s: %s", err, code, said, out)
	}
	for _, m := range report.Missing {
		missing = append(missing, fmt.Sprint(m.Device, " ", m.Recovery))
	}
	slices.Sort(missing)
	if (len(missing) > 0) != (code == exitFailed) || code == exitUsage || strings.Contains(said, "alertworker: ") {
		t.Errorf("%d are missing: exit code %d, %s", len(missing), code, said)
	}
	return report.Counts, missing
}

// An audit accounts for everything that a worker has done, and finds exactly what was lost when records
// were deleted or a checkpoint was set forward.
func TestAudit(t *testing.T) {
	t.Parallel()
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
			counts, missing := w.audited(t)
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
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const added = `rules:
- {name: temperature, field: "temperature, temp", above: 80}
- {name: warm, field: temperature, above: 75}
`
	if err := os.WriteFile(path, []byte(added), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env["TEMPERATURE_THRESHOLD"], w.env["RULES_FILE"] = "", path
	becomes(map[string]int{"recorded": 4, "dead letter": 1, "missing": 3, "before rule": 8}, "kiln false", "late false", "oven0 true")
	w.env["TEMPERATURE_THRESHOLD"], w.env["RULES_FILE"] = "80", ""

	out, said, code := w.run("audit", "--since", "1h", "--group", "auditors")
	if code != exitFailed || !strings.Contains(out, "3  missing") || !strings.Contains(out, "oven0   temperature  -      recovery") {
		t.Errorf("exit code %d, %s: %s", code, said, out)
	}
	t.Log(out) // docs/questions.md shows it
	if !regexp.MustCompile(`reading up to .* that the hub holds, which takes up to .*\(--rate\)`).MatchString(said) {
		t.Errorf("it does not say how long it takes: %s", said)
	}

	// One that is missing is named, and not created.
	w.env["THROTTLE_CONTAINER"] = "alertworker-absent"
	for range 2 {
		_, said, code := w.run("audit", "--since", "1h", "--group", "auditors")
		if code == exitStopped || !strings.Contains(said, "THROTTLE_STORE=blob") ||
			!strings.Contains(said, `alertworker-absent": it does not exist, and this command creates nothing`) {
			t.Errorf("without a container: exit code %d, %s", code, said)
		}
	}
	if _, said, code := w.run("why", "kiln"); code == exitStopped || !strings.Contains(said, "creates nothing") {
		t.Errorf("why, without a container: exit code %d, %s", code, said)
	}
	w.env["CHECKPOINT_STORE"] = "memory"
	for _, tt := range []struct{ args, want string }{
		{"", "--since"}, {"--since 1h", "only the worker knows"}, {"--since -1h", "--since"},
	} {
		_, said, code := w.run(append([]string{"audit"}, strings.Fields(tt.args)...)...)
		if code == exitStopped || !strings.Contains(said, tt.want) {
			t.Errorf("%q: exit code %d, %s, want %q", tt.args, code, said, tt.want)
		}
	}
}
