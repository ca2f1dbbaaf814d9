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
	"alertworker/internal/notify"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry/eventhubs"
)

const (
	secretsEvery = 3 * time.Second  // how often files of secrets are looked at
	secretsRetry = 30 * time.Second // the longest pause between two attempts at secrets that do not work
)

// secretFiles are where secrets come from while a process runs.
type secretFiles struct {
	fingerprint func() []byte                                   // another one if a file has changed; nil: there are none
	reload      func(used config.Config) (config.Config, error) // see config.Reload
}

// onDisk are the files that the environment names.
func onDisk() secretFiles {
	return secretFiles{
		fingerprint: func() (all []byte) {
			for _, path := range config.SecretFiles() {
				content, err := config.ReadFile(path)
				if err != nil {
					content = []byte(err.Error())
				}

				one := sha256.Sum256(content)
				all = append(all, one[:]...)
			}

			return all
		},
		reload: config.Reload,
	}
}

// newSecrets end a replica, and are what the next one has.
type newSecrets struct{ config config.Config }

func (*newSecrets) Error() string { return "files of secrets have changed" }

// A secretsWatch looks for other secrets than those in use.
type secretsWatch struct {
	used    config.Config
	files   secretFiles
	via     network
	kept    *memory
	monitor *status.Monitor
	log     *zap.Logger
}

// wait returns new secrets once they work, nil if ctx ends first. Of several that have changed, those that do not work yet
// stay as they are, and are tried again.
//
// What changes is read when two looks in a row show the same, so that no file is half written.
func (w secretsWatch) wait(ctx context.Context) *newSecrets {
	var last, logged []byte
	var again time.Time
	failures := 0
	if w.files.fingerprint() == nil {
		<-ctx.Done()
		return nil
	}

	for backoff.Sleep(ctx, secretsEvery) {
		now := w.files.fingerprint()
		if !bytes.Equal(now, last) {
			last, failures, again = now, 0, time.Time{}
			continue
		}
		if time.Now().Before(again) {
			continue
		}

		next, wrong := w.look(ctx)
		//planted:secret-untried if untried, err := w.files.reload(w.used); wrong != nil && err == nil {
		//planted:secret-untried 	return &newSecrets{config: untried}
		//planted:secret-untried }
		if ctx.Err() != nil {
			return nil
		}

		w.monitor.NewSecrets(wrong)
		if wrong != nil && !bytes.Equal(now, logged) {
			w.log.Error("secret files have changed, but not all of the new secrets work: the old ones stay in use", zap.Error(wrong))
			logged = now
		}
		if next != nil {
			return next
		}

		failures++
		again = time.Now().Add(backoff.Delay(failures, secretsEvery, secretsRetry))
	}

	return nil
}

// look reads the files and tries what has changed. It returns what is to be used, nil if that is what is in use, and why
// some of what is in the files is not.
func (w secretsWatch) look(ctx context.Context) (*newSecrets, error) {
	next, err := w.files.reload(w.used)
	wrong := []error{err}
	for _, variable := range next.ChangedSecrets(w.used) {
		if err := w.try(ctx, variable, next); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", variable, endedToo(err, next.Endings())))
			next = next.WithSecretOf(w.used, variable)
		}
	}

	if len(next.ChangedSecrets(w.used)) == 0 {
		return nil, errors.Join(wrong...)
	}

	return &newSecrets{next}, errors.Join(wrong...)
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
		_, s, err = s.open(ctx, c, quiet, true, status.ByCheckpoints, status.ByDeadLetters)

	case "NOTIFY_URLS":
		err = w.tryReceivers(ctx, c, s)
	}

	if err == nil && c.Store().Variable(c) == variable {
		_, _, err = s.open(ctx, c, quiet, true, status.ByStore)
	}

	return err
}

// tryReceivers tries those receivers that are not in use as they are, and that can be asked.
func (w secretsWatch) tryReceivers(ctx context.Context, c config.Config, s stores) error {
	added := slices.DeleteFunc(c.NotifyURLs.Reveal(), func(entry string) bool {
		return slices.Contains(w.used.NotifyURLs.Reveal(), entry)
	})
	if len(added) == 0 { // some were taken out, or stand in another order
		return nil
	}

	c.NotifyURLs = config.NewURLs(added...)
	rs, err := openReceivers(c, s.identity, s.network.http, zap.NewNop())
	if err != nil {
		return err
	}

	defer closeAll(rs)
	for _, r := range rs {
		if n, ok := r.Notifier.(notify.Tryable); ok {
			if err := n.Try(ctx); err != nil {
				return fmt.Errorf("receiver %s: %w", r.Name, err)
			}
		}
	}

	return nil
}
