package main

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/status"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// A session is what commands have that look at what workers share, or change it. They have the configuration of a
// worker.
type session struct {
	stores    stores
	config    config.Config
	receivers []receivers.Receiver
	log       *zap.Logger
}

// openSession reads the configuration and connects to nothing. The caller closes the session.
func openSession() (*session, error) {
	c, log, err := configure()
	if err != nil {
		return nil, err
	}

	s := &session{config: c, log: log}
	if s.stores, err = newStores(c, network{}); err != nil {
		return nil, err
	}

	if s.receivers, err = openReceivers(c, s.stores.identity, nil, log); err != nil {
		s.stores.Close()
		return nil, err
	}

	return s, nil
}

// An access is what a command needs of the stores.
type access struct {
	parts    []status.By // that it opens; none: all
	readOnly bool        // it changes nothing: a container that is missing is an error
	// has reports whether the settings have what the command is about, and lacks is the error if they have not.
	has   func(config.Config) bool
	lacks string
}

// use calls do with a session whose stores are open.
func (a access) use(ctx context.Context, do func(*session) error) error {
	s, err := openSession()
	if err != nil {
		return err
	}
	defer s.Close()
	if !a.has(s.config) {
		return &usageError{errors.New(a.lacks)}
	}
	if a.readOnly {
		azure.ReadOnly(s.stores.http)
	}
	if err := s.connect(ctx, a.parts...); err != nil {
		return err
	}
	return do(s)
}

func (s *session) Close() {
	closeAll(s.receivers)
	s.stores.Close()
	_ = s.log.Sync() // fails on terminals and pipes, which have nothing to flush
}

// connect finds the hub and opens all stores, or some of that.
func (s *session) connect(ctx context.Context, only ...status.By) (err error) {
	s.config, s.stores, err = s.stores.open(ctx, s.config, zap.NewNop(), false, only...)
	return err
}

// isShared reports whether no store is in memory, where only the worker sees it.
func isShared(c config.Config) bool {
	return c.ThrottleStore != config.StoreMemory && c.CheckpointStore != config.StoreMemory
}

// eachGate calls do with what each gate of each receiver is for: see the function eachGate.
func (s *session) eachGate(do func(receiver int, rule *rules.Rule, level *rules.Level, gate throttle.Config)) {
	for i, to := range s.receivers {
		eachGate(s.config.Rules(), func(rule *rules.Rule, level *rules.Level) {
			do(i, rule, level, gateConfig(s.config, s.stores.leases, to.ID, rule, level))
		})
	}
}
