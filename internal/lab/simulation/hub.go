package simulation

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
)

// holds is how long devices say nothing at most, while a hub is to be recreated.
const holds = 75 * time.Second

// notices is the most that a replica takes to notice that a hub was recreated: it asks once a minute.
const notices = 75 * time.Second

// A generation is a hub from its creation until it is recreated.
type generation struct {
	from time.Time // by its own clock
	read []map[int64]heard
}

// heard is what the hub took at a place.
type heard struct {
	device string
	at     time.Time
}

// nobody is the device of messages that are no sign of life.
const nobody = "nobody"

// numbered is by how much the judge's numbers of events are ahead of those of a generation's hub. The judge knows one
// log of each partition.
const numbered = 1_000_000

// questionLimit is how many questions about itself the hub answers a second: as many fewer than the service as it has
// fewer partitions, so that replicas that start together ask too much.
const questionLimit = 5

// Names of an IoT Hub, and of the namespaces that its events are in, one after the other.
const (
	iotHub = "hub" + Domain
	amqps  = ":5671"
	policy = "service"
)

// namespace returns the address of the n-th namespace.
func namespace(n int) string { return fmt.Sprintf("namespace-%d%s", n, Domain) }

// hubName returns the address of the hub that replicas read.
func (w *World) hubName() string {
	if w.plan.IoT {
		return namespace(w.namespace) + amqps
	}
	return hubAddress
}

// openIoTHub serves an IoT Hub, which says where its events are.
func (w *World) openIoTHub() error {
	at := listen(iotHub + amqps)
	h, err := devhub.Serve(at, devhub.Config{
		TLS:        w.tls,
		KeyName:    policy,
		Key:        key,
		RedirectTo: "amqps://" + namespace(w.namespace) + amqps + "/devhub/",
	})
	if err != nil {
		return fmt.Errorf("serve the IoT Hub: %w", err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.iot = h
	w.places[iotHub+amqps] = at

	return nil
}

// openHub serves a hub that is empty.
func (w *World) openHub() error {
	name := w.hubName()
	at := listen(name)
	c := devhub.Config{Partitions: w.plan.Partitions, Key: key, EchoEvery: time.Second}
	if w.plan.IoT {
		c.TLS = w.tls
		c.KeyName = policy
	}

	h, err := devhub.Serve(at, c)
	if err != nil {
		return fmt.Errorf("serve the hub: %w", err)
	}
	h.LimitManagement(questionLimit)

	g := generation{from: w.now(), read: make([]map[int64]heard, w.plan.Partitions)}
	for i := range g.read {
		g.read[i] = map[int64]heard{}
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.hub = h
	w.places[name] = at
	w.generations = append(w.generations, g)

	return nil
}

// recreate has another hub, which is empty, in place of the hub. If it fails over, the other one is in another
// namespace, which only an IoT Hub can say.
func (w *World) recreate(failsOver bool) {
	_ = w.hub.Close()
	var err error
	if failsOver && w.plan.IoT {
		w.namespace++
		_ = w.iot.Close()
		err = w.openIoTHub()
	}

	w.forget()
	if err = errors.Join(err, w.openHub()); err != nil {
		panic(err) // it was served before
	}
}

// forget notes what checkpoints call the hub that is gone. Who has not noticed may still write such checkpoints, which
// count for nothing.
func (w *World) forget() {
	for p := range w.plan.Partitions {
		for _, name := range w.records("/checkpoint/", p) {
			w.gone[w.blobs.Metadata(checkpointContainer, name)["Generation"]] = true
		}
	}
}

// took notes what the hub took, and returns the judge's number of it.
func (w *World) took(pub devhub.Published, device string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := len(w.generations) - 1
	p, _ := strconv.Atoi(pub.Partition)
	w.generations[n].read[p][pub.Sequence] = heard{device, pub.Enqueued}

	return int64(n)*numbered + pub.Sequence
}

// number returns the judge's number of the event that a message is about. It is the last one with the hub's number,
// until the time that the message gives; that of a silence is its deadline. A silence may have lost the number with
// the hub.
func (w *World) number(a notify.Alert) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	p, err := strconv.Atoi(a.Partition)
	if err != nil || p >= w.plan.Partitions {
		return a.Sequence
	}

	for n := len(w.generations) - 1; n >= 0; n-- {
		g := w.generations[n]
		if a.Sequence < 0 {
			if last, ok := g.last(p, a.Device, a.Enqueued); ok {
				return int64(n)*numbered + last
			}
			continue
		}

		h, ok := g.read[p][a.Sequence]
		isInTime := ok && !h.at.After(a.Enqueued.Add(time.Millisecond))
		if isInTime && (h.device == a.Device || a.Rule != silence) { // a silence is of who was heard there
			return int64(n)*numbered + a.Sequence
		}
	}

	return a.Sequence
}

// last returns the number of the last event of a device until a time.
func (g generation) last(partition int, device string, until time.Time) (sequence int64, ok bool) {
	for s, h := range g.read[partition] {
		if h.device == device && !h.at.After(until) && (!ok || s > sequence) {
			sequence, ok = s, true
		}
	}

	return sequence, ok
}

// settledAt returns the number of the last event of a partition that a checkpoint says is settled, -1 if there is none.
func (w *World) settledAt(partition int) int64 {
	for _, name := range w.records("/checkpoint/", partition) {
		values := w.blobs.Metadata(checkpointContainer, name)
		if w.gone[values["Generation"]] {
			continue
		}

		at, err := time.Parse(time.RFC3339Nano, values["Enqueuedtime"])
		if err != nil || at.Before(w.generation().from) {
			continue
		}

		n, err := strconv.ParseInt(values["Sequencenumber"], 10, 64)
		if err == nil {
			return n
		}
	}

	return -1
}

// heardUpTo returns the number of the last event of a partition whose device is in its roster as heard, -1 if there is
// none. The next owner reads on from there.
func (w *World) heardUpTo(partition int) int64 {
	for _, name := range w.records("/roster/", partition) {
		r, err := roster.Decode(w.blobs.Content(checkpointContainer, name))
		if err != nil {
			continue
		}

		if !r.Position.Time.Before(w.generation().from) {
			return r.Position.Sequence
		}
	}
	return -1
}

// records returns the names of the records of a kind about a partition, of which each namespace may have one.
func (w *World) records(kind string, partition int) []string {
	return slices.DeleteFunc(w.blobs.Names(checkpointContainer), func(name string) bool {
		return !strings.HasSuffix(name, kind+strconv.Itoa(partition))
	})
}

// generation returns the present one.
func (w *World) generation() generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generations[len(w.generations)-1]
}

// isReplaced reports whether another hub has been in place of this one.
func (w *World) isReplaced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.generations) > 1
}

// doneWith returns the number of the last event of a partition that nobody has to read again, -1 if there is none.
func (w *World) doneWith(partition int) int64 {
	settled := w.settledAt(partition)
	hasRoster := w.plan.Silent > 0 || w.plan.Adds == Misses
	if !hasRoster {
		return settled
	}

	return min(settled, w.heardUpTo(partition))
}

// allDone reports whether nobody has to read anything of the hub again.
func (w *World) allDone() bool {
	isNoticed := !w.isReplaced() // somebody reads the present hub, and not the one before it
	for p, read := range w.generation().read {
		isNoticed = isNoticed || w.settledAt(p) >= 0
		if int64(len(read)) > w.doneWith(p)+1 {
			return false
		}
	}

	return isNoticed
}

// expire has the hub drop what nobody will read again of a partition. If that is all, it drops besides what nobody has
// read.
func (w *World) expire(partition int) {
	id := strconv.Itoa(partition)
	over := w.doneWith(partition)
	w.hub.ExpireUpTo(id, over)
	if int64(len(w.generation().read[partition])) > over+1 {
		return
	}

	for range 3 {
		pub, err := w.hub.Publish(devhub.Message{
			Device:    nobody,
			Source:    "twinChangeEvents",
			Body:      []byte(`{}`),
			Partition: id,
			Enqueued:  w.now(),
		})
		if err != nil {
			panic(err) // see publish
		}

		sequence := w.took(pub, nobody)
		w.verified.Published(verify.Reading{
			Device:      nobody,
			ByHub:       true,
			Temperature: math.NaN(),
			At:          pub.Enqueued,
			Partition:   id,
			Sequence:    sequence,
		})
	}

	w.hub.Expire(id)
}

// A checkpoint says that all of a partition before a number of the judge was settled at a time.
type checkpoint struct {
	at     time.Time
	before int64
}

// checkpointed notes a checkpoint that was written.
func (w *World) checkpointed(r *http.Request) {
	_, name := blobOf(r)
	partition := name[strings.LastIndex(name, "/")+1:]
	n, _ := strconv.Atoi(partition)
	w.mu.Lock()
	generation := int64(len(w.generations) - 1)
	w.mu.Unlock()
	to := w.settledAt(n)
	if to < 0 {
		return
	}

	before := generation*numbered + to + 1
	w.verified.Settled(partition, before, w.now())

	w.mu.Lock()
	defer w.mu.Unlock()

	w.checkpoints[partition] = append(w.checkpoints[partition], checkpoint{time.Now(), before})
}

// settledLongAgo returns the number before which all of a partition was settled before anything was sent that comes
// now.
func (w *World) settledLongAgo(partition string) (before int64) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, c := range w.checkpoints[partition] {
		if time.Since(c.at) > underWay {
			before = max(before, c.before)
		}
	}

	return before
}
