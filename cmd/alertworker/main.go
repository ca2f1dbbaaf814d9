// Command alertworker reads telemetry from an Azure IoT Hub and sends alerts about
// devices that are too hot. See alertworker --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	_ "time/tzdata" // SUMMARY_SCHEDULE may name a zone, and the image has no zone files

	"alertworker/internal/build"
)

// Exit codes.
const (
	exitStopped = 0 // on request
	exitFailed  = 1
	exitUsage   = 2 // invalid configuration or command line
)

func main() {
	// The first signal starts a clean hand-over, a second one ends the process immediately.
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	os.Exit(command(ctx, os.Args[1:]))
}

// command runs the command in args and returns the exit code.
func command(ctx context.Context, args []string) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	var err error
	switch name {
	case "":
		err = run(ctx)
	case "local":
		err = local(ctx, args)
	case "devhub":
		err = serveHub(ctx, args)
	case "audit":
		err = runAudit(ctx, args)
	case "backtest":
		err = runBacktest(ctx, args)
	case "check":
		err = check(ctx, args)
	case "test":
		err = test(ctx, args)
	case "why":
		err = why(ctx, args)
	case "deadletters":
		err = deadLetters(ctx, args)
	case "silence":
		err = silence(ctx, os.Stdout, args)
	case "silences":
		err = listSilences(ctx, os.Stdout, args)
	case "version", "-version", "--version":
		fmt.Println(version())
	case "help", "-h", "-help", "--help":
		fmt.Print(helpText())
	default:
		err = &usageError{fmt.Errorf("unknown command %q; see alertworker --help", name)}
	}
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

// version names the build: its number, the commit it was built from, and Go's version.
func version() string {
	words := []string{"alertworker", build.Version()}
	if commit := build.Commit(); commit != "" {
		words = append(words, commit)
	}
	return strings.Join(append(words, runtime.Version()), " ")
}
