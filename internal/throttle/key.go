package throttle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"alertworker/internal/sensor"
)

const maxKey = 1024 // bytes, by lease.Store's contract

// key names the lease of a device, or of one of its sensors. Distinct ones get distinct keys; usual ones
// can be read.
func (g *Gate) key(of sensor.ID) string {
	key := g.prefix + escape(of.Device)
	//planted:key-without-sensor if false
	if of.Name != "" {
		key += "~n" + escape(of.Name) // which escape does not make either
	}

	if len(key) <= maxKey {
		return key
	}

	sum := sha256.Sum256([]byte(key))
	return g.scope + "/~h/" + hex.EncodeToString(sum[:]) // no receiver is called ~h: see escape
}

// defaultRule is rules.DefaultName. Its keys, without a level, are those of versions without
// rules.
const defaultRule = "temperature"

// prefix is what the keys of c's gate have before the device.
func prefix(c Config) string {
	of := escape(c.Receiver)

	switch rule := cmp.Or(c.Rule, defaultRule); { // escape makes neither ~r, ~s nor ~l
	case c.Silence:
		of += "~s" + escape(rule) + "~l" + escape(c.Level)
	case rule != defaultRule || c.Level != "":
		of += "~r" + escape(rule) + "~l" + escape(c.Level)
	}

	if c.Per != "" {
		//planted:site-named-like-device skip
		of += "~p" + escape(c.Per) // nor this
	}

	return c.Scope + "/" + of + "/"
}

// InScope returns whether a key is one of the gates of scope.
func InScope(scope string) func(key string) bool {
	prefix := scope + "/"
	return func(key string) bool {
		rest, ok := strings.CutPrefix(key, prefix)
		return ok && strings.Count(rest, "/") == 1 // between receiver and device; a longer scope has more
	}
}

// escape makes s a part between slashes, as RFC 6901 does, and valid UTF-8.
func escape(s string) string {
	if utf8.ValidString(s) && !strings.ContainsAny(s, "~/") {
		return s
	}

	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '~':
			b.WriteString("~0")
		case r == '/':
			b.WriteString("~1")
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "~x%02x", s[i])
		default:
			b.WriteString(s[i : i+n])
		}

		i += n
	}

	return b.String()
}
