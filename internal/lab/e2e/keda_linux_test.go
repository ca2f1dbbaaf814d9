package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify/notifytest"
)

// kedaPath is KEDA's Event Hubs scaler as a command, which make keda builds: see tools/keda.
const kedaPath = "../../../bin/keda"

// kubernetesDir has the trigger that KEDA is given.
const kubernetesDir = "../../../deploy/kubernetes/"

// KEDA, given the trigger in deploy/kubernetes, counts what our metrics show. Only on Linux, because KEDA cannot find the
// checkpoints of a namespace with a port, and only there are there enough addresses for
// every hub to listen at port 5672.
func TestKEDA(t *testing.T) {
	t.Parallel()
	keda, err := filepath.Abs(kedaPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keda); errors.Is(err, fs.ErrNotExist) {
		t.Skip("KEDA's scaler is not built; make keda builds it")
	}
	// As in built: what KEDA reads, this test has looked at.
	if err := filepath.WalkDir(kubernetesDir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	busytest.Run(t, func(t *busytest.Attempt) { kedaCounts(t, keda) })
}

// KEDA knows all that the other overlay says, up to the hub's name, without which it
// connects to nothing.
func TestKEDAWithWorkloadIdentity(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(kedaPath); errors.Is(err, fs.ErrNotExist) {
		t.Skip("KEDA's scaler is not built; make keda builds it")
	}
	cmd := exec.CommandContext(t.Context(), kedaPath, kubernetesDir+"components/keda/scaledobject.yaml", kubernetesDir+"overlays/workload-identity/triggerauthentication.yaml",
		"eventHubNamespace=contoso", "storageAccountName=contoso")
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no event hub name") {
		t.Errorf("KEDA says %q, %v; want that there is no event hub name", out, err)
	}
}

func kedaCounts(t *busytest.Attempt, keda string) {
	const partitions = 4
	var hub *devhub.Hub
	for range 10 { // some address is free
		var err error
		at := fmt.Sprintf("127.%d.%d.%d:5672", 1+rand.IntN(254), rand.IntN(255), 1+rand.IntN(254))
		if hub, err = devhub.Listen(at, devhub.Config{Hub: hubName, Partitions: partitions}); err == nil {
			break
		}
		t.Log(err)
	}
	if hub == nil {
		t.Fatal("no address has port 5672 free")
	}
	t.Cleanup(func() { _ = hub.Close() })
	storage := emulators.StartAzurite(t.T).ConnectionString
	connection := strings.Replace(hub.ConnectionString(), ":5672", "", 1)
	w := newWorld(t, storage, settings{hub: connection, partitions: partitions, window: time.Hour})
	w.devhub = hub
	w.sites["a"] = freeAddr(t.T)

	// counts waits until KEDA counts want.
	counts := func(want int) {
		t.Helper()
		got := -1
		if !eventually(startWithin, func() bool {
			got = kedaLag(t.T, w, keda, connection, storage, "$Default")
			return got == want
		}) {
			t.Fatalf("KEDA counts %d events, want %d", got, want)
		}
		t.Logf("%s KEDA counts %d", time.Now().Format("15:04:05.000"), want)
	}
	publish := func(n int) {
		for i := range n {
			w.publish(fmt.Sprint("device ", i), threshold-1)
		}
	}

	counts(0) // a fresh hub
	publish(100)
	counts(100) // and nobody has read

	w.start("a")
	w.ready()
	counts(0)
	agree := func(want int) {
		t.Helper()
		within(t, startWithin, fmt.Sprintf("the metrics show %d events after checkpoints, all of them read", want), func() bool {
			w.alive()
			return metric(t.T, w.sites["a"], "alertworker_partition_checkpoint_lag_events") == float64(want) && metric(t.T, w.sites["a"], "alertworker_partition_lag_events") == 0
		})
	}
	agree(0)

	// A receiver that is down holds the checkpoint of one partition: everything is read,
	// and not settled.
	w.receiver.BehaveAlways(notifytest.Status(http.StatusServiceUnavailable))
	w.publish("oven", threshold)
	for range 30 {
		w.publish("oven", threshold-1)
	}
	counts(31)
	agree(31)
	w.kill("a")
	w.start("a")
	w.ready()
	agree(31) // though this replica has written no checkpoint yet
	w.receiver.BehaveAlways(notifytest.Take)
	counts(0)

	// Nobody reads.
	w.stop("a")
	publish(40)
	counts(40)

	// KEDA counts everything that the hub has if it looks in the wrong place. A consumer
	// group with capitals is the right one.
	if got := kedaLag(t.T, w, keda, connection, storage, "alerts"); got != 171 {
		t.Errorf("for a consumer group without checkpoints KEDA counts %d events, the hub has 171", got)
	}
	if got := kedaLag(t.T, w, keda, connection, storage, "$DEFAULT"); got != 40 {
		t.Errorf("for the consumer group in capitals KEDA counts %d events, want 40", got)
	}
}

// kedaLag asks KEDA.
func kedaLag(t *testing.T, w *world, keda, connection, storage, group string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), keda, kubernetesDir+"components/keda/scaledobject.yaml", kubernetesDir+"overlays/keys/triggerauthentication.yaml",
		"consumerGroup="+group, "blobContainer="+w.setting("CHECKPOINT_CONTAINER"))
	cmd.Env = []string{"EVENTHUB_CONNECTION_STRING=" + connection, "STORAGE_CONNECTION_STRING=" + storage}
	out, err := cmd.CombinedOutput()
	text, _, _ := strings.Cut(string(out), " ")
	n, failed := strconv.Atoi(text)
	if err != nil || failed != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return n
}

// metric returns the sum of a metric over its labels; -1 if there is none.
func metric(t *testing.T, site, name string) float64 {
	t.Helper()
	_, body := try(http.MethodGet, "http://"+site+"/metrics", "")
	sum, found := 0.0, false
	for _, m := range regexp.MustCompile(`(?m)^`+name+`\{.*\} (\S+)$`).FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return -1
	}
	return sum
}
