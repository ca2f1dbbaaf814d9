package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry/eventhubs"
)

const (
	secretsEvery = 3 * time.Second  // how often files of secrets are looked at
	secretsRetry = 30 * time.Second // the longest pause between two attempts at secrets that do not work
)

// secretFiles are where secrets come from while a process runs.
type secretFiles struct {
	// fingerprint returns another value if a file has changed that the configuration's secrets come from, or if signing,
	// one of those that only NOTIFY_URLS names.
	fingerprint func(c config.Config, signing bool) []byte
	reload      func(used config.Config) (config.Config, error) // see config.Reload
}

// onDisk are the files that the environment names.
func onDisk() secretFiles {
	return secretFiles{
		fingerprint: func(c config.Config, signing bool) []byte {
			files := c.SigningFiles()
			if !signing {
				files = append(files, c.SecretFiles()...)
			}
			if len(files) == 0 {
				return nil
			}

			sum := sha256.New()
			for _, path := range files {
				content, err := config.ReadFile(path)
				if err != nil {
					content = []byte(err.Error())
				}

				one := sha256.Sum256(content)
				sum.Write(one[:])
			}

			return sum.Sum(nil)
		},
		reload: config.Reload,
	}
}

// newSecrets end a replica, and are what the next one has.
type newSecrets struct {
	config  config.Config
	signing []byte // the fingerprint of its files for signing
}

func (*newSecrets) Error() string { return "files of secrets have changed" }

// A secretsWatch looks for other secrets than those in use.
type secretsWatch struct {
	used    *newSecrets
	files   secretFiles
	via     network
	kept    *memory // whose turn is this replica's in a roll
	monitor *status.Monitor
	log     *zap.Logger
}

// wait returns new secrets once they work and it is this replica's turn to use them, nil if ctx ends first. Of several that
// have changed, those that do not work yet stay as they are, and are tried again. A replica that sends nothing, perhaps
// because the old ones are rejected, waits for no turn.
//
// What changes is read when two looks in a row show the same, so that no file is half written.
func (w secretsWatch) wait(ctx context.Context) *newSecrets {
	used := w.used.config
	var last, logged []byte
	var next *newSecrets // that work
	var tried, again time.Time
	failures := 0
	if w.files.fingerprint(used, false) == nil { // there are no files
		<-ctx.Done()
		return nil
	}

	clock := time.NewTicker(secretsEvery)
	defer clock.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		}

		report := w.monitor.Report()
		working := report.State != status.Blocked && report.State != status.Starting
		now := w.files.fingerprint(used, false)
		if !bytes.Equal(now, last) {
			last, next, failures, again = now, nil, 0, time.Time{}
			continue
		}

		due := next == nil && (!time.Now().Before(again) || !working)
		late := next != nil && w.kept.turn.mine() && time.Since(tried) > 2*secretsEvery // the turn took a while to come
		if due || late {
			var wrong error
			next, wrong = w.look(ctx)
			//planted:secret-untried if untried, err := w.files.reload(used); wrong != nil && err == nil {
			//planted:secret-untried 	return &newSecrets{config: untried}
			//planted:secret-untried }
			if ctx.Err() != nil {
				return nil
			}

			w.monitor.NewSecrets(wrong)
			failures++
			tried, again = time.Now(), time.Now().Add(backoff.Delay(failures, secretsEvery, secretsRetry))
			if wrong != nil && !bytes.Equal(now, logged) {
				w.log.Error(notUsed(wrong), zap.Error(wrong))
				logged = now
			}
		}

		switch {
		case next == nil && report.Ready:
			w.kept.endTurn() // the next replica may follow
		case next == nil:
		//planted:roll-does-not-wait case !working, w.kept.turn != nil
		case !working, w.kept.turn.mine():
			return next
		case w.kept.turn == nil:
			w.log.Info("new secrets work: replicas hand over one after another")
			if err := w.kept.startTurn(ctx, next.config, w.via); err != nil {
				w.log.Warn("cannot ask whether another replica is handing over", zap.Error(err))
			}
		}
	}
}

// notUsed says that new secrets are not used, because of err.
func notUsed(err error) string {
	if errors.As(err, new(*untriedError)) {
		return "secret files have changed, but are not valid: the old secrets stay in use"
	}
	return "secret files have changed, but the new secrets do not work: the old ones stay in use"
}

// An untriedError says that secrets are invalid in themselves.
type untriedError struct{ error }

// look reads the files and tries what has changed. It returns what is to be used, nil if that is what is in use, and why
// some of what is in the files is not.
func (w secretsWatch) look(ctx context.Context) (*newSecrets, error) {
	used := w.used.config
	signing := w.files.fingerprint(used, true)
	next, err := w.files.reload(used)
	var wrong []error
	if err != nil {
		wrong = append(wrong, &untriedError{err})
	}

	for _, variable := range next.ChangedSecrets(used) {
		if err := w.try(ctx, variable, next); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", variable, endedToo(err, next.Endings())))
			next = next.WithSecretOf(used, variable)
		}
	}

	if len(next.ChangedSecrets(used)) == 0 && bytes.Equal(signing, w.used.signing) {
		return nil, errors.Join(wrong...)
	}

	// Whatever else has changed, the next replica reads the files for signing again.
	rs, err := openReceivers(next, nil, w.via.http, zap.NewNop())
	for _, r := range rs {
		r.Close()
	}
	if err != nil {
		if len(wrong) == 0 {
			wrong = append(wrong, &untriedError{err})
		}
		return nil, errors.Join(wrong...)
	}

	return &newSecrets{next, signing}, errors.Join(wrong...)
}

// try returns nil if a secret works for everything that it is for, as far as that can be asked without telling people.
// Only what a replica does anyway is tried.
func (w secretsWatch) try(ctx context.Context, variable string, c config.Config) (err error) {
	ctx, cancel := opening(ctx)
	defer cancel()
	s, err := newStores(c, w.via)
	if err != nil {
		return err
	}
	defer s.Close()

	s.memory = w.kept
	quiet := zap.NewNop()
	switch variable {
	case "EVENTHUB_CONNECTION_STRING", "IOTHUB_CONNECTION_STRING":
		if c, err = s.resolveHub(ctx, c, quiet); err == nil {
			err = eventhubs.Try(ctx, sourceConfig(c, s, quiet))
		}

	case "STORAGE_CONNECTION_STRING":
		if c.CheckpointStore == config.StoreBlob {
			s.records, err = s.openRecords(ctx, c, quiet)
			if err == nil {
				err = s.tryRecords(ctx, c)
			}
		}
		if err == nil {
			_, err = s.openDeadLetters(ctx, c, quiet)
		}

	case "NOTIFY_URLS":
		err = w.tryReceivers(ctx, c, s)
	}

	if of := c.Store().Variable; err == nil && of != nil && of(c) == variable {
		if s.leases, err = s.openLeases(ctx, c, quiet); err != nil {
			return fmt.Errorf("open THROTTLE_STORE=%s: %w", c.ThrottleStore, hinted(c, err))
		}
		err = s.tryLeases(ctx, c)
	}

	return err
}

// tryReceivers tries those receivers that are not in use as they are, and that can be asked.
func (w secretsWatch) tryReceivers(ctx context.Context, c config.Config, s stores) error {
	added := slices.DeleteFunc(c.NotifyURLs.Reveal(), func(entry string) bool {
		return slices.Contains(w.used.config.NotifyURLs.Reveal(), entry)
	})
	if len(added) == 0 {
		return nil
	}

	c.NotifyURLs = config.NewURLs(added...)
	rs, err := openReceivers(c, s.identity, s.network.http, zap.NewNop())
	if err != nil {
		return err
	}

	for _, r := range rs {
		if n, ok := r.Notifier.(notify.Tryable); ok && err == nil {
			if err = n.Try(ctx); err != nil {
				err = fmt.Errorf("receiver %s: %w", r.Name, err)
			}
		}

		r.Close()
	}

	return err
}

// A turn is a replica's in a roll, in which replicas hand over one after another: it has the lease of the roll from before
// it hands over until its successor in the process is ready. It ends with the process.
type turn struct {
	elector *leader.Elector
	stop    context.CancelFunc
	done    chan struct{}
}

// mine reports whether it is this replica's turn. t may be nil.
func (t *turn) mine() bool {
	if t == nil {
		return false
	}

	_, leading := t.elector.Leading()
	return leading
}

// startTurn waits for this replica's turn in the background, until endTurn. The lease is in the throttle store, which is
// reached with the new secrets.
func (m *memory) startTurn(ctx context.Context, c config.Config, n network) error {
	s, err := newStores(c, n)
	s.memory = m
	var leases lease.Store
	if err == nil {
		leases, err = s.openLeases(ctx, c, zap.NewNop())
	}
	if err != nil {
		s.Close()
		return err
	}

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &turn{stop: stop, done: make(chan struct{})}
	note := func(lease.Record) string { return "" }
	t.elector = leader.NewElector(leases, rollKey(c), note, zap.NewNop())
	go func() {
		defer close(t.done)
		defer s.Close()
		t.elector.Run(running, func(ctx context.Context, _ *leader.Term) error {
			<-ctx.Done()
			return nil
		})
	}()
	m.turn = t

	return nil
}

// endTurn lets the next replica hand over, if it is or may become this one's turn.
func (m *memory) endTurn() {
	if m.turn != nil {
		m.turn.stop()
		<-m.turn.done
		m.turn = nil
	}
}

// rollKey is the key of the lease of a roll.
func rollKey(c config.Config) string { return "~roll/" + c.Scope() }
