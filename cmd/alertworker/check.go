package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/console"
	"alertworker/internal/lease"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/peers"
	"alertworker/internal/records"
)

// check is `alertworker check`.
func check(ctx context.Context, args []string) error {
	return checkTo(ctx, checkup.Output{W: os.Stdout, Color: console.Detect(os.Stdout, os.Getenv).Color}, args)
}

func checkTo(ctx context.Context, out checkup.Output, args []string) error {
	flags := newFlags("check", "connect to everything that the environment names and read a few events; exit 0 if all checks pass, 1 if not")
	send := flags.Bool("notify", false, "also send every receiver an alert that is marked as a test")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	c, log, err := configure()
	if err != nil {
		out.Fail("settings", "not valid, so nothing else was checked")
		return &checkError{err}
	}
	defer func() { _ = log.Sync() }()
	s, err := newStores(c)
	if err != nil {
		return err
	}
	defer s.Close()
	rs, err := openReceivers(c, s.identity, log)
	if err != nil {
		return err
	}
	for _, r := range rs {
		defer r.Close()
	}
	quiet := zap.NewNop()
	passed := checkup.Run(ctx, out, c, rs, checkup.Services{
		Identity:    s.identity,
		Resolve:     func() (config.Config, error) { return resolveHub(ctx, c, log) },
		Records:     func(ctx context.Context) (records.Store, error) { return s.openRecords(ctx, c, quiet) },
		Leases:      func(ctx context.Context) (lease.Store, error) { return s.openLeases(ctx, c, zap.NewNop()) },
		DeadLetters: func(ctx context.Context) (*deadletter.Store, error) { return s.openDeadLetters(ctx, c, quiet) },
		Group:       groupName,
		Member: func(ctx context.Context, c config.Config, rs records.Store) (*peers.Member, error) {
			return s.member(ctx, c, rs, quiet)
		},
	}, *send)
	if !passed {
		return &silentError{exitFailed}
	}
	return nil
}

// A checkError is what a check found wrong with the configuration. To a check
// that is a finding like any other.
type checkError struct{ error }

func (*checkError) ExitCode() int { return exitFailed }
