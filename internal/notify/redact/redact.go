// Package redact makes what receivers and their libraries say fit for errors: without
// secrets, and short.
package redact

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"alertworker/internal/humanize"
)

// minSecret is the length of the shortest part of a URL that is redacted. Shorter ones
// occur in any text.
const minSecret = 4

// New returns a Replacer for every part of u that may be secret, which is user,
// password and any part of path and query that could be a token, and for secrets.
func New(u *url.URL, secrets []string) *strings.Replacer {
	var parts []string
	add := func(ss ...string) { parts = append(parts, ss...) }

	add(u.RequestURI(), u.Path, u.EscapedPath(), u.RawQuery)
	add(strings.Split(u.Path, "/")...)
	add(strings.Split(u.EscapedPath(), "/")...)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		key, value, _ := strings.Cut(pair, "=")
		for _, s := range []string{key, value} {
			plain, _ := url.QueryUnescape(s)
			add(s, plain)
		}
	}

	if u.User != nil {
		user := u.User.Username()
		password, _ := u.User.Password()
		add(user, password, url.QueryEscape(user), url.QueryEscape(password))
		add(strings.Split(u.User.String(), ":")...)
		add(base64.StdEncoding.EncodeToString([]byte(user + ":" + password)))
	}

	for _, s := range secrets {
		add(s, url.QueryEscape(s), url.PathEscape(s))
	}

	// The longest first: at one place the first that fits counts.
	parts = slices.DeleteFunc(parts, func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(parts, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	var pairs []string
	for _, s := range slices.Compact(parts) {
		pairs = append(pairs, s, "[redacted]")
	}

	return strings.NewReplacer(pairs...)
}

// maxExcerpt is how long an excerpt may be, in bytes.
const maxExcerpt = 200

// Excerpt returns s as one short printable line.
func Excerpt(s string) string { return humanize.Cut(humanize.OneLine(s), maxExcerpt) }
