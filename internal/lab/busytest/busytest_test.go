package busytest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
)

func TestAnAttemptFollowsOneThatMissed(t *testing.T) {
	var times []time.Duration
	busytest.Run(t, func(a *busytest.Attempt) {
		times = append(times, a.Time(time.Second))
		if len(times) < 3 {
			a.Missed("it took longer than %v", a.Time(time.Second))
		}
	})
	if len(times) != 3 || times[0] != time.Second || times[1] != 2*time.Second || times[2] != 4*time.Second {
		t.Errorf("attempts of %v, want three, each of twice the time", times)
	}
}

// What never has its precondition fails, and says so; so does what fails.
func TestFailures(t *testing.T) {
	if os.Getenv("BUSYTEST") != "" {
		*busytest.Pause = time.Millisecond
		busytest.Run(t, func(a *busytest.Attempt) {
			if os.Getenv("BUSYTEST") == "fails" {
				a.Fatal("wrong")
			}
			if os.Getenv("BUSYTEST") == "late" {
				time.Sleep(time.Second)
			}
			a.Missed("not yet")
		})
		return
	}
	for how, want := range map[string]string{
		"missed": "this machine was too slow in all 9 attempts; in the last, not yet",
		"late":   "this machine was too slow in all 2 attempts; in the last, not yet",
		"fails":  "wrong",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFailures$", "-test.v", "-test.timeout=5s")
		cmd.Env = append(os.Environ(), "BUSYTEST="+how)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || how == "fails" && strings.Contains(string(out), "attempt_2") {
			t.Errorf("%s: %v, want a failure with %q:\n%s", how, err, want, out)
		}
	}
}
