// Command alertworker reads telemetry from an Azure IoT Hub and sends alerts about
// devices that are too hot. See alertworker --help.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // SUMMARY_SCHEDULE may name a zone, and the image has no zone files
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
	case "check":
		err = check(ctx, args)
	case "deadletters":
		err = deadLetters(ctx, args)
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

// release is the version of a build for release: -ldflags "-X main.release=1.2.3".
var release string

// number is the version alone: that of the release, or the module's.
func number() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(release, info.Main.Version)
	}
	return cmp.Or(release, "unknown")
}

// version names the build: its number, and the commit it was built from.
func version() string {
	commit, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = " " + s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				if s.Value == "true" {
					dirty = "+changes"
				}
			}
		}
	}
	return fmt.Sprintf("alertworker %s%s%s %s", number(), commit, dirty, runtime.Version())
}
