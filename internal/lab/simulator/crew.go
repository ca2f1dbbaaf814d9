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
)

// backAfter is when a killed worker is started again: after the takeover.
const backAfter = 6 * time.Second

// A crew is the workers. Its methods must be called by one goroutine.
type crew struct {
	begin   func(name string, i int) (Worker, error)
	view    *console.Console
	members []*member
	owner   map[string]string // of each partition, the last known
}

// A member is one worker, alive or dead.
type member struct {
	name       string
	worker     Worker    // nil while it is dead
	killed     time.Time // when it was killed last
	back       time.Time // when it is started again, while it is dead
	partitions []string
}

// newCrew returns n dead workers. Their names are what keys kill them, after a w.
func newCrew(n int, view *console.Console, begin func(name string, i int) (Worker, error)) *crew {
	c := &crew{begin: begin, view: view, owner: map[string]string{}}
	for i := range n {
		c.members = append(c.members, &member{name: fmt.Sprint("w", i+1)})
	}
	return c
}

// start starts every worker.
func (c *crew) start() error {
	for i := range c.members {
		if err := c.revive(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *crew) revive(i int) error {
	m := c.members[i]
	w, err := c.begin(m.name, i)
	if err != nil {
		return err
	}
	m.worker = w
	if !m.killed.IsZero() {
		c.view.Event(m.name, "back")
	}
	return nil
}

// press kills worker i, or starts it if it is dead. There may be no such worker.
func (c *crew) press(i int) error {
	if i < 0 || i >= len(c.members) {
		return nil
	}
	m := c.members[i]
	if m.worker == nil {
		return c.revive(i)
	}
	m.worker.Kill()
	m.worker, m.partitions = nil, nil
	m.killed, m.back = time.Now(), time.Now().Add(backAfter)
	c.view.Event(m.name, "killed")
	return nil
}

// pressAny kills any worker but the last one.
func (c *crew) pressAny() error {
	var alive []int
	for i, m := range c.members {
		if m.worker != nil {
			alive = append(alive, i)
		}
	}
	if len(alive) < 2 {
		return nil
	}
	return c.press(alive[rand.IntN(len(alive))])
}

// tend starts the dead whose time has come. It fails if a worker has ended that
// nobody killed.
func (c *crew) tend() error {
	for i, m := range c.members {
		switch {
		case m.worker == nil && time.Now().After(m.back):
			if err := c.revive(i); err != nil {
				return err
			}
		case m.worker != nil && m.worker.Ended():
			err := m.worker.Unexpected()
			m.worker = nil
			return err
		}
	}
	return nil
}

// owners is told the owner of every partition that has one, and tells who took which
// from whom.
func (c *crew) owners(now map[string]string) {
	for _, m := range c.members {
		taken := map[string][]string{} // from whom
		m.partitions = nil
		for _, partition := range slices.SortedFunc(maps.Keys(now), byNumber) {
			name, _, _ := strings.Cut(now[partition], "-") // and a random part
			if name != m.name {
				continue
			}
			m.partitions = append(m.partitions, partition)
			if from := c.owner[partition]; from != "" && from != name {
				taken[from] = append(taken[from], partition)
			}
			c.owner[partition] = name
		}
		for _, from := range slices.Sorted(maps.Keys(taken)) {
			text := fmt.Sprintf("took %s from %s", strings.Join(taken[from], " "), from)
			if other := c.member(from); other != nil && other.worker == nil {
				text += fmt.Sprintf(" in %.1f s", time.Since(other.killed).Seconds())
			}
			c.view.Event(m.name, text)
		}
	}
}

// byNumber compares the ids of partitions.
func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// member returns nil if there is none of that name.
func (c *crew) member(name string) *member {
	if i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name }); i >= 0 {
		return c.members[i]
	}
	return nil
}

// states is how the workers are, in words.
func (c *crew) states() []console.Worker {
	var all []console.Worker
	for _, m := range c.members {
		w := console.Worker{Name: m.name, Alive: m.worker != nil, State: "no partition yet"}
		switch {
		case !w.Alive:
			w.State = fmt.Sprintf("killed, back in %d s", max(0, int(time.Until(m.back).Seconds()+0.5)))
		case len(m.partitions) > 0:
			w.State = "partitions " + strings.Join(m.partitions, " ")
		}
		all = append(all, w)
	}
	return all
}

// pages says where the status pages are.
func (c *crew) pages() string {
	text := "status pages:"
	for _, m := range c.members {
		text += " http://" + m.worker.Page()
	}
	return text
}

// stop asks all workers to hand over, and waits for it.
func (c *crew) stop() error {
	errs := make([]error, len(c.members))
	var stopping sync.WaitGroup
	for i, m := range c.members {
		if m.worker != nil {
			stopping.Go(func() { errs[i] = m.worker.Stop() })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// kill ends what is left.
func (c *crew) kill() {
	for _, m := range c.members {
		if m.worker != nil {
			m.worker.Kill()
		}
	}
}
