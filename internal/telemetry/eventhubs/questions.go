package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/backoff"
)

// Event Hubs allows 50 questions a second and consumer group, which is for all replicas: "Number of calls to the
// GetRuntimeInformation method" in https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas. What it does with more
// is not documented.
const (
	askEvery = 50 * time.Millisecond // at least, on average
	askLate  = 4 * askEvery          // what a machine that is late may catch up with

	// After a question that the hub had no time for, none is asked for busyMin, doubled up to busyMax.
	busyMin = 500 * time.Millisecond
	busyMax = 5 * time.Second

	// shownEvery is how far apart all replicas together ask about partitions that are read already.
	shownEvery = 50 * time.Millisecond
)

// shownAfter returns after which time replicas may ask again about partitions that they read already, of a hub that has
// so many.
func shownAfter(partitions int) time.Duration { return time.Duration(partitions) * shownEvery }

// An urgency orders questions: the higher one is asked first.
type urgency int

// What an answer is for.
const (
	toShow   urgency = iota // to people, or to check what is read already
	toDecide                // whether an alert is due
	toRead                  // a partition waits for it
)

// A hubState is what a hub says about itself.
type hubState struct {
	at         endpoint
	created    time.Time
	generation string // see telemetry.Position
	partitions []string
	ends       map[string]azeventhubs.PartitionProperties // of the partitions that it was asked about
	asked      time.Time                                  // when the first of ends was asked for

	// unanswered is why ends has not all partitions that the hub was asked about; nil if it has.
	unanswered error
}

// A wanted says since when an answer about a partition must have been asked for; zero if none is wanted.
type wanted = func(partition string) (since time.Time)

func every(string) time.Time { return time.Now() }
func none(string) time.Time  { return time.Time{} }

// query asks the hub about itself and those of its partitions that are wanted. It fails if the hub does not say what it
// is; see hubState.unanswered for its partitions.
func (s *Source) query(ctx context.Context, u urgency, since wanted) (hubState, error) {
	about := s.questions.put(u, aboutHub, time.Now())
	if err := about.await(ctx); err != nil {
		if ctx.Err() == nil {
			s.hubFailed(err)
		}
		return hubState{}, err
	}

	s.hubAnswered()
	state := about.hub
	state.ends = map[string]azeventhubs.PartitionProperties{}
	state.asked = time.Now()
	var asked []*question
	for _, id := range state.partitions {
		if since := since(id); !since.IsZero() {
			asked = append(asked, s.questions.put(u, id, since))
		}
	}

	for _, q := range asked {
		switch err := q.await(ctx); {
		case err != nil:
			state.unanswered = err
		case q.at != state.at:
			state.unanswered = fmt.Errorf("event hub %v has moved to %v", state.at, q.at)
		default:
			state.ends[q.about] = q.end
			if q.sent.Before(state.asked) {
				state.asked = q.sent
			}
		}
	}

	return state, nil
}

// aboutHub is what a question about the hub itself is about.
const aboutHub = ""

// A question is one to the hub about itself, or about a partition.
type question struct {
	about   string // a partition, or aboutHub
	urgency urgency
	sent    time.Time // at first; zero: not yet

	// Set before done is closed. hub or end is, unless there is an error.
	done chan struct{}
	at   endpoint
	hub  hubState // without ends
	end  azeventhubs.PartitionProperties
	err  error
}

// await waits for the answer until ctx ends.
func (o *question) await(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// questions are those to the hub about itself, for all who have any. They are asked one by one, at a pace, and those who
// want to know the same share a question. Its goroutine runs while there are any. Safe for concurrent use.
type questions struct {
	source      *Source
	connections connections
	ctx         context.Context
	end         context.CancelFunc
	running     sync.WaitGroup
	links       *rpc // of the goroutine; nil if none are open

	mu       sync.Mutex           // also guards what questions have until they are answered
	queued   []*question          // oldest first
	asking   bool                 // there is a goroutine
	next     time.Time            // when one may be sent
	paused   time.Time            // when the last pause began
	pauses   int                  // since the last answer
	answered map[string]*question // the last one, by what it is about
}

func newQuestions(s *Source) *questions {
	q := &questions{source: s, connections: connections{source: s}, answered: map[string]*question{}}
	q.ctx, q.end = context.WithCancel(context.Background())

	return q
}

// put returns a question: one that was asked after since and answered, one that was not sent yet, or a new one.
func (q *questions) put(u urgency, about string, since time.Time) *question {
	at := q.source.endpoint()
	q.mu.Lock()
	defer q.mu.Unlock()

	if o := q.answered[about]; o != nil && o.at == at && o.sent.After(since) {
		return o
	}

	if i := slices.IndexFunc(q.queued, func(o *question) bool { return o.about == about && o.sent.IsZero() }); i >= 0 {
		o := q.queued[i]
		o.urgency = max(o.urgency, u)
		return o
	}

	o := &question{about: about, urgency: u, done: make(chan struct{})}
	q.queued = append(q.queued, o)
	q.start()

	return o
}

// start has a goroutine ask what is queued. The caller holds q.mu.
func (q *questions) start() {
	if !q.asking {
		q.asking = true
		q.running.Go(q.run)
	}
}

// run asks until no question is queued.
func (q *questions) run() {
	for o := q.take(); o != nil; o = q.take() {
		links, err := q.open()
		if err == nil {
			q.running.Go(func() { q.ask(links, o) })
			continue
		}

		q.mu.Lock()
		failed := append(q.queued, o)
		q.queued = nil
		q.mu.Unlock()
		for _, o := range failed { // whoever asks again spaces that
			o.err = err
			close(o.done)
		}
	}
}

// take returns the next question once it may be sent: the oldest of the most urgent. Nil means that there is none, and
// that the goroutine has to end.
func (q *questions) take() *question {
	q.mu.Lock()
	defer q.mu.Unlock()

	for pause := time.Until(q.next); pause > 0 && q.ctx.Err() == nil; pause = time.Until(q.next) {
		q.mu.Unlock()
		backoff.Sleep(q.ctx, pause)
		q.mu.Lock()
	}

	if len(q.queued) == 0 {
		q.asking = false
		return nil
	}

	o := slices.MaxFunc(q.queued, func(a, b *question) int { return cmp.Compare(a.urgency, b.urgency) })
	q.queued = slices.DeleteFunc(q.queued, func(other *question) bool { return other == o })
	now := time.Now()
	q.next = later(q.next, now.Add(-askLate)).Add(askEvery)
	if o.sent.IsZero() {
		o.sent = now
	}

	return o
}

// open returns open links to the hub where it is at present.
func (q *questions) open() (*rpc, error) {
	if q.links != nil && q.links.ctx.Err() == nil && q.links.connection.at == q.source.endpoint() {
		return q.links, nil
	}

	q.hangUp()
	ctx, cancel := q.source.limited(q.ctx)
	defer cancel()
	c, err := q.connections.acquire(ctx)
	if err != nil {
		return nil, err
	}

	if q.links, err = c.openRPC(ctx, "$management"); err != nil {
		q.connections.release(c)
	}

	return q.links, err
}

// hangUp closes the links, if there are any.
func (q *questions) hangUp() {
	if q.links != nil {
		q.links.close()
		q.connections.release(q.links.connection)
		q.links = nil
	}
}

// ask sends a question, and has it asked again if the hub had no time for it.
func (q *questions) ask(links *rpc, o *question) {
	sent := time.Now()
	ctx, cancel := q.source.limited(q.ctx)
	defer cancel()
	err := o.ask(ctx, links)
	if ctx.Err() != nil { // the connection may be lost without a word
		links.connection.end()
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	code := status(err)
	isBusy := code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests ||
		condition(err) == "com.microsoft:server-busy" // it has too many questions
	again := isBusy && time.Since(o.sent) < q.source.queryLimit
	switch {
	case err == nil:
		q.pauses = 0
		q.answered[o.about] = o

	case isBusy && !sent.Before(q.paused): // else one that was sent with it was refused before
		q.pauses++
		q.paused = time.Now()
		//planted:asked-again-at-once break
		q.next = q.paused.Add(backoff.Delay(q.pauses, busyMin, busyMax))
	}

	if again {
		q.queued = slices.Insert(q.queued, 0, o)
		q.start()
		return
	}

	o.err = err
	close(o.done)
}

// ask gets the answer.
func (o *question) ask(ctx context.Context, links *rpc) error {
	c := links.connection
	t, err := c.config.token(ctx, c.audience)
	if err != nil {
		return expired(ctx, err)
	}

	what := "itself"
	properties := map[string]any{
		"operation": "READ", "type": "com.microsoft:eventhub", "name": c.at.hub, "security_token": t.text,
	}
	if o.about != aboutHub {
		what = "partition " + o.about
		properties["type"], properties["partition"] = "com.microsoft:partition", o.about
	}

	answer, err := links.request(ctx, properties, nil)
	if err == nil {
		err = o.read(c.at, answer)
	}
	if err != nil {
		return fmt.Errorf("ask event hub %s about %s: %w", c.at.hub, what, err)
	}

	return nil
}

// read reads what the hub at an endpoint answers. All of it is relied upon: of a partition whose last offset is not
// known, for one, the first start would begin at the earliest event.
func (o *question) read(at endpoint, answer any) error {
	about, ok := answer.(map[string]any)
	o.at = at
	if o.about == aboutHub {
		o.hub = hubState{
			at:         at,
			created:    field[time.Time](about, "created_at", &ok),
			partitions: field[[]string](about, "partition_ids", &ok),
		}
		o.hub.generation = at.generation(o.hub.created)
		ok = ok && len(o.hub.partitions) > 0
	} else {
		o.end = azeventhubs.PartitionProperties{
			PartitionID:                field[string](about, "partition", &ok),
			BeginningSequenceNumber:    number(about, "begin_sequence_number", &ok),
			LastEnqueuedSequenceNumber: number(about, "last_enqueued_sequence_number", &ok),
			LastEnqueuedOffset:         field[string](about, "last_enqueued_offset", &ok),
			LastEnqueuedOn:             field[time.Time](about, "last_enqueued_time_utc", &ok),
			IsEmpty:                    field[bool](about, "is_partition_empty", &ok),
		}
		ok = ok && o.end.PartitionID == o.about
	}

	if !ok {
		return errAnswer
	}

	return nil
}

// field returns a field of an answer. It sets ok to false if it has not that type.
func field[T any](answer map[string]any, name string, ok *bool) T {
	value, is := answer[name].(T)
	*ok = *ok && is
	return value
}

// number is field for a number, which AMQP may send in any width.
func number(answer map[string]any, name string, ok *bool) (n int64) {
	v := reflect.ValueOf(answer[name])
	if !v.CanInt() {
		*ok = false
		return 0
	}
	return v.Int()
}
