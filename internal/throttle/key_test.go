package throttle

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestKeysNeverCollide(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringOf(rapid.SampledFrom([]rune("~/0123xh#a"))),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "..", strings.Repeat("x", 1200), strings.Repeat("x", 1201)}),
	)
	rapid.Check(t, func(t *rapid.T) {
		r1, d1, r2, d2 := part.Draw(t, "r1"), part.Draw(t, "d1"), part.Draw(t, "r2"), part.Draw(t, "d2")
		k1 := New(Config{Scope: "s/t", Receiver: r1}).key(d1)
		k2 := New(Config{Scope: "s/t", Receiver: r2}).key(d2)
		if (k1 == k2) != (r1 == r2 && d1 == d2) {
			t.Fatalf("(%q, %q) -> %q and (%q, %q) -> %q", r1, d1, k1, r2, d2, k2)
		}
		if len(k1) > maxKey || !utf8.ValidString(k1) {
			t.Fatalf("key %q: %d bytes", k1, len(k1))
		}
	})
}

// A scope has its own keys, and none of a scope whose name begins with its own.
func TestInScope(t *testing.T) {
	scopes, receivers, devices := []string{"s", "s/t", "s/t/u", "S", "s/"}, []string{"r", "t", "t/u", "~"}, []string{"d", "u", "u/d", "", "\xff"}
	for _, scope := range scopes {
		for _, other := range scopes {
			for _, r := range receivers {
				for _, d := range devices {
					if key := New(Config{Scope: other, Receiver: r}).key(d); InScope(scope)(key) != (scope == other) {
						t.Errorf("key %q of scope %q is in scope %q: %t", key, other, scope, scope != other)
					}
				}
			}
		}
		for _, key := range []string{"", "~duties/" + scope, scope, New(Config{Scope: scope, Receiver: "r"}).key(strings.Repeat("x", 1200))} {
			if InScope(scope)(key) {
				t.Errorf("key %q is in scope %q", key, scope)
			}
		}
	}
}

func TestUsualKeysCanBeRead(t *testing.T) {
	if got := New(Config{Scope: "contoso/telemetry/$default", Receiver: "log"}).key("line#3"); got != "contoso/telemetry/$default/log/line#3" {
		t.Error(got)
	}
}
