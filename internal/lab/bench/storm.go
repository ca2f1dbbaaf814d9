package main

import (
	"context"
	"fmt"
	"time"

	"alertworker/internal/lab/process"
)

const (
	stormAfter  = 50 * time.Millisecond // the receiver's time to answer
	concurrency = 64                    // NOTIFY_CONCURRENCY
)

// storm prints how long it takes until the last of many devices that are hot at once has alerted,
// and what it would take if nothing but the receiver took time.
func (b *bench) storm(ctx context.Context) error {
	fmt.Println("| devices | replicas | store | last alert | devices / (replicas × 64) × 50 ms | memory of a replica |\n|---|---|---|---|---|---|")
	if err := b.stormOf(ctx, max(b.devices, 0), 100_000, 1, "memory", nil); err != nil {
		return err
	}
	azurite, err := process.StartAzurite(ctx)
	if err != nil {
		return err
	}
	defer azurite.Stop()
	for _, replicas := range []int{1, 3} {
		err := b.stormOf(ctx, b.devices, 5000, replicas, "blob", map[string]string{
			"STORAGE_CONNECTION_STRING": azurite.ConnectionString, "THROTTLE_STORE": "blob", "CHECKPOINT_STORE": "blob",
			"EVENTHUB_CONSUMER_GROUP": fmt.Sprintf("group-%d", replicas), // of windows of its own
		})
		if err != nil {
			return err
		}
	}
	return b.stormAtSlack(ctx)
}

func (b *bench) stormOf(ctx context.Context, devices, usual, replicas int, store string, settings map[string]string) error {
	if devices == 0 {
		devices = usual
	}
	to, err := newReceiver(stormAfter)
	if err != nil {
		return err
	}
	defer to.close()
	r := readings{partitions: 6, devices: devices, hot: 100}
	hub, _, err := b.hub(readings{partitions: r.partitions, events: 0, devices: 1})
	if err != nil {
		return err
	}
	defer hub.Close()
	all := map[string]string{"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "NOTIFY_URLS": to.url}
	for name, value := range settings {
		all[name] = value
	}
	var workers []*program
	defer func() {
		for _, w := range workers {
			_, _ = w.stop()
		}
	}()
	for range replicas {
		w, err := b.worker(ctx, 1, all)
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
			if n != r.partitions/replicas {
				return false
			}
		}
		return len(owners) == replicas
	}); err != nil {
		return fmt.Errorf("replicas share the partitions: %w", err)
	}
	began := time.Now()
	for i := range devices {
		if _, err := hub.Publish(reading(i, r)); err != nil {
			return err
		}
	}
	if err := wait(ctx, 20*time.Millisecond, 10*time.Minute, func() bool { return to.count() == devices }); err != nil {
		return fmt.Errorf("%d of %d devices have alerted: %w", to.count(), devices, err)
	}
	took, peak := time.Since(began), 0
	for _, w := range workers {
		peak = max(peak, w.peak())
	}
	ideal := time.Duration(devices) * stormAfter / time.Duration(replicas*concurrency)
	fmt.Printf("| %d | %d | %s | %v | %v | %d MB |\n", devices, replicas, store, took.Round(100*time.Millisecond), ideal.Round(100*time.Millisecond), peak>>20)
	return nil
}
