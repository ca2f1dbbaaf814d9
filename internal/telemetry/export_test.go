package telemetry

import (
	"slices"
	"strings"
)

// Repair makes JSON of a body that is nearly JSON.
func Repair(body []byte) ([]byte, Damage) {
	text, m := repair(body, nil)
	return text, m.damage
}

// Fields returns the dotted paths at which body holds finite numbers, in the body's order: for each of them a Decoder
// with that field alone reads the body. Names that no field can be written for are left out.
func Fields(body []byte) (paths []string) {
	walk(body, func() { paths = nil }, func(s *scanner, at string, v []byte) {
		_, reason := s.number(v)
		known := slices.ContainsFunc(paths, func(p string) bool { return strings.EqualFold(p, at) })
		if reason == ReasonOK && !known {
			paths = append(paths, at)
		}
	})
	return paths
}
