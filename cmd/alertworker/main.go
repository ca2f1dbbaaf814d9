// Command alertworker reads telemetry from an Azure IoT Hub and sends alerts about
// devices that are too hot. See alertworker --help.
//
// Without arguments it is the worker: run.go goes from the configuration to the stores (stores.go), and from these to a
// replica (replica.go, with its receivers.go) and what operators see of it (operations.go, http.go). Each command has a file
// of its name, but those that mute have muting.go; most begin with a session, which is a worker's configuration with its
// stores.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	_ "time/tzdata" // TIME_ZONE may name a zone, and the image has no zone files

	"alertworker/internal/build"
	"alertworker/internal/config"
)

// Exit codes.
const (
	exitStopped = 0 // on request
	exitFailed  = 1
	exitUsage   = config.ExitInvalid // invalid settings or command line
)

func main() {
	// The first signal starts a clean hand-over, a second one ends the process immediately.
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	os.Exit(command(ctx, os.Args[1:]))
}

// commands are what arguments can name, by one word or two. They print their results to out.
var commands = map[string]func(ctx context.Context, out io.Writer, args []string) error{
	"audit":               runAudit,
	"backtest":            runBacktest,
	"check":               check,
	"deadletters":         group("deadletters", listDoes+"\n\n"+replayDoes+"\n\n"+discardDoes),
	"deadletters list":    listLetters,
	"deadletters replay":  replayLetters,
	"deadletters discard": discardLetters,
	"devhub":              serveHub,
	"local":               local,
	"silence":             silence,
	"silences":            group("silences", silencesDoes),
	"silences list":       listSilences,
	"silences end":        endSilence,
	"test":                test,
	"why":                 why,
	"version":             printVersion, "-version": printVersion, "--version": printVersion,
	"help": printHelp, "-h": printHelp, "-help": printHelp, "--help": printHelp,
}

// group is what a word does that needs another one.
func group(word, does string) func(context.Context, io.Writer, []string) error {
	return func(_ context.Context, _ io.Writer, args []string) error {
		flags := newFlags(word, does)
		if err := parseFlags(flags, args); err != nil {
			return err
		}
		return &usageError{fmt.Errorf("%s is incomplete; see %s --help", word, flags.Name())}
	}
}

// command runs the command in args and returns the exit code.
func command(ctx context.Context, args []string) int {
	do := func(ctx context.Context, _ io.Writer, _ []string) error { return run(ctx) }
	if len(args) > 0 {
		do, args = find(args)
	}

	err := do(ctx, os.Stdout, args)
	if err == nil {
		return exitStopped
	}

	var silent *silentError
	if !errors.As(err, &silent) {
		fmt.Fprintln(os.Stderr, "alertworker:", err)
	}

	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}

	return exitFailed
}

// find returns the command that args begin with, and its own arguments.
func find(args []string) (do func(context.Context, io.Writer, []string) error, rest []string) {
	for n := min(len(args), 2); n > 0; n-- {
		if do := commands[strings.Join(args[:n], " ")]; do != nil {
			return do, args[n:]
		}
	}

	return func(context.Context, io.Writer, []string) error {
		return &usageError{fmt.Errorf("unknown command %q; see alertworker --help", args[0])}
	}, nil
}

// A usageError is an error of the command line, or a setting that no answer of a service can make right.
type usageError struct{ error }

func (*usageError) ExitCode() int { return exitUsage }

// A silentError is an exit code whose reason has been printed already.
type silentError struct{ code int }

// failedIf returns the error of a command that has printed what failed, if anything has.
func failedIf(failed bool) error {
	if failed {
		return &silentError{exitFailed}
	}
	return nil
}

func (e *silentError) Error() string { return fmt.Sprint("exit code ", e.code) }
func (e *silentError) ExitCode() int { return e.code }

func printVersion(_ context.Context, out io.Writer, _ []string) error {
	_, err := fmt.Fprintln(out, version())
	return err
}

// version names the build: its number, the commit it was built from, and Go's version.
func version() string {
	words := []string{"alertworker", build.Version()}
	if commit := build.Commit(); commit != "" {
		words = append(words, commit)
	}
	return strings.Join(append(words, runtime.Version()), " ")
}
