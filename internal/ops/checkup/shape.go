package checkup

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/telemetry"
)

// measured is one measurement that a rule looks at.
type measured struct {
	event  *telemetry.Event
	values []value // all, those of an object in the order of their names
	own    thing   // those that are in no array, and the message's properties
	arrays []array
}

// An array is one in a measurement. What is in an array inside it belongs to that alone.
type array struct {
	at       []string // names on the way to it
	elements []thing
}

// A thing has values that may tell it from others like it, by their paths from there on.
type thing map[string]value

// A value is a text, number or boolean.
type value struct {
	path     string // names joined by dots; arrays on the way leave no trace
	text     string
	isNumber bool
	isTime   bool // a number that its name calls a time is both
	isName   bool // it is a text that may name something
}

// isAt reports whether v is at one of some paths.
func (v value) isAt(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return strings.EqualFold(strings.TrimSpace(path), v.path) })
}

// measure returns what is in the body of a measurement of e, but for values whose path nobody can write; none if that is
// not JSON.
func measure(e *telemetry.Event, body []byte) measured {
	m := measured{event: e, own: thing{}}
	for name, p := range e.Properties.All() {
		text, _ := p.Text()
		m.own[string(name)] = value{text: string(text), isName: true}
	}
	m.own["$module"] = value{text: e.Module, isName: true}
	m.own["$component"] = value{text: e.Component, isName: true}

	v, _ := telemetry.Document(body)
	m.walk(v, nil, 0, m.own)

	return m
}

// walk takes v, which is at names, and of which one a thing is since the first depth of them.
func (m *measured) walk(v any, names []string, depth int, of thing) {
	one := value{path: path(names)}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m.walk(v[name], append(slices.Clip(names), name), depth, of)
		}
		return

	case []any:
		a := array{at: names}
		for _, element := range v {
			a.elements = append(a.elements, thing{})
			m.walk(element, names, len(names), a.elements[len(a.elements)-1])
		}
		m.arrays = append(m.arrays, a)
		return

	case string:
		if inner, ok := telemetry.Document([]byte(v)); ok && strings.ContainsAny(v[:1], "{[") {
			m.walk(inner, names, depth, of)
			return
		}

		one.text = v
		_, one.isNumber = telemetry.ParseNumber([]byte(v))
		_, isTime := telemetry.ParseTime([]byte(v))
		one.isTime = isTime && !one.isNumber
		one.isName = !isTime && !one.isNumber

	case float64:
		_, isTime := telemetry.UnixTime(v)
		one.isTime = isTime && isTimeName.MatchString(one.path)
		one.isNumber, one.text = true, strconv.FormatFloat(v, 'g', -1, 64)

	default:
		one.text = fmt.Sprint(v)
	}

	_, err := telemetry.NewDecoder(one.path)
	const most = 1000
	if v != nil && err == nil && len(m.values) < most {
		m.values = append(m.values, one)
		of[path(names[depth:])] = one
	}
}

// isTimeName matches the name of a time that is a number.
var isTimeName = regexp.MustCompile(`(?i)(time[^.]*|(^|\.)ts)$`)

// path is that of a value at names, from the measurement on.
func path(names []string) string {
	if len(names) == 0 {
		return "."
	}
	return strings.Join(names, ".")
}

// proposal says what would keep the sensors of a device apart that the rule takes for one, with the keys to write, or that
// a device sends too seldom for the rule; empty if nothing is wrong. It only sees what some devices have sent lately.
func (s *sample) proposal() string {
	if len(s.paths) == 0 || len(s.rule.Sensor) > 0 {
		return ""
	}

	all, fields := s.read, s.paths
	if len(all) == 0 && len(s.places) > 0 {
		likeliest, _ := s.likeliest()
		all, fields = s.unread, []string{likeliest}
		if text := s.alike(); text != "" {
			return text
		}
	}

	byDevice := map[string][]measured{}
	for _, m := range all {
		byDevice[m.event.Device] = append(byDevice[m.event.Device], m)
	}

	for _, device := range slices.Sorted(maps.Keys(byDevice)) {
		of := byDevice[device]
		if text := cmp.Or(turns(of), s.array(of, fields), s.changes(of)); text != "" {
			return device + text
		}
	}

	return ""
}

// sensorName matches what names of sensors are called.
var sensorName = regexp.MustCompile(
	`(?i)((sensor|device|tag|channel|probe|node|point|display_?name|hwid|module|room|zone|component)[^.]*|(^|\.)n)$`,
)

// nameOf returns the path at which each of some things has a value that may name it, of which some are different: at least
// so many. It is empty if there is none.
func nameOf(all []thing, least int, may func(path string, v value) bool) (path string, different []string) {
	texts := map[string][]string{}
	for _, one := range all {
		for path, v := range one {
			if v.text != "" && may(path, v) {
				texts[path] = append(texts[path], v.text)
			}
		}
	}

	for _, path := range slices.Sorted(maps.Keys(texts)) {
		has := len(texts[path])
		slices.Sort(texts[path])
		if different = slices.Compact(texts[path]); has == len(all) && len(different) >= least {
			return path, different
		}
	}

	return "", nil
}

func isSensorName(path string, v value) bool { return v.isName && sensorName.MatchString(path) }

// turns proposes sensor if the measurements of a device take turns: what they are called by is not always the same.
func turns(all []measured) string {
	var things []thing
	for _, m := range all {
		things = append(things, m.own)
	}

	name, texts := nameOf(things, 2, isSensorName)
	if name == "" {
		return ""
	}

	const text = " has %d different %s (%s): sensor: %s would keep them apart"
	return fmt.Sprintf(text, len(texts), name, strings.Join(texts[:min(len(texts), 3)], ", "), name)
}

// array proposes each if a message has several readings in an array, told apart by a name or a time.
func (s *sample) array(all []measured, fields []string) string {
	if s.rule.Each != "" || len(s.rule.Only) > 0 { // which chooses one
		return ""
	}

	for _, m := range all {
		for _, a := range m.arrays {
			field := ""
			readings := slices.DeleteFunc(a.elements, func(element thing) bool {
				for path, v := range element {
					if v.isNumber && v.isAt(fields) {
						field = path
						return false
					}
				}
				return true
			})

			n := len(readings)
			if n < 2 {
				continue
			}

			text := fmt.Sprintf(" sends %d measurements in a message: each: %s, field: %s", n, path(a.at), field)
			for _, apart := range []struct {
				by     func(path string, v value) bool
				advice string
			}{
				{isSensorName, ", sensor: %s would keep them apart"},
				{func(_ string, v value) bool { return v.isName }, ", sensor: %s would keep them apart"},
				{func(_ string, v value) bool { return v.isTime && s.rule.Stateful() }, ", TIME_PROPERTY=body:%s would take them in their order"},
			} {
				if name, _ := nameOf(readings, n, apart.by); name != "" {
					return text + fmt.Sprintf(apart.advice, name)
				}
			}
		}
	}

	return ""
}

// changes says that each reading of a device came longer after the one before than For: the next one decides, whenever it
// comes.
func (s *sample) changes(all []measured) string {
	lasts, longest := time.Duration(0), time.Duration(0)
	for _, l := range s.rule.Levels {
		if l.For > 0 && (lasts == 0 || l.For < lasts) {
			lasts = l.For
		}
	}
	if lasts == 0 || len(all) < 3 || s.rule.Each != "" {
		return ""
	}

	for i := range all[1:] {
		between := all[i+1].event.Enqueued.Sub(all[i].event.Enqueued)
		if between <= lasts {
			return ""
		}
		longest = max(longest, between)
	}

	const text = "'s messages are up to %s apart, and never less than for (%s): it may send changes only, and its alarm opens with the next one"
	return fmt.Sprintf(text, humanize.Plain(longest.Round(time.Second)), humanize.Plain(lasts))
}

// alike proposes each if several places differ by one name, or by the digits at the end: that may be the name of a sensor.
func (s *sample) alike() string {
	type group struct{ before, begin, after string } // of the path; begin is that of its last name
	names := map[group][]string{}
	for place := range s.places {
		parts := strings.Split(place, ".")
		for i, name := range parts {
			at := group{before: strings.Join(append(slices.Clone(parts[:i]), ""), "."), after: path(parts[i+1:])}
			if at.after == "." { // values side by side are of one sensor, unless they are numbered
				at.begin = strings.TrimRight(name, "0123456789")
			}
			names[at] = append(names[at], name)
		}
	}

	maps.DeleteFunc(names, func(_ group, all []string) bool { return len(all) < 2 })
	if len(names) == 0 || s.rule.Each != "" {
		return ""
	}

	rank := func(at group) string {
		place := strings.TrimSuffix(at.before+at.begin+"."+at.after, "..")
		return fmt.Sprintf("%t %6d %v", s.isLikely(place), len(names[at]), at)
	}
	at := slices.MaxFunc(slices.Collect(maps.Keys(names)), func(a, b group) int { return cmp.Compare(rank(a), rank(b)) })
	begin := strings.TrimRight(names[at][0], "0123456789")
	if slices.ContainsFunc(names[at], func(name string) bool { return strings.TrimRight(name, "0123456789") != begin }) {
		begin = ""
	}

	return fmt.Sprintf("of several sensors, in a rule, each: %q, field: %s, sensor: $key", at.before+begin+"*", at.after)
}
