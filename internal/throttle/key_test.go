package throttle

import (
	"cmp"
	"crypto/sha256"
	"fmt"
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

// A key of text is what it was in every version: another one would not find the window.
func TestKeysStayTheSame(t *testing.T) {
	part := rapid.OneOf(rapid.StringOf(rapid.SampledFrom([]rune("~/01rhn#aé設\uFFFD"))), rapid.String(), rapid.SampledFrom([]string{strings.Repeat("x/", 500)}))
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Scope: "s/t", Receiver: part.Draw(t, "receiver"), Rule: "a/~", Level: part.Draw(t, "level"), Per: part.Draw(t, "per")}
		of := sensor.ID{Device: part.Draw(t, "device"), Name: part.Draw(t, "name")}
		want := "s/t/" + escape(c.Receiver) + "~ra~1~0~l" + escape(c.Level)
		if c.Per != "" {
			want += "~p" + escape(c.Per)
		}
		want += "/" + escape(of.Device)
		if of.Name != "" {
			want += "~n" + escape(of.Name)
		}
		if len(want) > 1024 {
			want = fmt.Sprintf("s/t/~h/%x", sha256.Sum256([]byte(want)))
		}
		if got := New(c).key(of); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// escape is how version 1.0 wrote a part.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case '~':
			b.WriteString("~0")
		case '/':
			b.WriteString("~1")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
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
