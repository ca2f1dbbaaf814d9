package main

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/audit"
	"alertworker/internal/devhub/devices"
)

// publish sends what the fleet measures, as an IoT Hub would, until ctx ends,
// and has the judge and the screen watch. It fails if the hub takes no more.
func publish(ctx context.Context, fleet *devices.Fleet, to *publisher, threshold float64, judge *audit.Log, screen *view) error {
	return fleet.Run(ctx, func(ctx context.Context, m devices.Message) error {
		at := time.Now()
		if err := to.send(ctx, m, at); err != nil {
			return err
		}
		over := m.IsTelemetry && m.Temperature >= threshold
		judge.Published(audit.Reading{Device: m.Device, Temperature: m.Temperature, Over: over, At: at})
		screen.Reading(over)
		return nil
	})
}

// A publisher sends messages of devices to a hub over AMQP.
type publisher struct{ client *azeventhubs.ProducerClient }

func newPublisher(connectionString string) (*publisher, error) {
	client, err := azeventhubs.NewProducerClientFromConnectionString(connectionString, "", nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", err)
	}
	return &publisher{client}, nil
}

// send returns once the hub has taken m. A device's messages go to one
// partition, in order, with the annotations that an IoT Hub gives them.
func (p *publisher) send(ctx context.Context, m devices.Message, at time.Time) error {
	batch, err := p.client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionKey: &m.Device})
	if err != nil {
		return fmt.Errorf("connect to the hub: %w", err)
	}
	err = batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{
		MessageAnnotations: map[any]any{
			"iothub-connection-device-id": m.Device,
			"iothub-message-source":       m.MessageSource,
			"iothub-enqueuedtime":         at,
		},
		ApplicationProperties: m.Properties,
		Body:                  azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{m.Body}},
	}, nil)
	if err != nil {
		return err
	}
	return p.client.SendEventDataBatch(ctx, batch, nil)
}

// Close gives the connection back.
func (p *publisher) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.client.Close(ctx)
}
