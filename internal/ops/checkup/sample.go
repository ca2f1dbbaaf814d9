package checkup

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"alertworker/internal/telemetry"
)

// A sample is what TEMPERATURE_FIELD finds in some events.
type sample struct {
	paths    []string // of TEMPERATURE_FIELD
	all      *telemetry.Decoder
	decoders []*telemetry.Decoder // one for each path

	events  int
	found   []int // events by the path that gave the reading
	reasons [telemetry.ReasonCount]int
	hottest float64
	numbers map[string]int // events without a reading, by where they have a number
}

func newSample(fields string) (*sample, error) {
	s := &sample{hottest: math.Inf(-1), numbers: map[string]int{}}
	var err error
	if s.all, err = telemetry.NewDecoder(fields); err != nil {
		return nil, fmt.Errorf("TEMPERATURE_FIELD: %w", err)
	}
	for path := range strings.SplitSeq(fields, ",") {
		path = strings.TrimSpace(path)
		decoder, err := telemetry.NewDecoder(path)
		if err != nil {
			return nil, fmt.Errorf("TEMPERATURE_FIELD: %w", err)
		}
		s.paths = append(s.paths, path)
		s.decoders = append(s.decoders, decoder)
	}
	s.found = make([]int, len(s.paths))
	return s, nil
}

// add decodes an event as the worker would.
func (s *sample) add(e *telemetry.Event) {
	s.events++
	value, reason := s.all.Decode(e)
	s.reasons[reason]++
	switch reason {
	case telemetry.ReasonOK:
		s.hottest = max(s.hottest, value)
		for i, d := range s.decoders {
			if v, r := d.Decode(e); r == telemetry.ReasonOK && v == value {
				s.found[i]++
				break
			}
		}
	case telemetry.ReasonMissing, telemetry.ReasonNull, telemetry.ReasonNotANumber, telemetry.ReasonNotFinite:
		for _, path := range telemetry.Fields(e.Body) {
			s.numbers[path]++
		}
	}
}

// verdict returns which fields match and what cannot be decoded. The error is a warning
// if that is more than a tenth of the telemetry, and not if it is all.
func (s *sample) verdict(threshold float64) (string, error) {
	other := s.reasons[telemetry.ReasonNotTelemetry]
	switch {
	case s.reasons[telemetry.ReasonOK] > 0:
	case other == s.events:
		return "", undecided(fmt.Sprintf("%s read, none of them telemetry (twin changes, lifecycle events): run the check again when devices have sent some", count(s.events, "event")))
	case s.reasons[telemetry.ReasonNoDevice] == s.events-other:
		return "", fmt.Errorf("no device ID in %s: only an IoT Hub adds it, so this is not an IoT Hub's endpoint", count(s.events, "event"))
	default:
		return "", fmt.Errorf("no reading at %s in %s (%s); %s", strings.Join(s.paths, " or "), count(s.events, "event"), s.undecoded(), s.hint())
	}
	var matched []string
	for i, n := range s.found {
		if n > 0 {
			matched = append(matched, fmt.Sprintf("%s in %d", s.paths[i], n))
		}
	}
	text := fmt.Sprintf("%d read: %s, hottest %v, threshold %v", s.events, strings.Join(matched, ", "), s.hottest, threshold)
	if n := s.events - s.reasons[telemetry.ReasonOK]; n > 0 {
		text += fmt.Sprintf("; %d not decoded: %s", n, s.undecoded())
	}
	if n := s.events - s.reasons[telemetry.ReasonOK] - other; n*10 > s.events-other {
		if len(s.numbers) > 0 {
			text += "; " + s.hint()
		}
		return "", warning(text)
	}
	return text, nil
}

// undecoded counts events without a reading by reason, named as in the metrics.
func (s *sample) undecoded() string {
	var parts []string
	for reason, n := range s.reasons {
		if n > 0 && telemetry.Reason(reason) != telemetry.ReasonOK {
			parts = append(parts, fmt.Sprintf("%v %d", telemetry.Reason(reason), n))
		}
	}
	return strings.Join(parts, ", ")
}

// maxHints is how many places of numbers are named.
const maxHints = 5

// hint suggests another TEMPERATURE_FIELD, one more if one matches already.
func (s *sample) hint() string {
	if len(s.numbers) == 0 {
		return "they contain no numbers"
	}
	paths := slices.SortedFunc(maps.Keys(s.numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(likely(b), likely(a)), cmp.Compare(s.numbers[b], s.numbers[a]), cmp.Compare(a, b))
	})
	advice := "set TEMPERATURE_FIELD to the one that is the temperature"
	matched := s.reasons[telemetry.ReasonOK] > 0
	switch {
	case likely(paths[0]) > 0 && matched:
		advice = "set TEMPERATURE_FIELD=" + strings.Join(append(slices.Clone(s.paths), paths[0]), ",") + " if that is a temperature too"
	case likely(paths[0]) > 0:
		advice = "set TEMPERATURE_FIELD=" + paths[0] + " if that is the temperature"
	case matched:
		advice = "add the one that is a temperature to TEMPERATURE_FIELD"
	}
	paths = paths[:min(len(paths), maxHints)]
	for i, path := range paths {
		paths[i] = fmt.Sprintf("%s (%d)", path, s.numbers[path])
	}
	return "numbers found at " + strings.Join(paths, ", ") + ": " + advice
}

// likely returns 1 if a path looks like that of a temperature, else 0.
func likely(path string) int {
	name := strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])
	if strings.Contains(name, "temp") || strings.Contains(name, "celsius") || strings.Contains(name, "fahrenheit") {
		return 1
	}
	return 0
}
