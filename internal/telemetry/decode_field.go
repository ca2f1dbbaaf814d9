package telemetry

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefaultFields is where a reading is if nothing else is said.
const DefaultFields = "temperature,temp"

const (
	maxFields = 16
	maxPath   = 256 // bytes
)

// A field is a dotted path, cut at its dots.
type field struct {
	path []byte
	ends []int // where its names end in path
}

// parseFields reads a list of dotted paths.
func parseFields(list string) ([]field, error) {
	if strings.TrimSpace(list) == "" {
		list = DefaultFields
	}
	paths := strings.Split(list, ",")
	if len(paths) > maxFields {
		return nil, fmt.Errorf("%d fields are too many: name at most %d", len(paths), maxFields)
	}
	fields := make([]field, 0, len(paths))
	for i, path := range paths {
		f, err := parseField(strings.TrimSpace(path))
		if err != nil {
			return nil, fmt.Errorf("field %d of %d: %w", i+1, len(paths), err)
		}
		for j, other := range fields {
			if bytes.EqualFold(f.path, other.path) {
				return nil, fmt.Errorf("field %d of %d: %q is field %d already: remove one (case does not matter)", i+1, len(paths), f.path, j+1)
			}
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func parseField(path string) (field, error) {
	f := field{path: []byte(path)}
	switch {
	case path == "":
		return f, fmt.Errorf("it is empty: write paths separated by single commas, as in %q", "machine.temperature,temp")
	case len(path) > maxPath:
		return f, fmt.Errorf("%.32q… has %d bytes: use at most %d", path, len(path), maxPath)
	case !utf8.ValidString(path):
		return f, fmt.Errorf("%q is not valid UTF-8", path)
	}
	end := -1
	for name := range strings.SplitSeq(path, ".") {
		if strings.TrimSpace(name) != name || name == "" {
			return f, fmt.Errorf("%q has an empty name or a space beside a dot: write names joined by single dots, as in %q", path, "machine.temperature")
		}
		end += 1 + len(name)
		f.ends = append(f.ends, end)
	}
	return f, nil
}

// A cursor says how much of a field the names on the way from a body's root to
// a place in it have matched.
type cursor struct {
	field *field
	rank  int // of field in the list
	names int // of field.ends, matched so far
}

// whole returns the rank of the preferred of the fields that are matched to
// their end.
func whole(cs []cursor) (rank int, ok bool) {
	for _, c := range cs {
		if c.names == len(c.field.ends) {
			return c.rank, true // cursors keep the order of the list
		}
	}
	return 0, false
}

// advance moves c past name, which stands for several names of the path if it
// holds dots: {"a.b":1} is where {"a":{"b":1}} is.
func (c cursor) advance(name []byte) (cursor, bool) {
	start := 0
	if c.names > 0 {
		start = c.field.ends[c.names-1] + 1
	}
	last := c.names + bytes.Count(name, []byte{'.'})
	if last >= len(c.field.ends) || !bytes.EqualFold(name, c.field.path[start:c.field.ends[last]]) {
		return c, false
	}
	c.names = last + 1
	return c, true
}
