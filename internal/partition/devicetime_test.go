package partition_test

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

// publishAt publishes a reading that has a time of its device, in the body and as a property.
func (p *partition) publishAt(device string, value float64, at any) {
	p.publishProperties(device, fmt.Sprintf(`{"temperature":%v,"at":%q}`, value, at), map[string]any{"created": at})
}

const (
	hot  = threshold + 5
	cool = threshold - 10
)

// A truck was without a connection for hours, and then sends everything in one burst.
func TestBurst(t *testing.T) {
	for _, tt := range []struct{ where, want string }{
		{"", ""},
		{"created", "alert 3"},
		{"body:at", "alert 3"},
		{"elsewhere", ""},
	} {
		t.Run(tt.where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) { r.Levels[0].For = 2 * time.Minute }, r)
				s.setClock(tt.where)
				s.start(p)
				start := time.Now().Add(-6 * time.Hour).UTC()
				for i := range 120 {
					p.publishAt("truck", 91, start.Add(time.Duration(i)*time.Minute).Format(time.RFC3339Nano))
					time.Sleep(25 * time.Millisecond)
				}
				arrived := time.Now()
				time.Sleep(time.Second)
				s.end()
				if got := r.notified("truck"); got != tt.want {
					t.Fatalf("notified of %q, want %q", got, tt.want)
				}
				if tt.want == "" {
					return
				}
				a := r.alerts("truck")[0]
				if !a.Since.Equal(start) || !a.DeviceTime.Equal(start.Add(2*time.Minute)) || arrived.Sub(a.Enqueued) > 4*time.Second {
					t.Errorf("since %v, at %v, arrived %v", a.Since, a.DeviceTime, a.Enqueued)
				}
				if n := s.stats.Times[rules.TimeUsed].Load(); n != 120 {
					t.Errorf("%d times were used, want 120", n)
				}
			})
		})
	}
}

// A clock that cannot be right is not gone by, and counted.
func TestClocksThatAreWrong(t *testing.T) {
	const ahead, behind = 5 * time.Minute, 30 * 24 * time.Hour
	late := func(each ...time.Duration) (all []any) {
		for _, d := range each {
			all = append(all, d)
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		times []any // of readings a minute apart, each hot: text, or by how much the device's clock is behind
		want  string
		count map[rules.DeviceTime]int64
	}{
		{"right", late(0, 0, 0), "alert 3", map[rules.DeviceTime]int64{rules.TimeUsed: 3}},
		{"as far ahead as is believed", late(-ahead, -ahead, -ahead), "alert 3", map[rules.DeviceTime]int64{rules.TimeUsed: 3}},
		{"ahead", late(-ahead-time.Second, -ahead-time.Hour, -ahead-2*time.Hour), "alert 3", map[rules.DeviceTime]int64{rules.TimeFuture: 3}},
		{"as far behind as is believed", late(behind, behind-time.Minute), "alert 2", map[rules.DeviceTime]int64{rules.TimeUsed: 2}},
		{"far behind", late(behind+time.Second, behind+time.Second, behind+time.Second), "alert 3", map[rules.DeviceTime]int64{rules.TimeOld: 3}},
		{"set to 1970", []any{"1970-01-01T00:00:07Z", "1970-01-01T00:01:07Z", "1970-01-01T00:02:07Z"}, "alert 3", map[rules.DeviceTime]int64{rules.TimeOld: 3}},
		{"set back", late(0, 10*time.Minute, 10*time.Minute), "", map[rules.DeviceTime]int64{rules.TimeUsed: 1, rules.TimeLate: 2}},
		{"set back, and caught up", late(0, 3*time.Minute, 0), "alert 3", map[rules.DeviceTime]int64{rules.TimeUsed: 2, rules.TimeLate: 1}},
		{"no time", []any{"soon", "", "$twin.tags.time"}, "alert 3", map[rules.DeviceTime]int64{rules.TimeUnreadable: 3}},
		{"none before the last one", []any{nil, nil, time.Hour}, "alert 3", map[rules.DeviceTime]int64{rules.TimeMissing: 2, rules.TimeUsed: 1}},
		{"none at first", []any{nil, time.Duration(0), nil, nil}, "alert 3, alert 4", map[rules.DeviceTime]int64{rules.TimeMissing: 3, rules.TimeUsed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) { r.Levels[0].For, r.Window = 2*time.Minute, 50*time.Second }, r)
				s.setClock("created")
				s.start(p)
				for i, at := range tt.times {
					if i > 0 {
						time.Sleep(time.Minute)
					}
					if behind, ok := at.(time.Duration); ok {
						at = time.Now().Add(-behind).UTC().Format(time.RFC3339Nano)
					}
					p.publishAt("oven", hot, at)
					synctest.Wait()
				}
				time.Sleep(time.Second)
				s.end()
				if got := r.notified("oven"); got != tt.want {
					t.Errorf("notified of %q, want %q", got, tt.want)
				}
				got := map[rules.DeviceTime]int64{}
				times := &s.stats.Times
				for kind := range times {
					if n := times[kind].Load(); n > 0 {
						got[rules.DeviceTime(kind)] = n
					}
				}
				if !maps.Equal(got, tt.count) {
					t.Errorf("counted %v, want %v", got, tt.count)
				}
				for _, a := range r.alerts("oven") { // what is shown is by one clock
					if at := a.DeviceTime; at.IsZero() && a.Enqueued.Before(a.Since) || !at.IsZero() && at.Before(a.Since) {
						t.Errorf("at %v, arrived %v, since %v", at, a.Enqueued, a.Since)
					}
				}
			})
		})
	}
}

// A truck sends what it has stored beside what it measures. Its alarm is about the present: what is older than a reading
// that it has seen changes nothing.
func TestStoredBesideLive(t *testing.T) {
	const stored, interval = 4 * time.Hour, 5 * time.Second
	for name, test := range map[string]struct {
		readings []float64 // one each 5 s; negative: one that was stored, of the same size
		want     string
	}{
		"stored ones do not clear":        {[]float64{hot, hot, hot, -cool, hot, -cool, -cool}, "alert 3"},
		"nor interrupt":                   {[]float64{hot, -cool, hot, -cool, hot, -cool, hot}, "alert 3"},
		"nor start anew":                  {[]float64{hot, -hot, hot}, "alert 3"},
		"nor remind":                      {[]float64{hot, hot, hot, -hot, -hot, -hot, -hot, -hot, -hot, -hot, -hot, -hot, -hot, -hot}, "alert 3"},
		"live ones clear":                 {[]float64{hot, hot, hot, -hot, cool, -hot}, "alert 3, recovery 5"},
		"they open where there is none":   {[]float64{-hot, -hot, -hot}, "alert 3"},
		"and what is live ends such ones": {[]float64{-hot, -hot, -hot, cool, -cool}, "alert 3, recovery 4"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) {
					r.Levels[0].For, r.Window, r.Resolved = 2*interval, 50*time.Second, true
				}, r)
				s.setClock("created")
				s.start(p)
				for _, value := range test.readings {
					at := time.Now()
					if value < 0 {
						at = at.Add(-stored)
					}
					p.publishAt("truck", math.Abs(value), at.UTC().Format(time.RFC3339Nano))
					time.Sleep(interval)
				}
				time.Sleep(time.Minute)
				s.end()
				if got := r.notified("truck"); got != test.want {
					t.Errorf("notified of %q, want %q", got, test.want)
				}
				for _, a := range r.alerts("truck") {
					if a.DeviceTime.IsZero() {
						t.Errorf("%+v does not say when it was taken", a)
					}
				}
			})
		})
	}
}

// A rule without state has the time only for people; a reading that no rule is about costs nothing.
func TestDeviceTimeWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := newSetup(t, r)
		s.setClock("body:at")
		s.start(p)
		at := time.Now().Add(-time.Hour).UTC().Round(time.Millisecond)
		p.publishAt("oven", hot, at.Format(time.RFC3339Nano))
		p.publishAt("oven", cool, at.Format(time.RFC3339Nano))
		time.Sleep(time.Second)
		s.end()
		if all := r.alerts("oven"); len(all) != 1 || !all[0].DeviceTime.Equal(at) || !all[0].Since.IsZero() {
			t.Errorf("%+v", all)
		}
		if n := s.stats.Times[rules.TimeUsed].Load(); n != 1 {
			t.Errorf("%d times were looked at, want 1", n)
		}
	})
}

func (s *setup) setClock(where string) {
	s.t.Helper()
	if where == "" {
		return
	}
	var err error
	if s.config.Clock, err = rules.NewClock(where); err != nil {
		s.t.Fatal(err)
	}
}
