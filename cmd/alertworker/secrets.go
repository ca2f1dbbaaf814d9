package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
)

// secretsEvery is how often files of secrets are looked at.
const secretsEvery = 3 * time.Second

// secretsChange returns true once the files of c's secrets have others, which are valid, and false if ctx ends
// first. What changes is used when two looks in a row show the same, so that no file is half written.
func secretsChange(ctx context.Context, c config.Config, log *zap.Logger) bool {
	files := c.SecretFiles()
	if len(files) == 0 {
		<-ctx.Done()
		return false
	}
	used := fingerprint(files) // or rejected
	last := used
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
		return true
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
