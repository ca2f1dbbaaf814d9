// Command alertworker reads telemetry from an Azure IoT Hub and sends alerts about
// devices that are too hot. See alertworker --help.
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

// commands are what an argument can name. They print their results to out.
var commands = map[string]func(ctx context.Context, out io.Writer, args []string) error{
	"":            func(ctx context.Context, _ io.Writer, _ []string) error { return run(ctx) },
	"audit":       runAudit,
	"backtest":    runBacktest,
	"check":       check,
	"deadletters": deadLetters,
	"devhub":      serveHub,
	"local":       local,
	"silence":     silence,
	"silences":    listSilences,
	"test":        test,
	"why":         why,
	"version":     printVersion, "-version": printVersion, "--version": printVersion,
	"help": printHelp, "-h": printHelp, "-help": printHelp, "--help": printHelp,
}

// command runs the command in args and returns the exit code.
func command(ctx context.Context, args []string) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}

	do := commands[name]
	if do == nil {
		do = func(context.Context, io.Writer, []string) error {
			return &usageError{fmt.Errorf("unknown command %q; see alertworker --help", name)}
		}
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

// A usageError is an error of the command line.
type usageError struct{ error }

func (*usageError) ExitCode() int { return exitUsage }

// A silentError is an exit code whose reason has been printed already.
type silentError struct{ code int }

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
