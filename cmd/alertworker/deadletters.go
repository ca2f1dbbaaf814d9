package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/throttle"
)

const (
	listDoes = "what alerts DEAD_LETTER_CONTAINER keeps that a receiver did not take, oldest first\n" +
		"Usage: alertworker deadletters list [--since 24h] [--json]"

	replayDoes = "send alerts that a receiver did not take to it again, with the same id; a letter\n" +
		"whose alert is taken is deleted, any other stays. A device's alerts keep THROTTLE_WINDOW\n" +
		"apart: within it a letter is not sent, and says when it can be\n" +
		"Usage: alertworker deadletters replay LETTER... | --all [--since 24h] [--to RECEIVER] [--dry-run]"
)

// deadLetters is `alertworker deadletters`, for people on call. It is configured
// as the worker is.
func deadLetters(ctx context.Context, args []string) error {
	return deadLettersTo(ctx, os.Stdout, args)
}

func deadLettersTo(ctx context.Context, out io.Writer, args []string) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "list":
		return listLetters(ctx, out, args)
	case "replay":
		return replayLetters(ctx, out, args)
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(out, "alertworker deadletters list: %s\n\nalertworker deadletters replay: %s\n", listDoes, replayDoes)
		return nil
	}
	return &usageError{fmt.Errorf("deadletters can list and replay, not %q; see alertworker deadletters --help", name)}
}

// A letterbox is what both commands work with.
type letterbox struct {
	*deadletter.Store
	config    config.Config
	stores    stores
	receivers []receivers.Receiver
}

// openLetterbox opens the dead letters that the environment names. The caller closes them.
func openLetterbox(ctx context.Context) (*letterbox, error) {
	c, log, rs, err := configure()
	if err != nil {
		return nil, err
	}
	b := &letterbox{config: c, receivers: rs}
	if b.stores, err = newStores(c); err != nil {
		b.Close()
		return nil, err
	}
	if !c.HasStorage() {
		b.Close()
		return nil, &usageError{errors.New("without Azure Storage dead letters are lines in the worker's log; set STORAGE_CONNECTION_STRING or STORAGE_ACCOUNT_URL to keep them")}
	}
	if b.Store, err = b.stores.openDeadLetters(ctx, c, log); err != nil {
		b.Close()
		return nil, fmt.Errorf("open DEAD_LETTER_CONTAINER=%s: %w", c.DeadLetterContainer, err)
	}
	return b, nil
}

func (b *letterbox) Close() {
	b.stores.Close()
	for _, r := range b.receivers {
		r.Close()
	}
}

// listLetters is `alertworker deadletters list`.
func listLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters list", listDoes)
	since := sinceFlag(flags)
	asJSON := flags.Bool("json", false, "one JSON object a line")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	b, err := openLetterbox(ctx)
	if err != nil {
		return err
	}
	defer b.Close()

	n := 0
	for page, err := range b.List(ctx, since.time()) {
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(out, page)
		} else {
			err = writeTable(out, page, n == 0)
		}
		if err != nil {
			return fmt.Errorf("print dead letters: %w", err)
		}
		n += len(page)
	}
	if n == 0 && !*asJSON {
		fmt.Fprintf(out, "no dead letters%s\n", since)
	}
	return nil
}

// writeJSON prints letters, a line each.
func writeJSON(out io.Writer, letters []deadletter.Letter) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, l := range letters {
		line := struct {
			ID       string          `json:"id"`
			Kept     time.Time       `json:"kept,omitzero"`
			Receiver string          `json:"receiver,omitempty"`
			Reason   string          `json:"reason,omitempty"`
			Alert    json.RawMessage `json:"alert,omitempty"` // as webhooks get it
			Broken   string          `json:"broken,omitempty"`
		}{ID: l.ID, Kept: l.Kept, Receiver: l.Receiver, Reason: l.Reason, Alert: l.Payload}
		if l.Broken != nil {
			line.Broken = l.Broken.Error()
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// writeTable prints letters in aligned columns, with a head if head says so.
func writeTable(out io.Writer, letters []deadletter.Letter, head bool) error {
	var rows [][]string
	if head {
		rows = append(rows, []string{"LETTER", "TIME", "DEVICE", "TEMPERATURE", "RECEIVER", "REASON"})
	}
	for _, l := range letters {
		row := []string{l.ID, "", "", "", l.Receiver, l.Reason}
		if l.Broken == nil {
			row[1] = l.Alert.Enqueued.UTC().Format(time.DateTime + "Z")
			row[2] = l.Alert.Device
			row[3] = fmt.Sprint(l.Alert.Temperature)
		} else {
			row[5] = strings.TrimPrefix(fmt.Sprintf("%s; the letter %v", l.Reason, l.Broken), "; ")
		}
		rows = append(rows, row)
	}
	widths := []int{0, 0, 8, 11, 24, 0} // at least: pages should look alike
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s  %-*s  %-*s  %*s  %-*s  %s\n", widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4], row[5])
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// replayLetters is `alertworker deadletters replay`.
func replayLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters replay", replayDoes)
	all := flags.Bool("all", false, "every letter, instead of named ones")
	since := sinceFlag(flags)
	to := flags.String("to", "", "send to this `RECEIVER` instead of the letter's own, whose name changes with its URL")
	dryRun := flags.Bool("dry-run", false, "only say what would be sent")
	ids, err := parseArgs(flags, args)
	if err != nil {
		return err
	}
	switch {
	case *all && len(ids) > 0:
		err = errors.New("name letters or give --all, not both")
	case !*all && len(ids) == 0:
		err = errors.New("name letters, or give --all")
	case !*all && since.Duration > 0:
		err = errors.New("--since goes with --all")
	}
	if err != nil {
		return &usageError{fmt.Errorf("%w; see %s --help", err, flags.Name())}
	}
	b, err := openLetterbox(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if *to != "" && b.receiver(*to) == nil {
		return &usageError{fmt.Errorf("--to %s: %w", *to, b.unknown())}
	}

	r := &replay{letterbox: b, out: out, to: *to, dryRun: *dryRun, failures: map[string]int{}, gates: map[string]*throttle.Gate{}}
	if !*dryRun {
		if err := r.openGates(ctx); err != nil {
			return err
		}
	}
	if *all {
		for page, listErr := range b.List(ctx, since.time()) {
			if err = listErr; err != nil {
				break
			}
			for _, l := range page {
				r.letter(ctx, l)
			}
		}
	} else {
		for _, id := range ids {
			l, getErr := b.Get(ctx, id)
			switch {
			case errors.Is(getErr, deadletter.ErrNotFound):
				r.stays(deadletter.Letter{ID: id}, "there is no such letter; if it was there, it has been taken since")
			case getErr != nil:
				r.stays(deadletter.Letter{ID: id}, getErr.Error())
			default:
				r.letter(ctx, l)
			}
		}
	}
	fmt.Fprintln(out, r.summary(since))
	switch {
	case err != nil:
		return err
	case r.failed > 0:
		return &silentError{exitFailed}
	}
	return nil
}

// A replay sends letters again and prints what comes of each.
type replay struct {
	*letterbox
	out    io.Writer
	to     string // a receiver for all; "" for each letter's own
	dryRun bool

	leases    lease.Store
	gates     map[string]*throttle.Gate // by receiver
	storeDown int                       // failures of the store in a row

	taken, failed int
	failures      map[string]int // of a receiver, in a row
}

// maxFailures in a row mean that a receiver or the store is down, and what is left can wait.
const maxFailures = 3

// openGates opens what keeps the devices' windows.
func (r *replay) openGates(ctx context.Context) (err error) {
	if r.leases, err = r.stores.openLeases(ctx, r.config, zap.NewNop()); err != nil {
		return fmt.Errorf("open THROTTLE_STORE=%s: %w", r.config.ThrottleStore, err)
	}
	if r.config.ThrottleStore == config.StoreMemory {
		fmt.Fprintln(r.out, "THROTTLE_STORE is memory: only the worker itself knows its windows, so an alert may come less than THROTTLE_WINDOW after one of the worker's")
	}
	return nil
}

// gate returns the gate of a receiver, the same as the workers'.
func (r *replay) gate(receiver string) *throttle.Gate {
	g := r.gates[receiver]
	if g == nil {
		g = throttle.New(throttle.Config{
			Store: r.leases, Scope: r.config.Scope(), Receiver: receiver, Window: r.config.ThrottleWindow, SendTimeout: r.config.NotifyTimeout,
		})
		r.gates[receiver] = g
	}
	return g
}

// letter sends one letter again and deletes it if its alert is taken.
func (r *replay) letter(ctx context.Context, l deadletter.Letter) {
	name := cmp.Or(r.to, l.Receiver)
	to := r.receiver(name)
	switch {
	case l.Broken != nil:
		r.stays(l, l.Broken.Error())
		return
	case to == nil:
		r.stays(l, r.unknown().Error()+"; --to sends it to one of them")
		return
	case ctx.Err() != nil:
		r.stays(l, "not tried: stopped")
		return
	case r.failures[name] >= maxFailures:
		r.stays(l, fmt.Sprintf("not tried: the receiver failed %d times in a row", maxFailures))
		return
	case r.storeDown >= maxFailures:
		r.stays(l, fmt.Sprintf("not tried: the throttle store failed %d times in a row", maxFailures))
		return
	case r.dryRun:
		r.taken++
		r.line(l, name, "would be sent")
		return
	}
	if why := r.send(ctx, *to, l); why != "" {
		r.stays(l, why)
		return
	}
	// Taken is taken: what is left is done even if somebody wants to stop.
	if err := r.Delete(context.WithoutCancel(ctx), l); err != nil && !errors.Is(err, deadletter.ErrNotFound) {
		r.stays(l, "taken, but its letter could not be deleted; sent again it would have the same id: "+err.Error())
		return
	}
	r.taken++
	r.line(l, name, "taken")
}

// asked is when an operator's request was enqueued, to a gate: later than any
// window that is over, so that only one in force refuses it. A letter's reading is
// older than windows since, but who replays it wants it sent.
var asked = time.Unix(1<<40, 0)

// send sends l through the gate and says why it was not taken; empty if it was.
func (r *replay) send(ctx context.Context, to receivers.Receiver, l deadletter.Letter) (why string) {
	gate := r.gate(to.Name)
	result, err := gate.Do(ctx, throttle.Request{Device: l.Alert.Device, ID: l.Alert.ID, Enqueued: asked}, func(ctx context.Context, g throttle.Grant) throttle.Answer {
		if g.ID != l.Alert.ID {
			why = "not sent: whether another alert of the device was taken a moment ago is not known; try again when THROTTLE_WINDOW is over"
			return throttle.NotTaken
		}
		var answer throttle.Answer
		answer, why = r.notify(ctx, to, l.Alert, g)
		return answer
	})
	if result.Outcome == throttle.Unavailable {
		r.storeDown++
	} else {
		r.storeDown = 0
	}
	switch result.Outcome {
	case throttle.Throttled:
		return fmt.Sprintf("not sent: within THROTTLE_WINDOW of the device's last alert, for another %v", max(0, result.Quiet.Sub(result.Now)).Round(time.Second))
	case throttle.Busy:
		return "not sent: an alert of the device is being sent by somebody else, or its window has only just ended; try again in a minute"
	case throttle.Unavailable:
		return "not sent: " + err.Error()
	case throttle.Unconfirmed:
		_ = gate.Confirm(ctx, result) // delivered is delivered, recorded or not
	}
	return why
}

// notify makes one attempt under g. An alert that is not taken says why.
func (r *replay) notify(ctx context.Context, to receivers.Receiver, a notify.Alert, g throttle.Grant) (answer throttle.Answer, why string) {
	a.Token, a.Expires, a.Window = g.Token, g.Expires, r.config.ThrottleWindow
	err := to.Notifier.Notify(ctx, a)
	if err == nil {
		r.failures[to.Name] = 0
		return throttle.Taken, ""
	}
	failure := notify.AsError(err)
	switch {
	case failure.Refused:
		r.failures[to.Name] = 0
		return throttle.NotTaken, "refused: " + err.Error()
	case failure.Untaken:
		r.failures[to.Name]++
		return throttle.NotTaken, "not taken: " + err.Error()
	}
	r.failures[to.Name]++
	return throttle.Unknown, "perhaps taken, its answer is missing: " + err.Error()
}

func (r *replay) stays(l deadletter.Letter, why string) {
	r.failed++
	r.line(l, cmp.Or(r.to, l.Receiver), why)
}

func (r *replay) line(l deadletter.Letter, to, what string) {
	about := l.ID
	if l.Alert.Device != "" {
		about += " " + l.Alert.Device
	}
	if to != "" {
		about += " to " + to
	}
	fmt.Fprintln(r.out, oneLine(about+": "+what))
}

func (r *replay) summary(since *age) string {
	verb := "taken"
	if r.dryRun {
		verb = "would be sent"
	}
	switch {
	case r.taken+r.failed == 0:
		return "no dead letters" + since.String()
	case r.failed == 0:
		return fmt.Sprintf("%d %s", r.taken, verb)
	}
	return fmt.Sprintf("%d %s, %d not", r.taken, verb, r.failed)
}

// receiver returns the receiver of a name, nil if NOTIFY_URLS has none.
func (b *letterbox) receiver(name string) *receivers.Receiver {
	if i := slices.IndexFunc(b.receivers, func(r receivers.Receiver) bool { return r.Name == name }); i >= 0 {
		return &b.receivers[i]
	}
	return nil
}

// unknown says of a receiver that there is none, and which there are.
func (b *letterbox) unknown() error {
	var names []string
	for _, r := range b.receivers {
		names = append(names, r.Name)
	}
	return fmt.Errorf("NOTIFY_URLS has no such receiver, only %s", strings.Join(names, ", "))
}

// age is how old the readings of letters may be at most; 0 is any age.
type age struct{ time.Duration }

func sinceFlag(f *flag.FlagSet) *age {
	s := &age{}
	f.Func("since", "only readings of the last `DURATION`, such as 24h", func(text string) (err error) {
		if s.Duration, err = time.ParseDuration(text); err != nil || s.Duration <= 0 {
			return errors.New("want a duration such as 30m or 24h")
		}
		return nil
	})
	return s
}

func (s *age) time() time.Time {
	if s.Duration == 0 {
		return time.Time{}
	}
	return time.Now().Add(-s.Duration)
}

func (s *age) String() string {
	if s.Duration == 0 {
		return ""
	}
	return fmt.Sprintf(" of readings of the last %v", s.Duration)
}

// parseArgs is parseFlags for arguments that stand before, between or after
// the flags; it returns them.
func parseArgs(f *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, parseFlags(f, args) // which fails the same way, and says so
		}
		if f.NArg() == 0 {
			return others, nil
		}
		others, args = append(others, f.Arg(0)), f.Args()[1:]
	}
}
