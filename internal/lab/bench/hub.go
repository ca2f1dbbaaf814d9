package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"alertworker/internal/lab/devhub"
)

// readings is what a hub is filled with.
type readings struct {
	events, partitions, devices int
	hot                         int // percent of the events
	tls                         bool
}

// hub serves readings as an IoT Hub delivers them. certificate is the file of what its clients
// have to trust; empty without TLS.
func (b *bench) hub(r readings) (hub *devhub.Hub, certificate string, err error) {
	c := devhub.Config{Hub: "telemetry", Partitions: r.partitions, MaxEvents: max(1<<17, r.events), MaxBytes: 2 << 30}
	if r.tls {
		site := httptest.NewTLSServer(nil) // for its certificate
		defer site.Close()
		c.TLS = site.TLS.Clone()
		c.TLS.NextProtos = nil
		certificate = filepath.Join(b.dir, "hub.pem")
		if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), 0o600); err != nil {
			return nil, "", err
		}
	}
	hub, err = devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		return nil, "", err
	}
	for i := range r.events {
		if _, err := hub.Publish(reading(i, r)); err != nil {
			_ = hub.Close()
			return nil, "", err
		}
	}
	return hub, certificate, nil
}

// reading returns the ith message: 200 bytes of JSON, of a device that takes its turn.
func reading(i int, r readings) devhub.Message {
	temperature := 21.5
	if i%100 < r.hot {
		temperature = 91.5
	}
	device := i % r.devices // of the same partition every time if devices is a multiple of partitions
	return devhub.Message{
		Device:    fmt.Sprintf("oven-%07d", device),
		Partition: fmt.Sprint(i % r.partitions),
		Body: fmt.Appendf(nil, `{"messageId":%7d,"deviceId":"oven-%07d","location":{"building":"north","floor":3,"line":"a"},"humidity":54.25,"pressure":1013.2,"temperature":%.2f,"unit":"C","firmware":"2.11.7","status":"ok"}`,
			i, device, temperature),
		MessageID: fmt.Sprint(i), ContentType: "application/json", ContentEncoding: "utf-8",
		Properties: map[string]any{"kind": "reading"},
	}
}
