package main

import (
	"context"
	"fmt"
	"io"

	"alertworker/internal/lab/devhub"
)

// emulatorKey is the shared access key of Microsoft's Event Hubs emulator, so that
// connection strings for one work with the other.
const emulatorKey = "SAS_KEY_VALUE"

// serveHub is `alertworker devhub`: an Event Hubs namespace in memory until ctx ends.
func serveHub(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags(
		"devhub",
		"run an in-memory Event Hubs namespace for development; the first line printed is its connection string",
	)
	addr := flags.String("addr", "127.0.0.1:5672", "`HOST:PORT` to listen on; port 0 picks one")
	name := flags.String("hub", "telemetry", "`NAME` of the event hub")
	partitions := flags.Int("partitions", 4, "`NUMBER` of partitions, 1 to 1024")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if *partitions < 1 {
		return &usageError{fmt.Errorf("--partitions is %d; must be 1 to 1024", *partitions)}
	}

	hub, err := devhub.Listen(*addr, devhub.Config{Hub: *name, Partitions: *partitions, Key: emulatorKey})
	if err != nil {
		return err
	}

	fmt.Fprintln(out, hub.ConnectionString())
	<-ctx.Done()

	return hub.Close()
}
