package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// maxRequests is how many requests are sent at a time.
const maxRequests = 64

// A statusError is a hub's refusal of a request.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the hub answers with status %d: %s", e.code, e.text)
}

// request sends requests to a node of the hub, several at a time, and gives take the answers as they come. It ends when
// the hub refuses one.
func request(
	ctx context.Context, conn *amqp.Conn, node string, requests []*amqp.Message, take func(answer *amqp.Message),
) error {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
		defer cancel()
		_ = session.Close(closing)
	}()

	sender, err := session.NewSender(ctx, node, nil)
	if err != nil {
		return err
	}

	replies := uuid.NewString()
	receiver, err := session.NewReceiver(ctx, node, &amqp.ReceiverOptions{TargetAddress: replies, Credit: maxRequests})
	if err != nil {
		return err
	}

	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(maxRequests)
	asking.Go(func() error {
		for range requests {
			answer, err := receiver.Receive(ctx, nil)
			if err != nil {
				return err
			}

			code, _ := answer.ApplicationProperties["status-code"].(int32)
			if text, _ := answer.ApplicationProperties["status-description"].(string); code < 200 || code > 299 {
				return &statusError{int(code), text}
			}
			if err := receiver.AcceptMessage(ctx, answer); err != nil {
				return err
			}

			take(answer)
		}

		return nil
	})
	for i, r := range requests {
		r.Properties = &amqp.MessageProperties{MessageID: strconv.Itoa(i), ReplyTo: &replies}
		asking.Go(func() error { return sender.Send(ctx, r, nil) })
	}

	return asking.Wait()
}

// errAnswer means that a hub answers with something else than what it was asked for.
var errAnswer = errors.New("the response does not have the form of an event hub's")
