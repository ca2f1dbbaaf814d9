package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// A slack takes a message a second, refuses what comes sooner, and notes which devices are named.
type slack struct {
	mu                sync.Mutex
	last              time.Time
	messages, refused int
	named             map[string]bool
}

var device = regexp.MustCompile(`oven-[0-9]{7}`)

func (s *slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.last) < time.Second {
		s.refused++
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.last = now
	s.messages++
	for _, name := range device.FindAllString(string(body), -1) {
		s.named[name] = true
	}
	_, _ = io.WriteString(w, "ok")
}

func (s *slack) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.named)
}

// stormAtSlack prints how long it takes until a channel that takes a message a second has named every device.
func (b *bench) stormAtSlack(ctx context.Context) error {
	devices := max(b.devices, 5000)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &slack{named: map[string]bool{}}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(l) }() // until it is closed
	defer server.Close()
	r := readings{partitions: 6, devices: devices, hot: 100}
	hub, _, err := b.hub(readings{partitions: r.partitions, events: 0, devices: 1})
	if err != nil {
		return err
	}
	defer hub.Close()
	w, err := b.worker(ctx, 1, map[string]string{
		"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "NOTIFY_URLS": "slack+http://" + l.Addr().String() + "/services/T/B/K", "THROTTLE_WINDOW": "1h",
	})
	if err != nil {
		return err
	}
	defer func() { _, _ = w.stop() }()
	if err := wait(ctx, 100*time.Millisecond, runLimit, func() bool { return hub.Readers("") == r.partitions }); err != nil {
		return err
	}
	began := time.Now()
	for i := range devices {
		if _, err := hub.Publish(reading(i, r)); err != nil {
			return err
		}
	}
	if err := wait(ctx, 100*time.Millisecond, 10*time.Minute, func() bool { return s.count() == devices }); err != nil {
		return fmt.Errorf("%d of %d devices are named: %w", s.count(), devices, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\nA Slack that takes a message a second: %d devices named after %v in %d messages, %d refused\n", devices, time.Since(began).Round(time.Second), s.messages, s.refused)
	return nil
}
