package telemetry

import (
	"io"
	"slices"
	"strings"
	"unicode"
)

const maxPaths = 64

// Fields returns the dotted paths at which body holds finite numbers, in the
// body's order, at most 64: for each of them a Decoder with that field alone reads
// the body. Names that no field can be written for are left out.
func Fields(body []byte) (paths []string) {
	walk(body, func() { paths = nil }, func(s *scanner, at string, v []byte) {
		_, reason := s.number(v)
		paths = named(paths, at, reason == ReasonOK)
	})
	return paths
}

// WordFields is Fields for fields with words: it returns the paths of all texts, numbers and booleans.
func WordFields(body []byte) (paths []string) {
	walk(body, func() { paths = nil }, func(_ *scanner, at string, v []byte) {
		paths = named(paths, at, v[0] != 'n')
	})
	return paths
}

// named returns paths with at, if that is a reading and not among them yet.
func named(paths []string, at string, reading bool) []string {
	same := func(p string) bool { return strings.EqualFold(p, at) }
	if !reading || len(paths) == maxPaths || slices.ContainsFunc(paths, same) {
		return paths
	}
	return append(paths, at)
}

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
// the body's order. Where a body is packed, it calls begin before each layer. Values whose path nobody can write are
// left out.
func walk(body []byte, begin func(), visit func(s *scanner, at string, v []byte)) {
	s := newScanner()
	s.unpack(body, func(text []byte) (broken bool) {
		begin()
		if r := s.begin(text); r != ReasonOK {
			return r == ReasonMalformed
		}

		open, at := []string{""}, "" // the paths of the objects and arrays around the next value, and its own
		for {
			var err error
			switch kind := s.json.PeekKind(); {
			case (kind == '[' || kind == '{') && s.json.StackDepth() >= maxDepth:
				err = s.json.SkipValue()

			case kind == '[' || kind == '{':
				open = append(open, at)
				_, err = s.json.ReadToken()

			case kind == ']' || kind == '}':
				open = open[:len(open)-1]
				_, err = s.json.ReadToken()

			default:
				var v []byte
				in, before := s.json.StackIndex(s.json.StackDepth())
				if v, err = s.json.ReadValue(); err != nil {
					break
				}

				if in == '{' && before%2 == 0 { // a name
					if at = join(open[len(open)-1], string(s.unquote(v))); writable(at) {
						continue
					}
					err = s.json.SkipValue()
				} else if at != "" && s.complete(v) {
					visit(s, at, v)
				}
			}

			if err != nil {
				return err != io.EOF
			}

			at = open[len(open)-1]
		}
	})
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
