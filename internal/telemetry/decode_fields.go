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
	s := newScanner()
	s.unpack(body, func(text []byte) (broken bool) {
		paths = nil
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
				} else if at != "" && len(paths) < maxPaths && s.complete(v) {
					same := func(p string) bool { return strings.EqualFold(p, at) }
					if _, reason := s.number(v); reason == ReasonOK && !slices.ContainsFunc(paths, same) {
						paths = append(paths, at)
					}
				}
			}
			if err != nil {
				return err != io.EOF
			}
			at = open[len(open)-1]
		}
	})
	return paths
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
