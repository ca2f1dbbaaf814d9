package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"alertworker/internal/notify/inbox"
)

// What the workers are told. Partitions change hands as fast as the
// configuration allows, so that nobody waits for it.
const (
	notifyTimeout   = 5 * time.Second
	claim           = notifyTimeout + 10*time.Second // what an alert in the making holds its device for
	ownershipExpiry = 3 * time.Second
	balanceInterval = time.Second
	takeover        = ownershipExpiry + 2*balanceInterval
)

// backAfter is when a killed worker is started again: after the takeover.
const backAfter = 6 * time.Second

var workerNames = []string{"one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}

// A team is the workers. Its methods must be called by one goroutine.
type team struct {
	binary  string
	env     []string
	screen  *view
	members []*member
}

// A member is one worker, alive or dead.
type member struct {
	name    string
	page    string    // address that it serves HTTP at
	process *process  // nil while it is dead
	back    time.Time // when it is started again, while it is dead
}

// What the workers' HTTP wants. They are no secrets: the workers listen on loopback.
const (
	token      = "stack-on-this-machine"
	adminToken = "stack-admin-on-this-machine"
)

// addresses returns n on loopback that nobody listens on: from port on, or any if it is 0.
func addresses(port, n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("%w; another --http, or 0, avoids it", err)
		}
		defer l.Close() // when all are found, or one would be found twice
		all = append(all, l.Addr().String())
		if port > 0 {
			port++
		}
	}
	return all, nil
}

func newTeam(o options, binary string, pages []string, storage, hub *service, to *inbox.Server, screen *view) *team {
	t := &team{
		binary: binary,
		env: []string{
			"EVENTHUB_CONNECTION_STRING=" + hub.address,
			"EVENTHUB_START=earliest",
			fmt.Sprint("TEMPERATURE_THRESHOLD=", o.threshold),
			fmt.Sprint("THROTTLE_WINDOW=", o.window),
			"THROTTLE_STORE=" + o.store,
			"CHECKPOINT_STORE=blob",
			"CHECKPOINT_CONTAINER=" + checkpointContainer,
			"CHECKPOINT_INTERVAL=1s",
			"STORAGE_CONNECTION_STRING=" + storage.address,
			"NOTIFY_URLS=" + to.URL,
			"NOTIFY_WEBHOOK_SECRET=" + to.Secret,
			fmt.Sprint("NOTIFY_TIMEOUT=", notifyTimeout),
			fmt.Sprint("OWNERSHIP_EXPIRY=", ownershipExpiry),
			fmt.Sprint("BALANCE_INTERVAL=", balanceInterval),
			"DRAIN_TIMEOUT=10s",
			"HTTP_INGEST_TOKEN=" + token,
			"HTTP_ADMIN_TOKEN=" + adminToken,
			"LOG_LEVEL=error",
			"LOG_FORMAT=console",
		},
		screen: screen,
	}
	for i, name := range workerNames[:o.workers] {
		t.members = append(t.members, &member{name: name, page: pages[i]})
	}
	return t
}

// start starts every worker that is dead.
func (t *team) start() error {
	for i, m := range t.members {
		if m.process == nil {
			if err := t.revive(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *team) revive(i int) error {
	m := t.members[i]
	cmd := exec.Command(t.binary)
	cmd.Env = append(t.env[:len(t.env):len(t.env)], "REPLICA_NAME="+m.name, "HTTP_ADDR="+m.page)
	p, err := startProcess("worker "+m.name, cmd, func(line string) { t.screen.Log(i, line) })
	if err != nil {
		return err
	}
	m.process = p
	t.screen.Alive(i)
	return nil
}

// press kills worker i, or starts it if it is dead. There may be no such worker.
func (t *team) press(i int) error {
	if i < 0 || i >= len(t.members) {
		return nil
	}
	m := t.members[i]
	if m.process == nil {
		return t.revive(i)
	}
	m.process.kill()
	m.process = nil
	m.back = time.Now().Add(backAfter)
	t.screen.Dead(i, m.back)
	return nil
}

// pressAny kills any worker but the last one.
func (t *team) pressAny() error {
	var alive []int
	for i, m := range t.members {
		if m.process != nil {
			alive = append(alive, i)
		}
	}
	if len(alive) < 2 {
		return nil
	}
	return t.press(alive[rand.IntN(len(alive))])
}

// tend starts the dead whose time has come. It fails if a worker has ended that
// nobody killed.
func (t *team) tend() error {
	for i, m := range t.members {
		switch {
		case m.process == nil && time.Now().After(m.back):
			if err := t.revive(i); err != nil {
				return err
			}
		case m.process != nil && m.process.ended():
			err := m.process.unexpected()
			m.process = nil
			return err
		}
	}
	return nil
}

// stop asks all workers to hand over, and waits for it.
func (t *team) stop() error {
	errs := make([]error, len(t.members))
	var stopping sync.WaitGroup
	for i, m := range t.members {
		if m.process != nil {
			stopping.Go(func() { errs[i] = m.process.stop() })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// kill ends what is left.
func (t *team) kill() {
	for _, m := range t.members {
		if m.process != nil {
			m.process.kill()
		}
	}
}
