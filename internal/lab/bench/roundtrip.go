package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// roundtrip prints how many events a second one partition gives behind a hub that is far away.
func (b *bench) roundtrip(ctx context.Context) error {
	r := readings{events: b.events, partitions: 1, devices: 1024}
	hub, _, err := b.hub(r)
	if err != nil {
		return err
	}
	defer hub.Close()
	prefetches := []int{300, 1000, 2000, 5000}
	fmt.Print("| round trip |")
	for _, prefetch := range prefetches {
		fmt.Printf(" %d |", prefetch)
	}
	fmt.Println("\n|---|" + strings.Repeat("---|", len(prefetches)))
	for _, trip := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
		far, err := relay(hub.Addr(), trip/2)
		if err != nil {
			return err
		}
		fmt.Printf("| %v |", trip)
		for _, prefetch := range prefetches {
			var rates []float64
			for range b.rounds {
				rate, err := b.rate(ctx, map[string]string{
					"EVENTHUB_CONNECTION_STRING": strings.Replace(hub.ConnectionString(), hub.Addr(), far.Addr().String(), 1),
					"EVENTHUB_PREFETCH":          fmt.Sprint(prefetch),
				})
				if err != nil {
					return err
				}
				rates = append(rates, rate)
			}
			fmt.Printf(" %.0f |", median(rates))
		}
		fmt.Println()
		_ = far.Close()
	}
	return nil
}

// rate returns a worker's events a second for some seconds, after its start.
func (b *bench) rate(ctx context.Context, settings map[string]string) (float64, error) {
	p, err := b.worker(ctx, 1, settings)
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = p.stop() }()
	read := 0
	await := func(n int, limit time.Duration) error {
		return wait(ctx, 20*time.Millisecond, limit, func() bool { read = p.counter(metricEvents); return read >= n })
	}
	if err := await(b.events/10, runLimit); err != nil {
		return 0, err
	}
	first, began := read, time.Now()
	_ = await(b.events, 5*time.Second) // or as far as it gets
	return float64(read-first) / time.Since(began).Seconds(), nil
}

// relay listens, and passes what comes to addr and back, each byte late.
func relay(addr string, late time.Duration) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			go pass(near, far, late)
			go pass(far, near, late)
		}
	}()
	return l, nil
}

// pass copies until either side ends, and then ends both.
func pass(to io.WriteCloser, from io.ReadCloser, late time.Duration) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	chunks := make(chan chunk, 1<<14)
	go func() {
		defer close(chunks)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			chunks <- chunk{time.Now().Add(late), data[:n]}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range chunks { // until the reader has noticed
	}
}
