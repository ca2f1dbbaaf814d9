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

	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/throttle"
)

const (
	listDoes = "list the alerts in DEAD_LETTER_CONTAINER, which could not be delivered, oldest first\n" +
		"Usage: alertworker deadletters list [--since 24h] [--json]"

	replayDoes = "send alerts that could not be delivered to their receivers again, with the same id.\n" +
		"The dead letter of a delivered alert is deleted; others stay. Alerts for a device stay\n" +
		"THROTTLE_WINDOW apart: one within it is not sent, and the output says when it can be\n" +
		"Usage: alertworker deadletters replay LETTER... | --all [--since 24h] [--to RECEIVER] [--dry-run]"
)

// deadLetters is `alertworker deadletters`. It has the configuration of the worker.
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
	return &usageError{fmt.Errorf("unknown command %q: deadletters has list and replay; see alertworker deadletters --help", name)}
}

// letterStores are what both commands need.
type letterStores struct {
	*deadletter.Store
	config    config.Config
	stores    stores
	receivers []receivers.Receiver
}

// openLetters opens the dead letters and receivers that are configured. The caller closes
// them.
func openLetters(ctx context.Context) (*letterStores, error) {
	c, log, rs, err := configure()
	if err != nil {
		return nil, err
	}
	b := &letterStores{config: c, receivers: rs}
	if b.stores, err = newStores(c); err != nil {
		b.Close()
		return nil, err
	}
	if !c.HasStorage() {
		b.Close()
		return nil, &usageError{errors.New("without Azure Storage, dead letters are only in the worker's log; set STORAGE_CONNECTION_STRING or STORAGE_ACCOUNT_URL to keep them")}
	}
	if b.Store, err = b.stores.openDeadLetters(ctx, c, log); err != nil {
		b.Close()
		return nil, fmt.Errorf("open DEAD_LETTER_CONTAINER=%s: %w", c.DeadLetterContainer, err)
	}
	return b, nil
}

func (b *letterStores) Close() {
	b.stores.Close()
	for _, r := range b.receivers {
		r.Close()
	}
}

// listLetters is `alertworker deadletters list`.
func listLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters list", listDoes)
	since := sinceFlag(flags)
	asJSON := flags.Bool("json", false, "print one JSON object per line")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	b, err := openLetters(ctx)
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

// writeJSON prints letters, one per line.
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

// writeTable prints letters in aligned columns, below a head if head is true.
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
	widths := []int{0, 0, 8, 11, 24, 0} // minimum widths: pages should look alike
	for _, row := range rows {
		for i, cell := range row {
			row[i] = checkup.OneLine(cell)
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
	all := flags.Bool("all", false, "send all dead letters instead of named ones")
	since := sinceFlag(flags)
	to := flags.String("to", "", "send to this `RECEIVER` instead of the original one, whose name changes with its URL")
	dryRun := flags.Bool("dry-run", false, "only print what would be sent")
	ids, err := parseArgs(flags, args)
	if err != nil {
		return err
	}
	switch {
	case *all && len(ids) > 0:
		err = errors.New("name dead letters or use --all, not both")
	case !*all && len(ids) == 0:
		err = errors.New("name dead letters, or use --all")
	case !*all && since.Duration > 0:
		err = errors.New("--since requires --all")
	}
	if err != nil {
		return &usageError{fmt.Errorf("%w; see %s --help", err, flags.Name())}
	}
	b, err := openLetters(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if *to != "" && b.receiver(*to) == nil {
		return &usageError{fmt.Errorf("--to %s: %w", *to, b.unknown())}
	}

	r := &replay{letterStores: b, out: out, to: *to, dryRun: *dryRun, failures: map[string]int{}, gates: map[string]*throttle.Gate{}}
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
				r.stays(deadletter.Letter{ID: id}, "no such dead letter; it may have been delivered already")
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

// A replay sends dead letters again and prints the result of each.
type replay struct {
	*letterStores
	out    io.Writer
	to     string // a receiver for all; "" for each letter's own
	dryRun bool

	leases    lease.Store
	gates     map[string]*throttle.Gate // by receiver
	storeDown int                       // failures of the store in a row

	delivered, failed int
	failures          map[string]int // of a receiver, in a row
}

// maxFailures in a row mean that a receiver or the store is down; the rest is not sent.
const maxFailures = 3

// openGates opens the store of the devices' windows.
func (r *replay) openGates(ctx context.Context) (err error) {
	if r.leases, err = r.stores.openLeases(ctx, r.config); err != nil {
		return fmt.Errorf("open THROTTLE_STORE=%s: %w", r.config.ThrottleStore, err)
	}
	if r.config.ThrottleStore == config.StoreMemory {
		fmt.Fprintln(r.out, "THROTTLE_STORE is memory: only the worker knows its windows, so an alert may follow one of the worker's within THROTTLE_WINDOW")
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

// letter sends one dead letter again and deletes it if its alert is delivered.
func (r *replay) letter(ctx context.Context, l deadletter.Letter) {
	name := cmp.Or(r.to, l.Receiver)
	to := r.receiver(name)
	switch {
	case l.Broken != nil:
		r.stays(l, l.Broken.Error())
		return
	case to == nil:
		r.stays(l, r.unknown().Error()+"; use --to to send it to another one")
		return
	case ctx.Err() != nil:
		r.stays(l, "not sent: stopped")
		return
	case r.failures[name] >= maxFailures:
		r.stays(l, fmt.Sprintf("not sent: the receiver failed %d times in a row", maxFailures))
		return
	case r.storeDown >= maxFailures:
		r.stays(l, fmt.Sprintf("not sent: the throttle store failed %d times in a row", maxFailures))
		return
	case r.dryRun:
		r.delivered++
		r.line(l, name, "would be sent")
		return
	}
	if why := r.send(ctx, *to, l); why != "" {
		r.stays(l, why)
		return
	}
	// It has been delivered, so it is deleted even after a request to stop.
	if err := r.Delete(context.WithoutCancel(ctx), l); err != nil && !errors.Is(err, deadletter.ErrNotFound) {
		r.stays(l, "delivered, but the dead letter could not be deleted; if it is sent again, it has the same id: "+err.Error())
		return
	}
	r.delivered++
	r.line(l, name, "delivered")
}

// requested is the time that the gate takes for the reading's: later than any window that
// is over, so that only one in force suppresses it. The reading itself may be older than
// such windows, but who replays it wants it sent.
var requested = time.Unix(1<<40, 0)

// send sends l through the gate and returns why it was not delivered; empty if it was.
func (r *replay) send(ctx context.Context, to receivers.Receiver, l deadletter.Letter) (why string) {
	gate := r.gate(to.Name)
	result, err := gate.Do(ctx, throttle.Request{Device: l.Alert.Device, ID: l.Alert.ID, Enqueued: requested}, func(ctx context.Context, g throttle.Grant) throttle.Answer {
		if g.ID != l.Alert.ID {
			why = "not sent: it is not known whether another alert for the device has just been delivered; try again after THROTTLE_WINDOW"
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
		return "not sent: another process is sending an alert for the device, or its window has only just ended; try again in a minute"
	case throttle.Unavailable:
		return "not sent: " + err.Error()
	case throttle.Unconfirmed:
		_ = gate.Confirm(ctx, result) // the alert is delivered, recorded or not
	}
	return why
}

// notify makes one attempt under g and returns why the alert was not delivered.
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
		return throttle.NotTaken, "not delivered: " + err.Error()
	}
	r.failures[to.Name]++
	return throttle.Unknown, "may have been delivered, but there was no answer: " + err.Error()
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
	fmt.Fprintln(r.out, checkup.OneLine(about+": "+what))
}

func (r *replay) summary(since *age) string {
	verb := "delivered"
	if r.dryRun {
		verb = "would be sent"
	}
	switch {
	case r.delivered+r.failed == 0:
		return "no dead letters" + since.String()
	case r.failed == 0:
		return fmt.Sprintf("%d %s", r.delivered, verb)
	}
	return fmt.Sprintf("%d %s, %d not", r.delivered, verb, r.failed)
}

// receiver returns the receiver of a name, nil if NOTIFY_URLS has none.
func (b *letterStores) receiver(name string) *receivers.Receiver {
	if i := slices.IndexFunc(b.receivers, func(r receivers.Receiver) bool { return r.Name == name }); i >= 0 {
		return &b.receivers[i]
	}
	return nil
}

// unknown is the error for a receiver that does not exist.
func (b *letterStores) unknown() error {
	var names []string
	for _, r := range b.receivers {
		names = append(names, r.Name)
	}
	return fmt.Errorf("NOTIFY_URLS has no receiver of this name, only %s", strings.Join(names, ", "))
}

// age is the maximum age of the readings in dead letters; 0 means any age.
type age struct{ time.Duration }

func sinceFlag(f *flag.FlagSet) *age {
	s := &age{}
	f.Func("since", "only dead letters with a reading from the last `DURATION`, such as 24h", func(text string) (err error) {
		if s.Duration, err = time.ParseDuration(text); err != nil || s.Duration <= 0 {
			return errors.New("must be a duration such as 30m or 24h")
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
	return fmt.Sprintf(" with a reading from the last %v", s.Duration)
}

// parseArgs is parseFlags with arguments before, between or after the flags; it
// returns them.
func parseArgs(f *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, parseFlags(f, args) // which fails in the same way, with the error for users
		}
		if f.NArg() == 0 {
			return others, nil
		}
		others, args = append(others, f.Arg(0)), f.Args()[1:]
	}
}
