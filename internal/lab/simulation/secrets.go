package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

const (
	rolls   = time.Minute     // until all replicas have a new secret that works
	revokes = 3 * time.Minute // until the one before does not work any more
	spoils  = 5 * time.Minute // that one that does not work stays; longer than an alert may be late
)

// secrets are the signatures for the storage account: the one in the file that replicas read, and those that it accepts.
// World.mu guards them.
type secrets struct {
	inFile   string
	right    string // the last one in the file that was accepted
	accepted map[string]bool
	made     int
	beats    map[*body]heartbeat
	changed  []change
}

// A heartbeat is the last one that a replica wrote, or removed, and with which signature.
type heartbeat struct {
	at        time.Time
	signature string
}

// A change is a replica's from one signature, which still works, to another: from its last heartbeat to its first.
type change struct {
	of       *body
	from, to time.Time
}

// newSecrets returns those of a world that begins.
func newSecrets() secrets {
	const first = "simulated"
	return secrets{inFile: first, right: first, accepted: map[string]bool{first: true}, beats: map[*body]heartbeat{}}
}

// storage returns what is in the file of STORAGE_CONNECTION_STRING. A key would sign each request, which costs more than
// what the service does. w.mu is held.
func (w *World) storage() string {
	return "BlobEndpoint=http://" + blobsAddress + "/sim;SharedAccessSignature=sv=2026-01-01&sig=" + w.secrets.inFile
}

// renew has another signature in the file. w.mu is held.
func (w *World) renew() {
	w.secrets.made++
	w.secrets.inFile = fmt.Sprintf("simulated-%d", w.secrets.made)
}

// accept has the account accept what is in the file, and after a time no longer what was before. w.mu is held.
func (w *World) accept(after time.Duration) {
	s := &w.secrets
	before := s.right
	s.right = s.inFile
	s.accepted[s.right] = true
	w.later(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(s.accepted, before)
	})
}

// rotate has a signature in the file that works.
func (w *World) rotate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renew()
	w.accept(revokes)
}

// spoil has a signature in the file that does not work, until another one is there or the account accepts it; then perhaps
// not the one in use any more.
func (w *World) spoil(f Fault) {
	w.mu.Lock()
	w.renew()
	w.mu.Unlock()

	w.later(f.For, func() {
		w.begin(Fault{Do: [...]Action{Rotate, Activate, Swap}[int(f.At/time.Millisecond)%3], For: rolls}, nil)
	})
}

// activate has the account accept what is in the file.
func (w *World) activate(revokes time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accept(revokes)
}

// unauthorized returns how the storage account answers a request that it does not accept, nil if it does.
func (p *passage) unauthorized() *httptest.ResponseRecorder {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.door.service != Blobs || w.secrets.accepted[p.request.URL.Query().Get("sig")] {
		return nil
	}

	h := httptest.NewRecorder()
	date(h, w.now())
	h.Header().Set("X-Ms-Error-Code", "AuthenticationFailed")
	h.WriteHeader(http.StatusForbidden)

	return h
}

// beat notes a heartbeat that a replica has written, or removed.
func (p *passage) beat() {
	container, name := blobOf(p.request)
	if container != checkpointContainer || !strings.Contains(name, "/owner/") {
		return
	}

	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.secrets
	now := heartbeat{p.began, p.request.URL.Query().Get("sig")}
	before := s.beats[p.of]
	if before.signature != "" && before.signature != now.signature && s.accepted[before.signature] {
		s.changed = append(s.changed, change{p.of, before.at, now.at})
	}
	s.beats[p.of] = now
}

// together returns which replicas changed their secrets at the same time, though nothing else was wrong.
func (w *World) together() (all []string) {
	const apart = 100 * time.Millisecond
	others := func(f Fault) bool { return f.Do != Rotate && f.Do != Spoil }
	if slices.ContainsFunc(w.plan.Faults, others) {
		return nil
	}

	for i, a := range w.secrets.changed {
		for _, b := range w.secrets.changed[:i] {
			if a.of != b.of && a.from.Add(apart).Before(b.to) && b.from.Add(apart).Before(a.to) {
				all = append(all, fmt.Sprintf("%s and %s changed their secrets together after %v", b.of.name, a.of.name, a.from.Sub(w.began)))
			}
		}
	}

	return all
}

// rotateSecrets has nothing happen but that secrets change, some of them to what does not work for a time.
func (p *Plan) rotateSecrets(rng *rand.Rand) {
	p.Faults = nil
	p.Outages = nil
	at := 40 * time.Second
	for range 1 + rng.IntN(2) {
		at += time.Duration(rng.IntN(30_000)) * time.Millisecond
		f := Fault{At: at, Replica: Any, Do: one(rng, Rotate, Spoil, Spoil), For: rolls}
		if f.Do == Spoil {
			f.For = spoils
			at += spoils
		}

		p.Faults = append(p.Faults, f)
		at += revokes + rolls
	}

	p.Length = at
}
