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
	w := v.weigh(r.Problems)
	silence := humanize.Span(v.now.Sub(w.idle))

	for _, may := range []struct {
		be       bool
		state    State
		headline string
	}{
		{v.draining, Draining, "Draining: alerts in progress are being settled."},
		{v.standby != "", Standby, "Standing by: " + v.standby + "."},
		{len(w.blocked) > 0, Blocked, "No alerts are going out: " + humanize.Some(w.blocked) + "."},
		{!v.source.Running, Starting, "Starting: waiting for the hub and the checkpoint store to answer."},
		{len(w.partly) > 0, Partly, "Some alerts aren't going out: " + humanize.Some(w.partly) + "."},
		{len(w.others) > 0, Impaired, "Alerts are going out, but " + humanize.Some(w.others) + "."},
		{!w.idle.IsZero(), Idle, "Alerts would go out, but no event has arrived for " + silence + "."},
		{true, GoingOut, v.goingOut(r.Waiting)},
	} {
		if may.be {
			r.State, r.Headline = may.state, may.headline
			break
		}
	}

	// One that stands by is ready, or a rolling update would never stop the replicas that it waits for.
	r.Ready = !slices.ContainsFunc(r.Problems, Problem.isOurs) && r.State != Draining && r.State != Starting
}

// isOurs reports whether a restart or another replica could help.
func (p Problem) isOurs() bool { return !words[p.By].theirs }

// A weight is what is wrong, by what that keeps from going out.
type weight struct {
	blocked, partly, others []string
	idle                    time.Time // since when nothing comes; zero if something does
}

// weigh sorts problems by what they keep from going out.
func (v view) weigh(problems []Problem) (w weight) {
	for _, p := range problems {
		switch {
		case p.By == ByDevices:
			w.idle = p.Since
		case p.keeps == all || !v.source.Running && p.isOurs():
			w.blocked = append(w.blocked, p.What)
		case p.keeps == some:
			w.partly = append(w.partly, p.What)
		default:
			w.others = append(w.others, p.What)
		}
	}

	return w
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

// problem returns a problem with a service, in the words that all of its kind have.
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

// storeProblem returns what there is to say about the throttle store, for which so many alerts wait.
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

// hubProblem returns what there is to say about the hub. While partitions are read it must last for a moment.
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

// checkpointsProblem returns what there is to say about the checkpoint store.
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

// secretsProblem returns what there is to say about new secrets that are not used. They keep no alert from going out
// until a process starts, which has no others.
func secretsProblem(f telemetry.Fault) Problem {
	if f.Err == nil {
		return Problem{}
	}

	return problem(BySecrets, f, "The old one stays in use. The new one is tried again and again, and used once it works; "+
		"a process that starts has no other.")
}

// partitionsProblem returns what there is to say about owned partitions that are not read, or may soon
// not be. The caller holds m.mu.
func (m *Monitor) partitionsProblem(v view) Problem {
	s := v.source
	unread := s.Owned - s.Reading
	since := m.since(ByPartitions, s.Running && unread > 0)

	switch {
	case !s.Running || s.Hub.Err != nil:
		return Problem{}
	case unread <= 0:
		return atRiskProblem(s.AtRisk)
	}

	p := Problem{
		By:     ByPartitions,
		What:   unreadPartitions(s, unread),
		Since:  since,
		Effect: "Their readings wait in the hub. This is normal for a moment when partitions change hands.",
		keeps:  keptBy(unread, s.Owned),
	}
	p.because(s.Faults)

	return p
}

// unreadPartitions says in a clause that so many owned partitions are not read.
func unreadPartitions(s telemetry.SourceStats, unread int) string {
	verb := isAre(unread)
	if len(s.Faults) == unread {
		return fmt.Sprintf("%s %s not being read", partitionNames(s.Faults), verb)
	}

	// The others are just being opened.
	owned := humanize.Count(s.Owned, "partition")
	return fmt.Sprintf("%d of %s that this replica owns %s not being read", unread, owned, verb)
}

// keptBy returns what is kept from going out if so many of the partitions of this replica are not read.
func keptBy(unread, of int) reach {
	if unread >= of {
		return all
	}
	return some
}

// atRiskProblem returns what there is to say about partitions that are read and may soon not be.
func atRiskProblem(faults map[string]telemetry.Fault) Problem {
	if len(faults) == 0 {
		return Problem{}
	}

	p := Problem{
		By:     ByPartitions,
		What:   partitionNames(faults) + " may soon stop being read",
		Effect: "They are being read. When that happens, their readings wait in the hub.",
	}
	p.because(faults)

	return p
}

// partitionNames names the partitions that are the keys of a map.
func partitionNames[V any](of map[string]V) string {
	ids := sortedIDs(of)
	if len(ids) == 1 {
		return "partition " + ids[0]
	}
	return "partitions " + humanize.Some(ids)
}

// sortedIDs returns the partitions that are the keys of a map, in their order.
func sortedIDs[V any](of map[string]V) []string {
	return slices.SortedFunc(maps.Keys(of), telemetry.ComparePartitions)
}

// because sets why partitions are not well, and since when if that is earlier.
func (p *Problem) because(faults map[string]telemetry.Fault) {
	for i, id := range sortedIDs(faults) {
		f := faults[id]
		if i == 0 {
			p.Why = "partition " + id + ": " + oneLine(f.Err)
		}

		p.Refused = p.Refused || f.Refused
		p.Since = earliest(p.Since, f.Since)
	}

	if more := len(faults) - 1; more > 0 {
		p.Why += fmt.Sprintf(" (and %s)", humanize.Count(more, "other partition"))
	}
}

// earliest returns the earlier of two times, of which a zero one is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// oneLine returns an error that may have several lines in one.
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
	read := int64(0)
	for _, p := range v.partitions {
		read += p.ReadUntil.UnixMilli()
	}

	if read != m.read || m.readAt.IsZero() || !v.readsAll() {
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

// readsAll reports whether the replica has partitions and reads them all.
func (v view) readsAll() bool {
	s := v.source
	return s.Running && s.Hub.Err == nil && s.Owned > 0 && s.Reading >= s.Owned
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
	if len(waiting) == 0 {
		p.What = partitionNames(failing) + " cannot record alarms in the ledger"
		p.Effect = "Alerts go out, but no recoveries are sent, and the checkpoint does not move: " +
			"after a restart what follows it is read again, but no alert is sent twice."
		return p
	}

	p.What = partitionNames(waiting) + " cannot be read without the ledger"
	p.Effect = "Readings wait in the hub: without the ledger, nobody knows which alarms are open."
	p.keeps = keptBy(len(waiting), v.source.Reading)

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

// receiverProblem returns what there is to say about a receiver that is down.
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
		isPaced := !to.Down && to.Waiting >= 2 && to.Left >= longPace
		if !isPaced {
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

// waits says that n alerts wait, as the beginning of a clause.
func waits(n int) string {
	switch n {
	case 0:
		return "alerts wait"
	case 1:
		return "1 alert waits"
	}

	return fmt.Sprintf("%d alerts wait", n)
}

// isAre is the verb for n things.
func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
