package verify_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/lab/verify"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a moment, in seconds from the start.
func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func hot(device string, seconds float64) verify.Reading {
	return verify.Reading{Device: device, Temperature: 41, Over: true, At: at(seconds), Partition: "0", Sequence: int64(seconds * 1000)}
}

func cool(device string, seconds float64) verify.Reading {
	return verify.Reading{Device: device, Temperature: 20, At: at(seconds)}
}

func alert(device, id string, token int64, seconds float64) verify.Delivery {
	return verify.Delivery{Device: device, ID: id, Token: token, At: at(seconds)}
}

func until(remembered float64, d verify.Delivery) verify.Delivery {
	d.Until = at(remembered)
	return d
}

func via(receiver string, d verify.Delivery) verify.Delivery {
	d.Receiver = receiver
	return d
}

// rules of the tables: windows of 10 s that may last 11, alerts within 5 s.
var rules = verify.Rules{Window: 10 * time.Second, Bound: 5 * time.Second, Slack: time.Second}

// counts is a Report without its evidence.
type counts struct{ readings, over, alerts, dropped, suppressed, open, lost, tooClose int }

func countsOf(r verify.Report) counts {
	return counts{r.Readings, r.Over, r.Alerts, r.Dropped, r.Suppressed, r.Open, len(r.Lost), len(r.TooClose)}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name  string
		rules func(*verify.Rules)
		log   []any
		want  counts
	}{
		{name: "nothing happened"},
		{
			name: "only cool readings",
			log:  []any{cool("a", 0), cool("a", 1)},
			want: counts{readings: 2},
		},
		{
			name: "one alert covers its window",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0.2), hot("a", 5), hot("a", 10), cool("a", 11)},
			want: counts{readings: 4, over: 3, alerts: 1, suppressed: 2},
		},
		{
			name: "nobody was notified of anything",
			log:  []any{hot("a", 0), hot("b", 0)},
			want: counts{readings: 2, over: 2, lost: 2},
		},
		{
			name: "the alert of another device is no help",
			log:  []any{hot("a", 0), hot("A", 0), alert("A", "0", 1, 0)},
			want: counts{readings: 2, over: 2, alerts: 1, lost: 1},
		},
		{
			name: "the alert is as late as it may be",
			log:  []any{hot("a", 0), alert("a", "0", 1, 5)},
			want: counts{readings: 1, over: 1, alerts: 1},
		},
		{
			name: "the alert is late",
			log:  []any{hot("a", 0), alert("a", "0", 1, 5.001)},
			want: counts{readings: 1, over: 1, alerts: 1, lost: 1},
		},
		{
			name: "the window is as long as it may be",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), hot("a", 11)},
			want: counts{readings: 2, over: 2, alerts: 1, suppressed: 1},
		},
		{
			name: "suppressed after the window",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), hot("a", 11.001)},
			want: counts{readings: 2, over: 2, alerts: 1, lost: 1},
		},
		{
			name: "alerts one window apart",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), hot("a", 10), alert("a", "1", 2, 10)},
			want: counts{readings: 2, over: 2, alerts: 2},
		},
		{
			name: "alerts too close",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), hot("a", 9), alert("a", "1", 2, 9.999)},
			want: counts{readings: 2, over: 2, alerts: 2, tooClose: 1},
		},
		{
			name: "a repeated id is dropped and begins the window anew",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), alert("a", "0", 2, 8), hot("a", 18)},
			want: counts{readings: 2, over: 2, alerts: 1, dropped: 1, suppressed: 1},
		},
		{
			name: "a repeated id is forgotten after the window",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), alert("a", "0", 2, 10)},
			want: counts{readings: 1, over: 1, alerts: 2},
		},
		{
			name: "an empty id is nobody's",
			log:  []any{hot("a", 0), alert("a", "", 1, 0), alert("a", "", 1, 1)},
			want: counts{readings: 1, over: 1, alerts: 2, tooClose: 1},
		},
		{
			name: "a smaller token is dropped",
			log:  []any{hot("a", 0), hot("a", 1), alert("a", "1", 2, 3), alert("a", "0", 1, 4)},
			want: counts{readings: 2, over: 2, alerts: 1, dropped: 1, suppressed: 1},
		},
		{
			name: "a smaller token begins no window",
			log:  []any{hot("a", 0), hot("a", 1), alert("a", "1", 2, 3), alert("a", "0", 1, 4), hot("a", 14.5)},
			want: counts{readings: 3, over: 3, alerts: 1, dropped: 1, suppressed: 1, lost: 1},
		},
		{
			name: "a smaller token than that of a repetition is dropped",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), alert("a", "0", 3, 8), alert("a", "1", 2, 12)},
			want: counts{readings: 1, over: 1, alerts: 1, dropped: 2},
		},
		{
			name: "tokens are remembered while a claim may last, ids for the window",
			log: []any{
				hot("a", 0), until(20, alert("a", "0", 2, 0)), until(15, alert("a", "0", 3, 9)), alert("a", "1", 1, 19.5),
				alert("a", "0", 3, 19.6), alert("a", "2", 2, 29.7),
			},
			want: counts{readings: 1, over: 1, alerts: 3, dropped: 2},
		},
		{
			name: "a greater token is forgotten after the window",
			log:  []any{hot("a", 0), alert("a", "1", 2, 3), alert("a", "0", 1, 13)},
			want: counts{readings: 1, over: 1, alerts: 2},
		},
		{
			name: "an equal token under another id is kept",
			log:  []any{hot("a", 0), alert("a", "0", 1, 0), alert("a", "1", 1, 1)},
			want: counts{readings: 1, over: 1, alerts: 2, tooClose: 1},
		},
		{
			name: "twenty alerts of one batch",
			log: func() (log []any) {
				for i := range 20 {
					log = append(log, hot("a", float64(i)/100), alert("a", fmt.Sprint(i), int64(i), 0.2+float64(i)/100))
				}
				return log
			}(),
			want: counts{readings: 20, over: 20, alerts: 20, tooClose: 19},
		},
		{
			name:  "too near the end to be judged",
			rules: func(r *verify.Rules) { r.Until = at(100) },
			log:   []any{hot("a", 95), hot("b", 95.001), hot("c", 99), alert("c", "c", 1, 99.5)},
			want:  counts{readings: 3, over: 3, alerts: 1, open: 1, lost: 1},
		},
		{
			name: "receivers are judged each on its own",
			log: []any{
				hot("a", 0), via("chat", alert("a", "0", 1, 0)), via("mail", alert("a", "0", 1, 1)),
				hot("b", 0), via("mail", alert("b", "1", 1, 1)),
			},
			want: counts{readings: 2, over: 2, alerts: 3, lost: 1},
		},
		{
			name:  "a receiver that never got anything",
			rules: func(r *verify.Rules) { r.Receivers = []string{"chat", "mail"} },
			log:   []any{hot("a", 0), via("chat", alert("a", "0", 1, 0))},
			want:  counts{readings: 1, over: 1, alerts: 1, lost: 1},
		},
		{
			name: "alerts out of the blue can be too close as well",
			log:  []any{alert("a", "0", 1, 0), alert("a", "1", 2, 1)},
			want: counts{alerts: 2, tooClose: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rules
			if tt.rules != nil {
				tt.rules(&r)
			}
			for range 5 { // any order of the records
				rand.Shuffle(len(tt.log), func(i, j int) { tt.log[i], tt.log[j] = tt.log[j], tt.log[i] })
				report := record(tt.log).Check(r)
				if got := countsOf(report); got != tt.want {
					t.Fatalf("\n got %+v\nwant %+v", got, tt.want)
				}
				if got, want := report.OK(), tt.want.lost == 0 && tt.want.tooClose == 0; got != want {
					t.Fatalf("OK() = %v, want %v", got, want)
				}
			}
		})
	}
}

func record(records []any) *verify.Log {
	return recordTo(verify.NewLog(), records)
}

func recordTo(log *verify.Log, records []any) *verify.Log {
	for _, r := range records {
		switch r := r.(type) {
		case verify.Reading:
			log.Published(r)
		case verify.Delivery:
			log.Delivered(r)
		}
	}
	return log
}

func TestEvidence(t *testing.T) {
	report := record([]any{
		via("chat", alert("oven#1", "hub/0/1", 1, 0)),
		hot("oven#1", 20),
		via("chat", alert("oven#1", "hub/0/2", 2, 26)),
		via("chat", alert("oven#1", "hub/0/3", 3, 27.5)),
		hot("press-07", 1),
	}).Check(rules)
	rule := verify.Rule{Name: "temperature", Levels: []verify.Level{{Limit: 30, Clear: 28}}, Window: rules.Window, Resolved: true}
	kiln := verify.Delivery{Receiver: "chat", Device: "kiln", Rule: "temperature", ID: "hub/0/4", Token: 4, At: at(1), Partition: "0", Sequence: 100}
	end := cool("kiln", 2)
	end.Partition, end.Sequence = "0", 200
	untrue := recordTo(verify.NewLog(rule), []any{verify.Reading{Device: "kiln", Temperature: 41, At: at(1), Partition: "0", Sequence: 100}, end, kiln,
		verify.Delivery{Receiver: "chat", Device: "press", Rule: "temperature", ID: "hub/0/5", Token: 5, At: at(3), Partition: "0", Sequence: 300, Recovery: true}}).Check(rules)
	var got strings.Builder
	for _, v := range slices.Concat(report.Lost, report.TooClose, untrue.Stale, untrue.Wrong) {
		fmt.Fprintln(&got, v)
	}
	want := `"oven#1" was at 41 at 12:00:20.000 (partition 0, sequence 20000), and "chat" was not notified: last alert 20s before (id hub/0/1), next 6s after (id hub/0/2)
"press-07" was at 41 at 12:00:01.000 (partition 0, sequence 1000), and "chat" was not notified: no alert before, none after
"oven#1" had two alerts 1.5s apart at "chat": id hub/0/2 token 2 at 12:00:26.000, id hub/0/3 token 3 at 12:00:27.500
the alarm of "kiln" temperature is over since 12:00:02.000 (partition 0, sequence 200), and the last that "chat" got is an alert at 12:00:01.000 (id hub/0/4)
"chat" got a recovery of "press" temperature that is wrong: its reading ended no alarm (id hub/0/5, token 5, at 12:00:03.000, partition 0, sequence 300)
"chat" got a recovery of "press" temperature that is wrong: there was no alert before it (id hub/0/5, token 5, at 12:00:03.000, partition 0, sequence 300)
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
}

// history draws records in which everything collides: few devices, ids, tokens
// and receivers, and times on a coarse grid around the rules' bounds.
func history(t *rapid.T) []any {
	device := rapid.SampledFrom([]string{"a", "b"})
	receiver := rapid.SampledFrom([]string{"", "chat"})
	seconds := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 120).Draw(t, "quarters")) / 4 })
	reading := rapid.Custom(func(t *rapid.T) any {
		r := hot(device.Draw(t, "device"), seconds.Draw(t, "at"))
		r.Over = rapid.IntRange(0, 4).Draw(t, "over") > 0
		r.Sequence = int64(rapid.IntRange(0, 3).Draw(t, "sequence"))
		return r
	})
	delivery := rapid.Custom(func(t *rapid.T) any {
		id := rapid.SampledFrom([]string{"", "0", "1", "2", "3", "4"}).Draw(t, "id")
		token := int64(rapid.IntRange(0, 5).Draw(t, "token"))
		d := via(receiver.Draw(t, "receiver"), alert(device.Draw(t, "device"), id, token, seconds.Draw(t, "at")))
		if rapid.IntRange(0, 3).Draw(t, "until") == 0 {
			d.Until = d.At.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "remembered")) * time.Second)
		}
		return d
	})
	return rapid.SliceOfN(rapid.OneOf(reading, delivery), 0, 40).Draw(t, "records")
}

// reference judges by the letter of the definitions, each over all pairs.
func reference(records []any, rules verify.Rules) counts {
	var c counts
	var over []verify.Reading
	var deliveries []verify.Delivery
	receivers := slices.Clone(rules.Receivers)
	devices := map[string]bool{}
	for _, r := range records {
		switch r := r.(type) {
		case verify.Reading:
			c.readings++
			if r.Over {
				over = append(over, r)
				devices[r.Device] = true
			}
		case verify.Delivery:
			deliveries = append(deliveries, r)
			receivers = append(receivers, r.Receiver)
			devices[r.Device] = true
		}
	}
	c.over = len(over)
	if len(receivers) == 0 {
		receivers = []string{""}
	}
	slices.Sort(receivers)
	slices.SortStableFunc(deliveries, func(a, b verify.Delivery) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID), a.Until.Compare(b.Until))
	})

	for _, receiver := range slices.Compact(receivers) {
		for device := range devices {
			type remembered struct {
				verify.Delivery
				until time.Time
			}
			var kept, counting []verify.Delivery
			var known []remembered
			for _, d := range deliveries {
				if d.Receiver != receiver || d.Device != device {
					continue
				}
				repeated, outdated := false, false
				for _, k := range kept {
					repeated = repeated || d.At.Sub(k.At) < rules.Window && k.ID == d.ID && d.ID != ""
				}
				greatest, until := int64(-1), d.At.Add(rules.Window)
				if d.Until.After(until) {
					until = d.Until
				}
				for _, k := range known {
					if d.At.Before(k.until) {
						greatest = max(greatest, k.Token)
						if k.until.After(until) {
							until = k.until
						}
					}
				}
				outdated = greatest > d.Token
				if !outdated {
					counting = append(counting, d)
				}
				if !outdated && (!repeated || d.Token > greatest) {
					known = append(known, remembered{d, until})
				}
				if repeated || outdated {
					c.dropped++
					continue
				}
				if n := len(kept); n > 0 && d.At.Sub(kept[n-1].At) < rules.Window {
					c.tooClose++
				}
				kept = append(kept, d)
			}
			c.alerts += len(kept)

			last := 0
			for _, r := range over {
				if r.Device != device {
					continue
				}
				from, to := r.At.Add(-rules.Window-rules.Slack), r.At.Add(rules.Bound)
				switch {
				case slices.ContainsFunc(counting, func(d verify.Delivery) bool { return !d.At.Before(from) && !d.At.After(to) }):
					last++
				case !rules.Until.IsZero() && to.After(rules.Until):
					c.open++
				default:
					c.lost++
				}
			}
			ids := map[string]bool{}
			for i, k := range kept {
				ids[cmp.Or(k.ID, fmt.Sprint("nameless ", i))] = true
			}
			c.suppressed += max(0, last-len(ids))
		}
	}
	return c
}

func TestCheckAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := history(t)
		r := rules
		if rapid.Bool().Draw(t, "until") {
			r.Until = at(28)
		}
		if rapid.Bool().Draw(t, "mail") {
			r.Receivers = []string{"mail"}
		}
		report := record(records).Check(r)
		if got, want := countsOf(report), reference(records, r); got != want {
			t.Fatalf("\n got %+v\nwant %+v", got, want)
		}

		shuffled := rapid.Permutation(records).Draw(t, "shuffled")
		again := record(shuffled).Check(r)
		if fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", report) {
			t.Fatalf("another order of the records gives\n%+v\nand not\n%+v", again, report)
		}
	})
}

func TestCheckWhileRecording(t *testing.T) {
	log := verify.NewLog()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			log.Published(hot("a", float64(i)))
			log.Delivered(alert("a", fmt.Sprint(i), int64(i), float64(i)))
		}
	}()
	for range 20 {
		log.Check(rules)
	}
	<-done
	if got, want := countsOf(log.Check(rules)), (counts{readings: 1000, over: 1000, alerts: 1000, tooClose: 999}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
