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

func TestUnescapeIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.SampledFrom([]byte("~/01xf#\xff\xc3\xbc\x00"))).Draw(t, "s"))
		if got := unescape(escape(s)); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
		_ = unescape(s) // of what nobody escaped
	})
}

func TestUsualKeysCanBeRead(t *testing.T) {
	if got := New(Config{Scope: "contoso/telemetry/$default", Receiver: "log"}).key("line#3"); got != "contoso/telemetry/$default/log/line#3" {
		t.Error(got)
	}
}
