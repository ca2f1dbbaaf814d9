package main

import (
	"os"
	"testing"

	"alertworker/internal/lab/emulators"
)

func TestMain(m *testing.M) { os.Exit(emulators.Share(m).Run()) }
