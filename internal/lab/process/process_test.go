package process

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "1" {
		beParent()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+100)
	text := "first\n\n  second\r\nthird, cut" // the last never ends
	var got []string
	l := &lines{each: func(line string) { got = append(got, line) }}
	for _, piece := range strings.SplitAfter(text+"\n"+long+"\nlast\nrest", "") {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	want := []string{"first", "second", "third, cut", long[:maxLine], "last"}
	if !slices.Equal(got, want) {
		t.Errorf("got %.200q", got)
	}
}

func TestProcessSaysHowItEnded(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"exit 0", "program ended by itself"},
		{"echo oh; echo dear >&2; exit 3", "program ended: exit status 3: dear"},
		{"kill -9 $$", "program ended: signal: killed"},
	} {
		p, err := Start("program", exec.Command("sh", "-c", test.script), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		<-p.done
		if got := p.unexpected().Error(); got != test.want {
			t.Errorf("%s: %q, want %q", test.script, got, test.want)
		}
	}
}

func TestStop(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"trap 'exit 0' TERM; echo; echo ready; while :; do sleep 0.01; done", ""},
		{"echo ready; exec sleep 60", ""},
		{"trap 'echo no; exit 7' TERM; echo ready; while :; do sleep 0.01; done", "program ended: exit status 7: no"},
	} {
		p, _, err := StartReady(t.Context(), "program", exec.Command("sh", "-c", test.script), regexp.MustCompile("^(ready)$"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := p.Stop(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.script, got, test.want)
		}
		p.Kill() // does nothing
	}
}
