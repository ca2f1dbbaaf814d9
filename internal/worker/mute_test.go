package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

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
		if n := s.worker.Stats().Quieted.Load(); n != 2 {
			t.Errorf("%d readings were silenced, want 2", n)
		}
		if got, want := r.notified("kiln"), "alert 2, recovery 4, alert 6, recovery 10, alert 12"; got != want {
			t.Errorf("of the other: %s; want %s", got, want)
		}
	})
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
		if n := s.worker.Stats().Quieted.Load(); n != 3 {
			t.Errorf("%d readings were muted, want 3", n)
		}
		const all = "alert 2, recovery 4, alert 6, alert 8, recovery 10, alert 12, alert 14"
		if got := r.notified("kiln"); got != all {
			t.Errorf("of the other: %s; want %s", got, all)
		}
	})
}
