package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/records"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// A letterWorld is a container of dead letters and a receiver of alerts.
type letterWorld struct {
	*deadletter.Store
	*notifytest.Receiver
	id, name string // of the receiver
	env      map[string]string
}

func newLetters(t *testing.T, azurite *emulators.Azurite) *letterWorld {
	t.Helper()
	to := notifytest.NewReceiver(t, webhook.Secret{})
	l := &letterWorld{Receiver: to, env: valid(
		"STORAGE_CONNECTION_STRING="+azurite.ConnectionString,
		"DEAD_LETTER_CONTAINER="+azurite.NewContainer(),
		"THROTTLE_CONTAINER="+azurite.NewContainer(),
		"NOTIFY_URLS="+to.URL+"/t0k3n",
		"NOTIFY_TIMEOUT=5s",
	)}
	rs, err := receivers.Open([]string{to.URL + "/t0k3n"}, receivers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.id, l.name = rs[0].ID, rs[0].Name
	rs[0].Close()
	blobs, err := records.OpenBlobs(t.Context(), azurite.Container(t, l.env["DEAD_LETTER_CONTAINER"], nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Store = deadletter.New(blobs, zap.NewNop())
	return l
}

// endWindows ends the windows in the store now, rather than wait for them.
func (l *letterWorld) endWindows(t *testing.T, azurite *emulators.Azurite) {
	t.Helper()
	store, err := records.OpenBlobs(t.Context(), azurite.Container(t, l.env["THROTTLE_CONTAINER"], nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := records.All(t.Context(), store, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		var d caslease.Document
		note := map[string]any{}
		text, err := base64.StdEncoding.DecodeString(r.Values["record"])
		if err := cmp.Or(err, json.Unmarshal(text, &d), json.Unmarshal([]byte(d.Note), &note)); err != nil {
			t.Fatal(err)
		}
		if note["phase"] != "window" {
			continue
		}
		delete(note, "phase")
		delete(note, "id")
		note["quiet"] = time.Now().Truncate(records.Resolution).UnixMilli()
		changed, _ := json.Marshal(note)
		d.Phase, d.HoldSec, d.Note = "free", 0, string(changed)
		text, _ = json.Marshal(d)
		r.Values["record"] = base64.StdEncoding.EncodeToString(text)
		if _, err := store.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// letter is the n-th letter to a receiver, its reading n minutes old.
func letter(n int, to string) notify.DeadLetter {
	a := notifytest.Alert(n)
	a.Enqueued = time.Now().Add(-time.Duration(n) * time.Minute).Truncate(time.Millisecond).UTC()
	return notify.DeadLetter{Alert: a, Receiver: to, Reason: "refused for good: answered 422 Unprocessable Entity"}
}

func (l *letterWorld) keep(t *testing.T, all ...notify.DeadLetter) {
	t.Helper()
	for _, d := range all {
		if err := l.Keep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// left returns the ids of the letters there are, oldest first.
func (l *letterWorld) left(t *testing.T) (ids []string) {
	t.Helper()
	for page, err := range l.List(t.Context(), deadletter.Undelivered, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, letter := range page {
			ids = append(ids, letter.ID)
		}
	}
	return ids
}

// command runs `alertworker deadletters` with args and returns what it prints and its exit code.
func (l *letterWorld) command(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	environment(t, l.env)
	var b bytes.Buffer
	do, args := find(append([]string{"deadletters"}, args...))
	err := do(t.Context(), &b, args)
	if err != nil {
		code = exitFailed
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			code = coded.ExitCode()
		}
		if !errors.As(err, new(*silentError)) {
			fmt.Fprintln(&b, "error:", err)
		}
	}
	if strings.Contains(b.String(), "t0k3n") || strings.Contains(b.String(), emulators.AzuriteKey) {
		t.Errorf("secrets are shown:\n%s", b.String())
	}
	return b.String(), code
}

func want(t *testing.T, output string, code, wantCode int, words ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d", code, wantCode)
	}
	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("no %q", word)
		}
	}
	if t.Failed() {
		t.Fatalf("output:\n%s", output)
	}
}

func TestDeadLetters(t *testing.T) {
	azurite := emulators.StartAzurite(t)

	t.Run("list", func(t *testing.T) {
		l := newLetters(t, azurite)
		out, code := l.command(t, "list")
		want(t, out, code, exitStopped, "no dead letters\n")

		d := notify.DeadLetter{Alert: notifytest.Alert(1), Receiver: "example.com-1a2b3c4d", Reason: "refused for good: answered 422"}
		odd := notify.DeadLetter{Alert: notifytest.Alert(2), Receiver: "example.com-1a2b3c4d", Reason: "two\nlines"}
		odd.Alert.Device, odd.Alert.Temperature = "Käl\x1b[31mte 工場", 1234567.25
		odd.Alert.Enqueued = odd.Alert.Enqueued.Add(time.Hour)
		broken := notify.DeadLetter{Receiver: "example.com-1a2b3c4d", Reason: "refused for good: no id"}
		broken.Alert.Enqueued = odd.Alert.Enqueued.Add(time.Hour)
		l.keep(t, odd, broken, d)
		out, code = l.command(t, "list")
		want(t, out, code, exitStopped)
		golden(t, "deadletters-list.golden", out)

	})

	t.Run("list since", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.keep(t, letter(5, l.id), letter(500, l.id))
		out, code := l.command(t, "list", "--since", "1h")
		want(t, out, code, exitStopped, "device-5 ")
		if strings.Contains(out, "device-500") {
			t.Errorf("the old one is listed:\n%s", out)
		}
		out, code = l.command(t, "list", "--since", "1m")
		want(t, out, code, exitStopped, "no dead letters\n")
	})

	t.Run("list many", func(t *testing.T) {
		l := newLetters(t, azurite)
		for n := range 70 {
			l.keep(t, letter(n, l.id))
		}
		out, code := l.command(t, "list")
		want(t, out, code, exitStopped, "device-69 ", "device-0 ")
		if n := strings.Count(out, "\n"); n != 71 || strings.Count(out, "STATE") != 1 {
			t.Errorf("%d lines, want a head and 70", n)
		}
	})

	t.Run("replay one", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.keep(t, letter(1, l.id), letter(2, l.id))
		id := l.left(t)[0] // the older
		out, code := l.command(t, "replay", id, "--dry-run")
		want(t, out, code, exitStopped, id+" device-2 to "+l.name+": would be sent\n", "1 would be sent, 0 not\n")
		if len(l.Deliveries()) != 0 || len(l.left(t)) != 2 {
			t.Fatal("a dry run does something")
		}

		out, code = l.command(t, "replay", id)
		want(t, out, code, exitStopped, id+" device-2 to "+l.name+": delivered\n", "1 delivered, 0 not\n")
		sent := letter(2, l.id).Alert
		taken := l.Taken()
		if len(taken) != 1 || taken[0].ID != sent.ID || taken[0].Token <= sent.Token || taken[0].Temperature != sent.Temperature || taken[0].Expires.Before(time.Now()) || taken[0].Window != time.Minute {
			t.Errorf("taken %+v, want %+v under a new claim", taken, sent)
		}
		if left := l.left(t); len(left) != 1 || left[0] == id {
			t.Errorf("left: %q", left)
		}

		out, code = l.command(t, "replay", id)
		want(t, out, code, exitFailed, id+": not sent: not among those undelivered: no such dead letter", "0 delivered, 1 not")
		out, code = l.command(t, "list")
		want(t, out, code, exitStopped, id+"  replayed     ", "  replayed at 2", "  undelivered  ")
		out, code = l.command(t, "list", "--state", "replayed")
		want(t, out, code, exitStopped, id+"  replayed ")
		if n := strings.Count(out, "\n"); n != 2 {
			t.Errorf("%d replayed letters, want 1:\n%s", n, out)
		}
		out, code = l.command(t, "replay", "../"+id)
		want(t, out, code, exitFailed, "no such dead letter")
	})

	t.Run("replay all", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.keep(t, letter(1, l.id), letter(2, l.id), letter(3, l.id), letter(500, l.id), letter(4, "gone-1a2b3c4d"))
		l.Behave(notifytest.Take, notifytest.Status(422), notifytest.Take)
		out, code := l.command(t, "replay", "--all", "--since=1h")
		want(t, out, code, exitFailed,
			" device-4 to gone-1a2b3c4d: not sent: NOTIFY_URLS has no receiver of this name, only "+l.name,
			" device-3 to "+l.name+": delivered\n", " device-2 to "+l.name+": refused: ", " device-1 to "+l.name+": delivered\n", "2 delivered, 2 not\n")
		if left := l.left(t); len(left) != 3 {
			t.Errorf("left: %q, want the old one, the one refused again and the one of nobody", left)
		}
		out, code = l.command(t, "replay", "--all", "--to", l.name)
		want(t, out, code, exitStopped, "3 delivered, 0 not\n")
		out, code = l.command(t, "replay", "--all")
		want(t, out, code, exitStopped, "0 delivered, 0 not\n")
		if taken := l.Taken(); len(taken) != 5 {
			t.Errorf("%d taken, want 5", len(taken))
		}
	})

	// A dry run says what then happens, and what does not, and why.
	t.Run("dry run", func(t *testing.T) {
		l := newLetters(t, azurite)
		for n := range 11 {
			l.keep(t, letter(n, l.id))
		}
		again, recovery := letter(3, l.id), letter(5, l.id)
		again.Alert.ID, again.Alert.Enqueued = "again", again.Alert.Enqueued.Add(time.Second)
		recovery.Alert.ID, recovery.Alert.Resolved, recovery.Alert.Enqueued = "recovery", true, recovery.Alert.Enqueued.Add(time.Second)
		never := letter(20, l.id)
		never.Alert.Resolved = true
		l.keep(t, again, recovery, never, letter(21, "gone-1a2b3c4d"))
		dry, code := l.command(t, "replay", "--all", "--dry-run")
		want(t, dry, code, exitFailed, "11 would be sent, 4 not\n", "device-3 to "+l.name+": not sent: within THROTTLE_WINDOW of the alert for the device",
			"device-5 to "+l.name+": not sent: within THROTTLE_WINDOW", "device-20 to "+l.name+": not sent: the device was alerted again since, or",
			"device-21 to gone-1a2b3c4d: not sent: NOTIFY_URLS has no receiver of this name")
		if len(l.Deliveries()) != 0 || len(l.left(t)) != 15 {
			t.Fatal("a dry run does something")
		}
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, "11 delivered, 4 not\n")
		dry, code = l.command(t, "replay", "--all", "--dry-run")
		want(t, dry, code, exitFailed, "0 would be sent, 4 not\n", "device-3 to "+l.name+": not sent: within THROTTLE_WINDOW of the device's last alert, for another ")
	})

	// What the receiver refuses for rate is sent again when it says so.
	t.Run("replay at the receiver's pace", func(t *testing.T) {
		l := newLetters(t, azurite)
		for n := range 4 {
			l.keep(t, letter(n, l.id))
		}
		l.Behave(notifytest.Take, notifytest.Status(429, "Retry-After", "1"), notifytest.Take, notifytest.Status(503, "Retry-After", "1"))
		start := time.Now()
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitStopped, "4 delivered, 0 not\n")
		if took := time.Since(start); took < 2*time.Second {
			t.Errorf("it took %v, though the receiver asked twice for a second", took)
		}
	})

	t.Run("discard", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.keep(t, letter(1, l.id), letter(2, l.id), letter(500, l.id))
		ids := l.left(t)
		out, code := l.command(t, "discard", "../x")
		want(t, out, code, exitFailed, "../x: not among those undelivered: no such dead letter", "0 discarded\n")
		out, code = l.command(t, "discard", ids[2])
		want(t, out, code, exitStopped, ids[2]+" device-1: discarded\n", "1 discarded\n")
		out, code = l.command(t, "discard", "--all", "--since", "1h")
		want(t, out, code, exitStopped, ids[1]+" device-2: discarded\n", "1 discarded\n")
		if left := l.left(t); len(left) != 1 || left[0] != ids[0] || len(l.Deliveries()) != 0 {
			t.Errorf("left: %q", left)
		}

		// Who did it can be read.
		out, code = l.command(t, "discard", ids[0], "--who", "eva")
		want(t, out, code, exitStopped, "1 discarded\n")
		out, code = l.command(t, "list")
		want(t, out, code, exitStopped, "no dead letters")
		out, code = l.command(t, "list", "--state", "discarded")
		want(t, out, code, exitStopped, ids[0], ids[1], ids[2], " by eva; before that: ")
		out, code = l.command(t, "replay", ids[0])
		want(t, out, code, exitFailed, "no such dead letter")
	})

	t.Run("replay to a receiver that is down", func(t *testing.T) {
		l := newLetters(t, azurite)
		for n := range 6 {
			l.keep(t, letter(n, l.id))
		}
		l.Behave(notifytest.Take, notifytest.TakeThen(notifytest.Reset), notifytest.Status(401), notifytest.Status(503))
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, "device-4 to "+l.name+": may have been delivered", "device-3 to "+l.name+": not delivered", "device-1 to "+l.name+": not sent: receiver "+l.name+" is down (", "device-0 to "+l.name+": not sent: receiver "+l.name+" is down (", "1 delivered, 5 not\n")
		out, code = l.command(t, "replay", "--all")
		want(t, out, code, exitStopped, "5 delivered, 0 not\n")
		if taken := l.Taken(); len(taken) != 6 {
			t.Errorf("%d taken, want each of 6 once", len(taken))
		}
	})

	// A replay keeps the spacing of the workers' alerts, and they keep its.
	t.Run("replay within a window", func(t *testing.T) {
		l := newLetters(t, azurite)
		first, second := letter(1, l.id), letter(30, l.id)
		second.Alert.Device = first.Alert.Device
		environment(t, l.env)
		c, _, err := config.Load()
		if err != nil {
			t.Fatal(err)
		}
		s, err := newStores(c, network{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		leases, err := s.openLeases(t.Context(), c, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		gate := throttle.New(throttle.Config{Store: leases, Scope: c.Scope(), Receiver: l.id, Window: time.Minute, SendTimeout: 5 * time.Second})
		worker := func(id string) throttle.Outcome {
			t.Helper()
			r, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: first.Alert.Device, ID: id, Enqueued: time.Now()}, func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken })
			if err != nil {
				t.Fatal(err)
			}
			return r.Outcome
		}

		l.keep(t, first, second) // the second is older
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, l.left(t)[0]+" device-1 to "+l.name+": not sent: within THROTTLE_WINDOW of the device's last alert, for another ", "1 delivered, 1 not\n")
		if got := worker("of a worker"); got != throttle.Throttled {
			t.Errorf("a worker's alert after the replay: %v", got)
		}
		l.endWindows(t, azurite)
		time.Sleep(2 * time.Second) // the store's clock counts seconds
		if got := worker("of a worker"); got != throttle.Sent {
			t.Errorf("a worker's alert after the window: %v", got)
		}
		out, code = l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, "not sent: within THROTTLE_WINDOW", "0 delivered, 1 not\n")

		// Windows that are over do not keep a letter about an older reading.
		l.endWindows(t, azurite)
		out, code = l.command(t, "replay", "--all")
		want(t, out, code, exitStopped, "1 delivered, 0 not\n")

		// An alert of the worker's whose fate is not known is not dropped for the letter's sake.
		l.endWindows(t, azurite)
		time.Sleep(2 * time.Second)
		unknown := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Unknown }
		if r, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: first.Alert.Device, ID: "of a worker again", Enqueued: time.Now()}, unknown); err != nil || r.Outcome != throttle.Failed {
			t.Fatal(r.Outcome, err)
		}
		l.keep(t, second)
		out, code = l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, "it is not known whether another alert for the device has just been delivered", "0 delivered, 1 not\n")
		if r, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: first.Alert.Device, ID: "later", Enqueued: time.Now()}, func(_ context.Context, g throttle.Grant) throttle.Answer {
			if g.ID != "of a worker again" {
				t.Errorf("the alert whose fate is not known is lost: the next is %q", g.ID)
			}
			return throttle.Taken
		}); err != nil || r.Outcome != throttle.Sent {
			t.Error(r.Outcome, err)
		}
		if taken := l.Taken(); len(taken) != 2 {
			t.Errorf("%d taken, want 2", len(taken))
		}
	})

	// A resolved is sent unless the device was alerted again since.
	t.Run("replay a resolved", func(t *testing.T) {
		l := newLetters(t, azurite)
		environment(t, l.env)
		c, _, err := config.Load()
		if err != nil {
			t.Fatal(err)
		}
		s, err := newStores(c, network{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		leases, err := s.openLeases(t.Context(), c, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		gate := throttle.New(throttle.Config{Store: leases, Scope: c.Scope(), Receiver: l.id, Rule: "hot", Level: "critical", Window: time.Minute, SendTimeout: 5 * time.Second})
		alert := func(device string, at time.Time, sequence int64) {
			t.Helper()
			r, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: device, ID: "alert", Enqueued: at, Sequence: sequence}, func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken })
			if err != nil || r.Outcome != throttle.Sent {
				t.Fatal(r.Outcome, err)
			}
			l.endWindows(t, azurite)
		}
		old, again := letter(1, l.id), letter(2, l.id)
		for _, d := range []*notify.DeadLetter{&old, &again} {
			d.Alert.Rule, d.Alert.Level, d.Alert.Resolved, d.Alert.Sequence = "hot", "critical", true, 5
			alert(d.Alert.Device, d.Alert.Enqueued.Add(-time.Second), 4)
		}
		time.Sleep(2 * time.Second) // the store's clock counts seconds
		alert(again.Alert.Device, time.Now(), 6)
		l.keep(t, old, again)
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitFailed, old.Alert.Device+" to "+l.name+": delivered\n", again.Alert.Device+" to "+l.name+": not sent: the device was alerted again since", "1 delivered, 1 not\n")
		if taken := l.Taken(); len(taken) != 1 || !taken[0].Resolved {
			t.Errorf("taken: %+v", taken)
		}
	})

	t.Run("stopped", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.keep(t, letter(1, l.id), letter(2, l.id))
		environment(t, l.env)
		ctx, cancel := context.WithCancel(t.Context())
		l.BehaveAlways(func(w http.ResponseWriter, r *http.Request, take http.Handler, _ <-chan struct{}) {
			take.ServeHTTP(w, r)
			w.(http.Flusher).Flush()
			cancel()
		})
		var b bytes.Buffer
		ids := l.left(t)
		err := replayLetters(ctx, &b, ids)
		if err == nil || len(l.Deliveries()) != 1 || len(l.left(t)) < 1 {
			t.Errorf("%v, %d deliveries, %d letters left:\n%s", err, len(l.Deliveries()), len(l.left(t)), b.String())
		}
	})

	t.Run("a worker keeps what is refused", func(t *testing.T) {
		l := newLetters(t, azurite)
		l.BehaveAlways(notifytest.Status(422))
		hub := hubWith(t, `{"temperature":99}`)
		maps.Copy(l.env, map[string]string{
			"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "EVENTHUB_START": "earliest", "HTTP_ADDR": "",
			"CHECKPOINT_STORE": "memory", "THROTTLE_STORE": "memory", "BALANCE_INTERVAL": "1s",
		})
		environment(t, l.env)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		deadline := time.Now().Add(2 * time.Minute)
		for len(l.left(t)) == 0 && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.BehaveAlways(notifytest.Take)
		out, code := l.command(t, "replay", "--all")
		want(t, out, code, exitStopped, "THROTTLE_STORE is memory: only the worker knows its windows", "1 delivered")
		if taken := l.Taken(); len(taken) != 1 || taken[0].Device != "d0" || taken[0].Temperature != 99 {
			t.Errorf("taken: %+v", taken)
		}
	})
}

func TestDeadLettersUsage(t *testing.T) {
	l := &letterWorld{env: valid("NOTIFY_URLS=http://127.0.0.1:1/t0k3n", "THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=")}
	for _, test := range []struct {
		args string
		word string
	}{
		{"", "deadletters is incomplete; see alertworker deadletters --help"},
		{"burn", `unexpected "burn"`},
		{"list x", `unexpected "x"`},
		{"list --since yesterday", "-since"},
		{"list --state lost", "must be undelivered, replayed or discarded"},
		{"list", "without Azure Storage"},
		{"replay", "name dead letters, or use --all"},
		{"replay x --all", "name dead letters, or use --all"},
		{"replay x --since 1h", "--since requires --all"},
		{"replay x --frob", "-frob"},
		{"replay x", "without Azure Storage"},
		{"discard", "name dead letters, or use --all"},
		{"discard x --all", "name dead letters, or use --all"},
	} {
		out, code := l.command(t, strings.Fields(test.args)...)
		if code != exitUsage || !strings.Contains(out, test.word) {
			t.Errorf("deadletters %s: exit code %d: %s", test.args, code, out)
		}
	}
	out, code := l.command(t, "--help")
	want(t, out, code, exitStopped) // it goes to the standard output
	l.env["TEMPERATURE_THRESHOLD"] = "x"
	out, code = l.command(t, "list")
	want(t, out, code, exitUsage, "TEMPERATURE_THRESHOLD")
}
