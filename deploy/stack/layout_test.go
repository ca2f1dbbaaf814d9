package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"alertworker/internal/notify"
)

func TestAlertsStandInTheirWorkersColumn(t *testing.T) {
	l := layout{width: 80, cells: 3}
	hot := l.alert(notify.Alert{Device: "kiln-08", Temperature: 41.04, Suppressed: 12})
	for _, test := range []struct {
		name, got, want string
	}{
		{"first", l.alone("00:03.1", 0, hot), "00:03.1  kiln-08     41.0   +12"},
		{"third", l.alone("00:03.1", 2, hot), "00:03.1                                                  kiln-08     41.0   +12"},
		{"nothing suppressed", l.alone("00:03.1", 0, l.alert(notify.Alert{Device: "kiln-08", Temperature: 41})), "00:03.1  kiln-08     41.0"},
		{"a long name", l.alone("00:03.1", 0, l.alert(notify.Alert{Device: "line#3/oven%2F1", Temperature: -1, Suppressed: 1234})), "00:03.1  line#3/ov…  -1.0 +1234"},
		{"a hostile name", l.alone("00:03.1", 0, l.alert(notify.Alert{Device: "a\x1b[2Jb\n", Temperature: 30})), "00:03.1  a\uFFFD[2Jb\uFFFD     30.0"},
	} {
		if test.got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, test.got, test.want)
		}
	}
}

func TestHeads(t *testing.T) {
	now := time.Now()
	got := layout{width: 80, cells: 3}.heads("00:14", now, []lane{
		{name: "one", alive: true, partitions: []string{"0", "1", "10"}, alerts: 1, suppressed: 31},
		{name: "two", back: now.Add(3400 * time.Millisecond), alerts: 9},
		{name: "three", alive: true},
	})
	want := []string{
		"00:14    ● one                   ✗ two                   ● three",
		"         partitions 0 1 10       killed, back in 3 s     no partition yet",
		"         1 alert  +31            9 alerts                0 alerts",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every cell is as wide as the others, and a line no wider than the terminal
// where that has room for the narrowest cells.
func TestCellsAreEven(t *testing.T) {
	for cells := 1; cells <= len(workerNames); cells++ {
		for width := 1; width <= 300; width++ {
			l := layout{width: width, cells: cells}
			alert := l.alert(notify.Alert{Device: strings.Repeat("ü", 200), Temperature: 123.4, Suppressed: 99})
			note := l.note(red, "took 0 1 2 3 4 5 6 7 8 9 from three in 3.5 s")
			if a, n := utf8.RuneCountInString(alert), utf8.RuneCountInString(note); a != l.cell() || n != l.cell() {
				t.Fatalf("width %d, %d cells: an alert has %d, a note %d, want %d", width, cells, a, n, l.cell())
			}
			line := utf8.RuneCountInString(l.alone("00:00.0", cells-1, note))
			if line >= width && l.cell() > minCell {
				t.Fatalf("width %d, %d cells: a line has %d", width, cells, line)
			}
		}
	}
}

func TestColorsAreNoWidth(t *testing.T) {
	plain, colored := layout{width: 80, cells: 2}, layout{width: 80, cells: 2, color: true}
	a := notify.Alert{Device: "kiln-08", Temperature: 41, Suppressed: 2}
	got := colored.alone("00:01.0", 1, colored.alert(a))
	for _, s := range []style{bold, dim, red, reset} {
		got = strings.ReplaceAll(got, string(s), "")
	}
	if want := plain.alone("00:01.0", 1, plain.alert(a)); got != want {
		t.Errorf("without colors %q, want %q", got, want)
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                        "00:00.0",
		99 * time.Millisecond:    "00:00.0",
		61500 * time.Millisecond: "01:01.5",
		100 * time.Minute:        "100:00.0",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
