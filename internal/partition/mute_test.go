package partition_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// While alerts are silenced alarms open and clear, recoveries are sent, and alerts are not; a device that is still hot
// afterwards alerts with its next reading.
func TestSilencedAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		start := time.Now()
		mute := rules.Mutes{{Device: "ov*", From: start.Add(45 * time.Second), Until: start.Add(215 * time.Second)}}
		s.config.Mutes = func() rules.Mutes { return mute }
		s.start(p)
		const hot, cool = threshold + 5, threshold - 10
		for _, value := range []float64{hot, cool, hot, hot, cool, hot, hot} { // every 50 s; those from the second to the fifth are silenced
			p.publish("oven", value)
			p.publish("kiln", value)
			pass(50 * time.Second)
		}
		pass(time.Hour)
		s.end()
		if got, want := r.notified("oven"), "alert 1, recovery 3, alert 11"; got != want {
			t.Errorf("of the silenced device: %s; want %s", got, want)
		}
		if n := s.stats.Quieted.Load(); n != 2 {
			t.Errorf("%d readings were silenced, want 2", n)
		}
		if got, want := r.notified("kiln"), "alert 2, recovery 4, alert 6, recovery 10, alert 12"; got != want {
			t.Errorf("of the other: %s; want %s", got, want)
		}
	})
}

// Who has not heard of a recovery, because the alarm opened again, hears of the next one, also if nobody is told of that alarm.
func TestRecoveryAfterAMutedAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		var mute rules.Mutes
		s.config.Mutes = func() rules.Mutes { return mute }
		s.start(p)
		pass(2 * time.Minute) // else everybody may have been alerted by the owner before
		mute = rules.Mutes{{Device: "oven", From: time.Now().Add(15 * time.Second), Until: time.Now().Add(time.Hour)}}
		p.feed("oven", 10*time.Second, threshold+5, threshold-10, threshold+5, threshold-10)
		pass(5 * time.Minute)
		s.end()
		if got, want := r.notified("oven"), "alert 1, recovery 4"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
	})
}

// What is still open when a mute ends alerts then, whatever its readings: also a milder level whose higher one has cleared
// meanwhile, and a device that says by itself that it is quiet.
func TestStillOpenWhenAMuteEnds(t *testing.T) {
	const hot, warm, critical = threshold + 5, threshold - 2, threshold + 60
	for _, tt := range []struct {
		name         string
		first, later float64
		want         string
	}{
		{"over the limit", hot, hot, "warning alert 6"},
		{"between clear and limit", hot, warm, "warning alert 6"},
		{"a higher level has cleared, over the limit", critical, hot, "warning alert 6"},
		{"a higher level has cleared, between clear and limit", critical, warm, "warning alert 6"},
	} {
		for _, quiet := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", quiet ", quiet), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, r := newPartition("0"), &receiver{}
					s := with(t, mildAndCritical, r)
					until := time.Now().Add(5 * time.Minute)
					s.config.Mutes = func() rules.Mutes { return rules.Mutes{{Until: until}} }
					if quiet {
						s.config.Mutes = nil
						s.config.Rules.Mutes = rules.Mutes{{UntilAt: "quiet"}}
					}
					s.start(p)
					for i := range 30 {
						value := tt.later
						if i == 0 {
							value = tt.first
						}
						p.publishProperties("oven", fmt.Sprintf(`{"temperature":%v}`, value), map[string]any{"quiet": until.Format(time.RFC3339)})
						pass(time.Minute)
					}
					s.end()
					if got := r.notified("oven"); got != tt.want {
						t.Errorf("notified of %s, want %s", got, tt.want)
					}
				})
			})
		}
	}
}

// mildAndCritical gives a rule two levels. It sends an open alarm once.
func mildAndCritical(r *rules.Rule) {
	r.Repeat = rules.Never
	r.Levels = []rules.Level{
		{Name: "warning", Limit: threshold, Clear: threshold - 5},
		{Name: "critical", Limit: threshold + 50, Clear: threshold + 50},
	}
}

// A higher level clears while alerts are muted. The milder one is sent when that is over.
func TestHigherLevelClearsWhileMuted(t *testing.T) {
	for _, mild := range []float64{threshold + 2, threshold - 2} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := with(t, mildAndCritical, r)
			from := time.Now().Add(30 * time.Second)
			s.config.Mutes = func() rules.Mutes { return rules.Mutes{{Device: "oven", From: from, Until: from.Add(5 * time.Minute)}} }
			s.start(p)
			p.publish("oven", threshold+60)
			pass(2 * time.Minute)
			for range 20 {
				p.publish("oven", mild)
				pass(time.Minute)
			}
			s.end()
			if got, want := r.notified("oven"), "critical alert 1, critical recovery 2, warning alert 6"; got != want {
				t.Errorf("%v: notified of %s, want %s", mild, got, want)
			}
		})
	}
}

// A device that falls silent while its alerts are silenced is reported when that is over.
func TestSilencedAlertsOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		start := time.Now()
		mute := rules.Mutes{{Device: "oven", Rule: "offline", From: start, Until: start.Add(100 * time.Minute)}}
		s.config.Mutes = func() rules.Mutes { return mute }
		s.start(p)
		p.publishBody("oven", "{}")
		p.publishBody("kiln", "{}")
		for range 99 {
			p.publishBody("other", "{}")
			pass(time.Minute)
		}
		if got := r.notified("oven") + r.notified("kiln"); got != "alert 2" {
			t.Errorf("while it is silenced: %s; want only the alert of the other device", got)
		}
		for range 5 {
			p.publishBody("other", "{}")
			pass(time.Minute)
		}
		if got := r.notified("oven"); got != "alert 1" {
			t.Errorf("after it: %s", got)
		}
		s.end()
	})
}

// A mute time of the rules mutes as a silence does, over midnight, and what is still open when it ends alerts then.
func TestMuteTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		midnight := time.FixedZone("two minutes to midnight", -120)
		night := &rules.Times{Days: [7]bool{time.Friday: true}, From: 23*60 + 59, To: 4, Zone: midnight} // from 1 to 6 min
		s.config.Rules.Mutes = rules.Mutes{{Device: "ov*", Times: night}}
		s.start(p)
		const hot, cool = threshold + 5, threshold - 10
		for _, value := range []float64{hot, cool, hot, hot, cool, hot, hot} { // each minute; those from 1 to 5 are muted
			p.publish("oven", value)
			p.publish("kiln", value)
			pass(time.Minute)
		}
		pass(time.Hour)
		s.end()
		if got, want := r.notified("oven"), "alert 1, recovery 3, alert 13"; got != want {
			t.Errorf("of the muted device: %s; want %s", got, want)
		}
		if n := s.stats.Quieted.Load(); n != 3 {
			t.Errorf("%d readings were muted, want 3", n)
		}
		const all = "alert 2, recovery 4, alert 6, alert 8, recovery 10, alert 12, alert 14"
		if got := r.notified("kiln"); got != all {
			t.Errorf("of the other: %s; want %s", got, all)
		}
	})
}

// The first alert about an alarm that nobody was told of goes before recoveries and reminders, whatever kept the first
// readings of the alarm quiet, and also after a take-over.
func TestFirstAlertAfterWhatKeptItQuiet(t *testing.T) {
	for _, tt := range []struct{ muted, handedOver bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				levels := func(r *rules.Rule) {
					r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
				}
				p, r := newPartition("0"), &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 1, Every: time.Second}}}
				s := with(t, levels, r)
				value := 90.0 // critical
				if tt.muted {
					value = 40
					mute := rules.Mutes{{Device: "oven", From: time.Now(), Until: time.Now().Add(5 * time.Minute)}}
					s.config.Mutes = func() rules.Mutes { return mute }
				}
				p.publish("oven", value)
				s.start(p)
				pass(6 * time.Minute)
				if tt.handedOver {
					s.end()
					next := with(t, levels, r)
					next.store, next.ledgers = s.store, s.ledgers
					next.config.DeadLetters = next.dead
					p, s = p.reopen(), next
					s.start(p)
				}
				defer func() { s.end() }()
				for range 2 { // alerts of others, and then reminders
					for i := range 100 {
						p.publish(fmt.Sprint("other", i), 40)
					}
					pass(150 * time.Second)
				}
				for i := range 100 {
					p.publish(fmt.Sprint("other", i), 40)
				}
				p.publish("oven", 40)
				pass(5 * time.Second)
				for _, a := range r.alerts("oven") {
					if a.Level == "warning" {
						return
					}
				}
				t.Error("the first alert of the oven waits behind reminders of others")
			})
		})
	}
}
