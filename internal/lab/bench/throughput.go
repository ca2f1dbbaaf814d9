package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"
)

const (
	metricEvents = "alertworker_events_total"
	runLimit     = 2 * time.Minute
)

// throughput prints what a second of CPU time is worth: start to end of each process, the programs
// in turn, so that a noisy neighbor disturbs all of them.
func (b *bench) throughput(ctx context.Context) error {
	state := map[string]string{"TEMPERATURE_CLEAR": "75", "TEMPERATURE_FOR": "2s", "NOTIFY_RESOLVED": "true"}
	fmt.Println("| readings | bare loop, events per CPU second | naive program | worker | worker / bare | worker's memory |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, l := range []struct {
		name  string
		cores int
		readings
		rule map[string]string // settings of the worker
	}{
		{"normal", 1, readings{partitions: 1}, nil},
		{"normal, TLS", 1, readings{partitions: 1, tls: true}, nil},
		{"normal, 2 cores", 2, readings{partitions: 1}, nil},
		{"normal, 8 partitions", 1, readings{partitions: 8}, nil},
		{"normal, 32 partitions", 1, readings{partitions: 32}, nil},
		{"normal, rule with state", 1, readings{partitions: 1}, state},
		{"1 % hot", 1, readings{partitions: 1, hot: 1}, nil},
		{"1 % hot, rule with state", 1, readings{partitions: 1, hot: 1}, state},
		{"all hot", 1, readings{partitions: 1, hot: 100}, nil},
		{"all hot, rule with state", 1, readings{partitions: 1, hot: 100}, state},
	} {
		l.events, l.devices = b.events, 1024
		hub, certificate, err := b.hub(l.readings)
		if err != nil {
			return err
		}
		settings := map[string]string{"EVENTHUB_CONNECTION_STRING": hub.ConnectionString()}
		if certificate != "" {
			settings["SSL_CERT_FILE"] = certificate
		}
		var rates [3][]float64
		var peaks []int
		for range b.rounds {
			for i, name := range []string{"bare", "naive"} {
				used, err := b.reads(ctx, name, l.cores, l.readings, settings)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				rates[i] = append(rates[i], float64(b.events)/used.Seconds())
			}
			worker := maps.Clone(settings)
			maps.Copy(worker, l.rule)
			c, err := b.works(ctx, l.cores, worker)
			if err != nil {
				return fmt.Errorf("worker: %w", err)
			}
			rates[2], peaks = append(rates[2], float64(b.events)/c.cpu.Seconds()), append(peaks, c.peak)
		}
		if err := hub.Close(); err != nil {
			return err
		}
		bare, naive, worker := median(rates[0]), median(rates[1]), median(rates[2])
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.2f | %d MB |\n", l.name, bare, naive, worker, worker/bare, median(peaks)>>20)
	}
	return nil
}

// reads returns the CPU time that one of our own reading processes takes for all events.
func (b *bench) reads(ctx context.Context, name string, cores int, r readings, settings map[string]string) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	p, err := start(cores, self, []string{"read", name, fmt.Sprint(r.partitions), fmt.Sprint(r.events)}, settings)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	if err := wait(ctx, 10*time.Millisecond, runLimit, p.Ended); err != nil {
		return 0, err
	}
	return p.CPU(), p.Err()
}

// works returns what a worker takes for all events.
func (b *bench) works(ctx context.Context, cores int, settings map[string]string) (cost, error) {
	p, err := b.worker(cores, settings)
	if err != nil {
		return cost{}, err
	}
	if err := wait(ctx, 100*time.Millisecond, runLimit, func() bool { return p.counter(metricEvents) >= b.events }); err != nil {
		p.Kill()
		return cost{}, err
	}
	return p.stop()
}
