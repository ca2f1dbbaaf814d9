package pace_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
)

// A service takes burst messages at once, and one more every so often. What comes sooner it refuses.
type service struct {
	every time.Duration
	burst int
	tat   time.Duration
}

func (s *service) takes(now time.Duration) bool {
	if s.every == 0 {
		return true
	}
	if now < s.tat-time.Duration(s.burst-1)*s.every {
		return false
	}
	s.tat = max(s.tat, now) + s.every
	return true
}

// send sends messages to s at pace p for as long as given, places at a time at most, each of which is under way for latency.
func send(p *pace.Pace, s *service, places int, latency, retryAfter, lasts time.Duration) (taken, refused int) {
	type message struct{ began, ends time.Duration }
	var underWay []message
	for now := time.Duration(0); now < lasts; now += time.Millisecond {
		for len(underWay) > 0 && underWay[0].ends <= now {
			m := underWay[0]
			underWay = underWay[1:]
			if s.takes(m.ends) {
				taken++
				p.Taken(now)
			} else {
				refused++
				p.Refused(now, m.began, retryAfter)
			}
		}
		for len(underWay) < p.Places(places) && p.Next() <= now {
			p.Begin(now)
			underWay = append(underWay, message{now, now + latency})
		}
	}
	return taken, refused
}

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name               string
		documented         notify.Rate
		real               service
		places             int
		retryAfter, lasts  time.Duration
		least, mostRefused int
	}{
		{"unlimited", notify.Rate{}, service{}, 64, 0, time.Minute, 60_000, 0},
		{"as documented", notify.Rate{Every: time.Second}, service{every: time.Second, burst: 1}, 64, 30 * time.Second, 5 * time.Minute, 270, 0},
		{"with a burst", notify.Rate{Burst: 20, Every: 600 * time.Millisecond}, service{every: 600 * time.Millisecond, burst: 20}, 64, 0, time.Minute, 119, 0},
		{"less than documented", notify.Rate{Every: time.Second}, service{every: 3 * time.Second, burst: 1}, 64, 3 * time.Second, 10 * time.Minute, 120, 40},
		{"unknown", notify.Rate{}, service{every: time.Second, burst: 1}, 64, 30 * time.Second, 10 * time.Minute, 200, 64 + 10},
		{"unknown, and does not say when", notify.Rate{}, service{every: time.Second, burst: 1}, 64, 0, 10 * time.Minute, 300, 64 + 20},
		{"unknown and fast", notify.Rate{}, service{every: 10 * time.Millisecond, burst: 10}, 64, time.Second, 10 * time.Minute, 30_000, 64 + 40*8},
		{"once an hour ago", notify.Rate{}, service{every: time.Minute, burst: 1}, 4, 10 * time.Second, time.Hour, 30, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			taken, refused := send(pace.New(tt.documented), &tt.real, tt.places, 50*time.Millisecond, tt.retryAfter, tt.lasts)
			t.Logf("%d taken, %d refused", taken, refused)
			if taken < tt.least || refused > tt.mostRefused {
				t.Errorf("%d taken, want %d; %d refused, want %d at most", taken, tt.least, refused, tt.mostRefused)
			}
		})
	}
}

// One answer with Retry-After, such as of a proxy that is restarted, costs minutes of pace at most.
func TestForgets(t *testing.T) {
	p := pace.New(notify.Rate{})
	p.Begin(0)
	p.Refused(time.Second, 0, 5*time.Second)
	if !p.Learned() || p.Next() != 6*time.Second || p.Places(64) != 1 || p.Rate() != 0.5 {
		t.Fatalf("learned %v, next %v, places %d, rate %v", p.Learned(), p.Next(), p.Places(64), p.Rate())
	}
	if p.Stuck() {
		t.Error("it takes nothing")
	}
	if taken, _ := send(p, &service{}, 64, time.Millisecond, 0, 7*time.Minute); taken < 10_000 || p.Learned() || p.Rate() != 0 {
		t.Errorf("%d taken, learned %v, rate %v", taken, p.Learned(), p.Rate())
	}
}

// A receiver that refuses all is not one that takes less.
func TestStuck(t *testing.T) {
	p := pace.New(notify.Rate{})
	at := time.Second
	for range 4 {
		if p.Stuck() {
			t.Error("too early")
		}
		at = max(at, p.Next()) + time.Millisecond
		p.Begin(at)
		p.Refused(at+time.Millisecond, at, 10*time.Second)
	}
	if !p.Stuck() {
		t.Error("it is not known to be stuck")
	}
	p.Taken(at + 11*time.Second)
	if p.Stuck() {
		t.Error("it has taken one")
	}
}

// A receiver that takes nothing is known within 30 s, whatever pause it asks for.
func TestStuckIsKnownSoon(t *testing.T) {
	for _, asks := range []time.Duration{0, 10 * time.Second, 29 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, time.Hour} {
		p, now := pace.New(notify.Rate{}), time.Second
		for {
			p.Begin(now)
			p.Refused(now, now, asks)
			if p.Stuck() {
				break
			}
			now = p.Next()
		}
		if took, most := now-time.Second, max(30*time.Second, 2*asks); took > most || asks >= 30*time.Second && took > 30*time.Second {
			t.Errorf("Retry-After %v: known after %v", asks, took)
		}
	}
}

// A wait that is over for others is over here too.
func TestRetry(t *testing.T) {
	p := pace.New(notify.Rate{})
	p.Begin(0)
	p.Refused(time.Second, 0, time.Hour)
	p.Retry(time.Minute)
	if p.Next() != time.Minute || p.Waits() != time.Minute || p.Places(64) != 1 {
		t.Errorf("next at %v, waits until %v, %d places", p.Next(), p.Waits(), p.Places(64))
	}
}

// An outage that a receiver calls overload, as with 503, says nothing about how much it takes when it is over.
func TestOutage(t *testing.T) {
	p := pace.New(notify.Rate{})
	at := time.Duration(0)
	for range 100 {
		at += 100 * time.Millisecond
		p.Begin(at)
		p.Taken(at)
	}

	for range 8 {
		at = max(at, p.Next()) + time.Millisecond
		p.Begin(at)
		p.Refused(at, at, 0)
	}

	if got := p.Rate(); got < 4.5 || got > 5.5 {
		t.Errorf("after an outage %v messages go each second, want half of the 10 before it", got)
	}
}

// Whatever happens, a wait that was asked for is kept, a documented rate is never exceeded, and some day a message goes.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(0, 5).Draw(t, "every")) * time.Second
		p := pace.New(notify.Rate{Every: every})
		var now, waits, last time.Duration
		last = -time.Hour
		rapid.IntRange(1, 300).Draw(t, "n")
		for range rapid.IntRange(1, 100).Draw(t, "messages") {
			now += time.Duration(rapid.IntRange(0, 100_000).Draw(t, "pause")) * time.Millisecond
			next := max(p.Next(), now)
			if next < waits || next < last+every || next > now+time.Hour+time.Minute || p.Places(8) < 1 {
				t.Fatalf("at %v the next may go at %v; waits until %v, the last went at %v", now, next, waits, last)
			}
			now = next
			last = now
			p.Begin(now)
			ends := now + time.Duration(rapid.IntRange(0, 10_000).Draw(t, "latency"))*time.Millisecond
			if rapid.Bool().Draw(t, "taken") {
				p.Taken(ends)
			} else {
				after := time.Duration(rapid.IntRange(0, 3600).Draw(t, "retry after")) * time.Second
				p.Refused(ends, now, after)
				waits = max(waits, ends+after)
			}
			now = ends
		}
	})
}

// A message that was on its way before a refusal, and is refused after another one was taken, asks for the first pause.
func TestRefusedAfterTaken(t *testing.T) {
	p := pace.New(notify.Rate{})
	p.Refused(2*time.Second, time.Second, 0)
	p.Taken(3 * time.Second)
	p.Refused(4*time.Second, time.Second, 0)
}
