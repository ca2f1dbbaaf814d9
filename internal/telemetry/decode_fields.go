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
func Fields(body []byte) []string {
	s := newScanner()
	var l lister
	s.unpack(body, func(text []byte) (broken bool) {
		l = lister{scanner: s}
		return l.list(text)
	})
	return l.paths
}

// A lister collects paths to numbers.
type lister struct {
	*scanner
	paths []string
}

// list reports whether text is broken.
func (l *lister) list(text []byte) (broken bool) {
	if r := l.begin(text); r != ReasonOK {
		return r == ReasonMalformed
	}
	for {
		if err := l.value(""); err != nil {
			return err != io.EOF
		}
	}
}

// value scans the next value, which is at path.
func (l *lister) value(path string) error {
	kind := l.json.PeekKind()
	if kind != '[' && kind != '{' {
		v, err := l.json.ReadValue()
		if err != nil || path == "" || len(l.paths) == maxPaths || !l.complete(v) {
			return err
		}
		_, reason := l.number(v)
		same := func(p string) bool { return strings.EqualFold(p, path) }
		if reason == ReasonOK && !slices.ContainsFunc(l.paths, same) {
			l.paths = append(l.paths, path)
		}
		return nil
	}
	if l.json.StackDepth() >= maxDepth {
		return l.json.SkipValue()
	}
	if _, err := l.json.ReadToken(); err != nil {
		return err
	}
	for next := l.json.PeekKind(); next != ']' && next != '}'; next = l.json.PeekKind() {
		err := error(nil)
		if kind == '[' {
			err = l.value(path)
		} else {
			err = l.member(path)
		}
		if err != nil {
			return err
		}
	}
	_, err := l.json.ReadToken()
	return err
}

func (l *lister) member(path string) error {
	name, err := l.json.ReadValue()
	if err != nil {
		return err
	}
	below := string(l.unquote(name))
	if path != "" {
		below = path + "." + below
	}
	odd := func(r rune) bool { return r == ',' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if _, err := parsePath(below); err != nil || strings.ContainsFunc(below, odd) {
		return l.json.SkipValue()
	}
	return l.value(below)
}
