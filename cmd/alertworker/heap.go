package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// ballastSize is by how much the heap may grow between two collections, besides what
	// is in use. A worker has 4 MB in use, and at full speed the collector would run a
	// hundred times a second for a quarter of the CPU time.
	ballastSize = 24 << 20

	// leastLimit is the memory limit below which there is no room for ballast, which the
	// runtime counts as memory.
	leastLimit = 8 * ballastSize
)

// addBallast makes the garbage collector's goal larger by 2 * ballastSize, until release is
// called. The ballast is never written to, so the system gives it no memory. Unlike a
// larger GOGC it stops mattering as more memory is in use. None is added if the
// environment has GOGC, or a small GOMEMLIMIT.
func addBallast() (release func()) {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) < leastLimit {
		return func() {}
	}
	ballast := make([]byte, ballastSize)
	return func() { runtime.KeepAlive(ballast) }
}
