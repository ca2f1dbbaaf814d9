package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"alertworker/internal/backoff"
)

// Event Hubs allows 50 questions a second and consumer group, which is for all replicas: "Number of calls to the
// GetRuntimeInformation method" in https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas. What it does with more
// is not documented.
const (
	askEvery = 50 * time.Millisecond // at least, on average
	askBurst = 5                     // without a pause, after one

	// hubTurn is how many partitions are asked about between two questions about the hub if both are equally urgent: one
	// such answer serves all who wait for it.
	hubTurn = 4

	// After a question that the hub had no time for, none is asked for busyMin, doubled up to busyMax.
	busyMin = 500 * time.Millisecond
	busyMax = 5 * time.Second

	// shownEvery is how far apart all replicas together ask about partitions that are read already.
	shownEvery = 50 * time.Millisecond
)

// An urgency orders questions: the higher one is asked first.
type urgency int

// What an answer is for.
const (
	toShow   urgency = iota // to people, or to check what is read already
	toDecide                // whether an alert is due
	toRead                  // a partition waits for it
)

// aboutHub is what a question about the hub itself is about.
const aboutHub = ""

// A question is one to the hub about itself, or about a partition.
type question struct {
	about   string // a partition, or aboutHub
	done    chan struct{}
	urgency urgency   // guarded by the mu of questions until it is sent, like the next three
	waiting int       // who wants the answer
	first   time.Time // when it was first sent
	lost    bool      // it was sent on links that failed

	// Set before done is closed. One of the first two is, unless there is an error.
	hub hubState // without ends
	end knownEnd
	err error
}

// questions are those to the hub about itself, for all who have any. They are asked one by one, at a pace, and those who
// want to know the same share a question. Its goroutine runs while there are any. Safe for concurrent use.
type questions struct {
	source      *Source
	connections connections // one
	ctx         context.Context
	end         context.CancelFunc
	running     sync.WaitGroup

	mu       sync.Mutex
	queued   []*question // not sent, oldest first
	asking   bool        // there is a goroutine
	links    *rpc        // of that goroutine; nil if none are open
	full     time.Time   // when a whole burst may be sent again
	paused   time.Time   // when the last pause began
	pauses   int         // since the last answer
	sinceHub int         // questions about partitions since the last one about the hub
	ends     map[string]knownEnd
}

// A knownEnd is the last answer about a partition.
type knownEnd struct {
	end  azeventhubs.PartitionProperties
	of   endpoint
	sent time.Time // the question
	at   time.Time
}

func newQuestions(s *Source) *questions {
	q := &questions{source: s, connections: connections{source: s, keep: true}, ends: map[string]knownEnd{}}
	q.ctx, q.end = context.WithCancel(context.Background())

	return q
}

// close closes the connection, once nobody asks any more.
func (q *questions) close() {
	q.end()
	q.running.Wait()
	if q.links != nil {
		q.links.close()
		q.connections.release(q.links.connection)
	}
	q.connections.close()
}

// put queues a question, or joins one that was not sent yet: the answer is of no earlier moment than the call. Call
// await for each.
func (q *questions) put(u urgency, about string) *question {
	q.mu.Lock()
	defer q.mu.Unlock()

	if i := slices.IndexFunc(q.queued, func(o *question) bool { return o.about == about && o.first.IsZero() }); i >= 0 {
		o := q.queued[i]
		o.waiting++
		o.urgency = max(o.urgency, u)

		return o
	}

	n := &question{about: about, urgency: u, waiting: 1, done: make(chan struct{})}
	q.queued = append(q.queued, n)
	q.start()

	return n
}

// start has a goroutine ask what is queued. The caller holds q.mu.
func (q *questions) start() {
	if !q.asking {
		q.asking = true
		q.running.Go(q.run)
	}
}

// await waits for the answer until ctx ends.
func (q *questions) await(ctx context.Context, o *question) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	o.waiting--

	return context.Cause(ctx)
}

// run asks until no question is queued.
func (q *questions) run() {
	for {
		o := q.next()
		if o == nil {
			return
		}

		links, err := q.open()
		if err != nil {
			q.mu.Lock()
			all := q.queued
			q.queued = nil
			q.mu.Unlock()
			for _, o := range append(all, o) { // whoever asks again spaces that
				q.finish(o, err)
			}
			continue
		}

		q.running.Go(func() { q.ask(links, o) })
	}
}

// next returns the next question once it is its time. Nil means that there is none, and that run has to end.
func (q *questions) next() *question {
	for {
		q.mu.Lock()
		q.queued = slices.DeleteFunc(q.queued, func(o *question) bool { return o.waiting == 0 })
		i := q.choose()
		if i < 0 {
			q.asking = false
			q.mu.Unlock()
			return nil
		}

		now := time.Now()
		pause := q.full.Add(-askBurst * askEvery).Sub(now)
		if pause <= 0 || q.ctx.Err() != nil {
			o := q.queued[i]
			q.queued = slices.Delete(q.queued, i, i+1)
			q.full = latest(q.full, now).Add(askEvery)
			q.sinceHub++
			if o.about == aboutHub {
				q.sinceHub = 0
			}
			if o.first.IsZero() {
				o.first = now
			}
			q.mu.Unlock()

			return o
		}
		q.mu.Unlock()

		backoff.Sleep(q.ctx, pause)
	}
}

// shownAfter returns after which time replicas may ask again about partitions that they read already, of a hub that has
// so many.
func shownAfter(partitions int) time.Duration { return time.Duration(partitions) * shownEvery }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// choose returns the index of the question to send next, -1 if there is none: the oldest of the most urgent, but one
// about the hub when its turn has come. The caller holds q.mu.
func (q *questions) choose() int {
	best := -1
	for i, o := range q.queued {
		switch {
		case best < 0, o.urgency > q.queued[best].urgency:
			best = i
		case o.urgency < q.queued[best].urgency:
		case q.sinceHub >= hubTurn && o.about == aboutHub, q.sinceHub < hubTurn && q.queued[best].about == aboutHub:
			best = i
		}
	}

	return best
}

// open returns open links to the hub where it is at present.
func (q *questions) open() (*rpc, error) {
	if q.links != nil {
		isOpen := q.links.connection.ctx.Err() == nil
		select {
		case <-q.links.ended:
			isOpen = false
		default:
		}

		if isOpen && q.links.connection.at == q.source.endpoint() {
			return q.links, nil
		}

		q.links.close()
		q.connections.release(q.links.connection)
		q.links = nil
	}

	ctx, cancel := q.source.limited(q.ctx)
	defer cancel()
	c, err := q.connections.acquire(ctx)
	if err != nil {
		return nil, err
	}

	q.links, err = c.openRPC(ctx, "$management")
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			c.end()
		}
		q.connections.release(c)
	}

	return q.links, err
}

// ask sends a question, and has it asked again if the hub had no time for it or the links were lost.
func (q *questions) ask(links *rpc, o *question) {
	sent := time.Now()
	ctx, cancel := q.source.limited(q.ctx)
	defer cancel()
	err := q.exchange(ctx, links, o)
	if ctx.Err() != nil { // the connection may be lost without a word
		links.connection.end()
	}

	switch {
	case err == nil:
		q.mu.Lock()
		q.pauses = 0
		if o.about != aboutHub {
			q.ends[o.about] = o.end
		}
		q.mu.Unlock()
	case isBusy(err):
		q.pause(sent)
		if time.Since(o.first) < q.source.queryLimit {
			q.again(o)
			return
		}
	case isLost(err) && !o.lost && q.ctx.Err() == nil:
		o.lost = true
		q.again(o)
		return
	}

	q.finish(o, err)
}

// exchange gets the answer to a question.
func (q *questions) exchange(ctx context.Context, links *rpc, o *question) error {
	c := links.connection
	t, err := c.config.token(ctx, c.audience)
	if err != nil {
		return expired(ctx, err)
	}

	properties := map[string]any{
		"operation": "READ", "type": "com.microsoft:eventhub", "name": c.at.hub, "security_token": t.text,
	}
	if o.about != aboutHub {
		properties["type"], properties["partition"] = "com.microsoft:partition", o.about
	}

	ok := false
	sent := time.Now()
	value, err := links.request(ctx, properties, nil)
	switch {
	case err != nil:
	case o.about == aboutHub:
		o.hub, ok = readHub(value)
		o.hub.at = c.at
	default:
		o.end.end, ok = readEnd(value)
		ok = ok && o.end.end.PartitionID == o.about
		o.end.of, o.end.sent, o.end.at = c.at, sent, time.Now()
	}

	if err == nil && !ok {
		err = errAnswer
	}
	if err != nil {
		return fmt.Errorf("ask event hub %s about %s: %w", c.at.hub, o, err)
	}

	return nil
}

// String says what a question is about.
func (o *question) String() string {
	if o.about == aboutHub {
		return "itself"
	}
	return "partition " + o.about
}

// isBusy reports whether the hub refuses a question because it has too many.
func isBusy(err error) bool {
	var peer *amqp.Error
	code := status(err)
	return code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests ||
		errors.As(err, &peer) && peer.Condition == "com.microsoft:server-busy"
}

// isLost reports whether the hub did not answer, which may be because the links were lost since they were last used.
func isLost(err error) bool {
	var refused *statusError
	return !errors.As(err, &refused) && !errors.Is(err, errAnswer) && !noToken(err)
}

// pause has nothing asked for some time, because the hub had no time for a question of this moment.
func (q *questions) pause(sent time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if sent.Before(q.paused) { // one that was sent with it was refused before
		return
	}

	q.pauses++
	q.paused = time.Now()
	//planted:asked-again-at-once return
	q.full = q.paused.Add(backoff.Delay(q.pauses, busyMin, busyMax) + askBurst*askEvery)
}

// again queues a question once more.
func (q *questions) again(o *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued = slices.Insert(q.queued, 0, o)
	q.start()
}

// finish gives an answer, or the reason why there is none, to who waits for it.
func (q *questions) finish(o *question, err error) {
	o.err = err
	close(o.done)
}

// answers returns the last answers about partitions of the hub.
func (q *questions) answers() map[string]knownEnd {
	at := q.source.endpoint()
	q.mu.Lock()
	defer q.mu.Unlock()

	answers := map[string]knownEnd{}
	for id, e := range q.ends {
		if e.of == at {
			answers[id] = e
		}
	}

	return answers
}

// known returns where partitions of the hub end, as far as it has said since a time.
func (q *questions) known(since time.Time) map[string]int64 {
	ends := map[string]int64{}
	for id, e := range q.answers() {
		if !e.at.Before(since) {
			ends[id] = e.end.LastEnqueuedSequenceNumber
		}
	}

	return ends
}
