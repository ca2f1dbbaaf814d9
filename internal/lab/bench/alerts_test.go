//go:build linux

package bench_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
)

// blobs are the settings of workers that keep everything in the account of a.
func blobs(a *emulators.Azurite) map[string]string {
	return map[string]string{"STORAGE_CONNECTION_STRING": a.ConnectionString, "THROTTLE_STORE": "blob", "CHECKPOINT_STORE": "blob"}
}

// From publishing the first reading of a device, which is hot, to its alert's arrival at the receiver; and what one read
// and one write of the store and one request to the receiver take in the same run.
func BenchmarkLatency(b *testing.B) {
	path, azurite, to := build(b), emulators.StartAzurite(b), newReceiver(b, 0, 0)
	r := readings{partitions: 1, devices: 1 << 20, hot: 100}
	hub, settings := serve(b, readings{partitions: 1, events: 1, devices: 1})
	maps.Copy(settings, blobs(azurite))
	settings["NOTIFY_URLS"] = to.URL

	next := 0
	alert := func(b *testing.B) time.Duration {
		sent := time.Now()
		device := publish(b, hub, next, r)
		next++
		var at time.Time
		wait(b, time.Millisecond, runLimit, "the alert arrives", func() (ok bool) {
			_, at, ok = to.alerted(device)
			return ok
		})
		return at.Sub(sent)
	}
	began := time.Now()
	startWorker(b, 1, path, settings)
	alert(b)
	b.Logf("from the start of a worker to its first alert: %v", time.Since(began).Round(time.Millisecond))

	measure := func(name string, do func(*testing.B) time.Duration) {
		b.Run(name, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				took = append(took, float64(do(b).Microseconds())/1000)
				time.Sleep(10 * time.Millisecond)
			}
			report(b, took, 50, "p50-ms")
			report(b, took, 99, "p99-ms")
		})
	}
	measure("one read, one write and one request", leastSteps(b, azurite, to.URL))
	measure("an alert, idle", alert)
	const load = 30_000
	stop := background(b, hub, load)
	defer stop()
	measure(fmt.Sprintf("an alert, beside %d normal events a second", load), alert)
}

// leastSteps returns what does and times the steps that an alert needs at least.
func leastSteps(b *testing.B, azurite *emulators.Azurite, receiver string) func(*testing.B) time.Duration {
	ctx := context.Background()
	container := azurite.Container(b, azurite.NewContainer(), nil)
	if _, err := container.Create(ctx, nil); err != nil {
		b.Fatal(err)
	}
	blob := container.NewBlockBlobClient("blob")
	if _, err := blob.UploadBuffer(ctx, nil, nil); err != nil {
		b.Fatal(err)
	}
	return func(b *testing.B) time.Duration {
		began := time.Now()
		value := fmt.Sprint(began.UnixNano())
		_, err := blob.GetProperties(ctx, nil)
		if err == nil {
			_, err = blob.SetMetadata(ctx, map[string]*string{"a": &value}, nil)
		}
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.Post(receiver, "application/json", strings.NewReader(`{"subject":"bench"}`))
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		return time.Since(began)
	}
}

// background publishes normal events until stop is called.
func background(b *testing.B, hub *devhub.Hub, perSecond int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		const interval = 10 * time.Millisecond
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for i := 0; ; {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			for range perSecond / int(time.Second/interval) {
				publish(b, hub, i, readings{partitions: 1, devices: 1024})
				i++
			}
		}
	}()
	return func() { close(end); <-ended }
}

// How long it takes until the last of many devices that are hot at once has alerted. A webhook and an Alertmanager take
// 50 ms for a request, and a Slack takes one request a second.
func BenchmarkStorm(b *testing.B) {
	path, azurite := build(b), emulators.StartAzurite(b)
	for _, s := range []struct {
		receiver string
		devices  int
		replicas int
		store    string
	}{
		{"webhook", 100_000, 1, "memory"},
		{"webhook", 5000, 1, "blob"},
		{"webhook", 5000, 3, "blob"},
		{"alertmanager", 5000, 1, "memory"},
		{"slack", 5000, 1, "memory"},
	} {
		b.Run(fmt.Sprintf("%s, %d devices, %d replicas, %s", s.receiver, s.devices, s.replicas, s.store), func(b *testing.B) {
			var took, requests, refused, memory []float64
			for b.Loop() {
				to := newReceiver(b, 50*time.Millisecond, 0)
				entry := "webhook+" + to.URL
				switch s.receiver {
				case "alertmanager":
					entry = "alertmanager+" + to.URL
				case "slack":
					to.after, to.every = 0, time.Second
					entry = "slack+" + to.URL + "/services/T/B/K"
				}
				r := readings{partitions: 6, devices: s.devices, hot: 100}
				hub, settings := serve(b, readings{partitions: r.partitions})
				settings["NOTIFY_URLS"], settings["THROTTLE_WINDOW"] = entry, "1h"
				if s.store == "blob" {
					maps.Copy(settings, blobs(azurite))
					settings["EVENTHUB_CONSUMER_GROUP"] = azurite.NewContainer() // a group of windows of its own
				}
				var workers []*program
				for range s.replicas {
					workers = append(workers, startWorker(b, 1, path, settings))
				}
				wait(b, 100*time.Millisecond, runLimit, "everybody reads, in equal shares", func() bool {
					owners := map[string]int{}
					for _, owner := range hub.Owners() {
						owners[owner]++
					}
					for _, n := range owners {
						if n != r.partitions/s.replicas {
							return false
						}
					}
					return len(owners) == s.replicas
				})
				began := time.Now()
				for i := range s.devices {
					publish(b, hub, i, r)
				}
				wait(b, 20*time.Millisecond, 10*time.Minute, "all devices have alerted", func() bool {
					n, _, _ := to.alerted("")
					return n == s.devices
				})
				took = append(took, time.Since(began).Seconds())
				requests, refused = append(requests, float64(to.taken)), append(refused, float64(to.refused))
				peak := 0.0
				for _, w := range workers {
					peak = max(peak, w.peak()/(1<<20))
					w.stop()
				}
				memory = append(memory, peak)
			}
			report(b, took, 50, "s/storm")
			report(b, requests, 50, "requests")
			report(b, refused, 50, "refused")
			report(b, memory, 50, "MB")
		})
	}
}

// How many messages people get of 200 devices that get hot within 32 s, and how long after it got hot the last one is
// named.
func BenchmarkPeople(b *testing.B) {
	const (
		devices = 200
		within  = 32 * time.Second
	)
	path := build(b)
	for b.Loop() {
		to := newReceiver(b, 50*time.Millisecond, 0)
		r := readings{partitions: 4, devices: devices, hot: 100}
		hub, settings := serve(b, readings{partitions: r.partitions})
		settings["NOTIFY_URLS"] = "slack+" + to.URL + "/services/T/B/K"
		w := startWorker(b, 1, path, settings)
		wait(b, 100*time.Millisecond, runLimit, "the worker reads", func() bool {
			return len(hub.Owners()) == r.partitions
		})

		hot := map[string]time.Time{}
		tick := time.NewTicker(within / devices)
		for i := range devices {
			<-tick.C
			name := publish(b, hub, i, r)
			hot[name] = time.Now()
		}
		tick.Stop()

		latest := time.Duration(0)
		for name, since := range hot {
			wait(b, 20*time.Millisecond, 2*time.Minute, name+" is named", func() bool {
				_, at, named := to.alerted(name)
				latest = max(latest, at.Sub(since))
				return named
			})
		}
		w.stop()

		report(b, []float64{float64(to.taken)}, 0, "messages")
		report(b, []float64{latest.Seconds()}, 0, "s/latest")
	}
}
