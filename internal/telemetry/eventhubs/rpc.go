package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"
)

// maxReplies is how many answers may be on their way at a time.
const maxReplies = 64

// georeplication has a hub of a geo-replicated namespace give offsets in the form in which its links take them. It is
// asked for on every link, so that all of them speak of the same offsets: azure-sdk-for-net pull 48204.
const georeplication = "com.microsoft:georeplication"

// A statusError is a hub's refusal of a request.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the hub answers with status %d: %s", e.code, e.text)
}

// errAnswer means that a hub answers with something else than what it was asked for.
var errAnswer = errors.New("the response does not have the form of an event hub's")

// An rpc is a pair of links to a node of the hub that answers requests. Safe for concurrent use.
type rpc struct {
	connection *connection
	session    *amqp.Session
	sender     *amqp.Sender
	receiver   *amqp.Receiver
	replies    string // the receiver's address

	ctx     context.Context // ends once no more answers come; its cause says why
	end     context.CancelCauseFunc
	running sync.WaitGroup // read, and each request until the library has sent it

	mu      sync.Mutex
	next    int                             // id of the next request
	waiting map[string]chan<- *amqp.Message // by id of their request
}

// openRPC opens links to a node. Close them.
func (c *connection) openRPC(ctx context.Context, node string) (*rpc, error) {
	session, err := c.amqp.NewSession(ctx, nil)
	if err != nil {
		return nil, expired(ctx, err)
	}

	r := &rpc{connection: c, session: session, replies: uuid.NewString(), waiting: map[string]chan<- *amqp.Message{}}
	r.ctx, r.end = context.WithCancelCause(c.ctx)
	capabilities := []string{georeplication}
	r.sender, err = r.session.NewSender(ctx, node, &amqp.SenderOptions{DesiredCapabilities: capabilities})
	if err == nil {
		r.receiver, err = r.session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
			TargetAddress:       r.replies,
			Credit:              maxReplies,
			DesiredCapabilities: capabilities,
		})
	}
	if err != nil {
		r.close()
		return nil, expired(ctx, err)
	}

	r.running.Go(r.read)

	return r, nil
}

// read hands out answers until none can come any more.
func (r *rpc) read() {
	for {
		answer, err := r.receiver.Receive(r.ctx, nil)
		if err == nil {
			err = r.receiver.AcceptMessage(r.ctx, answer)
		}
		if err != nil {
			r.end(err)
			return
		}

		id := ""
		if answer.Properties != nil {
			id, _ = answer.Properties.CorrelationID.(string)
		}

		r.mu.Lock()
		to := r.waiting[id]
		delete(r.waiting, id)
		r.mu.Unlock()
		if to != nil {
			to <- answer
		}
	}
}

// request sends a request and returns the value of its answer. The error is a *statusError if the hub refuses it, and
// errAnswer if the answer is not one.
func (r *rpc) request(ctx context.Context, properties map[string]any, value any) (any, error) {
	got, sent := make(chan *amqp.Message, 1), make(chan error, 1)
	r.mu.Lock()
	if r.ctx.Err() != nil { // else close waits for what begins after it
		r.mu.Unlock()
		return nil, context.Cause(r.ctx)
	}

	id := strconv.Itoa(r.next)
	r.next++
	r.waiting[id] = got

	// The library's Send may go on waiting when ctx has ended, and for ever: docs/dev/upstream.md. The end of the connection
	// ends that.
	r.running.Go(func() {
		sent <- r.sender.Send(ctx, &amqp.Message{
			Properties:            &amqp.MessageProperties{MessageID: id, ReplyTo: &r.replies},
			ApplicationProperties: properties,
			Value:                 value,
		}, nil)
	})
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, id)
	}()

	select {
	case err := <-sent:
		if err != nil {
			return nil, expired(ctx, err)
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}

	select {
	case answer := <-got:
		ok := true
		code := number(answer.ApplicationProperties, "status-code", &ok)
		if !ok {
			return nil, errAnswer
		}
		if code < 200 || code > 299 {
			text, _ := answer.ApplicationProperties["status-description"].(string) // for people alone
			return nil, &statusError{int(code), text}
		}

		return answer.Value, nil

	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// limited returns a context that ends once the hub has had long enough to answer.
func (s *Source) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	why := fmt.Errorf("no answer within %v: %w", s.queryLimit, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, s.queryLimit, why)
}

// close returns once the links are closed, or the hub has not confirmed that in time. What waits for it then ends with the
// connection, and its partitions are read meanwhile.
func (r *rpc) close() {
	r.mu.Lock()
	r.end(nil)
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), shortTimeout)
	defer cancel()
	_ = r.session.Close(ctx)

	if r.sender != nil { // or a Send whose link has ended may wait for ever
		_ = r.sender.Close(ctx)
	}

	r.connection.of.running.Go(r.running.Wait)
}
