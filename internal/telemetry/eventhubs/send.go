package eventhubs

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Send sends a message of device to the hub that config names, as an IoT Hub would, and returns when the hub has it, or
// by the time ctx ends. It needs the right to send, which nobody but its devices has on an IoT Hub's own endpoint. An
// error is one line that holds no secret.
func Send(ctx context.Context, config Config, device string, body []byte) error {
	s, err := New(config)
	if err != nil {
		return err
	}

	client, err := s.producer()
	if err != nil {
		return fmt.Errorf("event hub client: %w", err)
	}

	disconnect := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // does not block
	defer disconnect()
	defer context.AfterFunc(ctx, disconnect)()
	batch, err := client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionKey: &device})
	if err == nil {
		err = batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{
			Body:               azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{body}},
			MessageAnnotations: map[any]any{"iothub-connection-device-id": device, "iothub-message-source": "Telemetry"},
		}, nil)
	}

	if err == nil {
		err = client.SendEventDataBatch(ctx, batch, nil)
	}

	if err != nil {
		return s.explain(ctx, s.endpoint(), err)
	}

	return nil
}

func (s *Source) producer() (*azeventhubs.ProducerClient, error) {
	options := &azeventhubs.ProducerClientOptions{
		ApplicationID:    "alertworker",
		NewWebSocketConn: s.connect,
		RetryOptions:     azeventhubs.RetryOptions{MaxRetries: -1},
	}

	if s.config.ConnectionString == "" {
		return azeventhubs.NewProducerClient(s.config.Namespace, s.config.Hub, s.config.Credential, options)
	}

	return azeventhubs.NewProducerClientFromConnectionString(s.config.ConnectionString, "", options)
}

// connect is what azeventhubs connects by, over WebSockets or not: it uses the connection of this option as it is.
func (s *Source) connect(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	return s.config.Transport.Dial(ctx, s.address())
}
