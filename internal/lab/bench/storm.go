package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"alertworker/internal/lab/process"
)

// A storm is devices that get hot at once.
type storm struct {
	receiver string
	devices  int
	replicas int
	store    string
}

var storms = []storm{
	{"webhook", 100_000, 1, "memory"},
	{"webhook", 5000, 1, "blob"},
	{"webhook", 5000, 3, "blob"},
	{"alertmanager", 5000, 1, "memory"},
	{"slack", 5000, 1, "memory"},
}

// storm prints how long it takes until the last of many devices that are hot at once has alerted.
func (b *bench) storm(ctx context.Context) error {
	azurite, err := process.StartAzurite(ctx)
	if err != nil {
		return err
	}
	defer azurite.Stop()
	fmt.Println("| receiver | devices | replicas | store | last alert | requests | refused | memory of a replica |\n|---|---|---|---|---|---|---|---|")
	for _, s := range storms {
		if b.receiver != "" && b.receiver != s.receiver {
			continue
		}
		if b.devices > 0 {
			s.devices = b.devices
		}
		settings := map[string]string{}
		if s.store == "blob" {
			settings = map[string]string{
				"STORAGE_CONNECTION_STRING": azurite.ConnectionString, "THROTTLE_STORE": "blob", "CHECKPOINT_STORE": "blob",
				"EVENTHUB_CONSUMER_GROUP": fmt.Sprintf("group-%d", s.replicas), // of windows of its own
			}
		}
		if err := b.runStorm(ctx, s, settings); err != nil {
			return fmt.Errorf("%s, %d devices: %w", s.receiver, s.devices, err)
		}
	}
	return nil
}

// receive starts the receiver of s and returns its entry in NOTIFY_URLS. A webhook and an Alertmanager take 50 ms for
// a request, and a Slack takes one request a second.
func (s storm) receive() (to *receiver, entry string, err error) {
	after, every := 50*time.Millisecond, time.Duration(0)
	if s.receiver == "slack" {
		after, every = 0, time.Second
	}
	if to, err = newReceiver(after, every); err != nil {
		return nil, "", err
	}
	entry = map[string]string{
		"webhook": "http://" + to.addr, "alertmanager": "alertmanager+http://" + to.addr, "slack": "slack+http://" + to.addr + "/services/T/B/K",
	}[s.receiver]
	return to, entry, nil
}

func (b *bench) runStorm(ctx context.Context, s storm, settings map[string]string) error {
	to, entry, err := s.receive()
	if err != nil {
		return err
	}
	defer to.close()
	r := readings{partitions: 6, devices: s.devices, hot: 100}
	hub, _, err := b.hub(readings{partitions: r.partitions, events: 0, devices: 1})
	if err != nil {
		return err
	}
	defer hub.Close()
	all := map[string]string{"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "NOTIFY_URLS": entry, "THROTTLE_WINDOW": "1h"}
	maps.Copy(all, settings)
	var workers []*program
	defer func() {
		for _, w := range workers {
			_, _ = w.stop()
		}
	}()
	for range s.replicas {
		w, err := b.worker(1, all)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	// Everybody reads, in equal shares.
	if err := wait(ctx, 100*time.Millisecond, runLimit, func() bool {
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
	}); err != nil {
		return fmt.Errorf("replicas share the partitions: %w", err)
	}
	began := time.Now()
	for i := range s.devices {
		if _, err := hub.Publish(reading(i, r)); err != nil {
			return err
		}
	}
	if err := wait(ctx, 20*time.Millisecond, 10*time.Minute, func() bool { return to.count() == s.devices }); err != nil {
		return fmt.Errorf("%d devices have alerted: %w", to.count(), err)
	}
	took, peak := time.Since(began), 0
	for _, w := range workers {
		peak = max(peak, w.peak())
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	fmt.Printf("| %s | %d | %d | %s | %v | %d | %d | %d MB |\n", s.receiver, s.devices, s.replicas, s.store, took.Round(100*time.Millisecond), to.taken, to.refused, peak>>20)
	return nil
}
