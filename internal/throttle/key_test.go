package throttle

import (
	"cmp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

func TestKeysNeverCollide(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringOf(rapid.SampledFrom([]rune("~/0123xhn#a"))),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "..", strings.Repeat("x", 1200), strings.Repeat("x", 1201)}),
	)
	name := rapid.OneOf(rapid.SampledFrom([]string{"", "temperature", "a", "r", "l", "p"}), part)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n string) (Config, sensor.ID) {
			return Config{Scope: "s/t", Receiver: part.Draw(t, "r"+n), Rule: name.Draw(t, "rule"+n), Level: name.Draw(t, "level"+n), Per: name.Draw(t, "per"+n)}, sensor.ID{Device: part.Draw(t, "d"+n), Name: name.Draw(t, "n"+n)}
		}
		c1, d1 := draw("1")
		c2, d2 := draw("2")
		if rapid.Bool().Draw(t, "same") {
			c2.Receiver, d2 = c1.Receiver, d1
		}
		k1, k2 := New(c1).key(d1), New(c2).key(d2)
		same := c1.Receiver == c2.Receiver && cmp.Or(c1.Rule, "temperature") == cmp.Or(c2.Rule, "temperature") && c1.Level == c2.Level && c1.Per == c2.Per && d1 == d2
		if (k1 == k2) != same {
			t.Fatalf("%+v, %q -> %q and %+v, %q -> %q", c1, d1, k1, c2, d2, k2)
		}
		if len(k1) > maxKey || !utf8.ValidString(k1) {
			t.Fatalf("key %q: %d bytes", k1, len(k1))
		}
	})
}

// A scope has its own keys, and none of a scope whose name begins with its own.
func TestLongKeysAreInScope(t *testing.T) {
	g := New(Config{Scope: "ns/hub/group", Receiver: "r"})
	key := g.key(sensor.Of(strings.Repeat("d", 2000)))
	if len(key) > maxKey || !InScope("ns/hub/group")(key) || InScope("ns/hub")(key) {
		t.Errorf("%d bytes: %s", len(key), key)
	}
}

// A key as long as stores take is written out: another version would not find it under a hash.
func TestLongestKeyIsWrittenOut(t *testing.T) {
	g := New(Config{Scope: "ns/hub/group", Receiver: "r"})
	device := strings.Repeat("d", maxKey-len(g.prefix))
	if key := g.key(sensor.Of(device)); key != g.prefix+device {
		t.Errorf("%d bytes: %s", len(key), key)
	}
	if key := g.key(sensor.Of(device + "d")); strings.Contains(key, device) {
		t.Errorf("%d bytes: %s", len(key), key)
	}
}

func TestInScope(t *testing.T) {
	scopes, receivers, devices := []string{"s", "s/t", "s/t/u", "S", "s/"}, []string{"r", "t", "t/u", "~"}, []string{"d", "u", "u/d", "", "\xff"}
	for _, scope := range scopes {
		for _, other := range scopes {
			for _, r := range receivers {
				for i, d := range devices {
					for _, level := range []string{"", "critical"} {
						if key := New(Config{Scope: other, Receiver: r, Level: level}).key(sensor.ID{Device: d, Name: devices[len(devices)-1-i]}); InScope(scope)(key) != (scope == other) {
							t.Errorf("key %q of scope %q is in scope %q: %t", key, other, scope, scope != other)
						}
					}
				}
			}
		}
		for _, key := range []string{"", "~duties/" + scope, scope} {
			if InScope(scope)(key) {
				t.Errorf("key %q is in scope %q", key, scope)
			}
		}
	}
}

func TestUsualKeysCanBeRead(t *testing.T) {
	for _, test := range []struct{ rule, level, name, want string }{
		{"", "", "", "contoso/telemetry/$default/log/line#3"},
		{rules.DefaultName, "", "", "contoso/telemetry/$default/log/line#3"}, // as in every version
		{rules.DefaultName, "critical", "", "contoso/telemetry/$default/log~rtemperature~lcritical/line#3"},
		{"cold-chain", "", "", "contoso/telemetry/$default/log~rcold-chain~l/line#3"},
		{"hot", "warning", "", "contoso/telemetry/$default/log~rhot~lwarning/line#3"},
		{"hot", "warning", "return 1/2", "contoso/telemetry/$default/log~rhot~lwarning/line#3~nreturn 1~12"},
	} {
		if got := New(Config{Scope: "contoso/telemetry/$default", Receiver: "log", Rule: test.rule, Level: test.level}).key(sensor.ID{Device: "line#3", Name: test.name}); got != test.want {
			t.Errorf("rule %q, level %q: %s", test.rule, test.level, got)
		}
	}
}
