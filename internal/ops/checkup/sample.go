package checkup

import (
	"cmp"
	"fmt"
	"maps"
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
	inFile   bool     // the rule is one of RULES_FILE
	paths    []string // of its field
	all      *telemetry.Decoder
	decoders []*telemetry.Decoder // one for each path

	events  int
	others  int   // events without a reading here, but with one for another rule
	found   []int // events by the path that gave the reading
	reasons [telemetry.ReasonCount]int
	worst   float64        // reading
	numbers map[string]int // events without a reading, by where they have a number
}

func newSample(r *rules.Rule, inFile bool) (*sample, error) {
	s := &sample{rule: r, inFile: inFile, numbers: map[string]int{}}
	decoder := func(paths string) (*telemetry.Decoder, error) {
		d, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: paths, Lowest: r.Below})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.setting(), err)
		}
		return d, nil
	}
	var err error
	if r.Field == "" { // every message counts
		s.all, err = telemetry.NewFieldsDecoder()
		return s, err
	}
	if s.all, err = decoder(r.Field); err != nil {
		return nil, err
	}
	for path := range strings.SplitSeq(r.Field, ",") {
		d, err := decoder(path)
		if err != nil {
			return nil, err
		}
		s.paths = append(s.paths, path)
		s.decoders = append(s.decoders, d)
	}
	s.found = make([]int, len(s.paths))
	return s, nil
}

// setting names what says where the reading is.
func (s *sample) setting() string {
	if s.inFile {
		return "the field of the rule " + s.rule.Name
	}
	return "TEMPERATURE_FIELD"
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
	other := s.reasons[telemetry.ReasonNotTelemetry]
	if n := s.reasons[telemetry.ReasonOK]; n > 0 && len(s.paths) == 0 {
		return fmt.Sprintf("%d read: %d are messages of a device", s.events, n), nil
	}
	own := s.events - other - s.others // telemetry that no other rule reads
	missing := strings.Join(s.paths, " or ")
	switch {
	case s.reasons[telemetry.ReasonOK] > 0:
	case s.others > 0:
		return "", warning(fmt.Sprintf("no reading at %s in %s, of which other rules read %d; %s", missing, humanize.Count(s.events, "event"), s.others, s.hint()))
	case other == s.events:
		return "", undecided(fmt.Sprintf("%s read, none of them telemetry (twin changes, lifecycle events): run the check again when devices have sent some", humanize.Count(s.events, "event")))
	case s.reasons[telemetry.ReasonNoDevice] == own:
		return "", fmt.Errorf("no device ID in %s: only an IoT Hub adds it, so this is not an IoT Hub's endpoint", humanize.Count(s.events, "event"))
	default:
		return "", fmt.Errorf("no reading at %s in %s (%s); %s", missing, humanize.Count(s.events, "event"), s.undecoded(), s.hint())
	}
	var matched []string
	for i, n := range s.found {
		if n > 0 {
			matched = append(matched, fmt.Sprintf("%s in %d", s.paths[i], n))
		}
	}
	worst, limit := "hottest", "threshold"
	if s.inFile {
		worst, limit = "highest", "limit"
		if s.rule.Below {
			worst = "lowest"
		}
	}
	text := fmt.Sprintf("%d read: %s", s.events, strings.Join(matched, ", "))
	if !s.rule.Silence() {
		text += fmt.Sprintf(", %s %v, %s %s", worst, s.worst, limit, limits(s.rule))
	}
	if s.others > 0 {
		text += fmt.Sprintf("; %d for other rules", s.others)
	}
	if n := other + own - s.reasons[telemetry.ReasonOK]; n > 0 {
		text += fmt.Sprintf("; %d not decoded: %s", n, s.undecoded())
	}
	if n := own - s.reasons[telemetry.ReasonOK]; n*10 > own {
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

// hint suggests another field, one more if one matches already.
func (s *sample) hint() string {
	if len(s.numbers) == 0 {
		return "they contain no numbers"
	}
	// What a rule of the file is about, nobody knows.
	about := func(path string) int {
		if s.inFile {
			return 0
		}
		return likely(path)
	}
	paths := slices.SortedFunc(maps.Keys(s.numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(about(b), about(a)), cmp.Compare(s.numbers[b], s.numbers[a]), cmp.Compare(a, b))
	})
	matched := s.reasons[telemetry.ReasonOK] > 0
	what := "the temperature"
	if s.inFile {
		what = "meant"
	}
	advice := fmt.Sprintf("set %s to the one that is %s", s.setting(), what)
	switch {
	case about(paths[0]) > 0 && matched:
		advice = "set TEMPERATURE_FIELD=" + strings.Join(append(slices.Clone(s.paths), paths[0]), ",") + " if that is a temperature too"
	case about(paths[0]) > 0:
		advice = "set TEMPERATURE_FIELD=" + paths[0] + " if that is the temperature"
	case matched && s.inFile:
		advice = "add the one that is meant to " + s.setting()
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

// newReading takes events through the rules of set.
func newReading(set rules.Set, inFile bool, events []telemetry.Event) (r reading, err error) {
	for i := range set.Rules {
		s, err := newSample(&set.Rules[i], inFile)
		if err != nil {
			return reading{}, err
		}
		r.samples = append(r.samples, s)
	}
	for i := range events {
		e := &events[i]
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
