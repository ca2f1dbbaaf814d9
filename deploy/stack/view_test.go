package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/console"
	"alertworker/internal/notify"
	"alertworker/internal/notify/inbox"
)

func delivery(worker, device string, suppressed int64) inbox.Delivery {
	return inbox.Delivery{Alert: notify.Alert{Replica: worker, Device: device, Temperature: 41, Suppressed: suppressed}}
}

// play is what happens in both kinds of view.
func play(v *view) {
	v.Alive(0)
	v.Alive(1)
	v.Owners(map[string]string{"0": "one", "10": "one", "2": "one", "1": "two"})
	v.Reading(true)
	v.Reading(false)
	v.Alert(delivery("one", "kiln-08", 0))
	again := delivery("two", "kiln-08", 0)
	again.Dropped = true
	v.Alert(again)
	v.Alert(delivery("somebody else", "kiln-09", 0))
	v.Dead(0, time.Now().Add(backAfter))
	time.Sleep(3500 * time.Millisecond)
	v.Owners(map[string]string{"1": "two"}) // the dead one's have expired
	v.Owners(map[string]string{"0": "two", "1": "two", "2": "two", "10": "two"})
	v.Alert(delivery("two", "kiln-08", 7))
	_ = v.Draw()
	time.Sleep(2500 * time.Millisecond)
	v.Alive(0)
	v.Owners(map[string]string{"0": "one", "1": "two", "2": "one", "10": "two"})
	v.Log(1, "something \x1b[2J is wrong")
	_ = v.Draw()
	v.Settling()
	_ = v.Draw()
	v.Close()
	v.Close()
}

func TestPlainView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		play(newView(&out, console.Options{}, options{workers: 2, threshold: 30}))
		const want = `
00:00.0  one    ALERT  kiln-08              41.0  first alert
00:00.0  two    again: kiln-08
00:00.0  one    killed
00:03.5  two    took 0 2 10 from one in 3.5 s
00:03.5  two    ALERT  kiln-08              41.0  7 suppressed
00:06.0  one    back
00:06.0  one    took 0 2 from two
00:06.0  two    something ` + "\uFFFD" + `[2J is wrong
00:06.0  2 readings, 0/s   1 over 30°   2 alerts   0 suppressed
00:06.0  one    partitions 0 2
00:06.0  two    partitions 1 10
00:06.0  devices stopped; waiting for the last alerts
`
		if got := "\n" + out.String(); got != want {
			t.Errorf("got:%s\nwant:%s", got, want)
		}
	})
}

// What a terminal shows in the end: the feed, and nothing of what was live.
func TestLiveView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		play(newView(&out, console.Options{Live: true, Width: func() int { return 80 }}, options{workers: 2, threshold: 30}))
		const want = `
00:00.0  kiln-08                 41.0
00:00.0                                      again: kiln-08
00:00.0  killed
00:03.5                                      took 0 2 10 from one in 3.5 s
00:03.5                                      kiln-08                 41.0    +7
00:06.0  back
00:06.0  took 0 2 from two
         two: something ` + "\uFFFD" + `[2J is wrong
`
		if got := "\n" + screen(t, out.String()); got != want {
			t.Errorf("got:%s\nwant:%s", got, want)
		}
		for _, live := range []string{"✗ one", "● one", "killed, back in 3 s", "partitions 0 1 2 10", "1 alert  +7", "1-2: kill -9", "q again: at once"} {
			if !strings.Contains(out.String(), live) {
				t.Errorf("it never showed %q", live)
			}
		}
		if !strings.HasPrefix(out.String(), "\x1b[?25l") || !strings.HasSuffix(out.String(), "\x1b[?25h") {
			t.Error("the cursor is not hidden, or not given back")
		}
	})
}

// screen is what a terminal makes of what the view writes.
func screen(t *testing.T, written string) string {
	t.Helper()
	rows, row, column := [][]rune{nil}, 0, 0
	for rest := []rune(written); len(rest) > 0; {
		r := rest[0]
		rest = rest[1:]
		switch r {
		case '\r':
			column = 0
		case '\n':
			if row++; row == len(rows) {
				rows = append(rows, nil)
			}
		case '\x1b':
			end := strings.IndexAny(string(rest), "AJhl")
			sequence := string(rest)[:end+1]
			rest = rest[len([]rune(sequence)):]
			switch {
			case sequence == "[J":
				rows = rows[:row+1]
				rows[row] = rows[row][:column]
			case strings.HasSuffix(sequence, "A"):
				up := 0
				for _, digit := range sequence[1 : len(sequence)-1] {
					up = 10*up + int(digit-'0')
				}
				row -= up
			case !strings.HasPrefix(sequence, "[?"):
				t.Fatalf("unknown sequence %q", sequence)
			}
		default:
			rows[row] = append(rows[row][:column], r)
			column++
		}
	}
	var b strings.Builder
	for i, line := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(line))
	}
	return b.String()
}

func TestBrokenScreenIsTold(t *testing.T) {
	broken := errors.New("broken pipe")
	v := newView(failing{broken}, console.Options{}, options{workers: 1})
	v.Alert(delivery("one", "kiln-08", 0))
	if err := v.Draw(); !errors.Is(err, broken) {
		t.Errorf("Draw: %v, want %v", err, broken)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
