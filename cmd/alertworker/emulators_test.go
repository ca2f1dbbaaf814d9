package main

import (
	"flag"
	"os"
	"testing"

	"alertworker/internal/lab/emulators"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) == "1" {
		main()
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "6") // those that run beside others wait far more than they compute
	}
	os.Exit(emulators.Share(m).Run())
}
