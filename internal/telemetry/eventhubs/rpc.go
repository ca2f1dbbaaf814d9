package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

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
// the hub refuses one, take does not understand its answer, or the hub answers nothing for the source's queryLimit.
func (c *connection) request(
	ctx context.Context, node string, requests []*amqp.Message, take func(answer *amqp.Message) (ok bool),
) (err error) {
	limit := c.source.queryLimit
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded))
	})
	defer silent.Stop()
	defer func() { err = expired(ctx, err) }()

	session, err := c.amqp.NewSession(ctx, nil)
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

	asking, both := errgroup.WithContext(ctx)
	asking.SetLimit(maxRequests)
	asking.Go(func() error {
		for range requests {
			answer, err := receiver.Receive(both, nil)
			if err != nil {
				return err
			}

			code, _ := answer.ApplicationProperties["status-code"].(int32)
			if text, _ := answer.ApplicationProperties["status-description"].(string); code < 200 || code > 299 {
				return &statusError{int(code), text}
			}
			if err := receiver.AcceptMessage(both, answer); err != nil {
				return err
			}

			silent.Reset(limit)
			if !take(answer) {
				return errAnswer
			}
		}

		return nil
	})
	for i, r := range requests {
		r.Properties = &amqp.MessageProperties{MessageID: strconv.Itoa(i), ReplyTo: &replies}
		asking.Go(func() error { return sender.Send(both, r, nil) })
	}

	return asking.Wait()
}

// errAnswer means that a hub answers with something else than what it was asked for.
var errAnswer = errors.New("the response does not have the form of an event hub's")
