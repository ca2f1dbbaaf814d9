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
	idle // none, but nothing comes that could cause one
)

// conclude sets what r, which has its problems, says in short.
func (v view) conclude(r *Report) {
	what := map[reach][]string{} // is wrong
	for _, p := range r.Problems {
		if !v.source.Running && p.isOurs() {
			p.keeps = all
		}
		what[p.keeps] = append(what[p.keeps], p.What)
	}

	for _, may := range []struct {
		be       bool
		state    State
		headline string
	}{
		{v.draining, Draining, "Draining: alerts in progress are being settled."},
		{v.standby != "", Standby, "Standing by: " + v.standby + "."},
		{what[all] != nil, Blocked, "No alerts are going out: " + humanize.Some(what[all]) + "."},
		{!v.source.Running, Starting, "Starting: waiting for the hub and the checkpoint store to answer."},
		{what[some] != nil, Partly, "Some alerts aren't going out: " + humanize.Some(what[some]) + "."},
		{what[none] != nil, Impaired, "Alerts are going out, but " + humanize.Some(what[none]) + "."},
		{what[idle] != nil, Idle, "Alerts would go out, but " + humanize.Some(what[idle]) + "."},
		{r.Waiting > 0, GoingOut, "Alerts are going out; " + waits(r.Waiting) + " to be sent."},
		{true, GoingOut, "Alerts are going out."},
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

// problem returns a problem with a service, in the words that all of its kind have; an empty one if there is no fault.
func problem(by By, f telemetry.Fault, effect string) Problem {
	if f.Err == nil {
		return Problem{}
	}

	return Problem{
		By:      by,
		What:    words[by].begin,
		Since:   f.Since,
		Why:     oneLine(f.Err),
		Refused: f.Refused,
		Effect:  effect,
	}
}

// storeProblem returns what there is to say about a store that could not be used, and may have answered since.
func storeProblem(by By, store string, f telemetry.Fault, answers bool, keeps reach, effect string) Problem {
	p := problem(by, f, effect)
	p.keeps = keeps
	if answers {
		p.What, p.keeps = store+" failed a moment ago", none
		p.Effect = "It answers again, and counts as usable once nothing has failed for " + humanize.Span(calm) + "."
	}

	return p
}

// hubProblem returns what there is to say about the hub, once that has lasted for a moment.
func (v view) hubProblem() Problem {
	f := v.source.Hub
	if v.now.Sub(f.Since) < settle {
		return Problem{}
	}

	p := problem(ByHub, f, "Readings wait in the hub, and are read when it answers, unless its retention ends first. "+
		"Readings over HTTP still raise alerts.")
	p.keeps = all

	return p
}

// secretsProblem returns what there is to say about new secrets that are not used. They keep no alert from going out
// until a process starts, which has no others.
func secretsProblem(f telemetry.Fault) Problem {
	return problem(BySecrets, f, "The old one stays in use. The new one is tried again and again, and used once it works; "+
		"a process that starts has no other.")
}

// partitionsProblem returns what there is to say about owned partitions that are not read, or may soon
// not be. The caller holds m.mu.
func (m *Monitor) partitionsProblem(v view) Problem {
	s := v.source
	unread := s.Owned - s.Reading
	p := Problem{By: ByPartitions, Since: m.since(ByPartitions, s.Running && unread > 0)}

	switch {
	case !s.Running || v.hubProblem().What != "":
		return Problem{}

	case unread > 0:
		which := partitionNames(s.Faults)
		if len(s.Faults) != unread { // the others are just being opened
			which = fmt.Sprintf("%d of %s that this replica owns", unread, humanize.Count(s.Owned, "partition"))
		}
		p.What = which + " " + isAre(unread) + " not being read"
		p.Effect = "Their readings wait in the hub. This is normal for a moment when partitions change hands."
		p.keeps = keptBy(unread, s.Owned)
		p.because(s.Faults)

	case len(s.AtRisk) > 0:
		p.What = partitionNames(s.AtRisk) + " may soon stop being read"
		p.Effect = "They are being read. When that happens, their readings wait in the hub."
		p.because(s.AtRisk)
	}

	return p
}

// keptBy returns what is kept from going out if so many of the partitions of this replica are not read.
func keptBy(unread, of int) reach {
	if unread >= of {
		return all
	}
	return some
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
	var why []string
	for _, id := range sortedIDs(faults) {
		f := faults[id]
		why = append(why, "partition "+id+": "+oneLine(f.Err))
		p.Refused = p.Refused || f.Refused
		if p.Since.IsZero() || f.Since.Before(p.Since) {
			p.Since = f.Since
		}
	}

	p.Why = strings.Join(why, "; ")
}

// oneLine returns an error that may have several lines in one.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// maxWhy is how many characters of a reason are shown.
const maxWhy = 600

// idleProblem returns what there is to say if nothing comes from the partitions that are read: no device is silent
// then, but what lies before them is broken. The caller holds m.mu.
func (m *Monitor) idleProblem(v view) Problem {
	read := int64(0)
	for _, p := range v.partitions {
		read += p.ReadUntil.UnixMilli()
	}

	isReading := v.source.Owned > 0 && v.source.Reading >= v.source.Owned
	if read != m.read || m.readAt.IsZero() || !isReading {
		m.read, m.readAt = read, v.now
	}

	if v.now.Sub(m.readAt) < idleLimit {
		return Problem{}
	}

	return Problem{
		By:    ByDevices,
		What:  "no events have arrived on any partition that this replica reads",
		Since: m.readAt,
		keeps: idle,
		Effect: "Check whether devices are connected to the IoT Hub, and whether its route to this hub is enabled and " +
			"healthy.",
	}
}

// ledgerProblem returns what there is to say about ledgers that cannot be read or written. The caller holds m.mu.
func (m *Monitor) ledgerProblem(v view) Problem {
	faults := map[string]telemetry.Fault{}
	waiting := map[string]bool{} // of these, the ones that have not been taken over: their partitions wait
	for _, of := range v.partitions {
		l := of.Ledger
		if l.Err == nil || v.now.Sub(l.Since) < settle {
			continue
		}

		faults[of.Partition] = m.Checkpoints.explained(l.Since, l.Err) // it is the same container
		if l.Writes == 0 {
			waiting[of.Partition] = true
		}
	}

	p := Problem{By: ByLedger}
	p.because(faults)

	switch {
	case len(waiting) > 0:
		p.What = partitionNames(waiting) + " cannot be read without the ledger"
		p.Effect = "Readings wait in the hub: without the ledger, nobody knows which alarms are open."
		p.keeps = keptBy(len(waiting), v.source.Reading)
	case len(faults) > 0:
		p.What = partitionNames(faults) + " cannot record alarms in the ledger"
		p.Effect = "Alerts go out, but no recoveries are sent, and the checkpoint does not move: " +
			"after a restart what follows it is read again, but no alert is sent twice."
	}

	return p
}

// receiverProblems returns what there is to say about receivers that accept nothing.
func (v view) receiverProblems() (problems []Problem) {
	keeps := all
	if slices.ContainsFunc(v.receivers, func(r delivery.ReceiverState) bool { return !r.Down }) {
		keeps = some
	}

	for _, r := range v.receivers {
		if !r.Down {
			continue
		}

		p := Problem{By: ByReceiver, Receiver: r.Name, Since: r.Since, Waiting: r.Waiting, keeps: keeps}
		p.What = "receiver " + r.Name + " " + r.Fault.Text()
		p.Effect = humanize.Capital(waits(r.Waiting)) + " until it accepts them, or until NOTIFY_GIVE_UP."
		if r.Fault == delivery.ReceiverRejects {
			p.Effect = "Each becomes a dead letter, which `alertworker deadletters replay` sends again."
		}

		if r.Err != nil {
			p.Why = oneLine(r.Err)
			p.Refused = slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, notify.AsError(r.Err).Status)
		}

		if left := r.Retry.Sub(v.now); left >= time.Second {
			p.Effect += " Next attempt in " + humanize.Span(left) + "."
		}

		problems = append(problems, p)
	}

	return problems
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
