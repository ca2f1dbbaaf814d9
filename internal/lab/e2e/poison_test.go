//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/poison"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/verify"
)

// Messages that the client library cannot decode, while devices publish: every hot reading is
// alerted about as ever, also if it is in one of those messages, the process lives, and each
// message that has no reading is counted.
func TestPoison(t *testing.T) {
	t.Parallel()
	busytest.Run(t, poisonAmongReadings)
}

func poisonAmongReadings(t *busytest.Attempt) {
	azurite := emulators.StartAzurite(t.T)
	w := newWorld(t, azurite.ConnectionString, settings{})
	w.sites["a"] = freeAddr(t.T)
	w.start("a")
	w.ready()

	sent := 0 // without a reading
	for i, m := range poison.Messages() {
		partition := fmt.Sprint(i % 4)
		if m.Readable { // all of one device
			partition = "0"
		}
		w.mu.Lock()
		at, err := w.devhub.PublishRaw(partition, func(at devhub.Published) []byte {
			if !m.Readable {
				sent++
			}
			return m.Encode(at)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !m.Lost { // else a checkpoint stays before it, if nothing comes later: where it is was guessed
			w.last[at.Partition] = max(w.last[at.Partition], at.Sequence)
		}
		if m.Readable { // a reading like any other
			w.verifyLog.Published(verify.Reading{Device: poison.Device, Temperature: poison.Temperature, Over: true, At: at.Enqueued, Partition: at.Partition, Sequence: at.Sequence})
		}
		w.mu.Unlock()
		for oven := range 8 {
			w.publish(fmt.Sprintf("oven %d", oven), threshold+float64(i%3))
		}
	}
	w.settle()

	const counted = `alertworker_events_total{reason="undecodable_message",result="undecodable"} `
	_, metrics := try(http.MethodGet, "http://"+w.sites["a"]+"/metrics", "")
	if want := fmt.Sprint(counted, sent, "\n"); !strings.Contains(metrics, want) {
		_, after, _ := strings.Cut(metrics, counted)
		t.Errorf("counted %.10q, want %d", after, sent)
	}
	w.finish()
}
