//go:build !unix

package process

// lock does nothing here: install once by hand before tests run in parallel.
func lock(string) (unlock func(), err error) { return func() {}, nil }
