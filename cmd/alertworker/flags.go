package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
)

// newFlags returns the flags of a command whose --help begins with what it does.
func newFlags(command, does string) *flag.FlagSet {
	f := flag.NewFlagSet("alertworker "+command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {
		out, flags := f.Output(), new(strings.Builder)
		f.SetOutput(flags)
		f.PrintDefaults()
		f.SetOutput(out)
		fmt.Fprintf(out, "alertworker %s: %s\n", command, does)
		if flags.Len() > 0 {
			fmt.Fprint(out, "\nFlags", strings.ReplaceAll("\n"+flags.String(), "\n  -", "\n  --"))
		}
	}
	return f
}

// parseFlags reads args, all of which must be flags. On --help it prints the
// usage and fails with exit code 0.
func parseFlags(f *flag.FlagSet, args []string) error {
	others, err := parseArgs(f, args)
	if err == nil && len(others) > 0 {
		return &usageError{fmt.Errorf("unexpected %q; see %s --help", others[0], f.Name())}
	}
	return err
}

// parseArgs is parseFlags with arguments before, between or after the flags; it
// returns them.
func parseArgs(f *flag.FlagSet, args []string) (others []string, err error) {
	for {
		err := f.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			f.SetOutput(os.Stdout)
			f.Usage()
			return nil, &silentError{exitStopped}
		case err != nil:
			return nil, &usageError{fmt.Errorf("%w; see %s --help", err, f.Name())}
		case f.NArg() == 0:
			return others, nil
		}

		others, args = append(others, f.Arg(0)), f.Args()[1:]
	}
}

// whoFlag adds --who, and returns what it says: by default the user of this machine, "unknown" in a container without
// users.
func whoFlag(f *flag.FlagSet) func() string {
	name := f.String("who", "", "your `NAME` (default: the user of this machine)")
	return func() string {
		here := os.Getenv("USER")
		if u, err := user.Current(); err == nil {
			here = u.Username
		}
		return cmp.Or(*name, here, "unknown")
	}
}
