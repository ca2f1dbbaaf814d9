package devhub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// What an official client saw: see testdata/client.py.
type saw struct {
	Sent struct {
		Hub        string
		Partitions []string
		Empty      bool
		Last       int
	}
	Buffered  []string
	Starts    map[string][]string
	Epochs    struct{ Stolen, Refused []string }
	Last      int
	Processed []string
}

// The official JavaScript client takes the hub for a real one, goes on from the worker's checkpoints, and leaves such
// as the worker reads. Its link for replies has a name and no address.
func TestJavaScriptClient(t *testing.T) {
	h := listen(t, devhub.Config{Hub: "telemetry", Partitions: 4})
	testClient(t, h, "127.0.0.1", func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "node", append([]string{"testdata/client.mjs"}, args...)...)
	})
}

// So does Python's.
func TestPythonClient(t *testing.T) {
	const variable = "ALERTWORKER_PYTHON_CLIENT"
	directory := os.Getenv(variable)
	if directory == "" {
		t.Skipf("%s names no directory made by: pip install --target DIRECTORY "+
			"azure-eventhub==5.15.1 azure-eventhub-checkpointstoreblob==1.2.0", variable)
	}
	h := listen(t, devhub.Config{Hub: "telemetry", Partitions: 4})
	testClient(t, h, h.Addr(), func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "python3", append([]string{"-B", "testdata/client.py"}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+directory)
		return cmd
	})
}

// So does Java's.
func TestJavaClient(t *testing.T) {
	const variable = "ALERTWORKER_JAVA_CLIENT"
	directory := os.Getenv(variable)
	if directory == "" {
		t.Skipf("%s names no directory made by: mvn -f internal/lab/devhub/testdata/pom.xml "+
			"dependency:copy-dependencies -DoutputDirectory=DIRECTORY", variable)
	}
	h := listen(t, devhub.Config{Hub: "telemetry", Partitions: 4})
	testClient(t, h, "127.0.0.1", func(ctx context.Context, args ...string) *exec.Cmd {
		class := []string{"-cp", filepath.Join(directory, "*"), "testdata/Client.java"}
		return exec.CommandContext(ctx, "java", append(class, args...)...)
	})
}

// starts are what a client reads from each position in a partition that has 0 to 3.
var starts = map[string][]string{
	"at the start":    {"0", "1", "2", "3"},
	"after an offset": {"3"},
	"at an offset":    {"2", "3"},
	"after a number":  {"3"},
	"at a number":     {"2", "3"},
	"at a time":       {"2", "3"},
	"at the end":      {"3"},
}

// processed is what a processor finds that goes on from the worker's checkpoint.
var processed = []string{"0", "1", "2", "3", "any", "batch", "buffered", "list 1", "list 2", "next"}

// testClient runs a program with a connection string of the hub, one of Azurite, a container and how many events a
// processor will find, and judges what it saw. The namespace is what the client makes of the hub's address.
func testClient(
	t *testing.T, h *devhub.Hub, namespace string, program func(ctx context.Context, args ...string) *exec.Cmd,
) {
	t.Helper()
	azurite := emulators.StartAzurite(t)
	container := azurite.NewContainer()
	store, err := records.OpenBlobs(t.Context(), azurite.Container(t, container, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	group := eventhubs.NewGroup(namespace, "telemetry", "$Default")

	// The worker has settled the first of these two, and the client goes on behind it.
	settled := publish(t, h, devhub.Message{Partition: "3", Body: []byte("settled")})
	publish(t, h, devhub.Message{Partition: "3", Body: []byte("next")})
	ours := eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{
		Sequence: settled.Sequence, Offset: settled.Offset, Time: settled.Enqueued, Generation: "4f1c09ab37e2d680",
	}}}
	checkpoint := records.Record{Name: group.Checkpoint("3"), Values: ours.Values()}
	if _, err := store.Write(t.Context(), checkpoint); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := program(ctx, h.ConnectionString(), azurite.ConnectionString, container, strconv.Itoa(len(processed)))
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	_, last, _ := strings.Cut(string(said), "saw ")
	var got saw
	if err := json.Unmarshal([]byte(last), &got); err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	got.judge(t)
	judgeCheckpoints(t, h, store, group)
}

// judge holds what a client saw against what the hub had.
func (got saw) judge(t *testing.T) {
	t.Helper()
	if s := got.Sent; s.Hub != "telemetry" || fmt.Sprint(s.Partitions) != "[0 1 2 3]" || !s.Empty || s.Last != 3 {
		t.Errorf("properties: %+v", s)
	}
	if fmt.Sprint(got.Buffered) != "[3]" {
		t.Errorf("the buffered producer sent to %q, want 3", got.Buffered)
	}
	if len(got.Starts) < 5 { // no client has all of them
		t.Errorf("it started at %d positions", len(got.Starts))
	}
	for position, bodies := range got.Starts {
		if !slices.Equal(bodies, starts[position]) {
			t.Errorf("%s it read %q, want %q", position, bodies, starts[position])
		}
	}
	stolen, refused := fmt.Sprint(got.Epochs.Stolen), fmt.Sprint(got.Epochs.Refused)
	if !strings.Contains(stolen, "higher epoch of '2' is created") || !strings.Contains(refused, "increasing epoch") {
		t.Errorf("epochs: %+v", got.Epochs)
	}
	if got.Last != 3 {
		t.Errorf("with each event came %d as the last number, want 3", got.Last)
	}
	if !slices.Equal(got.Processed, processed) {
		t.Errorf("the processor saw %q, want %q", got.Processed, processed)
	}
}

// judgeCheckpoints reads a client's checkpoints as the worker does: they are at the end of each partition.
func judgeCheckpoints(t *testing.T, h *devhub.Hub, store records.Store, group eventhubs.Group) {
	t.Helper()
	theirs, unreadable, err := eventhubs.ReadCheckpoints(t.Context(), store, group)
	if err != nil || len(unreadable) > 0 {
		t.Errorf("of its checkpoints some cannot be read: %v, %v", unreadable, err)
	}
	c := consumer(t, h, noRetries)
	for _, partition := range []string{"0", "1", "2", "3"} {
		end, err := c.GetPartitionProperties(t.Context(), partition, nil)
		if err != nil {
			t.Fatal(err)
		}
		left := theirs[partition]
		if !end.IsEmpty && (left.Sequence != end.LastEnqueuedSequenceNumber || left.Offset != end.LastEnqueuedOffset) {
			t.Errorf("its checkpoint of partition %s is %+v, want the end: %+v", partition, left, end)
		}
	}
}
