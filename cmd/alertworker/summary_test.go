package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
)

// What a worker's receiver has taken is in the summary that it gets.
func TestSummaryOfAWorker(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	type event struct {
		Type string
		Data struct {
			Days [2]struct {
				Alerts     int
				MostAlerts []struct{ Device string }
			}
		}
	}
	summaries := make(chan event, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e event
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		if strings.HasSuffix(e.Type, ".temperature.summary") {
			select {
			case summaries <- e:
			default:
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	hub := hubWith(t, `{"temperature":99}`)
	environment(t, valid(
		"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "EVENTHUB_START=earliest", "BALANCE_INTERVAL=1s", "HTTP_ADDR=",
		"STORAGE_CONNECTION_STRING="+azurite.ConnectionString, "DEAD_LETTER_CONTAINER="+azurite.NewContainer(),
		"THROTTLE_CONTAINER="+azurite.NewContainer(), "CHECKPOINT_CONTAINER="+azurite.NewContainer(),
		"NOTIFY_URLS="+receiver.URL, "SUMMARY_SCHEDULE=@every 1s",
	))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	deadline := time.After(time.Minute)
	for alerts := 0; alerts == 0; {
		select {
		case e := <-summaries:
			for _, day := range e.Data.Days { // midnight may pass
				if alerts += day.Alerts; day.Alerts > 0 && day.MostAlerts[0].Device != "d0" {
					t.Errorf("%+v", e)
				}
			}
		case <-deadline:
			t.Fatal("no summary has the alert")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
