package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
}

// newSecrets returns those of a world that begins.
func newSecrets() secrets {
	const first = "simulated"
	return secrets{inFile: first, right: first, accepted: map[string]bool{first: true}}
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
