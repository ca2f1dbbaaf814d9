package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
)

const (
	// secretsEvery is how often files of secrets are looked at.
	secretsEvery = 3 * time.Second

	// secretsWithin is how long a replica with new secrets may wait for its turn. All replicas see the change at about
	// the same time, and their partitions would be read by nobody if all handed over at once.
	secretsWithin = 30 * time.Second
)

// secretsChange returns true once the files of c's secrets have others, which are valid, and it is this replica's
// turn to use them, and false if ctx ends first. What changes is used when two looks in a row show the same, so that
// no file is half written. A replica for which working is false, perhaps because the old secrets are rejected, waits
// for no turn.
func secretsChange(ctx context.Context, c config.Config, working func() bool, log *zap.Logger) bool {
	files := c.SecretFiles()
	if len(files) == 0 {
		<-ctx.Done()
		return false
	}

	used := fingerprint(files) // or rejected
	last := used
	var turn time.Time // zero until there are new secrets
	clock := time.NewTicker(secretsEvery)
	defer clock.Stop()

	for {
		select {
		case <-ctx.Done():
			return false
		case <-clock.C:
		}

		now := fingerprint(files)
		stable := bytes.Equal(now, last)
		last = now
		if !stable || bytes.Equal(now, used) {
			continue
		}

		if _, _, err := config.Load(); err != nil {
			log.Error("secret files have changed, but are not valid: the old secrets stay in use", zap.Error(err))
			used = now
			continue
		}

		if turn.IsZero() {
			wait := rand.N(secretsWithin)
			turn = time.Now().Add(wait)
			log.Info("secret files have changed: replicas hand over one after another", zap.Duration("within", wait))
		}

		if !working() || !time.Now().Before(turn) {
			return true
		}
	}
}

// fingerprint is another one if a file has changed.
func fingerprint(files []string) []byte {
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
}
