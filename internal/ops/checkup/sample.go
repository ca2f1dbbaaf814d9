package checkup

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// A sample is what one rule finds in some events.
type sample struct {
	rule     *rules.Rule
	inFile   bool                 // the rule is one of RULES or RULES_FILE
	paths    []string             // of its field; none: every message counts
	decoders []*telemetry.Decoder // one for each path

	events   int
	others   int            // events without a reading here, but with one for another rule
	excluded int            // events that the rule does not look at
	baseless int            // readings whose event has no number that limits are counted from
	seen     map[string]int // likewise, by what they have instead
	found    []int          // events by the path that gave the reading
	reasons  [telemetry.ReasonCount]int
	worst    float64           // reading
	reached  []int             // readings, by the level whose limit they reach
	places   map[string]int    // events without a reading, by where they might have one
	damaged  int               // readings of events whose body is not JSON
	damage   string            // where the first body that is not JSON is not, and of whom; empty if there is none
	unlike   string            // the first text that is no number, and why; empty if there is none
	sensors  map[sensor.ID]int // readings
	shape    shape
	unread   shape    // of the events without a reading
	taken    []string // fields of other rules
}

func newSample(r *rules.Rule, field *telemetry.Field, inFile bool) (*sample, error) {
	s := &sample{
		rule:    r,
		inFile:  inFile,
		seen:    map[string]int{},
		reached: make([]int, len(r.Levels)),
		places:  map[string]int{},
		sensors: map[sensor.ID]int{},
		shape:   shape{rule: r},
	}

	if field == nil {
		return s, nil
	}

	s.paths = strings.Split(field.Paths, ",")
	s.found = make([]int, len(s.paths))
	for _, path := range s.paths {
		one := *field
		one.Paths = path
		d, err := telemetry.NewFieldsDecoder(one)
		if err != nil {
			return nil, err
		}

		s.decoders = append(s.decoders, d)
	}

	return s, nil
}

// add takes an event into the sample, in which the rule finds v, and some rule a reading if readable.
func (s *sample) add(e *telemetry.Event, v *rules.View, readable bool) {
	s.events++
	if v.Damaged && v.Reason == telemetry.ReasonOK {
		s.damaged++
	}

	if v.Damaged || v.Reason == telemetry.ReasonMalformed {
		s.damage = cmp.Or(s.damage, telemetry.DamageOf(e.Body).Text(e.Device))
	}

	if v.Reason == telemetry.ReasonNotANumber {
		s.unlike = cmp.Or(s.unlike, s.notANumber(v))
	}

	if v.Reason == telemetry.ReasonOK && len(s.paths) > 0 {
		s.shape.add(e)
	}

	switch {
	case v.Excluded != nil:
		s.excluded++
		s.seen[v.Excluded.Name+" is "+cmp.Or(v.Has, "missing")]++
		return
	case v.Reason == telemetry.ReasonOK && v.HasLimits != rules.OverrideUsed:
		s.baseless++
		return
	case v.Reason == telemetry.ReasonMissing && readable:
		s.others++
	default:
		s.reasons[v.Reason]++
	}

	if v.Reason == telemetry.ReasonOK {
		s.read(e, v)
		return
	}

	for _, path := range s.candidates(v) {
		s.places[path]++
		s.unread.add(e)
	}
}

// notANumber says why what an event has for the rule is no number; empty if that is plain.
func (s *sample) notANumber(v *rules.View) string {
	for _, path := range s.paths {
		text := telemetry.TextAt(v.Body, path)
		if why := telemetry.NotANumber(text, s.rule.Unit); why != "" {
			return fmt.Sprintf("%s at %s: %s", text, path, why)
		}
	}

	return ""
}

// candidates returns where an event without a reading might have one.
func (s *sample) candidates(v *rules.View) []string {
	if !v.Reason.Decoded() || v.Reason == telemetry.ReasonInvalid { // or it has one there
		return nil
	}

	isTaken := func(path string) bool {
		return slices.ContainsFunc(s.taken, func(other string) bool { return strings.EqualFold(other, path) })
	}

	return slices.DeleteFunc(telemetry.Fields(v.Body, len(s.rule.Is) > 0), isTaken)
}

// read takes the reading in v, a measurement of e, into the sample.
func (s *sample) read(e *telemetry.Event, v *rules.View) {
	s.sensors[sensor.ID{Device: e.Device, Name: v.Sensor}]++
	if s.reasons[telemetry.ReasonOK] == 1 || s.rule.Breaching(v.Value, s.worst) {
		s.worst = v.Value
	}

	for i, c := range v.Levels {
		if c.Reached {
			s.reached[i]++
		}
	}

	for i, d := range s.decoders {
		measured := *e
		measured.Body = v.Body
		if found, reason := d.Decode(&measured); reason.HasReading() && found == v.Value {
			s.found[i]++
			return
		}
	}

	if len(s.found) > 0 {
		s.found[0]++ // by what else the rule asks of an element
	}
}

// verdict returns which fields match and what cannot be decoded. The error is a warning
// if that is more than a tenth of the telemetry, or if the rule looks at no event, and not if all cannot be decoded.
func (s *sample) verdict() (string, error) {
	read := s.reasons[telemetry.ReasonOK]
	if read == 0 {
		return "", s.nothingRead()
	}

	if len(s.paths) == 0 {
		return fmt.Sprintf("%d read: %d are messages of a device", s.events, read), nil
	}

	missed, named := s.own()-read, 0
	text := fmt.Sprintf("%d read: %s", s.events, s.readings())
	if len(s.rule.Sensor) > 0 {
		var unnamed int
		named, unnamed = s.countSensors()
		text += "; of " + humanize.Count(named, "sensor") + clause(unnamed, ", %d without a name at %s", humanize.Or(s.rule.Sensor))
	}

	text += clause(s.others, "; %d for other rules") + clause(s.excluded, "; not looked at %d: %s", s.exclusions()) +
		clause(missed+s.reasons[telemetry.ReasonNotTelemetry], "; %d not decoded: %s", s.undecoded()) +
		clause(s.damaged, "; %d damaged, so that they end no alarm") + clause(len(s.damage), "; %[2]s", s.damage)

	proposals := s.shape.proposals()
	tooMany := missed*10 > s.own()
	switch {
	case s.baseless > 0:
		return "", warning(text + clause(s.baseless, "; says nothing about %d: %s", s.noBase()))
	case tooMany && len(s.places) > 0:
		return "", warning(text + "; " + s.hint())
	case len(proposals) > 0:
		return "", warning(text + "; " + proposals[0])
	case tooMany, s.damaged > 0, len(s.rule.Sensor) > 0 && named == 0:
		return "", warning(text)
	}

	return text, nil
}

// countSensors returns how many sensors the readings are of, and how many of these are of none.
func (s *sample) countSensors() (named, unnamed int) {
	named = len(s.sensors)
	for of, n := range s.sensors {
		if of.Name == "" {
			named, unnamed = named-1, unnamed+n
		}
	}

	return named, unnamed
}

// own returns how many events are telemetry that the rule looks at, and that no other rule reads.
func (s *sample) own() int {
	return s.events - s.reasons[telemetry.ReasonNotTelemetry] - s.others - s.excluded - s.baseless
}

// nothingRead says why the rule has found no reading.
func (s *sample) nothingRead() error {
	own := s.own()
	events := humanize.Count(s.events, "event")
	other := s.reasons[telemetry.ReasonNotTelemetry]
	telemetryEvents := humanize.Count(s.events-other, "event") +
		clause(other, " of telemetry, beside %d without (twin changes, lifecycle events)")
	missing := fmt.Sprintf("no reading at %s in %s", humanize.Or(s.paths), telemetryEvents)

	switch {
	case s.excluded > 0 && own == 0:
		return warning(fmt.Sprintf("looks at none of %s: %s", events, s.exclusions()))

	case s.baseless > 0 && own == 0:
		return warning(fmt.Sprintf("says nothing about any of %s: %s", events, s.noBase()))

	case s.others > 0 && own == 0 && !s.misspelt():
		return undecided(fmt.Sprintf("%s, which other rules read; %s", missing, s.hint()))

	case s.others > 0:
		return warning(fmt.Sprintf("%s, of which other rules read %d; %s", missing, s.others, s.hint()))

	case other == s.events:
		return undecided(
			events + " read, none of them telemetry (twin changes, lifecycle events): run the check again when devices have " +
				"sent some",
		)

	case s.reasons[telemetry.ReasonNoDevice] == own:
		return fmt.Errorf(
			"no device ID in %s: only an IoT Hub adds it, so this is not an IoT Hub's endpoint",
			telemetryEvents,
		)
	}

	return fmt.Errorf("%s (%s); %s", missing, s.undecoded(), s.hint())
}

// misspelt reports whether a place in the events has nearly the name of a field of the rule. Without that, events that
// other rules read are no reason to think that the field is wrong.
func (s *sample) misspelt() bool {
	for place := range s.places {
		if slices.ContainsFunc(s.paths, func(path string) bool { return config.Alike(path, place) }) {
			return true
		}
	}

	return false
}

// readings says where readings are, and how close they come to the limits.
func (s *sample) readings() string {
	text := s.matched()

	switch {
	case s.rule.Silence():
		return text
	case len(s.rule.Is) > 0:
		return fmt.Sprintf("%s, %s in %d", text, humanize.Or(s.rule.Is), s.reached[0])
	}

	worst := "highest"
	if s.rule.Below {
		worst = "lowest"
	}

	text += fmt.Sprintf(", %s %s, limit %s", worst, s.rule.Text(s.worst), limits(s.rule))

	if !s.rule.HasReferences() {
		return text
	}

	reached := make([]string, len(s.reached)) // limits differ by message
	for i, n := range s.reached {
		reached[i] = strings.TrimSpace(fmt.Sprint(s.rule.Levels[i].Name, " in ", n))
	}

	return text + ", reached " + humanize.And(reached)
}

// matched says at which paths readings are.
func (s *sample) matched() string {
	var paths []string
	for i, n := range s.found {
		if n > 0 {
			paths = append(paths, fmt.Sprintf("%s in %d", s.paths[i], n))
		}
	}

	return strings.Join(paths, ", ")
}

// noBase says what messages lack.
func (s *sample) noBase() string {
	const lacks = "no number at %s, a field or an application property, from which its limits are counted"
	return fmt.Sprintf(lacks, s.rule.Base())
}

// exclusions says which conditions were not met, and what the events have instead.
func (s *sample) exclusions() string {
	var only []string
	for _, c := range s.rule.Only {
		only = append(only, c.Name+" "+humanize.Or(c.Values))
	}
	return fmt.Sprintf("only takes %s, and %s", humanize.And(only), counted(s.seen, mostFirst(s.seen)))
}

// mostFirst compares the keys of a count.
func mostFirst(n map[string]int) func(a, b string) int {
	return func(a, b string) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) }
}

// counted shows the first maxHints of what was counted, in an order.
func counted(n map[string]int, order func(a, b string) int) string {
	keys := slices.SortedFunc(maps.Keys(n), order)
	keys = keys[:min(len(keys), maxHints)]
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%s (%d)", key, n[key])
	}

	return strings.Join(keys, ", ")
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
	what := "numbers"
	if len(s.rule.Is) > 0 {
		what = "values"
	}

	if len(s.places) == 0 {
		return s.noPlaces(what)
	}

	order := func(a, b string) int { return cmp.Or(cmp.Compare(s.rank(a), s.rank(b)), mostFirst(s.places)(a, b)) }
	paths := slices.SortedFunc(maps.Keys(s.places), order)
	text := what + " found at " + counted(s.places, order) + ": " + s.advice(paths[0])

	best := s.rank(paths[0])
	isUnlike := func(path string) bool { return s.rank(path) != best }
	if several := siblings(slices.Sorted(slices.Values(slices.DeleteFunc(paths, isUnlike)))); len(several.keys) > 0 {
		text += fmt.Sprintf("; of several sensors, in a rule, each: %s, field: %s, sensor: $key", several.each, several.field)
	}

	rule := *s.rule
	rule.Field = paths[0]
	s.unread.rule = &rule
	if several := s.unread.proposals(); len(several) > 0 {
		text += "; " + several[0]
	}

	return text
}

// noPlaces is hint if no place is known.
func (s *sample) noPlaces(what string) string {
	if why := cmp.Or(s.damage, s.unlike); why != "" {
		return why
	}

	for reason := telemetry.ReasonNotTelemetry + 1; reason < telemetry.ReasonCount; reason++ {
		if s.reasons[reason] > 0 && !reason.Decoded() && reason != telemetry.ReasonEmpty {
			return "what is in them is not known: " + reason.Text()
		}
	}

	return "they contain no " + what + clause(s.others, "%[2]s", " but those")
}

// rank returns 0 for a path that looks like that of what the rule is about, and 1 for others.
func (s *sample) rank(path string) int {
	if !s.inFile && temperature.MatchString(path) {
		return 0
	}
	return 1
}

// advice says what to do with a likely path.
func (s *sample) advice(likely string) string {
	switch {
	case s.inFile:
		return "add the right one to the field of the rule " + s.rule.Name
	case s.rank(likely) > 0:
		return "add the right one to TEMPERATURE_FIELD"
	case s.reasons[telemetry.ReasonOK] > 0:
		likely = strings.Join(s.paths, ",") + "," + likely
	}

	return "set TEMPERATURE_FIELD=" + likely + " if that is the temperature"
}

// newReading takes the events of partitions through the rules of set.
func newReading(set rules.Set, inFile bool, partitions []eventhubs.PartitionState) (reading, error) {
	reader, err := set.Reader()
	if err != nil {
		return reading{}, err
	}

	samples, err := newSamples(set, inFile)
	if err != nil {
		return reading{}, err
	}

	r := reading{partitions: partitions, samples: samples}
	for _, p := range partitions {
		for i := range p.Events {
			r.add(reader, &p.Events[i])
		}
	}

	return r, nil
}

// newSamples returns an empty sample for each rule.
func newSamples(set rules.Set, inFile bool) ([]*sample, error) {
	decoder, err := set.Decoder()
	if err != nil {
		return nil, err
	}

	samples := make([]*sample, len(set.Rules))
	for _, c := range decoder.Cuts {
		for j, i := range c.Rules {
			var field *telemetry.Field
			if at := c.Reads[j].Field; at >= 0 {
				field = &c.Fields[at]
			}

			if samples[i], err = newSample(&set.Rules[i], field, inFile); err != nil {
				return nil, err
			}

			for other := range set.Rules {
				if r := &set.Rules[other]; other != i && r.Field != "" && r.Each == set.Rules[i].Each {
					samples[i].taken = append(samples[i].taken, strings.Split(r.Field, ",")...)
				}
			}
		}
	}

	return samples, nil
}

// add takes an event through the rules.
func (r *reading) add(reader *rules.Reader, e *telemetry.Event) {
	views, reason := reader.Read(e)
	if reason != telemetry.ReasonNotTelemetry && reason != telemetry.ReasonNoDevice {
		r.telemetry = append(r.telemetry, *e)
	}

	hasReading := func(v rules.View) bool { return v.Counts() && v.Rule.Field != "" }
	readable := slices.ContainsFunc(views, hasReading)
	for i := range views {
		v := &views[i]
		at := slices.IndexFunc(r.samples, func(s *sample) bool { return s.rule.Name == v.Rule.Name })
		r.samples[at].add(e, v, readable)
	}
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
				return "", inTwo(e.Device, first, p.ID)
			}

			in[e.Device] = p.ID
			again = again || ok
		}
	}

	if !again {
		return "", undecided(
			"no device was seen twice: to see whether each is in one partition, run the check again when they have sent more",
		)
	}

	return fmt.Sprintf("%s, each in one", humanize.Count(len(in), "device")), nil
}

// inTwo warns of a device whose events are in two partitions.
func inTwo(device, first, other string) error {
	return warning(fmt.Sprintf(
		"device %s is in the partitions %s and %s: rules with state, silence and recoveries need all of its readings "+
			"in one; read the IoT Hub's own endpoint, which keeps a device in one (IOTHUB_CONNECTION_STRING, with azd "+
			"SOURCE=iothub)",
		device,
		first,
		other,
	))
}

// limits shows those of r: 70 (warning), maxTemp or 80 (critical).
func limits(r *rules.Rule) string {
	var parts []string
	for i := range r.Levels {
		l := &r.Levels[i]
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("%s (%s)", r.LimitText(l), l.Name), " ()"))
	}

	return strings.Join(parts, ", ")
}
