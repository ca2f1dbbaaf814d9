package notify

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"alertworker/internal/humanize"
)

// MaxShown is how many properties an alert can show.
const MaxShown = 8

// Shown are names and values of application properties, in order. It can be compared.
type Shown string

// shownEnd follows every name and every value.
const shownEnd = "\x00"

// maxShownText is how much of a value an alert has, in characters: it waits in memory, with many others, and services
// refuse large messages.
const maxShownText = 256

// With returns s with one more property: of a long value the beginning and the end, with U+FFFD for a NUL in it.
func (s Shown) With(name, value string) Shown {
	value = strings.ReplaceAll(humanize.Middle(value, maxShownText), shownEnd, "\uFFFD")
	return s + Shown(name+shownEnd+value+shownEnd)
}

// All yields names and values.
func (s Shown) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := string(s); rest != ""; {
			var name, value string
			name, rest, _ = strings.Cut(rest, shownEnd)
			value, rest, _ = strings.Cut(rest, shownEnd)
			if !yield(name, value) {
				return
			}
		}
	}
}

// MarshalJSON returns an object, in order.
func (s Shown) MarshalJSON() ([]byte, error) {
	var members []string
	for name, value := range s.All() {
		quotedName, _ := json.Marshal(strings.ToValidUTF8(name, "\uFFFD")) // text cannot fail
		quotedValue, _ := json.Marshal(strings.ToValidUTF8(value, "\uFFFD"))
		members = append(members, string(quotedName)+":"+string(quotedValue))
	}

	return []byte("{" + strings.Join(members, ",") + "}"), nil
}

// UnmarshalJSON reads an object whose values are text.
func (s *Shown) UnmarshalJSON(text []byte) error {
	*s = ""
	d := json.NewDecoder(strings.NewReader(string(text)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return err
	}

	for d.More() {
		var value string
		name, noName := d.Token()
		if err := errors.Join(noName, d.Decode(&value)); err != nil {
			return err
		}

		*s = s.With(strings.ReplaceAll(name.(string), shownEnd, "\uFFFD"), value) // a name is always text
	}

	return nil
}
