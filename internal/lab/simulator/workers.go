package simulator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"alertworker/internal/lab/console"
	"alertworker/internal/lab/process"
)

// backAfter is when a killed worker is started again: after the takeover.
const backAfter = 6 * time.Second

// workers are all workers of a simulation. One goroutine calls the methods.
type workers struct {
	begin   func(name string, i int) (Worker, error)
	view    *console.Console
	members []*member
	owner   map[string]string // of each partition, the last known
	leader  string            // name of the worker that leads, empty if none is known
}

// A member is one worker, running or killed.
type member struct {
	name       string
	worker     Worker    // nil while it is killed
	killed     time.Time // when it was killed last; backAfter that it is started again
	partitions []string
}

// newWorkers returns n workers, not started yet. They are named w1, w2 and so on,
// after the keys that kill them.
func newWorkers(n int, view *console.Console, begin func(name string, i int) (Worker, error)) *workers {
	ws := &workers{begin: begin, view: view, owner: map[string]string{}}
	for i := range n {
		ws.members = append(ws.members, &member{name: workerName(i)})
	}

	return ws
}

func workerName(i int) string { return fmt.Sprint("w", i+1) }

// start starts every worker.
func (ws *workers) start() error {
	for i := range ws.members {
		if err := ws.startOne(i); err != nil {
			return err
		}
	}

	return nil
}

func (ws *workers) startOne(i int) error {
	m := ws.members[i]
	w, err := ws.begin(m.name, i)
	if err != nil {
		return err
	}

	m.worker = w
	if !m.killed.IsZero() {
		ws.view.Event(m.name, "back")
	}

	return nil
}

// toggle kills worker i, or starts it if it is killed. It does nothing if there is no
// worker i.
func (ws *workers) toggle(i int) error {
	if !within(i, 0, len(ws.members)-1) {
		return nil
	}

	m := ws.members[i]
	if m.worker == nil {
		return ws.startOne(i)
	}

	m.worker.Kill()
	ws.gone(m)

	return nil
}

// gone has a worker that was killed come back later.
func (ws *workers) gone(m *member) {
	m.worker = nil
	m.partitions = nil
	m.killed = time.Now()
	if ws.leader == m.name {
		ws.leader = ""
	}

	ws.view.Event(m.name, "killed")
}

// killAny kills a random worker, but never the last one.
func (ws *workers) killAny() error {
	var alive []int
	for i, m := range ws.members {
		if m.worker != nil {
			alive = append(alive, i)
		}
	}

	if len(alive) < 2 {
		return nil
	}

	return ws.toggle(alive[rand.IntN(len(alive))])
}

// restartDue starts the killed workers whose time has come, also those that were killed from outside. It fails if a
// worker has ended by itself.
func (ws *workers) restartDue() error {
	for i, m := range ws.members {
		switch {
		case m.worker == nil && time.Since(m.killed) > backAfter:
			if err := ws.startOne(i); err != nil {
				return err
			}

		case m.worker != nil && m.worker.Ended():
			if err := ws.ended(m); err != nil {
				return err
			}
		}
	}

	return nil
}

// ended has m, which has ended, come back later if it was killed from outside. Else it returns why it ended.
func (ws *workers) ended(m *member) error {
	err := m.worker.Unexpected()
	if process.Killed(err) {
		ws.gone(m)
		return nil
	}

	m.worker = nil

	return err
}

// updateOwners gets the owner of every partition that has one, and shows which worker
// took which from whom.
func (ws *workers) updateOwners(now map[string]string) {
	for _, m := range ws.members {
		taken := ws.assign(m, now)
		for _, from := range slices.Sorted(maps.Keys(taken)) {
			ws.view.Event(m.name, ws.took(taken[from], from))
		}
	}
}

// assign notes which partitions m has by their present owners, and returns those that others had, by previous owner.
func (ws *workers) assign(m *member, now map[string]string) (taken map[string][]string) {
	taken = map[string][]string{}
	m.partitions = nil

	for _, partition := range slices.SortedFunc(maps.Keys(now), byNumber) {
		name, _, _ := strings.Cut(now[partition], "-") // and a random part
		if name != m.name {
			continue
		}

		m.partitions = append(m.partitions, partition)
		if from := ws.owner[partition]; from != "" && from != name {
			taken[from] = append(taken[from], partition)
		}

		ws.owner[partition] = name
	}

	return taken
}

// took says that partitions were taken from a worker, and how long after it was killed.
func (ws *workers) took(partitions []string, from string) string {
	text := fmt.Sprintf("took %s from %s", strings.Join(partitions, " "), from)

	other := ws.member(from)
	if other == nil || other.worker != nil {
		return text
	}

	return text + fmt.Sprintf(" in %.1f s", time.Since(other.killed).Seconds())
}

// updateLeader gets the name of the worker that leads, empty if none is known, and shows
// when it is another one.
func (ws *workers) updateLeader(name string) {
	m := ws.member(name)
	if m == nil || m.worker == nil {
		return
	}

	if name == ws.leader {
		return
	}

	ws.leader = name
	ws.view.Event(name, "leads")
}

// byNumber compares the ids of partitions.
func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// member returns the worker of a name, nil if there is none.
func (ws *workers) member(name string) *member {
	i := slices.IndexFunc(ws.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		return nil
	}

	return ws.members[i]
}

// states describes the workers.
func (ws *workers) states() []console.Worker {
	var all []console.Worker
	for _, m := range ws.members {
		w := console.Worker{Name: m.name, Alive: m.worker != nil, State: "no partition yet"}
		switch {
		case !w.Alive:
			left := backAfter - time.Since(m.killed)
			w.State = fmt.Sprintf("killed, back in %d s", max(0, int(left.Seconds()+0.5)))

		case len(m.partitions) > 0:
			w.State = "partitions " + strings.Join(m.partitions, " ")
		}

		if m.name == ws.leader {
			w.State += ", leads"
		}

		all = append(all, w)
	}

	return all
}

// pages lists the addresses of the status pages.
func (ws *workers) pages() string {
	text := "status pages:"
	for _, m := range ws.members {
		text += " http://" + m.worker.Page()
	}

	return text
}

// stop asks all workers to hand over their partitions, and waits until they have.
func (ws *workers) stop() error {
	errs := make([]error, len(ws.members))
	var stopping sync.WaitGroup
	for i, m := range ws.members {
		if m.worker != nil {
			stopping.Go(func() { errs[i] = m.worker.Stop() })
		}
	}

	stopping.Wait()

	return errors.Join(errs...)
}

// kill ends the workers that still run.
func (ws *workers) kill() {
	for _, m := range ws.members {
		if m.worker != nil {
			m.worker.Kill()
		}
	}
}
