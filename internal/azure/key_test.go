package azure_test

import (
	"strings"
	"testing"

	"alertworker/internal/azure"
)

func TestKeyRefuses(t *testing.T) {
	for _, name := range []string{"a b", "a/b", "~", "~2", "~2f", "~zz", "~61", ".a", "a..b", "~~2E", azure.Name(strings.Repeat("#", 128)), strings.Repeat("x", 256)} {
		if key, ok := azure.Key(name); ok {
			t.Errorf("%q is said to be the name of %q", name, key)
		}
	}
}

// Key is the inverse of Name, but of a hash, and of nothing else.
func FuzzKey(f *testing.F) {
	f.Add("a/b")
	f.Add("a~2Fb")
	f.Add("..")
	f.Add("a.b\x00\xff")
	f.Add(strings.Repeat("#", 128))
	f.Fuzz(func(t *testing.T, s string) {
		name := azure.Name(s)
		if key, ok := azure.Key(name); ok == strings.HasPrefix(name, "~~") || ok && key != s {
			t.Errorf("%q is called %q, which is the name of %q, %t", s, name, key, ok)
		}
		if key, ok := azure.Key(s); ok && azure.Name(key) != s {
			t.Errorf("%q is said to be the name of %q", s, key)
		}
	})
}
