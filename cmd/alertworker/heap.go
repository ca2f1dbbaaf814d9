package main

import (
	"os"
	"runtime"
)

// ballastSize is by how much the heap may grow between two collections, besides what
// is in use. A worker has 4 MB in use, and at full speed the collector would run a hundred
// times a second for a quarter of the CPU time.
const ballastSize = 32 << 20

// addBallast makes the garbage collector's goal larger by 2 * ballastSize, until release is
// called. The ballast is never written to, so the system gives it no memory. Unlike a
// larger GOGC it stops to matter as more memory is in use. With GOGC or GOMEMLIMIT in the
// environment there is none: they say what is wanted.
func addBallast() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ballast := make([]byte, ballastSize)
	return func() { runtime.KeepAlive(ballast) }
}
