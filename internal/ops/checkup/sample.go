package checkup

import (
	"cmp"
	"errors"
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

// A reading is what rules find in the newest events.
type reading struct {
	partitions []eventhubs.PartitionState
	samples    []*sample         // one for each rule
	telemetry  []telemetry.Event // among the events
	decoder    *rules.Decoder
	clock      *rules.Clock // nil without TIME_PROPERTY
}

// newReading takes the events of partitions through the rules of set, which are of RULES or RULES_FILE if inFile.
func newReading(set rules.Set, inFile bool, partitions []eventhubs.PartitionState) (reading, error) {
	reader, wrong := set.Reader()
	decoder, err := set.Decoder()
	clock, failed := set.Clock()
	if err := errors.Join(wrong, err, failed); err != nil {
		return reading{}, err
	}

	r := reading{partitions: partitions, decoder: decoder, clock: clock}
	var taken []string
	samples := map[string]*sample{} // by rule
	for i := range set.Rules {
		rule := &set.Rules[i]
		s := &sample{
			rule: rule, inFile: inFile, counts: counts{}, places: counts{}, sensors: map[sensor.ID]bool{}, names: map[string]bool{},
		}
		if rule.Field != "" {
			s.paths = strings.Split(rule.Field, ",")
		}

		taken = append(taken, s.paths...)
		r.samples = append(r.samples, s)
		samples[rule.Name] = s
	}

	for _, p := range partitions {
		for i := range p.Events {
			e := &p.Events[i]
			views, reason := reader.Read(e)
			if reason != telemetry.ReasonNotTelemetry && reason != telemetry.ReasonNoDevice {
				r.telemetry = append(r.telemetry, *e)
			}

			hasReading := func(v rules.View) bool { return v.Counts() && v.Rule.Field != "" }
			isRead := slices.ContainsFunc(views, hasReading)
			for j := range views {
				s := samples[views[j].Rule.Name]
				s.taken = taken
				s.add(e, &views[j], isRead)
			}
		}
	}

	return r, nil
}

// A sample counts what one rule finds in some events.
type sample struct {
	rule   *rules.Rule
	inFile bool     // the rule is one of RULES or RULES_FILE
	paths  []string // of its field; none: every message counts
	taken  []string // of the fields of all rules

	counts   counts // events, and what they have
	events   int
	own      int  // telemetry that the rule looks at, and no other rule reads
	others   int  // events without a reading here, but with one for another rule
	readings int  // that the rule compares
	isOdd    bool // some need attention, even if the rule has a reading
	worst    float64
	extreme  string             // worst, for people; empty if the rule compares no numbers
	sensors  map[sensor.ID]bool // with a name
	names    map[string]bool    // that limits and per ask for: whether some reading has them
	why      string             // the first event that could not be read was not; empty if that is plain

	read   []measured // with a reading, or excluded
	unread []measured // without one
	places counts     // where those might have one
}

// add takes an event into the sample, in which the rule finds v, and some rule a reading if isRead.
func (s *sample) add(e *telemetry.Event, v *rules.View, isRead bool) {
	s.events++
	m := measure(e, v.Body)
	if v.Reason == telemetry.ReasonOK {
		s.read = append(s.read, m)
	} else if v.Reason.Decoded() && v.Reason != telemetry.ReasonInvalid {
		s.unread = append(s.unread, m)
		s.count(m)
	}

	if v.Damaged || v.Reason == telemetry.ReasonMalformed {
		s.why = cmp.Or(s.why, telemetry.DamageOf(e.Body).Text(e.Device))
	}

	what := v.Reason.String() // as in the metrics
	switch {
	case v.Excluded != nil:
		what = fmt.Sprintf("excluded: %s is %s", v.Excluded.Name, cmp.Or(v.Has, "missing"))
	case v.Reason == telemetry.ReasonOK && v.HasLimits != rules.OverrideUsed:
		what = "without a number at " + s.rule.Base()
		s.isOdd = true
	case v.Reason == telemetry.ReasonOK:
		s.own++
		s.take(e, v)
		return
	case v.Reason == telemetry.ReasonNotTelemetry:
	case v.Reason == telemetry.ReasonMissing && isRead:
		what = "for other rules"
		s.others++
	default:
		s.own++
	}
	s.counts[what]++
}

// take takes a reading that the rule compares into the sample.
func (s *sample) take(e *telemetry.Event, v *rules.View) {
	s.readings++
	if s.readings == 1 || s.rule.Breaching(v.Value, s.worst) {
		s.worst = v.Value
	}
	if len(s.paths) > 0 && len(s.rule.Is) == 0 && !s.rule.Silence() {
		s.extreme = map[bool]string{false: ", highest ", true: ", lowest "}[s.rule.Below] + s.rule.Text(s.worst)
	}

	if v.Damaged {
		s.counts["damaged, which ends no alarm"]++
		s.isOdd = true
	}

	shared := rules.OverrideUsed
	if v.Shared == "" {
		shared = rules.OverrideAbsent
	}
	s.note(s.rule.Per, shared)
	for i, c := range v.Levels {
		l := &s.rule.Levels[i]
		s.note(l.LimitAt.Name, c.HasLimit)
		s.note(l.ClearAt.Name, c.HasClear)
		if c.Reached && !s.rule.Silence() {
			s.counts["reaching "+cmp.Or(l.Name, "the limit")]++
		}
	}

	switch {
	case v.Sensor != "":
		s.sensors[sensor.ID{Device: e.Device, Name: v.Sensor}] = true
	case len(s.rule.Sensor) > 0:
		s.counts["without a name at "+humanize.Or(s.rule.Sensor)]++
		s.isOdd = true
	}
}

// note counts a reading whose message has something, or not, at a name that the rule asks for, if that is not empty.
func (s *sample) note(name string, has rules.Override) {
	if name == "" {
		return
	}

	isUsed := has == rules.OverrideUsed
	s.names[name] = s.names[name] || isUsed
	if !isUsed {
		s.counts[fmt.Sprintf("%s %v", name, has)]++
	}
}

// count counts where an event that has no reading might have one.
func (s *sample) count(m measured) {
	for _, v := range m.values {
		isOwn := v.isAt(s.paths)
		if why := telemetry.NotANumber(v.text, s.rule.Unit); isOwn && why != "" {
			s.why = cmp.Or(s.why, fmt.Sprintf("%q at %s: %s", v.text, v.path, why))
		}
		if (v.isNumber && !v.isTime || len(s.rule.Is) > 0) && !v.isAt(s.taken) {
			s.places[v.path]++
		}
	}
}

// verdict returns what was counted, and what is to be done. The error is a warning if more than a tenth of the telemetry
// cannot be decoded, or if the rule looks at no event, and not if all cannot be decoded.
func (s *sample) verdict() (string, error) {
	text := fmt.Sprintf("%d read: %s", s.events, humanize.Count(s.readings, "reading"))
	if len(s.paths) > 0 {
		text += " at " + humanize.Or(s.paths) + s.extreme
	}
	if len(s.rule.Sensor) > 0 {
		text += ", of " + humanize.Count(len(s.sensors), "sensor")
	}
	if len(s.counts) > 0 {
		text += "; " + s.counts.text(s.counts.mostFirst)
	}

	proposal := s.proposal()
	isLacking := (s.own-s.readings)*10 > s.own
	todo := []string{text, s.why, s.hint(isLacking), proposal}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		if !s.names[name] {
			todo = append(todo, "do the devices send "+name+", or has the IoT Hub a message enrichment of this name?")
			s.isOdd = true
		}
	}
	text = strings.Join(slices.DeleteFunc(todo, func(what string) bool { return what == "" }), "; ")

	switch {
	case s.readings == 0 && s.own > 0 && s.others == 0:
		return "", errors.New(text)
	case s.own == 0 && len(s.read) == 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(s.places)), s.isLikely):
		return "", undecided(text)
	case s.readings == 0, isLacking, s.isOdd, proposal != "":
		return "", warning(text)
	}

	return text, nil
}

// hint says what to do about events without a reading; nothing if most have one.
func (s *sample) hint(isLacking bool) string {
	noDevice := s.counts[telemetry.ReasonNoDevice.String()]
	switch {
	case len(s.read) > 0 && !isLacking:
		return ""
	case noDevice > 0 && noDevice == s.own:
		return "only an IoT Hub adds a device ID, so this is not an IoT Hub's endpoint"
	case len(s.places) == 0:
		return ""
	}

	place, order := s.likeliest()
	where, line := "TEMPERATURE_FIELD", "TEMPERATURE_FIELD="
	if s.inFile {
		where, line = "the field of the rule "+s.rule.Name, "field: "
	}

	advice := "add the right one to " + where
	if s.isLikely(place) {
		advice = "if " + place + " is the right one, " + line + strings.Join(append(slices.Clip(s.paths), place), ",")
	}

	return fmt.Sprintf("found at %s: %s", s.places.text(order), advice)
}

// likeliest returns the most likely of places, and their order.
func (s *sample) likeliest() (place string, order func(a, b string) int) {
	rank := func(path string) int { return map[bool]int{false: 1}[s.isLikely(path)] }
	order = func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), s.places.mostFirst(a, b)) }

	return slices.MinFunc(slices.Collect(maps.Keys(s.places)), order), order
}

// temperature matches a path that looks like that of one.
var temperature = regexp.MustCompile(`(?i)(temp|celsius|fahrenheit)[^.]*$`)

// isLikely reports whether a place is called nearly like the field, or both like a temperature: what else a rule is about,
// nobody knows.
func (s *sample) isLikely(place string) bool {
	return slices.ContainsFunc(s.paths, func(path string) bool {
		return config.Alike(path, place) || temperature.MatchString(path) && temperature.MatchString(place)
	})
}

// counts are how often something was seen.
type counts map[string]int

func (c counts) mostFirst(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) }

// text shows the first of c, in an order.
func (c counts) text(order func(a, b string) int) string {
	keys := slices.SortedFunc(maps.Keys(c), order)
	keys = keys[:min(len(keys), 6)]
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%s (%d)", key, c[key])
	}

	return strings.Join(keys, ", ")
}

// partitions says whether every device has its events in one partition. That is undecided if none has sent two.
func partitions(all []eventhubs.PartitionState) (string, error) {
	in, again := map[string]string{}, false // by device
	for _, p := range all {
		for _, e := range p.Events {
			switch first, ok := in[e.Device]; {
			case e.Device == "":
			case !ok:
				in[e.Device] = p.ID
			case first == p.ID:
				again = true
			default:
				return "", warning(fmt.Sprintf(
					"device %s is in the partitions %s and %s: rules with state, silence and recoveries need all of its readings "+
						"in one; read the IoT Hub's own endpoint, which keeps a device in one (IOTHUB_CONNECTION_STRING, with azd "+
						"SOURCE=iothub)",
					e.Device, first, p.ID,
				))
			}

		}
	}

	if !again {
		return "", undecided(
			"no device was seen twice: to see whether each is in one partition, run the check again when they have sent more",
		)
	}

	return fmt.Sprintf("%s, each in one", humanize.Count(len(in), "device")), nil
}
