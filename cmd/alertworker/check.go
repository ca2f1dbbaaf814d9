package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/peers"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
)

// check is `alertworker check`.
func check(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags(
		"check",
		"connect to everything that the environment names and read a few events; exit 0 if all checks pass, 1 if not",
	)
	send := flags.Bool("notify", false, "also send every receiver an alert that is marked as a test")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	s, err := openSession()
	if err != nil {
		checkup.Fail(out, "settings", "not valid, so nothing else was checked")
		fmt.Fprintln(os.Stderr, "alertworker:", err)
		return &silentError{exitFailed} // to a check that is a finding like any other
	}
	defer s.Close()
	quiet := zap.NewNop()
	passed := checkup.Run(ctx, out, s.config, s.receivers, checkup.Services{
		Identity: s.stores.identity,
		Resolve:  func() (config.Config, error) { return s.stores.resolveHub(ctx, s.config, s.log) },
		Source:   func(c config.Config) eventhubs.Config { return sourceConfig(c, s.stores, quiet) },
		Records:  func(ctx context.Context) (records.Store, error) { return s.stores.openRecords(ctx, s.config, quiet) },
		Leases:   func(ctx context.Context) (lease.Store, error) { return s.stores.openLeases(ctx, s.config, quiet) },
		DeadLetters: func(ctx context.Context) (*deadletter.Store, error) {
			return s.stores.openDeadLetters(ctx, s.config, quiet)
		},
		Member: func(ctx context.Context, c config.Config, rs records.Store) (*peers.Peer, error) {
			return s.stores.member(ctx, c, rs, quiet)
		},
	}, *send)
	return failedIf(!passed)
}
