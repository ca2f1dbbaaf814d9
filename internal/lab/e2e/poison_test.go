//go:build unix

package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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
// message that has no reading is counted and kept as it came.
func TestPoison(t *testing.T) {
	t.Parallel()
	busytest.Run(t, poisonAmongReadings)
}

func poisonAmongReadings(t *busytest.Attempt) {
	azurite := emulators.StartAzurite(t.T)
	letters := azurite.NewContainer()
	w := newWorld(t, azurite.ConnectionString, settings{env: []string{"DEAD_LETTER_MALFORMED=true", "DEAD_LETTER_CONTAINER=" + letters}})
	w.sites["a"] = freeAddr(t.T)
	w.start("a")
	w.ready()

	type message struct {
		partition string
		sequence  int64
	}
	sent := map[message][]byte{}
	for i, m := range poison.Messages() {
		partition := fmt.Sprint(i % 4)
		if m.Readable { // all of one device
			partition = "0"
		}
		w.mu.Lock()
		at, err := w.devhub.PublishRaw(partition, func(at devhub.Published) []byte {
			raw := m.Encode(at)
			if !m.Readable {
				sent[message{at.Partition, at.Sequence}] = raw
			}
			return raw
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
	if want := fmt.Sprint(counted, len(sent), "\n"); !strings.Contains(metrics, want) {
		_, after, _ := strings.Cut(metrics, counted)
		t.Errorf("counted %.10q, want %d", after, len(sent))
	}
	w.finish()

	// 60 attempts a minute are made to keep one, on a busy machine some of them in vain.
	// Of each 16 KiB are kept.
	folder := azurite.Container(t, letters, nil)
	kept := 0
	for pages := folder.NewListBlobsFlatPager(nil); pages.More(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Segment.BlobItems {
			if !strings.HasPrefix(*b.Name, "malformed/") {
				continue
			}
			r, err := folder.NewBlobClient(*b.Name).DownloadStream(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var letter struct {
				Reason, Partition, Body, BodyBase64 string
				Sequence                            int64
				Size                                int
			}
			if err := json.NewDecoder(r.Body).Decode(&letter); err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			raw, ok := sent[message{letter.Partition, letter.Sequence}]
			body := []byte(letter.Body)
			if letter.BodyBase64 != "" {
				body, _ = base64.StdEncoding.DecodeString(letter.BodyBase64)
			}
			if !ok || letter.Reason != "undecodable_message" || letter.Size != min(len(raw), 64<<10) || !slices.Equal(body, raw[:len(body)]) || len(body) < min(len(raw), 16<<10) {
				t.Errorf("kept %+v, want %.100x", letter, raw)
			}
			kept++
		}
	}
	if kept < len(sent)/2 {
		t.Errorf("%d of %d messages were kept", kept, len(sent))
	}
}
