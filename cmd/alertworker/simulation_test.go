package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/nettest"
	"alertworker/internal/lab/simulation"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/deadletters"
)

// simulated is a replica by the worker's own wiring.
func simulated(ctx context.Context, c config.Config, n simulation.Network, log *zap.Logger) error {
	files := secretFiles{
		fingerprint: func() []byte { return []byte(n.Storage()) },
		reload: func(used config.Config) (config.Config, error) {
			used.StorageConnectionString = config.NewSecret(n.Storage())
			return used, nil
		},
	}
	return runReplicas(ctx, c, files, network{dial: n.Dial, http: n.HTTP}, log)
}

// replayed is `alertworker deadletters replay --all`.
func replayed(ctx context.Context, c config.Config, n simulation.Network, log *zap.Logger) (err error) {
	stores, err := newStores(c, network{dial: n.Dial, http: n.HTTP})
	if err != nil {
		return err
	}
	defer stores.Close()
	to, err := openReceivers(c, stores.identity, n.HTTP, log)
	if err != nil {
		return err
	}
	for _, r := range to {
		defer r.Close()
	}
	if stores.deadLetters, err = stores.openDeadLetters(ctx, c, log); err != nil {
		return err
	}
	if stores.leases, err = stores.openLeases(ctx, c, log); err != nil {
		return err
	}
	if stores.records, err = stores.openRecords(ctx, c, log); err != nil {
		return err
	}
	r := &deadletters.Replay{
		Store:     stores.deadLetters,
		Receivers: to,
		Leases:    stores.leases,
		Incidents: incidents(c, stores.records),
		Config:    c,
		Rules:     c.Rules().Rules,
		Out:       io.Discard,
	}
	for page, err := range stores.deadLetters.List(ctx, deadletter.Undelivered, time.Time{}) {
		if err != nil {
			return err
		}
		r.Send(ctx, page)
	}
	return nil
}

// hubs is how simulated hubs speak TLS.
var hubs struct {
	sync.Once
	tls *tls.Config
}

// certify has this process trust simulated hubs, and nobody else, whose clocks are those of a bubble. Their keys are those
// that are made fastest.
func certify(t *testing.T) {
	certificates := nettest.NewCertificates(t, "*"+simulation.Domain)
	if err := os.Setenv("GODEBUG", "x509usefallbackroots=1,tlsmlkem=0"); err != nil {
		t.Fatal(err)
	}
	x509.SetFallbackRoots(certificates.Client.RootCAs)
	hubs.tls = certificates.Server
}

// happen has a plan happen in a bubble.
func happen(t *testing.T, p simulation.Plan, story *simulation.Story) (r simulation.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hubs.Do(func() { certify(t) })
		var err error
		if r, err = simulation.Run(p, simulation.Parts{Replica: simulated, Replay: replayed}, hubs.tls, story); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// TestSimulation has worlds happen, each from a seed, until the promise is broken. In the environment, FROM is the
// first seed and SEEDS their number; PLAN is a plan in JSON that happens instead, LENGTH the most that each takes,
// STORY=- prints what happens, and SHRINK is a file for what is left of the plan that breaks the promise.
func TestSimulation(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	from, n := number("FROM", 10), number("SEEDS", seeds)
	faults, delivered := 0, 0
	length, began := time.Duration(0), time.Now()
	steps := map[simulation.Step]int{}
	for seed := from; seed < from+n; seed++ {
		p := planned(t, seed)
		var story *simulation.Story
		if os.Getenv("STORY") == "-" {
			story = &simulation.Story{}
		}
		t.Logf("world %d", seed)
		r := happen(t, p, story)
		faults += r.Faults
		delivered += r.Delivered
		length += r.Simulated
		for step, times := range r.Steps {
			steps[step] += times
		}
		if story != nil {
			_, _ = os.Stdout.Write(story.Bytes())
		}
		if !r.OK() {
			shrink(t, p)
			t.Fatalf("VIOLATION in the world of seed %d: %v\nmake simulate SEED=%d tells the story", seed, r, seed)
		}
	}
	if delivered == 0 && n >= 3 {
		t.Error("nothing was delivered in any world")
	}
	for _, step := range simulation.Known {
		if steps[step] == 0 && n >= 3 {
			t.Errorf("no request was seen as the step %q, so that no fault begins there", step)
		}
	}
	took := time.Since(began)
	t.Logf("%v and %d faults in %v: %.0f a second", length, faults, took, length.Seconds()/took.Seconds())
}

// shrink writes what is left of a plan that breaks the promise if SHRINK asks for that. Two runs of a plan differ, so each
// gets some tries.
func shrink(t *testing.T, p simulation.Plan) {
	t.Helper()
	file := os.Getenv("SHRINK")
	if file == "" {
		return
	}
	const tries = 3
	small := simulation.Shrink(p, func(p simulation.Plan) bool {
		for range tries {
			if !happen(t, p, nil).OK() {
				return true
			}
		}
		return false
	})
	text, err := json.MarshalIndent(small, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d faults and %d of %d devices are left in %s",
		len(small.Faults), len(p.Faults), len(small.Devices), len(p.Devices), file)
}

func number(name string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// planned returns the plan that the environment asks for.
func planned(t *testing.T, seed uint64) simulation.Plan {
	t.Helper()
	p := simulation.NewPlan(seed)
	if text := os.Getenv("PLAN"); text != "" {
		p = simulation.Plan{}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("PLAN: %v", err)
		}
	}
	if length, err := time.ParseDuration(os.Getenv("LENGTH")); err == nil {
		p.Length = min(p.Length, length)
	}
	return p
}
