package eventhubs_test

import (
	"net"
	"slices"
	"sync"
	"time"
)

// atDistance returns c as it is at a distance: what is written to it arrives half a round trip
// later, and what is read was sent half a round trip before.
func atDistance(c net.Conn, roundTrip time.Duration) net.Conn {
	if roundTrip == 0 {
		return c
	}
	d := &distant{Conn: c, delay: roundTrip / 2, sent: make(chan flying, 1<<16), came: make(chan flying, 1<<16), closed: make(chan struct{})}
	go func() { // ends with the connection
		for {
			b := make([]byte, 32<<10)
			n, err := c.Read(b)
			select {
			case d.came <- flying{b[:n], err, time.Now().Add(d.delay)}:
			case <-d.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case f := <-d.sent:
				time.Sleep(time.Until(f.at))
				_, _ = c.Write(f.data)
			case <-d.closed:
				return
			}
		}
	}()
	return d
}

type distant struct {
	net.Conn
	delay      time.Duration
	sent, came chan flying
	rest       []byte
	err        error
	closed     chan struct{}
	once       sync.Once
}

// flying is data under way, or the end of it.
type flying struct {
	data []byte
	err  error
	at   time.Time // when it arrives
}

func (d *distant) Read(b []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		select {
		case f := <-d.came:
			time.Sleep(time.Until(f.at))
			d.rest, d.err = f.data, f.err
		case <-d.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *distant) Write(b []byte) (int, error) {
	select {
	case d.sent <- flying{data: slices.Clone(b), at: time.Now().Add(d.delay)}:
		return len(b), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *distant) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}
