//go:build unix

package e2e_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
)

// What Go's runtime ends must not look like wrong settings, after which nobody starts the worker again.
func TestExitCodeOfACrash(t *testing.T) {
	t.Parallel()
	p := alertworker(t, "hub", nil, "devhub", "--addr", "127.0.0.1:0")
	p.find(startWithin, regexp.MustCompile(`(Endpoint=sb://\S+)`))
	p.signal(syscall.SIGQUIT)
	p.wait(exitWithin, 2)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		env    []string
		args   []string
		code   int
		stdout []string // its parts; none: nothing at all
		stderr []string
	}{
		{name: "nothing is set", code: config.ExitInvalid, stderr: []string{
			"4 settings are missing or invalid", "EVENTHUB_CONNECTION_STRING", "TEMPERATURE_THRESHOLD", "STORAGE_CONNECTION_STRING", "NOTIFY_URLS",
			"To try it without Azure: alertworker local", "alertworker --help",
		}},
		{name: "wrong settings are listed with the missing ones", env: []string{"THROTTLE_WINDOW=soon", "NOTIFY_URLS=gopher://example.com/"}, code: config.ExitInvalid, stderr: []string{
			"5 settings are missing or invalid", "THROTTLE_WINDOW", `"soon"`, "NOTIFY_URLS", "EVENTHUB_CONNECTION_STRING",
		}},
		{name: "unknown command", args: []string{"loacl"}, code: config.ExitInvalid, stderr: []string{`unknown command "loacl"`, "alertworker --help"}},
		{name: "unknown flag", args: []string{"local", "--windows", "1s"}, code: config.ExitInvalid, stderr: []string{"-windows", "alertworker local --help"}},
		{name: "wrong flag", args: []string{"local", "--window", "1"}, code: config.ExitInvalid, stderr: []string{"window", "alertworker local --help"}},
		{name: "argument", args: []string{"devhub", "5672"}, code: config.ExitInvalid, stderr: []string{`unexpected "5672"`, "alertworker devhub --help"}},
		{name: "no such file", args: []string{"backtest", "--file", "missing.csv", "--set", "TEMPERATURE_THRESHOLD=80"}, code: config.ExitInvalid, stderr: []string{"missing.csv"}},
		{name: "no such address", args: []string{"devhub", "--addr", "127.0.0.1:99999"}, code: 1, stderr: []string{"99999"}},
		{name: "help", args: []string{"--help"}, stdout: []string{"Usage: alertworker", "EVENTHUB_CONNECTION_STRING", "Exit codes"}},
		{name: "help of a command", args: []string{"local", "--help"}, stdout: []string{"alertworker local:", "-devices NUMBER"}},
		{name: "version", args: []string{"version"}, stdout: []string{"alertworker ", "go1."}},
		{name: "version as a flag", args: []string{"--version"}, stdout: []string{"alertworker ", "go1."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := alertworker(t, test.name, test.env, test.args...)
			p.wait(exitWithin, test.code)
			for _, stream := range []struct {
				name, got string
				want      []string
			}{{"standard output", p.stdout.String(), test.stdout}, {"standard error", p.stderr.String(), test.stderr}} {
				if len(stream.want) == 0 && stream.got != "" {
					t.Errorf("%s has %q, want nothing", stream.name, stream.got)
				}
				for _, part := range stream.want {
					if !strings.Contains(stream.got, part) {
						t.Errorf("%s lacks %q:\n%s", stream.name, part, stream.got)
					}
				}
			}
		})
	}
}

var sentAlerts = regexp.MustCompile(`(\d+)  alerts? sent`)

// Local mode judges itself: see internal/lab/verify.
func TestLocal(t *testing.T) {
	t.Parallel()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		busytest.Run(t, func(t *busytest.Attempt) {
			local(t, "--for", "4s", "--rate", "200", "--devices", "25", "--threshold", "30", "--window", "1s", "--seed", "1")
		})
	})
}

// What it prints sends a reading of one's own.
func TestLocalTakesReadings(t *testing.T) {
	t.Parallel()
	p := alertworker(t, "local", nil, "local", "--devices", "1", "--rate", "1")
	header := p.find(startWithin, regexp.MustCompile(`curl -H '([^']+)' -d`))
	body := p.find(exitWithin, regexp.MustCompile(`curl .* -d '([^']+)'`))
	at := p.find(exitWithin, regexp.MustCompile(`curl .* (http://\S+)`))
	var answer []byte
	sent := eventually(startWithin, func() bool { // the worker accepts readings once it has joined
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, _ = io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	if !sent || !strings.Contains(string(answer), `"ok"`) {
		t.Errorf("the answer is %s", answer)
	}
	p.find(exitWithin, regexp.MustCompile(`(ALERT  my-oven)`))
	p.signal(syscall.SIGINT)
	p.wait(startWithin, 0)
}

func local(t *busytest.Attempt, args ...string) (stdout string) {
	t.Helper()
	p := alertworker(t.T, "local", nil, append([]string{"local"}, args...)...)
	select {
	case <-p.done:
	case <-time.After(startWithin):
	}
	missedIfLate(t, p)
	p.wait(exitWithin, 0)
	return judgedGood(t.T, p)
}

// missedIfLate misses the attempt if all alerts that local mode has as lost came after all, later than it allows.
func missedIfLate(t *busytest.Attempt, p *process) {
	t.Helper()
	late := 0
	for line := range strings.Lines(p.stdout.String()) {
		if !strings.Contains(line, `lost: "`) {
			continue
		}
		if !strings.Contains(line, ", next ") {
			return
		}
		late++
	}
	if late > 0 {
		t.Missed("alerts came later than local mode allows")
	}
}

// judgedGood returns what local mode printed, which must have had alerts and kept the promise.
func judgedGood(t *testing.T, p *process) (stdout string) {
	t.Helper()
	out := p.stdout.String()
	if !strings.Contains(out, "lost 0, too close 0, stale 0, wrong 0") {
		t.Errorf("want lost 0, too close 0, stale 0, wrong 0:\n%s", p.stdout.last(15))
	}
	if m := sentAlerts.FindStringSubmatch(out); m == nil || m[1] == "0" {
		t.Errorf("want an alert:\n%s", p.stdout.last(15))
	}
	return out
}

// The first signal asks for a hand-over, and the second is obeyed at once,
// however long a send may still take.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	hub := listen(t, 1)
	receiver := notifytest.NewReceiver(t, webhook.Secret{})
	receiver.BehaveAlways(notifytest.Hang)
	p := alertworker(t, "worker", []string{
		"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "EVENTHUB_START=earliest", "TEMPERATURE_THRESHOLD=30",
		"THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "HTTP_ADDR=",
		"NOTIFY_URLS=" + receiver.URL, "NOTIFY_TIMEOUT=5m", "DRAIN_TIMEOUT=5m",
	})
	if _, err := hub.Publish(devhub.Message{Device: "oven", Body: []byte(`{"temperature":31}`)}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-receiver.Arrived:
	case <-p.done:
		t.Fatal("the worker ended")
	case <-time.After(startWithin):
		t.Fatal("no alert arrived")
	}
	// A signal that follows too soon on the first is one with it.
	within(t, exitWithin, "the worker ends", func() bool {
		p.signal(syscall.SIGINT)
		return !p.running()
	})
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("the worker ended with %v, want: by the signal", p.cmd.ProcessState)
	}
}
