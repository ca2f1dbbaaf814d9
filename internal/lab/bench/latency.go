package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/process"
)

const latencySamples = 300

// latency prints how long it takes from publishing a reading to its receiver, and what one read and
// one write of the store and one request to the receiver take in the same run.
func (b *bench) latency(ctx context.Context) error {
	azurite, err := process.StartAzurite(ctx)
	if err != nil {
		return err
	}
	defer azurite.Stop()
	to, err := newReceiver(0, 0)
	if err != nil {
		return err
	}
	defer to.close()
	r := readings{partitions: 1, devices: 1 << 20}
	hub, _, err := b.hub(readings{partitions: 1, events: 1, devices: 1})
	if err != nil {
		return err
	}
	defer hub.Close()

	began := time.Now()
	w, err := b.worker(1, map[string]string{
		"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "STORAGE_CONNECTION_STRING": azurite.ConnectionString,
		"THROTTLE_STORE": "blob", "CHECKPOINT_STORE": "blob", "NOTIFY_URLS": "http://" + to.addr,
	})
	if err != nil {
		return err
	}
	defer func() { _, _ = w.stop() }()
	next := 0
	alert := func() (time.Duration, error) { // of a device that has never been hot
		m := reading(next, readings{partitions: 1, devices: r.devices, hot: 100})
		next++
		sent := time.Now()
		if _, err := hub.Publish(m); err != nil {
			return 0, err
		}
		at, err := to.arrived(ctx, m.Device)
		return at.Sub(sent), err
	}
	if _, err := alert(); err != nil {
		return err
	}
	fmt.Printf("from the start of a worker to its first alert: %v\n\n", time.Since(began).Round(time.Millisecond))

	steps, err := storeAndRequest(ctx, azurite.ConnectionString, "http://"+to.addr)
	if err != nil {
		return err
	}
	fmt.Println("| | p50 | p99 |\n|---|---|---|")
	quantiles("one read, one write and one request", steps)
	for _, load := range []int{0, 30_000} {
		name := "idle"
		stop := func() {}
		if load > 0 {
			name = fmt.Sprintf("beside %d normal events a second", load)
			stop = background(hub, load)
		}
		var took []time.Duration
		for range latencySamples {
			t, err := alert()
			if err != nil {
				stop()
				return err
			}
			took = append(took, t)
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		quantiles("an alert, "+name, took)
	}
	return nil
}

// storeAndRequest times what an alert needs at least.
func storeAndRequest(ctx context.Context, store, receiver string) ([]time.Duration, error) {
	blobs, err := container.NewClientFromConnectionString(store, "bench", nil)
	if err != nil {
		return nil, err
	}
	if _, err := blobs.Create(ctx, nil); err != nil {
		return nil, err
	}
	blob := blobs.NewBlockBlobClient("blob")
	if _, err := blob.UploadBuffer(ctx, nil, nil); err != nil {
		return nil, err
	}
	var took []time.Duration
	for i := range latencySamples {
		began := time.Now()
		if _, err := blob.GetProperties(ctx, nil); err != nil {
			return nil, err
		}
		value := fmt.Sprint(i)
		if _, err := blob.SetMetadata(ctx, map[string]*string{"a": &value}, nil); err != nil {
			return nil, err
		}
		resp, err := http.Post(receiver, "application/json", strings.NewReader(`{"subject":"bench"}`))
		if err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		took = append(took, time.Since(began))
		time.Sleep(10 * time.Millisecond)
	}
	return took, nil
}

// background publishes normal events until stop is called.
func background(hub *devhub.Hub, perSecond int) (stop func()) {
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
				_, _ = hub.Publish(reading(i, readings{partitions: 1, devices: 1024}))
				i++
			}
		}
	}()
	return func() { close(end); <-ended }
}

func quantiles(name string, took []time.Duration) {
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[len(took)*percent/100].Round(10 * time.Microsecond) }
	fmt.Printf("| %s | %v | %v |\n", name, at(50), at(99))
}
