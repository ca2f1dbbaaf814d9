package status

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

// A view is what a Report is made of.
type view struct {
	now        time.Time
	source     telemetry.SourceStats
	standby    string
	draining   bool
	receivers  []delivery.ReceiverState
	partitions []partition.State
}

// A reach says which alerts a problem keeps from going out.
type reach int

const (
	none reach = iota
	some
	all
)

// conclude sets what r, which has its problems, says in short.
func (v view) conclude(r *Report) {
	var blocked, partly, others []string
	var idle time.Time
	r.Ready = true
	for _, p := range r.Problems {
		r.Ready = r.Ready && (p.By == ByReceiver || p.By == ByDevices)

		switch {
		case p.By == ByDevices:
			idle = p.Since
		case p.keeps == all || !v.source.Running && p.By != ByReceiver:
			blocked = append(blocked, p.What)
		case p.keeps == some:
			partly = append(partly, p.What)
		default:
			others = append(others, p.What)
		}
	}

	switch {
	case v.draining:
		r.State = Draining
		r.Headline = "Draining: alerts in progress are being settled."
		r.Ready = false
	case v.standby != "":
		// Ready, or a rolling update would never stop the replicas that this one waits for.
		r.State, r.Headline = Standby, "Standing by: "+v.standby+"."
	case len(blocked) > 0:
		r.State, r.Headline = Blocked, "No alerts are going out: "+inShort(blocked)+"."
	case !v.source.Running:
		r.State, r.Headline = Starting, "Starting: waiting for the hub and the checkpoint store to answer."
		r.Ready = false
	case len(partly) > 0:
		r.State = Partly
		r.Headline = "Some alerts aren't going out: " + inShort(partly) + ". " + v.stillGoingOut()
	case len(others) > 0:
		r.State, r.Headline = Impaired, "Alerts are going out, but "+inShort(others)+"."
	case !idle.IsZero():
		r.State = Idle
		r.Headline = "Alerts would go out, but no event has arrived for " + humanize.Span(v.now.Sub(idle)) + "."
	default:
		r.State, r.Headline = GoingOut, v.goingOut(r.Waiting)
	}
}

// inShort says what is wrong, of which there may be much: each receiver may be down.
func inShort(what []string) string {
	const most = 8
	if n := len(what) - most; n > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(what[:most], ", and "), n)
	}
	return strings.Join(what, ", and ")
}

// goingOut says that alerts are going out, and what waits.
func (v view) goingOut(waiting int) string {
	if paced := paced(v.receivers); paced != "" {
		return "Alerts are going out; " + paced + "."
	}
	if waiting > 0 {
		return fmt.Sprintf("Alerts are going out; %s to be sent.", waits(waiting))
	}

	return "Alerts are going out."
}

// stillGoingOut says in a sentence which alerts are going out although others aren't.
func (v view) stillGoingOut() string {
	text := "Those"

	switch n := v.source.Reading - len(v.ledgers(true)); {
	case n >= v.source.Owned:
	case n == 1:
		text += " of the other partition that this replica owns"
	default:
		text += fmt.Sprintf(" of the other %d partitions that this replica owns", n)
	}

	var up []string
	for _, to := range v.receivers {
		if !to.Down {
			up = append(up, to.Name)
		}
	}

	if len(up) < len(v.receivers) {
		text += " to " + names(up)
	}

	return text + " go out."
}

// names lists names, of which there may be many.
func names(all []string) string {
	const most = 8
	if n := len(all) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), n)
	}
	return humanize.And(all)
}

func problem(by By, f telemetry.Fault, effect string) Problem {
	return Problem{
		By:      by,
		What:    words[by].begin,
		Since:   f.Since,
		Why:     oneLine(f.Err),
		Refused: f.Refused,
		Effect:  effect,
	}
}

// answersAgain returns what there is to say about a store that could not be used and has answered since.
func answersAgain(by By, store string, f telemetry.Fault) Problem {
	p := problem(by, f, "It answers again, and counts as usable once nothing has failed for "+humanize.Span(calm)+".")
	p.What = store + " failed a moment ago"
	return p
}

func storeProblem(f telemetry.Fault, answers bool, waiting int) Problem {
	switch {
	case f.Err == nil:
		return Problem{}
	case answers:
		return answersAgain(ByStore, "the throttle store", f)
	}

	p := problem(ByStore, f, humanize.Capital(waits(waiting))+" until the store accepts what is written to it.")
	p.keeps = all
	return p
}

func (v view) hubProblem() Problem {
	f := v.source.Hub
	reading := v.source.Running && (v.source.Reading > 0 || v.source.Owned == 0)
	if f.Err == nil || reading && v.now.Sub(f.Since) < settle {
		return Problem{}
	}

	p := problem(ByHub, f, "Readings wait in the hub, and are read when it answers, unless its retention ends first. "+
		"Readings over HTTP still raise alerts.")
	p.keeps = all

	return p
}

func (v view) checkpointsProblem(f telemetry.Fault, answers bool) Problem {
	switch {
	case f.Err == nil:
		return Problem{}
	case answers:
		return answersAgain(ByCheckpoints, "the checkpoint store", f)
	}

	if v.source.Reading == 0 {
		p := problem(ByCheckpoints, f, "Without it nothing is read: readings wait in the hub.")
		p.keeps = all
		return p
	}

	return problem(
		ByCheckpoints,
		f,
		"Progress cannot be recorded: after a restart, readings are read again, but no alert is sent twice. "+
			"Partitions of replicas that stop are not taken over.",
	)
}

// partitionsProblem returns what there is to say about owned partitions that are not read, or may soon
// not be. The caller holds m.mu.
func (m *Monitor) partitionsProblem(v view) Problem {
	s := v.source
	unread := s.Owned - s.Reading
	if !s.Running || unread <= 0 {
		m.unread = time.Time{}
	} else if m.unread.IsZero() {
		m.unread = v.now
	}

	if !s.Running || s.Hub.Err != nil {
		return Problem{}
	}
	if unread <= 0 {
		return atRiskProblem(s.AtRisk)
	}

	p := Problem{By: ByPartitions, Since: m.unread}
	p.because(s.Faults)
	ids := slices.SortedFunc(maps.Keys(s.Faults), telemetry.ComparePartitions)
	p.What = partitionNames(ids) + " " + isAre(unread) + " not being read"

	if len(ids) != unread { // the others are just being opened
		p.What = fmt.Sprintf("%d of %s that this replica owns %s not being read",
			unread, humanize.Count(s.Owned, "partition"), isAre(unread))
	}

	p.keeps = some
	if s.Reading == 0 {
		p.keeps = all
	}

	p.Effect = "Their readings wait in the hub. This is normal for a moment when partitions change hands."

	return p
}

// atRiskProblem returns what there is to say about partitions that are read and may soon not be.
func atRiskProblem(faults map[string]telemetry.Fault) Problem {
	if len(faults) == 0 {
		return Problem{}
	}

	ids := slices.SortedFunc(maps.Keys(faults), telemetry.ComparePartitions)
	p := Problem{
		By:     ByPartitions,
		What:   partitionNames(ids) + " may soon stop being read",
		Effect: "They are being read. When that happens, their readings wait in the hub.",
	}
	p.because(faults)

	return p
}

// partitionNames names partitions.
func partitionNames(ids []string) string {
	if len(ids) == 1 {
		return "partition " + ids[0]
	}
	return "partitions " + names(ids)
}

// because sets why partitions are not well, and since when if that is earlier.
func (p *Problem) because(faults map[string]telemetry.Fault) {
	for i, id := range slices.SortedFunc(maps.Keys(faults), telemetry.ComparePartitions) {
		f := faults[id]
		if i == 0 {
			p.Why = "partition " + id + ": " + oneLine(f.Err)
		}

		p.Refused = p.Refused || f.Refused
		if !f.Since.IsZero() && (p.Since.IsZero() || f.Since.Before(p.Since)) {
			p.Since = f.Since
		}
	}

	if more := len(faults) - 1; more > 0 {
		p.Why += fmt.Sprintf(" (and %s)", humanize.Count(more, "other partition"))
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// maxWhy is how many bytes of a reason are shown.
const maxWhy = 600

// cut returns at most maxWhy bytes of a reason.
func cut(why string) string {
	if len(why) <= maxWhy {
		return why
	}
	return strings.ToValidUTF8(why[:maxWhy-len("…")], "") + "…"
}

// idleProblem returns what there is to say if nothing comes from the partitions that are read: no device is silent
// then, but what lies before them is broken. The caller holds m.mu.
func (m *Monitor) idleProblem(v view) Problem {
	s := v.source
	read := int64(0)
	for _, p := range v.partitions {
		read += p.ReadUntil.UnixMilli()
	}

	if read != m.read || m.readAt.IsZero() || !s.Running || s.Hub.Err != nil || s.Owned == 0 || s.Reading < s.Owned {
		m.read, m.readAt = read, v.now
	}

	if v.now.Sub(m.readAt) < idleLimit {
		return Problem{}
	}

	return Problem{
		By:    ByDevices,
		What:  "no events have arrived on any partition that this replica reads",
		Since: m.readAt,
		Effect: "Check whether devices are connected to the IoT Hub, and whether its route to this hub is enabled and " +
			"healthy.",
	}
}

// ledgers returns by partition the ledgers that cannot be read or written, or of these only those
// that have not been taken over, for which their partitions wait.
func (v view) ledgers(waiting bool) map[string]partition.LedgerState {
	failing := map[string]partition.LedgerState{}
	for _, of := range v.partitions {
		l := of.Ledger
		if l.Err != nil && v.now.Sub(l.Since) >= settle && (l.Writes == 0 || !waiting) {
			failing[of.Partition] = l
		}
	}

	return failing
}

// ledgerProblem returns what there is to say about ledgers that cannot be read or written. The caller holds m.mu.
func (m *Monitor) ledgerProblem(v view) Problem {
	failing, waiting := v.ledgers(false), v.ledgers(true)
	if len(failing) == 0 {
		return Problem{}
	}

	p := Problem{By: ByLedger}
	faults := map[string]telemetry.Fault{}
	for id, l := range failing {
		faults[id] = m.Checkpoints.explained(l.Since, l.Err) // it is the same container
	}

	p.because(faults)
	of := func(ledgers map[string]partition.LedgerState) string {
		return partitionNames(slices.SortedFunc(maps.Keys(ledgers), telemetry.ComparePartitions))
	}

	if len(waiting) == 0 {
		p.What = of(failing) + " cannot record alarms in the ledger"
		p.Effect = "Alerts go out, but no recoveries are sent, and the checkpoint does not move: " +
			"after a restart what follows it is read again, but no alert is sent twice."
		return p
	}

	p.What = of(waiting) + " cannot be read without the ledger"
	p.Effect = "Readings wait in the hub: without the ledger, nobody knows which alarms are open."
	p.keeps = some
	if len(waiting) >= v.source.Reading {
		p.keeps = all
	}

	return p
}

// receiverProblems returns what there is to say about receivers that accept nothing.
func (v view) receiverProblems() []Problem {
	var problems []Problem
	for _, to := range v.receivers {
		if to.Down {
			problems = append(problems, receiverProblem(to, v.now))
		}
	}

	if len(problems) == len(v.receivers) {
		for i := range problems {
			problems[i].keeps = all
		}
	}

	return problems
}

func receiverProblem(r delivery.ReceiverState, now time.Time) Problem {
	p := Problem{By: ByReceiver, Receiver: r.Name, Since: r.Since, Waiting: r.Waiting, keeps: some}
	p.What = "receiver " + r.Name + " " + r.Fault.Text()
	p.Effect = humanize.Capital(waits(r.Waiting)) + " until it accepts them, or until NOTIFY_GIVE_UP."
	if r.Fault == delivery.ReceiverRejects {
		p.Effect = "Each becomes a dead letter, which `alertworker deadletters replay` sends again."
	}

	if r.Err != nil {
		p.Why = oneLine(r.Err)
		code := notify.AsError(r.Err).Status
		p.Refused = code == http.StatusUnauthorized || code == http.StatusForbidden
	}

	if left := r.Retry.Sub(now); left >= time.Second {
		p.Effect += " Next attempt in " + humanize.Span(left) + "."
	}

	return p
}

// longPace is how long what waits for a paced receiver takes at least, to be worth a word.
const longPace = 10 * time.Second

// paced says which receivers take alerts more slowly than they come, and how long that will last.
func paced(receivers []delivery.ReceiverState) string {
	var parts []string
	for _, to := range receivers {
		if to.Down || to.Waiting < 2 || to.Left < longPace {
			continue
		}

		word := "paced"
		if to.Limited {
			word = "rate-limited"
		}

		parts = append(parts, fmt.Sprintf("%s is %s (%s): %s, about %s",
			to.Name, word, pace(to.Rate), waits(to.Waiting), humanize.Span(to.Left)))
	}

	return strings.Join(parts, "; ")
}

// pace writes a rate in messages a second.
func pace(rate float64) string {
	if rate < 1 {
		return fmt.Sprintf("1 in %.3g s", 1/rate)
	}
	return fmt.Sprintf("%.3g a second", rate)
}

func waits(n int) string {
	switch n {
	case 0:
		return "alerts wait"
	case 1:
		return "1 alert waits"
	}

	return fmt.Sprintf("%d alerts wait", n)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
