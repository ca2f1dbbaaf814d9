package simulator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// What keys are to a raw terminal.
const (
	ctrlC  = 3
	escape = 27 // begins those of several characters
)

// takeKeys puts in into raw mode until restore is called, if it is a terminal and the
// view is live. Meanwhile the output needs carriage returns.
func takeKeys(in io.Reader, live bool) (restore func(), err error) {
	f, ok := in.(*os.File)
	if !ok || !live {
		return func() {}, nil
	}

	if !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}

	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}

	return func() { _ = term.Restore(int(f.Fd()), before) }, nil
}

// readKeys returns the keys typed into in until ctx ends. Its goroutine can remain
// blocked in a Read until the input or the program ends.
func readKeys(ctx context.Context, in io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() {
		buffer := make([]byte, 16)
		for {
			n, err := in.Read(buffer)
			typed := buffer[:n]
			if bytes.HasPrefix(typed, []byte{escape}) { // an arrow, say
				typed = nil
			}

			if !pass(ctx, typed, keys) || err != nil {
				return
			}
		}
	}()

	return keys
}

// pass sends keys one by one, and reports whether they were all taken before ctx ended.
func pass(ctx context.Context, typed []byte, keys chan<- byte) bool {
	for _, key := range typed {
		select {
		case keys <- key:
		case <-ctx.Done():
			return false
		}
	}

	return true
}
