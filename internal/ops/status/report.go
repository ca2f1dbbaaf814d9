package status

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

// A State is the short form of a Report.
type State string

const (
	GoingOut State = "alerts are going out"
	Idle     State = "no events are arriving"
	Impaired State = "alerts are going out, but not all is well"
	Partly   State = "some alerts aren't going out"
	Blocked  State = "no alerts are going out"
	Starting State = "starting"
	Standby  State = "standing by"
	Draining State = "draining"
)

// By says what is in the way of alerts. There are few, so it is a label of metrics.
type By string

const (
	ByHub         By = "hub"              // it does not answer
	ByPartitions  By = "partitions"       // this replica owns some that it does not read
	ByCheckpoints By = "checkpoint_store" // it does not answer
	ByLedger      By = "ledger"           // that of a partition cannot be read or written
	ByStore       By = "throttle_store"   // it does not answer
	ByDeadLetters By = "dead_letters"     // their container cannot be opened; only at the start
	ByReceiver    By = "receiver"         // it is down
	ByCredentials By = "credentials"      // in metrics only, besides what refused them
	ByDevices     By = "devices"          // in the way of no alert: they have sent nothing for long
	BySecrets     By = "new_secret"       // in the way of no alert: it does not work, and the old one stays in use
	ByRules       By = "rules"            // in the way of no alert: other replicas have other ones
)

// Bys are those that can be in the way of alerts.
var Bys = []By{ByHub, ByPartitions, ByCheckpoints, ByLedger, ByStore, ByDeadLetters, ByReceiver, ByCredentials}

// A Problem is one thing that is in the way.
type Problem struct {
	By       By        `json:"by"`
	Receiver string    `json:"receiver,omitempty"`
	What     string    `json:"what"`  // a clause: "the hub cannot be read"
	Since    time.Time `json:"since"` // by this machine's clock
	// Why holds what to do, in the words of `alertworker check`, and no secret. It may be empty.
	Why     string `json:"why,omitempty"`
	Effect  string `json:"effect"`            // sentences: what waits for it, and until when
	Waiting int    `json:"waiting,omitempty"` // alerts that it keeps

	Refused bool `json:"refused,omitempty"` // because of credentials

	keeps reach // from going out
}

// Lasts returns for how long there has been p, such as "3 min".
func (p Problem) Lasts(now time.Time) string {
	return humanize.Span(max(time.Second, now.Sub(p.Since)))
}

// Line returns p in one line, with times in the zone of now.
func (p Problem) Line(now time.Time) string {
	text := fmt.Sprintf("%s, for %s (since %s)", p.What, p.Lasts(now), p.Since.In(now.Location()).Format(time.RFC3339))
	if p.Why != "" {
		text += ": " + p.Why
	}
	return strings.TrimSuffix(text, ".") + ". " + p.Effect
}

// Failed returns why a service cannot be used, in the words of a Problem: for who has tried it once. ReceiverFailed is
// that for receivers.
func (by By) Failed(err error) error { return fmt.Errorf("%s: %w", words[by].begin, err) }

// ReceiverFailed returns why the receiver of that name did not accept an alert, or cannot be reached.
func ReceiverFailed(name string, err error) error {
	fault := delivery.FaultOf(notify.AsError(err))
	what := fault.Text()
	if fault == delivery.ReceiverRejects {
		what = "rejects the alert"
	}

	return fmt.Errorf("receiver %s %s: %w", name, what, err)
}

// A Report is the state of a replica at one moment.
type Report struct {
	State State `json:"state"`
	// Ready: the replica does what it is for, as far as a restart or another replica could
	// help. It is true if only receivers are down, and while the replica stands by.
	Ready    bool      `json:"ready"`
	Headline string    `json:"headline"` // a sentence
	Problems []Problem `json:"problems"` // the worst first
	Waiting  int       `json:"waiting"`  // alerts that have not been sent yet, of all receivers
	// the receivers that have accepted an alert a moment ago, and nothing failed since: other replicas ask them again
	Accepting []string `json:"accepting,omitempty"`
}

// Verdict returns what other replicas act on, in a form that changes with it.
func (r Report) Verdict() string {
	parts := append([]string{string(r.State)}, r.Accepting...)
	for _, p := range r.Problems {
		parts = append(parts, p.What)
	}

	return strings.Join(parts, "\n")
}

// Lines returns the headline with the problems, for probes and people: "ready: …" or "not ready: …",
// and then a line for each problem.
func (r Report) Lines(now time.Time) string {
	var b strings.Builder
	if !r.Ready {
		b.WriteString("not ")
	}

	fmt.Fprintf(&b, "ready: %s\n", strings.ToLower(r.Headline[:1])+r.Headline[1:])
	for _, p := range r.Problems {
		b.WriteString(p.Line(now) + "\n")
	}

	return b.String()
}

// words say what a problem is, and its end.
var words = map[By]struct {
	begin, end string
	theirs     bool // neither a restart nor another replica could help
	harmless   bool // it keeps no alert from going out
	warns      bool // likewise, but somebody should know
}{
	ByHub: {begin: "the hub cannot be read", end: "the hub can be read again"},
	ByPartitions: {
		begin: "partitions that this replica owns are not being read",
		end:   "all partitions that this replica owns are being read again",
	},
	ByCheckpoints: {begin: "the checkpoint store cannot be used", end: "the checkpoint store can be used again"},
	ByLedger:      {begin: "the ledger of a partition cannot be used", end: "the ledger of a partition can be used again"},
	ByStore:       {begin: "the throttle store cannot be used", end: "the throttle store can be used again"},
	ByDeadLetters: {begin: "the dead letters cannot be opened", end: "the dead letters can be opened"},
	ByReceiver:    {begin: "receiver is down", end: "receiver is back", theirs: true},
	ByDevices:     {begin: "the devices send nothing", end: "the devices send again", theirs: true, harmless: true},
	BySecrets:     {begin: "a new secret does not work", theirs: true, harmless: true, warns: true}, // who tries it logs its end
	ByRules:       {begin: "replicas have different rules", end: "replicas have the same rules again", theirs: true, harmless: true, warns: true},
}
