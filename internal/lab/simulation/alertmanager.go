package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/rules"
)

// Some worlds have an Alertmanager, which keeps what it was sent in memory, goes by its own clock, and knows no tokens:
// what comes late undoes what came before. So nothing is late there. It restarts now and then, and last when everything has
// healed.
const (
	forgetter      = "alertmanager"
	forgetterPlace = 8 // of its address
	restartsEvery  = 100 * time.Second
	postsAgain     = 3 * time.Minute // what is open: delivery.RefreshEvery
	// until what is open is known again after the last restart, or its recovery has come
	knowsAgain = postsAgain + 2*time.Minute
)

// An alertmanager is what serves it.
type alertmanager struct {
	world *World

	mu        sync.Mutex
	restarted time.Time
	known     map[string]time.Time // by labels: the end of each alert
	alarms    map[string]told      // what it was sent, also before it restarted
	over      map[string]bool      // the ids of alerts that a recovery followed, after the labels
	wrong     []string
}

// A told is what it was told of one alarm.
type told struct {
	open bool
	last string // the id of its last alert
}

// ServeHTTP takes alerts, as Alertmanager's API v2 does.
func (m *alertmanager) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	now := m.world.now()
	date(w, now)

	var alerts []struct {
		Labels, Annotations map[string]string
		EndsAt              time.Time
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxBody)).Decode(&alerts); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	for _, a := range alerts {
		id, over := a.Annotations["id"], !a.EndsAt.After(now)
		recovers := strings.HasSuffix(id, "/resolved")
		key := fmt.Sprint(a.Labels) // in their order
		s := m.alarms[key]
		m.world.say(forgetter, "%s id=%s recovers=%t ends in %v", key, id, recovers, a.EndsAt.Sub(now))

		switch {
		case recovers != over:
			m.wrong = append(m.wrong, fmt.Sprintf("%s of %s ends %v after it came", id, key, a.EndsAt.Sub(now)))
		case !recovers && m.over[key+id]:
			m.wrong = append(m.wrong, fmt.Sprintf("%s of %s came again after its recovery", id, key))
		}

		m.known[key] = a.EndsAt
		if recovers {
			m.over[key+s.last] = true
		} else {
			s.last = id
		}

		s.open = !recovers
		m.alarms[key] = s
	}
}

// restart has it forget what it knows.
func (m *alertmanager) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.world.say(forgetter, "restarts")
	clear(m.known)
	m.restarted = time.Now()
}

// unknown returns the alarms that should be open to it and are not.
func (m *alertmanager) unknown() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.world.now()
	for key, s := range m.alarms {
		if s.open && !now.Before(m.known[key]) {
			all = append(all, key)
		}
	}

	return all
}

// restartAlertmanager has it restart from time to time while anything happens.
func (l *life) restartAlertmanager(now time.Time) {
	if !l.plan.Forgets {
		return
	}

	at, healed := l.forgets.restarted, l.end.Add(heals)
	switch calm := !now.Before(healed); {
	case calm && at.Before(healed), !calm && now.Sub(at) >= restartsEvery:
		l.forgets.restart()
	case calm && now.Sub(at) > knowsAgain:
		l.forgets.blame(l.forgets.unknown())
	}
}

// blame says that alarms are not known, once each.
func (m *alertmanager) blame(keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if text := key + " is open, and was not posted again since the restart"; !slices.Contains(m.wrong, text) {
			m.wrong = append(m.wrong, text)
		}
	}
}

// unposted returns what is wrong with what an Alertmanager got.
func (w *World) unposted() []string {
	if !w.plan.Forgets {
		return nil
	}

	w.forgets.mu.Lock()
	defer w.forgets.mu.Unlock()

	return slices.Clone(w.forgets.wrong)
}

// remembers reports whether an Alertmanager knows what is open since its last restart.
func (l *life) remembers() bool {
	return !l.plan.Forgets || !l.forgets.restarted.Before(l.end.Add(heals)) && len(l.forgets.unknown()) == 0
}

// forget has a world with an Alertmanager, where nothing comes late. Devices go on to be hot, so that alarms are open
// after the last restart; often nothing else reminds of them.
func (p *Plan) forget(rng *rand.Rand) {
	p.Forgets = true
	p.Cools = false
	p.Resolved = true
	p.Ahead = one(rng, 0, -time.Hour, 10*time.Minute)
	p.Length = max(p.Length, 2*postsAgain+2*time.Minute)
	if rng.IntN(3) > 0 {
		p.Repeat = rules.Never
	}

	for i := range p.Devices {
		if i%3 == 0 && !p.Devices[i].returns() {
			p.Devices[i].Kind = Tells // and its alarm stays open meanwhile
		}
	}

	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool {
		return slices.Contains([]Action{Freeze, Slow, Late, Twice, Orphan}, f.Do)
	})
}
