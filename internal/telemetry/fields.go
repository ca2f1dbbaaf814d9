package telemetry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode"
)

// maxText is how much of a value people see, in bytes.
const maxText = 64

// TextAt returns the first value that body has at a path, as it stands there: a text with its quotes, a number or a
// boolean. It is empty if there is none, and cut if it is long.
func TextAt(body []byte, path string) (text string) {
	walk(body, func() { text = "" }, func(_ *scanner, at string, v []byte) {
		if text == "" && strings.EqualFold(at, path) && v[0] != 'n' {
			text = string(v[:min(len(v), maxText)])
		}
	})
	return text
}

// walk calls visit with each JSON value in body that is neither an object nor an array, and the dotted path to it, in
// the body's order. If what it has visited turns out to be broken, it calls forget. Values whose path nobody can write
// are left out.
func walk(body []byte, forget func(), visit func(s *scanner, at string, v []byte)) {
	s := newScanner()
	s.unpack(body, func(text []byte) (broken bool) {
		broken = s.walkAll(text, "", func(at string, v []byte) { visit(s, at, v) })
		if broken {
			forget()
		}
		return broken
	})
}

// walkAll is walk for text that is not packed, which is at a path. It reports whether that is broken.
func (s *scanner) walkAll(text []byte, at string, visit func(at string, v []byte)) (broken bool) {
	if isWrapping(text) {
		return true
	}

	if s.begin(text) != ReasonOK {
		return false
	}

	var err error
	for err == nil {
		err = s.walk(at, false, visit)
	}

	return err != io.EOF
}

// walk visits the next value, which is at a path, and what is in it.
func (s *scanner) walk(at string, inArray bool, visit func(at string, v []byte)) error {
	kind := s.json.peek()
	if kind != '[' && kind != '{' {
		v, err := s.json.value()
		if counts := !inArray || !s.isDamaged(); err == nil && counts {
			visit(cmp.Or(at, "."), v)
			s.walkText(at, v, visit)
		}
		return err
	}

	if s.depth+s.json.depth >= maxDepth {
		return s.json.skip()
	}

	err := s.json.bracket()
	for err == nil && s.json.peek() != kind+2 { // its closing bracket
		if kind == '[' {
			err = s.walk(at, true, visit)
			continue
		}

		var name []byte
		if name, err = s.json.value(); err != nil {
			break
		}

		if inner := join(at, string(s.unquote(name))); writable(inner) {
			err = s.walk(inner, false, visit)
		} else {
			err = s.json.skip()
		}
	}

	if err == nil {
		err = s.json.bracket()
	}

	return err
}

// walkText visits what is in the JSON that a text at a path may be.
func (s *scanner) walkText(at string, v []byte, visit func(at string, v []byte)) {
	if v[0] != '"' || s.isDamaged() || !s.descend() {
		return
	}

	text := trim(s.unquote(v))
	isJSON := len(text) > 0 && (text[0] == '{' || text[0] == '[')
	if isJSON && !s.within.walkAll(text, at, func(string, []byte) {}) {
		s.within.walkAll(text, at, visit)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// writable reports whether people can write path for a field.
func writable(path string) bool {
	odd := func(r rune) bool { return r == ',' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	_, err := parsePath(path)
	return err == nil && !strings.ContainsFunc(path, odd)
}

// Document returns body as encoding/json decodes it, unpacked if it is packed; several values as an array. It is false if
// the body is not JSON.
func Document(body []byte) (v any, ok bool) {
	newScanner().unpack(body, func(text []byte) (broken bool) {
		if isWrapping(text) {
			return true
		}

		var all []any
		values := json.NewDecoder(bytes.NewReader(trim(text)))
		for {
			var one any
			switch err := values.Decode(&one); {
			case errors.Is(err, io.EOF):
				v, ok = all, len(all) > 0
				if len(all) == 1 {
					v = all[0]
				}
				return !ok
			case err != nil:
				return true
			}
			all = append(all, one)
		}
	})

	return v, ok
}
