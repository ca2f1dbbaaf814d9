package simulation

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What was written arrives although the connection was closed, and not if it was reset. On one that is half open nothing
// does, and nobody is told.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen("there:80")
		defer l.Close()
		open := func() (near, far net.Conn) {
			accepted := make(chan net.Conn)
			go func() {
				c, _ := l.Accept()
				accepted <- c
			}()
			near, err := l.dial(t.Context(), "here")
			if err != nil {
				t.Fatal(err)
			}
			return near, <-accepted
		}

		near, far := open()
		if far.RemoteAddr().String() != "here" {
			t.Errorf("it comes from %v", far.RemoteAddr())
		}
		_, _ = near.Write([]byte("all of it"))
		_ = near.Close()
		if got, err := io.ReadAll(far); string(got) != "all of it" || err != nil {
			t.Errorf("read %q, %v after a close", got, err)
		}

		near, far = open()
		_, _ = near.Write([]byte("lost"))
		near.(*conn).reset()
		if got, err := io.ReadAll(far); len(got) > 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, %v after a reset", got, err)
		}

		near, far = open()
		near.(*conn).hold(time.Now().Add(time.Minute))
		_, _ = near.Write([]byte("late"))
		_ = near.Close()
		began := time.Now()
		if got, err := io.ReadAll(far); string(got) != "late" || err != nil || time.Since(began) != time.Minute {
			t.Errorf("read %q, %v after %v of a connection that was held for a minute", got, err, time.Since(began))
		}

		near, far = open()
		defer near.Close()
		began = time.Now()
		near.(*conn).hold(began.Add(never))
		_ = far.SetReadDeadline(began.Add(time.Minute))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
