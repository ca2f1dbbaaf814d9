package deadletters_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/wording"
	"alertworker/internal/ops/deadletters"
	"alertworker/internal/records"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// kept returns a store of dead letters, and how many it has that were replayed.
func kept(t *testing.T) (*deadletter.Store, func() int) {
	store := deadletter.New(&records.Memory{}, zap.NewNop())
	return store, func() (n int) {
		for page, err := range store.List(t.Context(), deadletter.Replayed, time.Time{}) {
			if err != nil {
				t.Error(err)
			}
			n += len(page)
		}
		return n
	}
}

// letter is a dead letter with a.
func letter(a notify.Alert) deadletter.Letter {
	return deadletter.Letter{ID: deadletter.ID(notify.DeadLetter{Alert: a, Receiver: "r"}), Kind: deadletter.Undelivered, Receiver: "r", Alert: a}
}

// service takes one message every so often, and refuses what comes sooner.
type service struct {
	every             time.Duration
	down              bool
	last              time.Time
	messages, refused int
	alerts            map[string]int
	sent              notify.Alert // the last
}

func (s *service) Notify(_ context.Context, alerts ...notify.Alert) error {
	time.Sleep(100 * time.Millisecond)
	if s.down || !s.last.IsZero() && time.Since(s.last) < s.every {
		s.refused++
		return &notify.Error{Untaken: true, Limited: true, RetryAfter: 30 * time.Second, Status: 429, Err: errors.New("429")}
	}
	s.last = time.Now()
	s.messages++
	if len(alerts) > 1 && slices.ContainsFunc(alerts, func(a notify.Alert) bool { return a.Device == "device-77" }) {
		return &notify.Error{Untaken: true, Refused: true, Status: 400, Err: errors.New("400 device-77")}
	}
	for _, a := range alerts {
		s.alerts[a.Device]++
		s.sent = a
	}
	return nil
}

// A backlog of 5,000 is replayed to its end at the receiver's rate, known or not, and together where the receiver takes that.
func TestBacklog(t *testing.T) {
	slack := notify.Limits{Rate: notify.Rate{Every: time.Second}, Batch: 100}
	pages := 50
	if testing.Short() {
		pages = 10
	}
	letters := pages * 100
	for name, test := range map[string]struct {
		service service
		limits  notify.Limits
		want    int // delivered
		within  time.Duration
		refused int
	}{
		"together":     {service{every: time.Second}, slack, letters, 4 * time.Minute, 0},
		"mail":         {service{}, notify.Limits{People: true, Batch: 100}, letters, time.Minute, 0},
		"one by one":   {service{every: time.Second / 2}, notify.Limits{Rate: notify.Rate{Every: time.Second / 2}}, letters, time.Hour, 0},
		"unknown rate": {service{every: time.Second / 2}, notify.Limits{}, letters, 4 * time.Hour, 400},
		"down":         {service{down: true}, slack, 0, 5 * time.Minute, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.service
				store, replayed := kept(t)
				s.alerts = map[string]int{}
				to := receivers.Receiver{ID: "r", Name: "r", Limits: test.limits, Notifier: &s}
				r := &deadletters.Replay{
					Store: store, Receivers: []receivers.Receiver{to}, Leases: memlease.New(), Out: io.Discard,
					Config: config.Config{ThrottleWindow: 24 * time.Hour, NotifyTimeout: 10 * time.Second},
				}
				start := time.Now()
				for page := range pages {
					var sent []deadletter.Letter
					for n := range 100 {
						sent = append(sent, letter(notifytest.Alert(page*100+n)))
					}
					r.Send(t.Context(), sent)
				}
				took := time.Since(start)
				t.Logf("%d delivered in %v, in %d messages, %d refused", r.Delivered, took, s.messages, s.refused)
				if r.Delivered != test.want || r.Failed != letters-test.want || replayed() != test.want || took > test.within || s.refused > test.refused {
					t.Errorf("%d delivered, %d not, %d kept as replayed, in %v, %d refused", r.Delivered, r.Failed, replayed(), took, s.refused)
				}
				if test.limits.Batch > 1 && s.messages > 2*pages+100 { // one message was refused: each of its letters goes by itself
					t.Errorf("%d messages for %d pages", s.messages, pages)
				}
				for device, n := range s.alerts {
					if n != 1 {
						t.Errorf("%s was sent %d times", device, n)
					}
				}
			})
		})
	}
}

// A device may have been heard since the dead letter of its silence was written: it is not sent, its recovery is.
func TestSilences(t *testing.T) {
	for _, tt := range []struct {
		name  string
		alert notify.Alert
		sent  bool
	}{
		{"silent", notify.Alert{Silent: time.Minute}, false},
		{"heard again", notify.Alert{Silent: time.Minute, Resolved: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, leases := &service{alerts: map[string]int{}}, memlease.New()
				a := tt.alert
				a.ID, a.Device, a.Rule, a.Sequence, a.Log, a.Enqueued = "id", "oven", "offline", 8, "log", time.Now()
				gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: a.Rule, Silence: true, Window: time.Minute, SendTimeout: 10 * time.Second})
				taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
				if result, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: a.Device, ID: "first", Enqueued: time.Now(), Log: a.Log, Sequence: 7, Part: throttle.Silence}, taken); err != nil || result.Outcome != throttle.Sent {
					t.Fatal(result, err)
				}
				time.Sleep(time.Hour)
				store, _ := kept(t)
				for _, dry := range []bool{true, false} {
					r := &deadletters.Replay{
						Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Out: t.Output(), DryRun: dry,
						Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
					}
					r.Send(t.Context(), []deadletter.Letter{letter(a)})
					if r.Delivered == 1 != tt.sent || r.Failed == 1 == tt.sent || s.messages == 1 != (tt.sent && !dry) {
						t.Errorf("dry run %v: %d delivered, %d not, %d messages", dry, r.Delivered, r.Failed, s.messages)
					}
				}
			})
		})
	}
}

// An alert about an incident is sent while it runs, with its members of now, and its end once it is over: its record says
// so under the claim. The gate knows incidents, so that an end goes only to a receiver that was told.
func TestIncidents(t *testing.T) {
	const hub = "ns/hub/incidents/"
	for _, test := range []struct {
		name string
		then []int // members after the first
		told bool  // the receiver got the alert
		end  bool  // the letter is that of the end
		says string
		sent string // the message; empty: none is
	}{
		{"it runs", []int{30}, false, false, "delivered", "gw-12: 30 devices not heard for 15m, first meter-3, since 2000-01-01 00:00 UTC (offline)"},
		{"it is over", []int{0}, false, false, "the incident is over", ""},
		{"another one runs", []int{0, 1}, false, false, "the incident is over", ""},
		{"its end", []int{0}, true, true, "delivered", "gw-12: all devices heard again after 15 min (offline)"},
		{"its end, and another one runs", []int{0, 1}, true, true, "delivered", "gw-12: all devices heard again after 15 min (offline)"},
		{"its end, but nobody was told", []int{0}, false, true, "never got an alert", ""},
		{"its end, but it goes on", []int{30}, true, true, "the incident goes on", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				since := time.Now()
				book := &incident.Book{Store: &records.Memory{}, Prefix: "incidents/", IDs: hub}
				group := incident.Group{Rule: "offline", Silence: true, Per: "gateway", Value: "gw-12"}
				written := int64(0)
				write := func(members int) incident.Result {
					written++
					result, err := book.Sync(t.Context(), group, "3", incident.Entry{Members: members, First: "meter-3", Position: incident.Position{Sequence: written}})
					if err != nil {
						t.Fatal(err)
					}
					return result
				}
				id := write(1).Incident
				a := notify.Alert{
					ID: id, Device: "meter-3", Rule: "offline", Silent: 15 * time.Minute, Since: since, LastHeard: since, Enqueued: since.Add(15 * time.Minute),
					Per: "gateway", PerValue: "gw-12", Incident: &notify.Incident{ID: id, Began: since, Members: 1, First: "meter-3"},
				}
				s, leases := &service{alerts: map[string]int{}}, memlease.New()
				if test.told {
					gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: a.Rule, Per: a.Per, Silence: true, Window: time.Minute, SendTimeout: 10 * time.Second})
					taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
					if result, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: "gw-12", ID: id, Incident: id, Enqueued: since}, taken); err != nil || result.Outcome != throttle.Sent {
						t.Fatal(result, err)
					}
				}
				for i, members := range test.then {
					if i > 0 {
						if err := book.Close(t.Context(), group, incident.End{Incident: id, Overs: 1}); err != nil {
							t.Fatal(err)
						}
					}
					write(members)
				}
				if test.end {
					a.ID, a.Resolved, a.Incident = id+"/resolved", true, &notify.Incident{ID: id, Began: since}
				}
				time.Sleep(time.Hour)
				write(test.then[len(test.then)-1])

				store, _ := kept(t)
				for _, dry := range []bool{true, false} {
					var out bytes.Buffer
					r := &deadletters.Replay{
						Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Incidents: book, Out: &out, DryRun: dry,
						Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
					}
					r.Send(t.Context(), []deadletter.Letter{letter(a)})
					if says := strings.Contains(out.String(), test.says); r.Delivered == 1 != (test.sent != "") || !says && !dry || s.messages == 1 != (test.sent != "" && !dry) {
						t.Errorf("dry run %v: %d messages, it says %s", dry, s.messages, out.String())
					}
				}
				if got := (wording.Style{}).Message(s.sent); test.sent != "" && got != test.sent {
					t.Errorf("got %q, want %q", got, test.sent)
				}
			})
		})
	}
}

// An alert and its end that were given up after many attempts without an answer are both sent again, the end under an id
// that the receiver cannot have dropped since.
func TestIncidentWhoseFateIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		book := &incident.Book{Store: &records.Memory{}, Prefix: "incidents/", IDs: "ns/hub/incidents/"}
		group := incident.Group{Rule: "offline", Silence: true, Per: "gateway", Value: "gw-12"}
		written := int64(0)
		write := func(members int) string {
			written++
			result, err := book.Sync(t.Context(), group, "3", incident.Entry{Members: members, Position: incident.Position{Sequence: written}})
			if err != nil {
				t.Fatal(err)
			}
			return result.Incident
		}
		id := write(1)
		s, leases := &service{alerts: map[string]int{}}, memlease.New()
		a := notify.Alert{
			Device: "meter-3", Rule: "offline", Silent: limit, Per: "gateway", PerValue: "gw-12", Incident: &notify.Incident{ID: id, Members: 1},
		}
		gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: a.Rule, Per: a.Per, Silence: true, Window: limit, SendTimeout: 10 * time.Second})
		giveUp := func(a notify.Alert) notify.Alert {
			r := throttle.Request{Device: "gw-12", Incident: id, Recovery: a.Resolved}
			noAnswer := func(_ context.Context, g throttle.Grant) throttle.Answer { a.ID = g.ID; return throttle.Unknown }
			if result, err := throttletest.Do(t.Context(), gate, r, noAnswer); err != nil || result.Outcome != throttle.Failed {
				t.Fatal(result, err)
			}
			return a
		}
		store, _ := kept(t)
		replay := func(a notify.Alert) notify.Alert {
			var out bytes.Buffer
			r := &deadletters.Replay{
				Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Incidents: book, Out: &out,
				Config: config.Config{ThrottleWindow: limit, NotifyTimeout: 10 * time.Second},
			}
			r.Send(t.Context(), []deadletter.Letter{letter(a)})
			if r.Delivered != 1 {
				t.Fatal(out.String())
			}
			return s.sent
		}

		alert := giveUp(a)
		time.Sleep(time.Hour)
		write(0)
		a.Resolved = true
		end := giveUp(a)
		time.Sleep(time.Hour)
		write(1)
		replay(alert)
		write(0)
		time.Sleep(time.Hour)
		if got := replay(end); !got.Resolved || got.ID == end.ID {
			t.Errorf("the end has the id %q, which may have been taken before the alert", got.ID)
		}
	})
}

// What bars a letter from being sent is asked of each letter of a message for many, not of its first.
func TestEachLetterOfAMessage(t *testing.T) {
	hot := notify.Alert{ID: "hot", Device: "kiln", Rule: "temperature", Temperature: 99, Sequence: 7, Log: "log"}
	other := notify.Alert{ID: "other", Device: "oven", Rule: "temperature", Temperature: 99, Sequence: 8, Log: "log"}
	silent := notify.Alert{ID: "silent", Device: "oven", Rule: "offline", Silent: time.Minute, Sequence: 8, Log: "log"}
	of := func(receiver string, a notify.Alert) deadletter.Letter {
		return deadletter.Letter{ID: deadletter.ID(notify.DeadLetter{Alert: a, Receiver: receiver}), Kind: deadletter.Undelivered, Receiver: receiver, Alert: a}
	}
	broken := of("r", other)
	broken.Broken = errors.New("cannot be read")
	for name, test := range map[string]struct {
		letters  []deadletter.Letter
		to       bool // all go to the receiver r
		messages int
		says     string // of the one letter that is not sent
	}{
		"a silence":                        {[]deadletter.Letter{of("r", hot), of("r", silent)}, false, 1, "the device may have been heard since"},
		"broken":                           {[]deadletter.Letter{of("r", hot), broken}, false, 1, "cannot be read"},
		"of a receiver that is gone":       {[]deadletter.Letter{of("r", hot), of("gone", other)}, false, 1, "use --to"},
		"one alarm of two receivers, --to": {[]deadletter.Letter{of("a", hot), of("b", hot)}, true, 1, "within THROTTLE_WINDOW"},
	} {
		for _, batch := range []int{0, 100} {
			for _, dry := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d in a message, dry run %t", name, batch, dry), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := &service{alerts: map[string]int{}}
						store, _ := kept(t)
						var out bytes.Buffer
						to := receivers.Receiver{ID: "r", Name: "r", Notifier: s, Limits: notify.Limits{Batch: batch}}
						r := &deadletters.Replay{
							Store: store, Receivers: []receivers.Receiver{to}, Leases: memlease.New(), Out: &out, DryRun: dry,
							Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
						}
						if test.to {
							r.To = to.ID
						}
						r.Send(t.Context(), test.letters)
						if r.Delivered != 1 || r.Failed != 1 || !dry && s.messages != test.messages || !strings.Contains(out.String(), test.says) {
							t.Errorf("%d delivered, %d not, in %d messages:\n%s", r.Delivered, r.Failed, s.messages, out.String())
						}
					})
				})
			}
		}
	}
}

// A letter is sent under a new claim. It does not say that its recovery follows: the alarm may have ended long ago.
func TestWhatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{alerts: map[string]int{}}
		store, _ := kept(t)
		a := notifytest.Sustained()
		a.WillResolve, a.Token, a.To = true, 1, "bob@example.com"
		r := &deadletters.Replay{
			Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: memlease.New(), Out: t.Output(),
			Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
		}
		r.Send(t.Context(), []deadletter.Letter{letter(a)})
		got := s.sent
		if got.ID != a.ID || got.Temperature != a.Temperature || got.To != a.To || got.WillResolve || got.Expires.Before(time.Now()) || got.Sent.IsZero() || got.Window != time.Minute {
			t.Errorf("sent %+v of %+v", got, a)
		}
	})
}

// meanwhile is a throttle store in which something happens before a key is taken.
type meanwhile struct {
	lease.Store
	once sync.Once
	do   func()
}

func (m *meanwhile) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	m.once.Do(m.do)
	return m.Store.Acquire(ctx, key, ttl, next)
}

// A letter is not sent under the id of an alert that a worker has just sent, which may have been delivered: a receiver
// that knows the id would drop it.
func TestAlertOfUnknownFateMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := notifytest.Alert(1)
		leases := memlease.New()
		store := &meanwhile{Store: leases, do: func() {
			gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: a.Rule, Level: a.Level, Window: time.Minute, SendTimeout: 10 * time.Second})
			unknown := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Unknown }
			if _, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: a.Device, ID: "worker's", Enqueued: time.Now()}, unknown); err != nil {
				t.Error(err)
			}
		}}
		s := &service{alerts: map[string]int{}}
		letters, replayed := kept(t)
		var out bytes.Buffer
		r := &deadletters.Replay{
			Store: letters, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: store, Out: &out,
			Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
		}
		r.Send(t.Context(), []deadletter.Letter{letter(a)})
		if s.messages != 0 || replayed() != 0 || r.Failed != 1 || !strings.Contains(out.String(), "it is not known whether another alert") {
			t.Errorf("%d messages, %d replayed:\n%s", s.messages, replayed(), out.String())
		}
	})
}

// An alert of a device with too many sensors has the device's window, although it names its sensor: the letter asks for
// that one, and one of a sensor with an alarm for its own.
func TestWindowOfLetter(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		sent   int
	}{
		"of a crowded device":        {"/ns/hub/hot", 0},
		"of a sensor":                {"/ns/hub/hot/~return%2F1", 1},
		"of a rule called like that": {"/ns/hub/~return", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, leases := &service{alerts: map[string]int{}}, memlease.New()
				gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: "hot", Window: time.Minute, SendTimeout: 10 * time.Second})
				taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
				if _, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: "gw-12", ID: "worker's", Enqueued: time.Now()}, taken); err != nil {
					t.Fatal(err)
				}
				store, _ := kept(t)
				r := &deadletters.Replay{
					Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Out: t.Output(),
					Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
				}
				a := notify.Alert{ID: "a", Source: test.source, Device: "gw-12", Sensor: "return/1", Rule: "hot", Enqueued: time.Now()}
				r.Send(t.Context(), []deadletter.Letter{letter(a)})
				if s.messages != test.sent {
					t.Errorf("%d messages, want %d, while the window of the device is in force", s.messages, test.sent)
				}
			})
		})
	}
}

// unreadable is a throttle store that does not answer.
type unreadable struct {
	lease.Store
	calls int
}

func (u *unreadable) Read(context.Context, string) (lease.Record, error) {
	u.calls++
	return lease.Record{}, errors.New("no answer")
}

// A throttle store that does not answer is not asked about every letter.
func TestStoreIsDown(t *testing.T) {
	s, leases := &service{alerts: map[string]int{}}, &unreadable{Store: memlease.New()}
	store, _ := kept(t)
	r := &deadletters.Replay{
		Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Out: t.Output(),
		Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
	}
	var all []deadletter.Letter
	for n := range 10 {
		all = append(all, letter(notifytest.Alert(n)))
	}
	r.Send(t.Context(), all)
	if leases.calls != 3 || r.Failed != 10 || s.messages != 0 {
		t.Errorf("%d calls, %d not delivered, %d messages", leases.calls, r.Failed, s.messages)
	}
}

// some takes alerts for some of its recipients.
type some struct {
	refuses bool // for good
	to      []string
}

func (s *some) Notify(_ context.Context, alerts ...notify.Alert) error {
	s.to = append(s.to, alerts[0].To)
	if alerts[0].To == "" {
		return &notify.Error{Left: "bob@example.com", Refused: s.refuses, Err: errors.New("450 bob")}
	}
	return nil
}

// A replay that some recipients got leaves a dead letter for the others, which is sent to them alone.
func TestReplayToSomeRecipients(t *testing.T) {
	t.Run("at first", func(t *testing.T) { replayToSome(t, &some{}, "but not to bob@example.com") })
	t.Run("for good", func(t *testing.T) { replayToSome(t, &some{refuses: true}, "delivered") })
}

func replayToSome(t *testing.T, s *some, says string) {
	synctest.Test(t, func(t *testing.T) {
		store, replayed := kept(t)
		if err := store.Keep(t.Context(), notify.DeadLetter{Alert: notifytest.Alert(1), Receiver: "r", Name: "r", Reason: "down"}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := &deadletters.Replay{
			Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: memlease.New(), Out: &out,
			Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
		}
		for range 2 {
			for page, err := range store.List(t.Context(), deadletter.Undelivered, time.Time{}) {
				if err != nil {
					t.Fatal(err)
				}
				r.Send(t.Context(), page)
			}
			time.Sleep(2 * time.Minute)
		}
		if r.Delivered != 2 || r.Failed != 0 || replayed() != 2 || !slices.Equal(s.to, []string{"", "bob@example.com"}) || !strings.Contains(out.String(), says) {
			t.Errorf("%d delivered, %d not, %d kept as replayed, sent to %q:\n%s", r.Delivered, r.Failed, replayed(), s.to, out.String())
		}
	})
}
