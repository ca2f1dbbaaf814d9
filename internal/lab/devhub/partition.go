package devhub

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"alertworker/internal/lab/devhub/frames"
)

// A partition is an ordered log of encoded messages and the links that read it.
type partition struct {
	id                  string
	maxEvents, maxBytes int
	geo                 bool // its offsets are those of a geo-replicated namespace

	mu      sync.Mutex
	events  []event // the last ones; events[0] has the sequence number first
	first   int64
	bytes   int   // in events
	offset  int64 // of the next event
	newest  event // the last one, once it has expired; without its message
	stale   int64 // events that the next answer about the partition does not know of
	readers map[*link]struct{}
}

type event struct {
	message  []byte // encoded, shared by all readers
	offset   int64
	enqueued time.Time
}

// next returns the sequence number of the next event. The caller holds p.mu.
func (p *partition) next() int64 { return p.first + int64(len(p.events)) }

// last returns the last event, without its message if it has expired. Without one its offset is -1. The caller holds
// p.mu.
func (p *partition) last() event {
	if len(p.events) == 0 {
		return p.newest
	}
	return p.events[len(p.events)-1]
}

// append adds the message that encode makes of its place, and drops the oldest
// ones once the log is over its bounds. The newest message always stays. It is enqueued
// now if enqueued is zero.
func (p *partition) append(enqueued time.Time, encode func(Published) ([]byte, error)) (Published, error) {
	if enqueued.IsZero() {
		enqueued = time.Now()
	}

	enqueued = enqueued.Truncate(time.Millisecond)

	p.mu.Lock()
	defer p.mu.Unlock()

	pub := Published{Partition: p.id, Sequence: p.next(), Offset: p.text(p.offset, p.geo), Enqueued: enqueued}
	message, err := encode(pub)
	if err != nil {
		return Published{}, err
	}

	p.events = append(p.events, event{message, p.offset, enqueued})
	p.offset += int64(len(message))
	p.bytes += len(message)

	for len(p.events) > 1 && (len(p.events) > p.maxEvents || p.bytes > p.maxBytes) {
		p.bytes -= len(p.events[0].message)
		p.events[0] = event{}
		p.events = p.events[1:]
		p.first++
	}

	for l := range p.readers {
		l.conn.notify()
	}

	return pub, nil
}

// read fills messages with those from the sequence number seq on, or from the
// oldest one if that is newer. It returns how many there are and the sequence
// number to go on with.
func (p *partition) read(seq int64, messages [][]byte) (n int, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()

	seq = max(seq, p.first)
	rest := p.events[min(seq-p.first, int64(len(p.events))):]
	n = min(len(rest), len(messages))
	for i, e := range rest[:n] {
		messages[i] = e.message
	}

	return n, seq + int64(n)
}

// has reports whether there is an event from the sequence number seq on.
func (p *partition) has(seq int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events) > 0 && seq < p.next()
}

var selectors = regexp.MustCompile(`^(?:amqp\.annotation\.)?(\S+) (>=?) '(.+)'$`)

// start resolves a selector such as "amqp.annotation.x-opt-offset > '12'" to
// the sequence number of the first event that it selects. No selector at all
// selects everything.
func (p *partition) start(selector string, wantsGeo bool) (int64, *frames.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if selector == "" {
		return p.first, nil
	}

	m := selectors.FindStringSubmatch(selector)
	if m == nil {
		return 0, problem(condArgument, "The filter %q is not supported.", selector)
	}

	name := m[1]
	inclusive := m[2] == ">="
	value := m[3]
	if value == "@latest" {
		if inclusive {
			return max(p.next()-1, p.first), nil
		}
		return p.next(), nil
	}

	number, isGeo := strings.CutPrefix(value, geoPrefix)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, problem(condArgument, "The filter %q has no number.", selector)
	}
	if mustBeGeo := p.geo && wantsGeo && name == annotationOffset && n >= 0; isGeo != mustBeGeo {
		return 0, problem("com.microsoft:georeplication:invalid-offset", "The supplied offset '%s' is invalid.", value)
	}

	if !inclusive && n < 1<<62 {
		n++
	}

	switch name {
	case annotationSequence:
		if n > p.next() {
			return 0, problem(
				condArgument,
				"The supplied sequence number '%s' is invalid. The last sequence number in the system is '%d'",
				value,
				p.next()-1,
			)
		}

		return max(n, p.first), nil

	case annotationOffset:
		if n > p.last().offset+1 {
			return 0, problem(
				condArgument,
				"The supplied offset '%s' is invalid. The last offset in the system is '%d'",
				value,
				p.last().offset,
			)
		}

		return p.find(func(e event) bool { return e.offset >= n }), nil

	case annotationEnqueued:
		return p.find(func(e event) bool { return e.enqueued.UnixMilli() >= n }), nil
	}

	return 0, problem(condArgument, "The filter %q is not supported.", selector)
}

// find returns the sequence number of the first event that ok accepts, or of the next one
// to come. The caller holds p.mu.
func (p *partition) find(ok func(event) bool) int64 {
	if i := slices.IndexFunc(p.events, ok); i >= 0 {
		return p.first + int64(i)
	}

	return p.next()
}

// maxReaders is how many readers without an epoch a consumer group may have on
// a partition.
const maxReaders = 5

// admit lets l read the partition, or says why not. It returns those
// links of the same consumer group that have to go because of it; they are no readers any more.
func (p *partition) admit(l *link) (victims []*link, refused *frames.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	same := 0
	for o := range p.readers {
		if o.group != l.group {
			continue
		}

		same++

		switch {
		case o.epoch == nil && l.epoch == nil:

		case o.epoch == nil:
			victims = append(victims, o)

		case l.epoch == nil:
			return nil, problem(
				condStolen,
				"At least one receiver for the endpoint is created with epoch of '%d', and so non-epoch receiver is not "+
					"allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are closed or disconnected.",
				*o.epoch,
			)

		case *l.epoch < *o.epoch:
			return nil, problem(
				condStolen,
				"Receiver '%s' with a higher epoch '%d' already exists. Receiver '%s' with epoch %d cannot be created. Make "+
					"sure you are creating receiver with increasing epoch value to ensure connectivity, or ensure all old epoch "+
					"receivers are closed or disconnected.",
				o.receiver,
				*o.epoch,
				l.receiver,
				*l.epoch,
			)

		default:
			victims = append(victims, o)
		}
	}

	if l.epoch == nil && same >= maxReaders {
		return nil, problem(condLimit,
			"Exceeded the maximum number of allowed receivers per partition in a consumer group which is %d.", maxReaders)
	}

	for _, v := range victims {
		delete(p.readers, v)
	}

	p.readers[l] = struct{}{}

	return victims, nil
}

// leave ends what admit began.
func (p *partition) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, l)
}

// geoPrefix is what offsets of a geo-replicated namespace begin with.
const geoPrefix = "0:"

// text returns an offset as clients get it.
func (p *partition) text(offset int64, geo bool) string {
	if geo && offset >= 0 {
		return geoPrefix + strconv.FormatInt(offset, 10)
	}
	return strconv.FormatInt(offset, 10)
}

// state is what a hub reports about a partition, to who wants the offsets of a geo-replicated namespace or not.
func (p *partition) state(wantsGeo bool) map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()

	last := p.next() - 1 - p.stale
	p.stale = 0

	return map[string]any{
		"partition":                     p.id,
		"begin_sequence_number":         p.first,
		"last_enqueued_sequence_number": last,
		"last_enqueued_offset":          p.text(p.last().offset, p.geo && wantsGeo),
		"last_enqueued_time_utc":        p.last().enqueued,
		"is_partition_empty":            len(p.events) == 0,
	}
}
