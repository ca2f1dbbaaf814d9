package eventhubs

import (
	"context"

	"github.com/Azure/go-amqp"
)

// Send sends a message of device to the hub that config names, as an IoT Hub would, and returns when the hub has it, or
// when ctx ends. It needs the right to send, which nobody but its devices has on an IoT Hub's own endpoint. An error is
// one line that holds no secret.
func Send(ctx context.Context, config Config, device string, body []byte) error {
	s, err := New(config)
	if err != nil {
		return err
	}
	defer s.Close()

	if err := s.send(ctx, device, body); err != nil {
		return s.explain(ctx, s.endpoint(), err)
	}

	return nil
}

func (s *Source) send(ctx context.Context, device string, body []byte) error {
	c, err := s.questions.connections.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.questions.connections.release(c)

	session, err := c.amqp.NewSession(ctx, nil)
	if err != nil {
		return err
	}

	sender, err := session.NewSender(ctx, c.at.hub, nil)
	if err != nil {
		return err
	}

	annotations := amqp.Annotations{
		"x-opt-partition-key": device, "iothub-connection-device-id": device, "iothub-message-source": "Telemetry",
	}
	return sender.Send(ctx, &amqp.Message{Annotations: annotations, Data: [][]byte{body}}, nil)
}
