package config

import (
	"encoding"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"alertworker/internal/notify/receivers"
)

const redacted = "[redacted]"

// A redactable is a setting whose value is never shown, whatever the verb.
type redactable interface {
	encoding.TextUnmarshaler
	fmt.Formatter
}

// A Secret is text that is printed and encoded as "[redacted]"; an unset one as
// nothing. Only Reveal returns it.
type Secret struct {
	// A pointer to a string, because fmt reads the unexported fields of
	// unexported fields without asking their methods: of this it prints
	// only an address. A pointer to a slice or a struct it would follow.
	value *string
}

func NewSecret(s string) Secret { return Secret{&s} }

// Reveal returns the text itself; empty if there is none.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet reports whether there is a text.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return redacted
}

func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, s.String()) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText trims white space, which most files and many pasted values have at
// their ends and no secret has.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(strings.TrimSpace(string(text)))
	return nil
}

// URLs is a list of URLs that hold secrets, each perhaps with attributes in front of
// it. They are printed as id, name, levels, rules, scheme, host and port, or without a host that is a secret.
type URLs struct {
	text Secret // separated by commas
}

func NewURLs(list ...string) URLs { return URLs{NewSecret(strings.Join(list, ","))} }

// Reveal returns the URLs themselves, in the order given.
func (u URLs) Reveal() []string {
	return strings.FieldsFunc(u.text.Reveal(), func(r rune) bool { return r == ',' })
}

func (u URLs) String() string {
	shown := make([]string, 0, len(u.Reveal()))
	for _, raw := range u.Reveal() {
		shown = append(shown, redactURL(raw))
	}
	return strings.Join(shown, ",")
}

func (u URLs) Format(f fmt.State, _ rune)   { io.WriteString(f, u.String()) }
func (u URLs) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads URLs separated by commas or line ends. A comma inside a URL is
// written as %2C.
func (u *URLs) UnmarshalText(text []byte) error {
	var list []string
	for part := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == ',' || r == '\n' }) {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}

	*u = NewURLs(list...)
	return nil
}

// redactURL returns the part of an entry of URLs that is not secret.
func redactURL(raw string) string {
	e, err := receivers.Parse(raw)
	if err != nil {
		return redacted
	}

	shown := ""
	for _, attribute := range []struct{ name, value string }{
		{"id", e.ID},
		{"name", e.Name},
		{"level", strings.Join(e.Filter.Levels, "|")},
		{"rule", strings.Join(e.Filter.Rules, "|")},
	} {
		if attribute.value != "" {
			shown += attribute.name + "=" + attribute.value + " "
		}
	}

	scheme, host := e.Place()
	switch {
	case scheme == "log":
		return shown + scheme + ":"
	case host == "" || mayBeSecret(host):
		return shown + scheme + ":" + redacted
	}

	return shown + scheme + "://" + host
}

// maxShown keeps whole files out of messages.
const maxShown = 80

// tokens are runs of letters and digits that are too long for a word.
var tokens = regexp.MustCompile(`[A-Za-z0-9+/_]{20,}`)

// mayBeSecret reports whether an invalid value should not be shown: people put
// connection strings, signed URLs and keys into the wrong variable.
func mayBeSecret(value string) bool {
	return len(value) > maxShown || strings.ContainsAny(value, "=;@?&") || tokens.MatchString(value)
}

// show quotes a value for a message, unless it may be a secret.
func show(value string) string {
	if mayBeSecret(value) {
		return "[not shown: may be a secret]"
	}
	return strconv.Quote(value)
}
