package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A chronicle is what devices sent to a stream, a message of each every few minutes.
type chronicle struct {
	s *Stream
	n int64
}

func newChronicle(t *testing.T) *chronicle {
	return &chronicle{s: benchRules(t, rules.Threshold("temperature", 30, time.Hour))}
}

// send takes a message of a device, which the hub takes now.
func (c *chronicle) send(device, body string) {
	c.n++
	c.s.register.take([]telemetry.Event{{
		Device: device, Body: []byte(body), Enqueued: time.Now(), MessageSource: "Telemetry",
		Position: telemetry.Position{Sequence: c.n, Offset: fmt.Sprint(c.n)},
	}})
}

// named returns the devices that are named, and how many there are for each reason.
func (c *chronicle) named() (names []string, counts map[string]int) {
	var all Unreadables
	c.s.Unreadable(&all)
	all.Sort(16)
	for _, d := range all.Named {
		names = append(names, d.Device)
	}
	counts = map[string]int{}
	for reason, n := range all.Devices {
		if n > 0 {
			counts[telemetry.Reason(reason).String()] = n
		}
	}
	return names, counts
}

// A device is named once nothing of it could be read for an hour, for as long as that is so. What
// it sent in between decides, a character for each ten minutes: o is a reading, x is broken, n is null, s lacks the
// field, t is no telemetry, and - is nothing.
func TestDeviceOfWhichNothingCanBeRead(t *testing.T) {
	bodies := map[rune]string{'o': `{"temperature":20}`, 'x': `;;`, 'n': `{"temperature":null}`, 's': `{"status":"ok"}`}
	for name, tt := range map[string]struct {
		sent  string
		named string // the reason; empty: it is not named
	}{
		"a reading":                      {sent: "ooooooo"},
		"not for an hour":                {sent: "oxxxxxx"},
		"for an hour":                    {sent: "oxxxxxxx", named: "malformed"},
		"from the start":                 {sent: "xxxxxxx", named: "malformed"},
		"for long":                       {sent: "xxxxxxxxxxxxxxxx", named: "malformed"},
		"one message":                    {sent: "x------------"},
		"rarely":                         {sent: "x-----------x", named: "malformed"},
		"a reading in the hour":          {sent: "xxxxoxxxxxx"},
		"read again":                     {sent: "xxxxxxxxo"},
		"broken again":                   {sent: "xxxxxxxoxxxxxxx", named: "malformed"},
		"another reason":                 {sent: "xxxxxxxn", named: "null"},
		"without the field":              {sent: "sssssss", named: "missing"},
		"its status in between":          {sent: "xsxsxsxs", named: "malformed"},
		"a broken body after its status": {sent: "sssssssxsssss"},
		"a broken body rarely":           {sent: "xsssssssx", named: "malformed"},
		"twin changes in between":        {sent: "xtxtxtx", named: "malformed"},
		"twin changes then":              {sent: "xxxxxxxttt", named: "malformed"},
		"twin changes alone":             {sent: "tttttttttt"},
		"gone for less than a day":       {sent: "xxxxxxx" + string(make([]rune, 143)), named: "malformed"},
		"gone for a day":                 {sent: "xxxxxxx" + string(make([]rune, 144))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChronicle(t)
				for i, what := range tt.sent {
					if i > 0 {
						time.Sleep(10 * time.Minute)
					}
					switch body := bodies[what]; {
					case what == 't':
						c.s.register.take([]telemetry.Event{{Device: "oven-7", Enqueued: time.Now(), MessageSource: "twinChangeEvents"}})
					case body != "":
						c.send("oven-7", body)
					}
					c.send("oven-8", bodies['o'])
				}
				names, counts := c.named()
				if want := tt.named; want == "" && len(counts) > 0 || want != "" && (counts[want] != 1 || len(counts) != 1 || !slices.Equal(names, []string{"oven-7"})) {
					t.Errorf("%v are named, %v; want %q", names, counts, want)
				}
				c.s.box.Close()
				c.s.box.Wait()
			})
		})
	}
}

// Of many devices some are named. Those that only lack the field come last, and one that
// can be read again is named no more.
func TestManyDevicesOfWhichNothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChronicle(t)
		body := func(i int) string {
			if i%2 == 0 {
				return `{}`
			}
			return `;;`
		}
		round := func(from int) {
			for i := from; i < 200; i++ {
				c.send(fmt.Sprint("d", i), body(i))
			}
		}
		for range 3 {
			round(0)
			time.Sleep(30 * time.Minute)
		}
		names, counts := c.named()
		if len(names) != 16 || counts["malformed"] != 100 || counts["missing"] != 100 {
			t.Errorf("%d names, %v", len(names), counts)
		}
		for _, name := range names {
			if i, _ := strconv.Atoi(name[1:]); i%2 == 0 {
				t.Errorf("%s is named, which only lacks the field", name)
			}
		}
		for i := range 199 {
			c.send(fmt.Sprint("d", i), `{"temperature":20}`)
		}
		round(199)
		if names, counts := c.named(); !slices.Equal(names, []string{"d199"}) || counts["malformed"] != 1 || len(counts) != 1 {
			t.Errorf("%v are named, %v", names, counts)
		}
		c.s.Forget(sensor.Of("d199"))
		if names, counts := c.named(); len(names)+len(counts) > 0 {
			t.Errorf("%v are named, %v, after they were removed", names, counts)
		}
		c.s.box.Close()
		c.s.box.Wait()
	})
}

// There is a bound to the devices that are known. One that only lacks the field makes room for one that cannot be read,
// and no other does for it; nor does one that cannot be read, until it has sent nothing for a day.
func TestMoreUnreadableDevicesThanAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChronicle(t)
		send := func(name, body string) {
			for i := range maxUnreadable + 50 {
				c.send(fmt.Sprint(name, i), body)
			}
		}
		counts := func() (lacking, broken int) {
			for _, u := range c.s.register.unreadable {
				if u.lacks() {
					lacking++
				} else {
					broken++
				}
			}
			return lacking, broken
		}
		send("door", `{}`)
		c.send("oven", `;;`)
		if lacking, broken := counts(); lacking != maxUnreadable-1 || broken != 1 {
			t.Errorf("%d lack the field, and %d are broken", lacking, broken)
		}
		send("oven", `;;`)
		c.send("last", `{}`)
		if lacking, broken := counts(); lacking+broken != maxUnreadable || broken < maxUnreadable/2 {
			t.Errorf("%d lack the field, and %d are broken", lacking, broken)
		}
		for hash, u := range c.s.register.unreadable {
			if u.lacks() {
				delete(c.s.register.unreadable, hash)
			}
		}
		send("kiln", `;;`)
		if c.send("one more", `;;`); c.s.register.unreadable[roster.Hash("one more")] != nil {
			t.Error("a device that cannot be read makes room for another one")
		}
		time.Sleep(unreadableFor)
		c.send("door", `{}`)
		if c.s.register.unreadable[roster.Hash("door")] == nil {
			t.Error("there is no room for a door that lacks the field, although nobody else sends")
		}
		c.s.box.Close()
		c.s.box.Wait()
	})
}

// What is known of a device says since when nothing of it can be read, and why.
func TestDescribeSaysSinceWhenNothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChronicle(t)
		start := time.Now()
		for _, body := range []string{`{"temperature":20}`, `;;`, `;;`} {
			c.send("oven-7", body)
			time.Sleep(time.Minute)
		}
		var d DeviceState
		c.s.Describe(sensor.Of("oven-7"), &d)
		want := Unreadable{
			Device: "oven-7", Partition: "0", Since: start.Add(time.Minute).UTC(), Last: start.Add(2 * time.Minute).UTC(), Reason: telemetry.ReasonMalformed,
			Damage: "not JSON at byte 0 of a message of oven-7: found ; where an object or an array must begin",
			damage: telemetry.DamageOf([]byte(`;;`)),
		}
		if d.Unreadable == nil || *d.Unreadable != want {
			t.Errorf("got %+v, want %+v", d.Unreadable, want)
		}
		c.send("oven-7", `{"temperature":null}`)
		d = DeviceState{}
		c.s.Describe(sensor.Of("oven-7"), &d)
		if u := d.Unreadable; u == nil || u.Reason != telemetry.ReasonNull || u.Damage != "" || !u.Since.Equal(want.Since) {
			t.Errorf("got %+v", u)
		}
		c.send("oven-7", `{"temperature":20}`)
		d = DeviceState{}
		c.s.Describe(sensor.Of("oven-7"), &d)
		if d.Unreadable != nil {
			t.Errorf("got %+v of a device that can be read again", d.Unreadable)
		}
		c.s.box.Close()
		c.s.box.Wait()
	})
}

// Whatever devices send, one is named only if nothing of it could be read since the time that is said, an hour or more
// before its last message; and it is named if that is so, and all of these messages are of one kind.
func TestNamedDevicesAreRight(t *testing.T) {
	type message struct {
		at   time.Time
		kind int // 0: a reading, 1: broken, 2: without the field
	}
	bodies := []string{`{"temperature":20}`, `;;`, `{}`}
	wasNamed := 0
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := newChronicle(t)
			sent := map[string][]message{}
			odds := random.IntN(12) // of a reading, of 12
			for range 80 {
				time.Sleep([]time.Duration{0, time.Second, 3 * time.Minute, 20 * time.Minute, 61 * time.Minute}[random.IntN(5)])
				device := fmt.Sprint("d", random.IntN(4))
				m := message{at: time.Now(), kind: 1}
				switch {
				case random.IntN(12) < odds:
					m.kind = 0
				case random.IntN(4) == 0 && device != "d1":
					m.kind = 2
				}
				sent[device] = append(sent[device], m)
				c.send(device, bodies[m.kind])

				var all Unreadables
				c.s.Unreadable(&all)
				for device, messages := range sent {
					run := messages[len(messages):]
					for i := len(messages) - 1; i >= 0 && messages[i].kind != 0; i-- {
						run = messages[i:]
					}
					i := slices.IndexFunc(all.Named, func(d Unreadable) bool { return d.Device == device })
					if i < 0 {
						alike := len(run) > 0 && !slices.ContainsFunc(run, func(m message) bool { return m.kind != run[0].kind })
						if alike && run[len(run)-1].at.Sub(run[0].at) >= time.Hour && time.Since(run[len(run)-1].at) < 24*time.Hour {
							t.Fatalf("seed %d: nothing of %s could be read since %v, and it is not named", seed, device, run[0].at)
						}
						continue
					}
					wasNamed++
					since := all.Named[i].Since
					if len(run) == 0 || since.Before(run[0].at) || run[len(run)-1].at.Sub(since) < time.Hour {
						t.Fatalf("seed %d: %s is named since %v, and sent %v", seed, device, since, messages)
					}
				}
			}
			c.s.box.Close()
			c.s.box.Wait()
		})
	}
	t.Logf("a device was named %d times", wasNamed)
}
