package leader_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/ops/leader"
	"alertworker/internal/records"
)

// On a real service: what gates have sent by it comes to a webhook, once, whichever of the replicas leads.
func TestSummaryOnBlobs(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	stores := map[string]func(name string) (lease.Store, error){
		"etag": func(name string) (lease.Store, error) {
			return bloblease.OpenETag(t.Context(), azurite.Container(t, name, nil), nil)
		},
		"native": func(name string) (lease.Store, error) {
			return bloblease.OpenNative(t.Context(), azurite.Container(t, name, nil), nil)
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := azurite.NewContainer()
			kept, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			letters := deadletter.New(kept, zap.NewNop())
			devices := []string{"oven #7", strings.Repeat("#", 128)}
			for _, device := range devices { // each on a replica of its own
				of := newTally(kept)
				alert(t, of, "r", device, 0)
				if err := of.Write(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			d := notify.DeadLetter{Alert: notifytest.Alert(1), Receiver: "r", Reason: "refused"}
			d.Alert.Enqueued = time.Now()
			if err := letters.Keep(t.Context(), d); err != nil {
				t.Fatal(err)
			}

			came := make(chan []byte, 10)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				came <- body
			}))
			defer server.Close()
			address, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			hook, err := webhook.New(address, nil, httppost.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer hook.Close()

			var replicas []lease.Store
			for range 2 {
				s, err := open(container)
				if err != nil {
					t.Fatal(err)
				}
				replicas = append(replicas, s)
			}
			once := &onceIn{time.Now().Truncate(time.Second).Add(10 * time.Second)}
			for i, s := range replicas {
				c := config(newTally(kept), map[string]notify.Reporter{"r": hook})
				c.DeadLetters = letters.Count
				defer run(s, fmt.Sprint(i), leader.Summary(once, c))()
			}
			body := <-came
			select {
			case <-came:
				t.Error("it came twice")
			case <-time.After(2 * time.Second):
			}
			var event struct {
				ID   string
				Data struct {
					Days [2]struct {
						Alerts, DeadLetters int
						MostAlerts          []struct{ Device string }
					}
				}
			}
			if err := json.Unmarshal(body, &event); err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			alerts, dead := 0, 0
			for _, day := range event.Data.Days { // midnight may pass
				alerts, dead = alerts+day.Alerts, dead+day.DeadLetters
				for _, d := range day.MostAlerts {
					found[d.Device] = true
				}
			}
			if alerts != 2 || dead != 1 || !found[devices[0]] || !found[devices[1]] || event.ID != scope+"/summary/"+once.at.UTC().Format(time.RFC3339) {
				t.Errorf("%s", body)
			}
		})
	}
}

// onceIn is a schedule that is due once.
type onceIn struct{ at time.Time }

func (o *onceIn) Next(t time.Time) time.Time {
	if t.Before(o.at) {
		return o.at
	}
	return time.Time{}
}
