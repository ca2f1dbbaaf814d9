package main

import (
	"context"

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
	stores
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
	if s.stores, err = newStores(c, network{clock: &azure.Clock{}}); err != nil {
		return nil, err
	}

	if s.receivers, err = openReceivers(c, s.identity, nil, log); err != nil {
		s.stores.Close()
		return nil, err
	}

	return s, nil
}

// openReader is openSession for commands that change nothing: a container that is missing is an error.
func openReader() (*session, error) {
	s, err := openSession()
	if err == nil {
		azure.ReadOnly(s.http)
	}
	return s, err
}

func (s *session) Close() {
	closeAll(s.receivers)
	s.stores.Close()
	_ = s.log.Sync() // fails on terminals and pipes, which have nothing to flush
}

// connect finds the hub and opens all stores, or some of that.
func (s *session) connect(ctx context.Context, only ...status.By) (err error) {
	s.config, s.stores, err = s.open(ctx, s.config, zap.NewNop(), only...)
	return err
}

// inMemory reports whether a store is in memory, where only the worker sees it.
func (s *session) inMemory() bool {
	return s.config.ThrottleStore == config.StoreMemory || s.config.CheckpointStore == config.StoreMemory
}

// eachGate calls do with what each gate of each receiver is for: see the function eachGate.
func (s *session) eachGate(do func(receiver int, rule *rules.Rule, level *rules.Level, gate throttle.Config)) {
	for i, to := range s.receivers {
		eachGate(s.config.Rules(), func(rule *rules.Rule, level *rules.Level) {
			do(i, rule, level, gateConfig(s.config, s.leases, to.ID, rule, level))
		})
	}
}
