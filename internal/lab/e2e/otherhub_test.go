//go:build unix

package e2e_test

import (
	"context"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify/notifytest"
)

var connectionString = regexp.MustCompile(`^(Endpoint=\S+)\n`)

// The hub is served by a process of its own. A single worker is asked to end in
// the middle of a stream, does so in time, and a successor goes on from its checkpoints.
func otherHub(t *busytest.Attempt, storage string) {
	hub := alertworker(t.T, "devhub", nil, "devhub", "--addr", "127.0.0.1:0", "--hub", hubName, "--partitions", "8")
	w := newWorld(t, storage, settings{hub: hub.find(startWithin, connectionString)})
	w.receiver.BehaveAlways(notifytest.Delay(100*time.Millisecond, notifytest.Take)) // so that there are sends to wait for

	producer, err := azeventhubs.NewProducerClientFromConnectionString(w.hub, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close(context.Background()) })
	stop := w.publishing(func(device string, temperature float64) { w.send(producer, device, temperature) })

	w.start("a")
	within(t, startWithin, "an alert arrives", func() bool { return len(w.receiver.Taken()) > 0 })
	w.pass(w.between(0, time.Second))
	w.stop("a")
	w.ownsNone("a")
	w.start("b")
	before := len(w.receiver.Taken())
	within(t, startWithin, "the successor's alerts arrive", func() bool { w.alive(); return len(w.receiver.Taken()) >= before+10 })
	stop()
	for partition := range 8 {
		id := strconv.Itoa(partition)
		properties, err := producer.GetPartitionProperties(t.Context(), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !properties.IsEmpty {
			w.last[id] = properties.LastEnqueuedSequenceNumber
		}
	}
	w.finish()

	hub.signal(syscall.SIGTERM)
	hub.wait(exitWithin, 0)
}

// send publishes one reading to a hub in another process, as an IoT Hub would.
func (w *world) send(producer *azeventhubs.ProducerClient, device string, temperature float64) {
	ctx := w.t.Context()
	at := time.Now() // before the hub gets it, so what came in time for this did for the hub
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionKey: &device})
	if err == nil {
		err = batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{
			Body:               azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{body(temperature)}},
			MessageAnnotations: map[any]any{"iothub-connection-device-id": device, "iothub-message-source": "Telemetry"},
		}, nil)
	}
	if err == nil {
		err = producer.SendEventDataBatch(ctx, batch, nil)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.t.Errorf("publish: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verifyLog.Published(verify.Reading{Device: device, Temperature: temperature, Over: temperature >= threshold, At: at})
}
