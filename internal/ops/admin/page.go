package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/httpapi"
	"alertworker/internal/humanize"
	"alertworker/internal/muting"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"css":     func() template.CSS { return template.CSS(pageCSS) },
		"js":      func() template.JS { return template.JS(pageJS) },
		"about":   about,
		"capital": humanize.Capital,
		"class":   func(s status.State) string { return states[s].class },
		"count":   count[int64],
		"name":    shortName,
		"named":   func(device, name string) string { return shortName(sensor.ID{Device: device, Name: name}.String()) },
		"some":    humanize.Some,
		"since":   func(t, now time.Time) string { return humanize.Span(max(time.Second, now.Sub(t))) },
		"span":    humanize.Span,
		"until":   until,
	}).Parse(pageHTML))

	// pagePolicy lets the page use only its own content and server.
	pagePolicy = fmt.Sprintf(
		"default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; img-src data:; connect-src 'self'; base-uri "+
			"'none'; form-action 'none'; frame-ancestors 'none'",
		digest(pageCSS),
		digest(pageJS),
	)
)

const (
	listed    = 15   // rows of a list, unless all are asked for
	maxAlarms = 1000 // open ones of this replica
	maxShown  = 128  // characters of a name; IoT Hub's have no more
)

// shortName is a name from outside as the page has room for it.
func shortName(s string) string { return humanize.Middle(s, maxShown) }

// digest is that of a style or a script, as a content security policy has it.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// servePage serves the status page, in whole or not at all.
func (a *Admin) servePage(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, a.page(r)); err != nil {
		a.options.Log.Error("the status page could not be rendered", zap.Error(err))
		httpapi.Text(w, http.StatusInternalServerError, "the status page could not be rendered: see the log\n")
		return
	}

	// Names come from outside: what a browser would act on, such as text that changes direction, is shown as U+FFFD.
	content := bytes.Map(func(c rune) rune {
		isControl := unicode.In(c, unicode.C, unicode.Zl, unicode.Zp) && c != '\n' && c != '\t'
		if isControl {
			return unicode.ReplacementChar
		}
		return c
	}, b.Bytes())

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(content) // fails only if the caller has gone
}

// A page has the texts that the template shows.
type page struct {
	Source, Replica, Version string
	Set                      *rules.Set
	Rules                    []ruleRow
	Open                     []openAlarm // longest first
	Incidents                incidentsView
	Silences                 []muting.Mute
	Now, Started             time.Time
	Others                   int // further replicas that this page is about
	Replicas                 []Snapshot
	About                    string // the device or sensor that the address names: lists are about it alone; empty if it names none
	State                    status.State
	Class                    string // of the state: good, warn, bad or idle
	Headline                 string
	Problems                 []problemRow
	Plots                    []plot
	Figures                  []figure
	Partitions               []partitionRow
	PartitionsOld            string // how old they are, if the store does not respond
	Receivers                []*receiverRow
	Several                  bool              // there are several receivers
	Alerts                   []pastDelivery    // the latest first
	Token                    bool              // devices can be looked up, and alerts silenced, with HTTP_ADMIN_TOKEN
	All                      bool              // lists have all their rows
	More                     map[string]string // links to all rows, by what a list has
}

// A problemRow is what is in the way of alerts. Since is zero if that is not known.
type problemRow struct {
	status.Problem
	Replicas []string // that have it
}

// A receiverRow is a receiver as all replicas see it.
type receiverRow struct {
	delivery.ReceiverState
	On []string // the replicas for which it is down
}

// A figure is a count of this replica since its start.
type figure struct {
	Name, Value string
	Class       string // bad: it needs attention; warn: somebody should look at it
	Help        string
	Detail      string // shown below the figures
}

type partitionRow struct {
	ID      string
	Owner   string
	OwnerID string
	Mine    bool
	Waiting string
	Lag     int64 // events that have not been read, or, if nobody says what is read, recorded; -1: not known

	last, read int64 // sequence numbers, of the hub's last event and of what is read, or recorded; -1: not known
}

// page gathers what the page shows, of all replicas. It waits a moment for services, and shows what they said last.
func (a *Admin) page(r *http.Request) page {
	now := a.now()
	others, _, _ := a.others.get()
	query := r.URL.Query()
	all := append([]Snapshot{a.snapshot(now)}, others...)
	m := merged(all)
	device := query.Get("device")
	if device != "" {
		device = m.only(device, query.Get("sensor"))
	}

	p := page{
		Source:  a.options.Source,
		Replica: a.options.Replica,
		Version: a.options.Version,
		Set:     &a.options.Rules,
		Others:  len(all) - 1,
		Now:     now,
		Started: a.options.Started,
		About:   strings.TrimSuffix(device+"/"+query.Get("sensor"), "/"),
		Figures: m.figures(now),
		Token:   a.options.Token != "",
		Plots:   m.plots(now),
		All:     query.Has("all"),
		More:    map[string]string{},
	}

	known, rows, old := a.partitionRows(r, all, now)
	p.headline(all, known, m.Counts[countDead])
	p.PartitionsOld = old
	p.Partitions = shorten(&p, "partitions", rows)
	p.Rules = shorten(&p, "rules", a.ruleRows(m.Alarms))
	p.Silences = shorten(&p, "silences", a.inForce(now))
	receivers := receiverRows(all)
	p.Several = len(receivers) > 1
	p.Receivers = shorten(&p, "receivers", receivers)
	p.Open = shorten(&p, "alarms", m.Open)
	p.Alerts = shorten(&p, "alerts", m.Alerts[:min(len(m.Alerts), maxAlerts)])
	p.Replicas = shorten(&p, "replicas", all)
	p.Incidents = a.incidentsView(r, &p)

	return p
}

// shorten returns the rows of a list of something that the page shows, and adds a link to all of them if it has more.
func shorten[T any](p *page, what string, list []T) []T {
	if p.All || len(list) <= listed {
		return list
	}

	p.More[what] = fmt.Sprintf("Show all %s %s", count(len(list)), what)

	return list[:listed]
}

// headline says on p whether alerts are going out: as the replica says that is worst off, or on which they are not, if
// they are on others. partitions are those of the hub, if they are known.
func (p *page) headline(all []Snapshot, partitions []telemetry.PartitionStatus, deadLetters int64) {
	severity := func(s Snapshot) int { return states[s.Status.State].severity }
	worst := slices.MaxFunc(all, func(x, y Snapshot) int { return severity(x) - severity(y) })
	atWork := 0 // the replicas that alerts depend on
	var hindered []string
	for _, s := range all {
		if severity(s) != notToBlame {
			atWork++
		}

		if severity(s) >= states[status.Partly].severity {
			hindered = append(hindered, shortName(s.Replica))
		}
	}

	p.State, p.Headline = worst.Status.State, worst.Status.Headline
	if len(hindered) > 0 && len(hindered) < atWork {
		p.State, p.Headline = status.Partly, "Some alerts aren't going out, on "+humanize.Some(hindered)+"."
	}

	for _, s := range all {
		for _, problem := range s.Status.Problems {
			// That some partitions have no devices is no news.
			if problem.By == status.ByDevices && p.State == status.GoingOut {
				continue
			}

			i := slices.IndexFunc(p.Problems, func(row problemRow) bool { return row.What == problem.What })
			if i < 0 {
				i, p.Problems = len(p.Problems), append(p.Problems, problemRow{Problem: problem})
			}
			p.Problems[i].Replicas = append(p.Problems[i].Replicas, shortName(s.Replica))
		}
	}

	if sentence := status.Unowned(partitions); sentence != "" {
		p.Problems = append(p.Problems, problemRow{Problem: status.Problem{
			What:   strings.TrimSuffix(sentence, "."),
			Effect: "The readings there wait in the hub. A moment of this is normal when replicas start or stop.",
		}})

		if n := states[p.State].severity; n != notToBlame && n < states[status.Partly].severity {
			p.State, p.Headline = status.Partly, "Some alerts aren't going out: "+strings.ToLower(sentence[:1])+sentence[1:]
		}
	}

	if deadLetters > 0 {
		p.Problems = append(p.Problems, problemRow{Problem: status.Problem{
			What:   "dead letters since the start: " + count(deadLetters),
			Effect: "The receiver did not accept what is in them: `alertworker deadletters list` says why.",
		}})
	}

	p.Class = states[p.State].class
	if p.Class == "good" && len(p.Problems) > 0 {
		p.Class = "warn"
	}
}

// receiverRows returns receivers as all replicas see them: one is down if it is for any.
func receiverRows(all []Snapshot) (rows []*receiverRow) {
	byName := map[string]*receiverRow{}
	for _, s := range all {
		for _, to := range s.Receivers {
			row := byName[to.Name]
			if row == nil {
				row = &receiverRow{ReceiverState: delivery.ReceiverState{Name: to.Name}}
				byName[to.Name], rows = row, append(rows, row)
			}

			row.Taken, row.Waiting = row.Taken+to.Taken, row.Waiting+to.Waiting
			if to.Down {
				row.Down, row.Fault, row.Retry = true, to.Fault, to.Retry
				row.On = append(row.On, shortName(s.Replica))
			}
		}
	}

	return rows
}

// notToBlame is the severity of a replica that starts, drains or stands by: alerts depend on others.
const notToBlame = 0

// states have a severity that is greater for what is worse, and a class in the style sheet.
var states = map[status.State]struct {
	severity int
	class    string
}{
	status.Starting: {notToBlame, "idle"},
	status.Standby:  {notToBlame, "idle"},
	status.Draining: {notToBlame, "idle"},
	status.Idle:     {1, "warn"}, // less than well: what matters is whether any replica gets events
	status.GoingOut: {2, "good"},
	status.Impaired: {3, "warn"},
	status.Partly:   {4, "bad"},
	status.Blocked:  {5, "bad"},
}

// figureKinds are the figures in their order: by key in Snapshot.Counts, with the class of one that is not 0.
var figureKinds = []struct{ key, name, class, help string }{
	{countReadings, "Readings", "", "messages with a reading"},
	{countOver, "Over a limit", "", "readings that reach a limit of any rule"},
	{countQuieted, "Muted", "", "readings over a limit without an alert, because of a mute or a silence"},
	{countUndecoded, "Not decoded", "warn", "telemetry without a usable reading, which can cause no alert"},
	{countUnreadable, "Unreadable devices", "warn", "devices of which nothing could be read for an hour or longer, although they send; without those that lack only the field"},
	{countUnavailable, "Store unavailable", "bad", "calls to the throttle store without a usable response; they are retried"},
	{countAmbiguous, "Ambiguous", "bad", "sends that may have delivered an alert for a second time; they have the same id as the first"},
	{countDead, "Dead letters", "bad", "alerts that will not be delivered to a receiver"},
}

// figures returns what s has counted.
func (s Snapshot) figures(now time.Time) (all []figure) {
	var undecoded, unreadable []string
	for _, reason := range slices.Sorted(maps.Keys(s.Undecoded)) {
		if n := s.Undecoded[reason]; n > 0 {
			undecoded = append(undecoded, count(n)+" "+reason)
		}
	}

	for _, d := range s.UnreadableNamed {
		unreadable = append(unreadable, fmt.Sprintf("%s (%s, for %s)", shortName(d.Device), d.Reason, humanize.Span(now.Sub(d.Since))))
	}

	details := map[string]string{countUndecoded: strings.Join(undecoded, ", "), countUnreadable: humanize.Some(unreadable)}
	for _, k := range figureKinds {
		f := figure{Name: k.name, Value: count(s.Counts[k.key]), Help: k.help, Detail: details[k.key]}
		if s.Counts[k.key] > 0 {
			f.Class = k.class
		}
		all = append(all, f)
	}

	return all
}

// partitionRows combines what the stores know with what replicas read, and returns the former too if it is new.
func (a *Admin) partitionRows(
	r *http.Request,
	snapshots []Snapshot,
	now time.Time,
) (known []telemetry.PartitionStatus, rows []partitionRow, old string) {
	all, at, err := a.partitions.get()

	if a.options.Partitions != nil {
		old = aged("The checkpoint store", at, now, err)
		if old == "" {
			known = all
		}
	}

	byID := map[string]*partitionRow{}
	for _, p := range all {
		byID[p.Partition] = &partitionRow{
			ID: p.Partition, Owner: randomPart.ReplaceAllString(p.Owner, "$1"), OwnerID: p.Owner, Mine: p.Mine, last: p.Last, read: p.Checkpoint,
		}
	}

	for i, s := range snapshots {
		for _, read := range s.Partitions {
			row, isMine := byID[read.ID], i == 0
			switch {
			case row == nil && isMine: // the store has not answered yet, or it is not the hub's
				row = &partitionRow{ID: read.ID, last: -1, read: -1}
				byID[read.ID] = row
			case row == nil, !isMine && row.Owner != s.Replica: // it was its owner
				continue
			}

			row.Owner, row.Mine, row.Waiting = s.Replica, isMine, read.Waiting
			row.read = max(row.read, read.Read)
		}
	}

	for _, row := range byID {
		row.Lag = -1
		if row.last >= 0 && row.read >= 0 {
			row.Lag = max(0, row.last-row.read)
		}
		rows = append(rows, *row)
	}

	slices.SortFunc(rows, func(x, y partitionRow) int { return telemetry.ComparePartitions(x.ID, y.ID) })

	return known, rows, old
}

// waiting describes what holds back a partition's checkpoint.
func waiting(s partition.State, now time.Time) string {
	var parts []string
	if l := s.Ledger; l.Err != nil {
		text := "cannot write its ledger, for "
		if l.Writes == 0 {
			text = "waits for its ledger, for "
		}
		parts = append(parts, text+humanize.Span(now.Sub(l.Since)))
	}

	if s.Unsettled > 0 {
		parts = append(
			parts,
			fmt.Sprintf("%s unsettled, the oldest for %s", count(s.Unsettled), humanize.Span(now.Sub(s.Oldest))),
		)
	}

	return strings.Join(parts, "; ")
}

// randomPart is that of an owner's id, behind a name, which people can do without.
var randomPart = regexp.MustCompile(`(.)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// count formats n, which is not negative, with commas.
func count[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}

	return s
}

// until formats the time until something that is d ahead.
func until(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	return "in " + humanize.Span(d)
}
