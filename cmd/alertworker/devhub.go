package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"alertworker/internal/lab/devhub"
)

// emulatorKey is the shared access key of Microsoft's Event Hubs emulator, so that
// connection strings for one work with the other.
const emulatorKey = "SAS_KEY_VALUE"

// serveHub is `alertworker devhub`: an Event Hubs namespace in memory until ctx ends.
func serveHub(ctx context.Context, args []string) error {
	flags := newFlags("devhub", "run an in-memory Event Hubs namespace for development; the first line printed is its connection string")
	addr := flags.String("addr", "127.0.0.1:5672", "`HOST:PORT` to listen on; port 0 picks one")
	name := flags.String("hub", "telemetry", "`NAME` of the event hub")
	partitions := flags.Int("partitions", 4, "`NUMBER` of partitions, 1 to 1024")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	hub, err := devhub.Listen(*addr, devhub.Config{Hub: *name, Partitions: *partitions, Key: emulatorKey})
	if err != nil {
		return err
	}
	fmt.Println(hub.ConnectionString())
	<-ctx.Done()
	return hub.Close()
}

// newFlags returns the flags of a command whose --help begins with what it does.
func newFlags(command, does string) *flag.FlagSet {
	f := flag.NewFlagSet("alertworker "+command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "alertworker %s: %s\n\nFlags\n", command, does)
		f.PrintDefaults()
	}
	return f
}

// parseFlags reads args, all of which must be flags. On --help it prints the
// usage and fails with exit code 0.
func parseFlags(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(os.Stdout)
		f.Usage()
		return &silentError{exitStopped}
	case err != nil:
		return &usageError{fmt.Errorf("%w; see %s --help", err, f.Name())}
	case f.NArg() > 0:
		return &usageError{fmt.Errorf("unexpected %q; see %s --help", f.Arg(0), f.Name())}
	}
	return nil
}
