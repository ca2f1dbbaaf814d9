package checkup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// A sample is what the field of one rule finds in some events.
type sample struct {
	rule     *rules.Rule
	inFile   bool                 // the rule is one of RULES_FILE
	paths    []string             // of its field; none: every message counts
	all      *telemetry.Decoder   // of all paths
	decoders []*telemetry.Decoder // one for each path

	events  int
	others  int   // events without a reading here, but with one for another rule
	found   []int // events by the path that gave the reading
	reasons [telemetry.ReasonCount]int
	worst   float64        // reading
	numbers map[string]int // events without a reading, by where they have a number
}

func newSample(r *rules.Rule, inFile bool) (s *sample, err error) {
	s = &sample{rule: r, inFile: inFile, numbers: map[string]int{}}
	if r.Field == "" {
		s.all, err = telemetry.NewFieldsDecoder()
		return s, err
	}
	s.all, err = telemetry.NewFieldsDecoder(telemetry.Field{Paths: r.Field, Lowest: r.Below})
	s.paths = strings.Split(r.Field, ",")
	s.found = make([]int, len(s.paths))
	for _, path := range s.paths {
		d, wrong := telemetry.NewFieldsDecoder(telemetry.Field{Paths: path, Lowest: r.Below})
		s.decoders, err = append(s.decoders, d), errors.Join(err, wrong)
	}
	return s, err
}

// decode decodes an event as the worker would.
func decode(d *telemetry.Decoder, e *telemetry.Event) (float64, telemetry.Reason) {
	var found [1]telemetry.Found
	reason := d.DecodeAll(e, found[:])
	return found[0].Value, reason
}

// add takes an event into the sample, in which some rule finds its reading if readable.
func (s *sample) add(e *telemetry.Event, readable bool) {
	s.events++
	value, reason := decode(s.all, e)
	if reason == telemetry.ReasonMissing && readable {
		s.others++
	} else {
		s.reasons[reason]++
	}
	switch reason {
	case telemetry.ReasonOK:
		if s.reasons[reason] == 1 || s.rule.Breaching(value, s.worst) {
			s.worst = value
		}
		for i, d := range s.decoders {
			if v, r := decode(d, e); r == telemetry.ReasonOK && v == value {
				s.found[i]++
				break
			}
		}
	case telemetry.ReasonMissing, telemetry.ReasonNull, telemetry.ReasonNotANumber, telemetry.ReasonNotFinite, telemetry.ReasonInvalid:
		for _, path := range telemetry.Fields(e.Body) {
			s.numbers[path]++
		}
	}
}

// verdict returns which fields match and what cannot be decoded. The error is a warning
// if that is more than a tenth of the telemetry, and not if it is all.
func (s *sample) verdict() (string, error) {
	read := s.reasons[telemetry.ReasonOK]
	if read > 0 && len(s.paths) == 0 {
		return fmt.Sprintf("%d read: %d are messages of a device", s.events, read), nil
	}
	other := s.reasons[telemetry.ReasonNotTelemetry]
	own := s.events - other - s.others // telemetry that no other rule reads
	events, missing := humanize.Count(s.events, "event"), humanize.Or(s.paths)
	switch {
	case read > 0:
	case s.others > 0:
		return "", warning(fmt.Sprintf("no reading at %s in %s, of which other rules read %d; %s", missing, events, s.others, s.hint()))
	case other == s.events:
		return "", undecided(events + " read, none of them telemetry (twin changes, lifecycle events): run the check again when devices have sent some")
	case s.reasons[telemetry.ReasonNoDevice] == own:
		return "", fmt.Errorf("no device ID in %s: only an IoT Hub adds it, so this is not an IoT Hub's endpoint", events)
	default:
		return "", fmt.Errorf("no reading at %s in %s (%s); %s", missing, events, s.undecoded(), s.hint())
	}
	var matched []string
	for i, n := range s.found {
		if n > 0 {
			matched = append(matched, fmt.Sprintf("%s in %d", s.paths[i], n))
		}
	}
	text := fmt.Sprintf("%d read: %s", s.events, strings.Join(matched, ", "))
	if !s.rule.Silence() {
		worst := "highest"
		if s.rule.Below {
			worst = "lowest"
		}
		text += fmt.Sprintf(", %s %v, limit %s", worst, s.worst, limits(s.rule))
	}
	if s.others > 0 {
		text += fmt.Sprintf("; %d for other rules", s.others)
	}
	if n := other + own - read; n > 0 {
		text += fmt.Sprintf("; %d not decoded: %s", n, s.undecoded())
	}
	if n := own - read; n*10 > own {
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

// temperature matches a path that looks like that of one.
var temperature = regexp.MustCompile(`(?i)(temp|celsius|fahrenheit)[^.]*$`)

// hint suggests a path, another one if some match already. What a rule of the file is about, nobody knows.
func (s *sample) hint() string {
	if len(s.numbers) == 0 {
		return "they contain no numbers"
	}
	rank := func(path string) int {
		if !s.inFile && temperature.MatchString(path) {
			return 0
		}
		return 1
	}
	paths := slices.SortedFunc(maps.Keys(s.numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(s.numbers[b], s.numbers[a]), cmp.Compare(a, b))
	})
	advice := "add the one that is meant to TEMPERATURE_FIELD"
	switch {
	case s.inFile:
		advice = "add the one that is meant to the field of the rule " + s.rule.Name
	case rank(paths[0]) == 0:
		set := []string{paths[0]}
		if s.reasons[telemetry.ReasonOK] > 0 {
			set = append(slices.Clone(s.paths), paths[0])
		}
		advice = "set TEMPERATURE_FIELD=" + strings.Join(set, ",") + " if that is the temperature"
	}
	paths = paths[:min(len(paths), maxHints)]
	for i, path := range paths {
		paths[i] = fmt.Sprintf("%s (%d)", path, s.numbers[path])
	}
	return "numbers found at " + strings.Join(paths, ", ") + ": " + advice
}

// newReading takes the events of partitions through the rules of set.
func newReading(set rules.Set, inFile bool, partitions []eventhubs.PartitionState) (reading, error) {
	r := reading{partitions: partitions}
	for i := range set.Rules {
		s, err := newSample(&set.Rules[i], inFile)
		if err != nil {
			return r, err
		}
		r.samples = append(r.samples, s)
	}
	for _, p := range partitions {
		for i := range p.Events {
			e := &p.Events[i]
			if _, reason := decode(r.samples[0].all, e); reason != telemetry.ReasonNotTelemetry && reason != telemetry.ReasonNoDevice {
				r.telemetry = append(r.telemetry, *e)
			}
			readable := slices.ContainsFunc(r.samples, func(s *sample) bool {
				_, reason := decode(s.all, e)
				return reason == telemetry.ReasonOK
			})
			for _, s := range r.samples {
				s.add(e, readable)
			}
		}
	}
	return r, nil
}

// partitions says whether every device has its events in one partition. That is undecided if none has sent two.
func partitions(all []eventhubs.PartitionState) (string, error) {
	in, again := map[string]string{}, false // by device
	for _, p := range all {
		for _, e := range p.Events {
			if e.Device == "" {
				continue
			}
			first, ok := in[e.Device]
			if ok && first != p.ID {
				return "", warning(fmt.Sprintf("device %s is in the partitions %s and %s: rules with state, silence and recoveries need all of its readings in one; "+
					"read the IoT Hub's own endpoint, which keeps a device in one (IOTHUB_CONNECTION_STRING, with azd SOURCE=iothub)", e.Device, first, p.ID))
			}
			in[e.Device], again = p.ID, again || ok
		}
	}
	if !again {
		return "", undecided("no device was seen twice: to see whether each is in one partition, run the check again when they have sent more")
	}
	return fmt.Sprintf("%s, each in one", humanize.Count(len(in), "device")), nil
}
