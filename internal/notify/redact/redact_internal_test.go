package redact

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzExcerpt(f *testing.F) {
	f.Add("no\x00such\r\nthing")
	f.Add(strings.Repeat("é", 300))
	f.Add("\xff\xfe\u202e")
	f.Fuzz(func(t *testing.T, body string) {
		s := Excerpt(body)
		if len(s) > maxExcerpt || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("Excerpt(%q) = %q", body, s)
		}
	})
}
