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
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A shape is what the messages of a rule look like whose readings are all taken for the device's own: are they of
// several sensors? It only sees what some devices have sent lately, so it proposes.
type shape struct {
	rule   *rules.Rule
	events []shaped // with a reading of the rule, or with one that it does not look at
}

// shaped is one event of a shape.
type shaped struct {
	event *telemetry.Event
	body  any // as encoding/json decodes it
}

// add takes an event whose body is JSON, once.
func (s *shape) add(e *telemetry.Event) {
	if n := len(s.events); n > 0 && s.events[n-1].event == e {
		return
	}

	if body, ok := telemetry.Document(e.Body); ok {
		s.events = append(s.events, shaped{e, body})
	}
}

// proposals returns what would keep the sensors of a device apart, with the keys of the rule to write, and what else its
// messages are not what the rule takes them for. Devices come in order.
func (s *shape) proposals() []string {
	byDevice := map[string][]shaped{}
	for _, e := range s.events {
		byDevice[e.event.Device] = append(byDevice[e.event.Device], e)
	}

	all := []func(string, []shaped) string{s.modules, s.components, s.array, s.turns, s.apart}
	if len(s.rule.Sensor) > 0 {
		all = all[len(all)-1:]
	}

	for _, propose := range all {
		for _, device := range slices.Sorted(maps.Keys(byDevice)) {
			if text := propose(device, byDevice[device]); text != "" {
				return []string{text}
			}
		}
	}

	return nil
}

// distinct returns the different values of what of has, without "".
func distinct(events []shaped, of func(shaped) string) (all []string) {
	for _, e := range events {
		if v := of(e); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}

	return all
}

func (s *shape) modules(device string, events []shaped) string {
	return parted(device, "module", events, func(e shaped) string { return e.event.Module })
}

func (s *shape) components(device string, events []shaped) string {
	return parted(device, "component", events, func(e shaped) string { return e.event.Component })
}

// parted proposes sensor if messages of a device come from several of what it has, which is in the messages' annotations.
func parted(device, what string, events []shaped, of func(shaped) string) string {
	all := distinct(events, of)
	if len(all) < 2 {
		return ""
	}

	const text = "%s has %d %ss (%s): sensor: $%s would keep them apart"
	return fmt.Sprintf(text, device, len(all), what, examples(all), what)
}

// examples shows the first of some names.
func examples(all []string) string {
	const most = 3
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// array proposes each if a message has several readings in an array, told apart by a name or a time.
func (s *shape) array(device string, events []shaped) string {
	if s.rule.Each != "" || len(s.rule.Only) > 0 { // which chooses one
		return ""
	}

	for _, e := range events {
		for _, path := range strings.Split(cmp.Or(s.rule.Field, telemetry.DefaultFields), ",") {
			at, rest, elements := arrayOf(e.body, strings.Split(strings.TrimSpace(path), "."), nil)
			if len(elements) < 2 {
				continue
			}

			text := fmt.Sprintf("%s sends %d measurements in %s", device, len(elements), place(at, "an array"))
			keys := fmt.Sprintf("each: %s, field: %s", place(at, "."), place(rest, "."))
			if name := nameOf(elements, rest); name != "" {
				return fmt.Sprintf("%s: %s, sensor: %s would keep them apart", text, keys, name)
			}

			if at := timeOf(elements); at != "" && s.rule.Stateful() {
				const stored = "%s, each with its %s: %s, TIME_PROPERTY=body:%s would take them in their order"
				return fmt.Sprintf(stored, text, at, keys, at)
			}
		}
	}

	return ""
}

// place joins the parts of a path, or returns what says that there are none.
func place(parts []string, none string) string { return cmp.Or(strings.Join(parts, "."), none) }

// arrayOf follows a path to the first array with several elements in which it goes on, and returns the path up to it, the
// rest, and these elements.
func arrayOf(v any, rest, at []string) (array, inner []string, elements []any) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			if isReading(element, rest) {
				elements = append(elements, element)
			}
		}

		if len(elements) > 1 {
			return at, rest, elements
		}

		for _, element := range v {
			if array, inner, elements = arrayOf(element, rest, at); len(elements) > 1 {
				return array, inner, elements
			}
		}

	case map[string]any:
		for name, inside := range v {
			if after, ok := goOn(rest, name); ok {
				return arrayOf(inside, after, append(at, name))
			}
		}
	}

	return nil, nil, nil
}

// goOn returns what is left of a path behind a name, which may hold dots.
func goOn(path []string, name string) (rest []string, ok bool) {
	n := strings.Count(name, ".") + 1
	if len(path) < n || !strings.EqualFold(strings.Join(path[:n], "."), name) {
		return nil, false
	}
	return path[n:], true
}

// isReading reports whether v has a number, or a text that is one, at a path, without an array on the way.
func isReading(v any, path []string) bool {
	switch v := v.(type) {
	case float64:
		return len(path) == 0
	case string:
		_, ok := telemetry.ParseNumber([]byte(v))
		return ok && len(path) == 0
	case map[string]any:
		for name, inside := range v {
			if rest, ok := goOn(path, name); ok && isReading(inside, rest) {
				return true
			}
		}
	}

	return false
}

// nameOf returns the path of a text that differs in all elements, and so may name them; empty if there is none. One that
// is called like a name comes first.
func nameOf(elements []any, field []string) string {
	values := map[string][]string{}
	for _, element := range elements {
		for path, text := range textsOf(element) {
			if path != strings.Join(field, ".") && !slices.Contains(values[path], text) {
				values[path] = append(values[path], text)
			}
		}
	}

	var all []string
	for path, texts := range values {
		if len(texts) == len(elements) {
			all = append(all, path)
		}
	}

	slices.Sort(all)
	if i := slices.IndexFunc(all, isName); i >= 0 {
		return all[i]
	}

	return strings.Join(all[:min(len(all), 1)], "")
}

// sensorName matches what names of sensors are called.
var sensorName = regexp.MustCompile(`(?i)(sensor|device|tag|channel|probe|node|point|display_?name|hwid|module|room|zone|^n$)`)

// isName reports whether a path is called like a name of a sensor.
func isName(path string) bool { return sensorName.MatchString(path[strings.LastIndex(path, ".")+1:]) }

// textsOf returns the texts in v that are neither numbers nor times, by their paths, but for those in arrays.
func textsOf(v any) map[string]string {
	all := map[string]string{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inside := range v {
				walk(strings.TrimPrefix(at+"."+name, "."), inside)
			}
		case string:
			_, isTime := telemetry.ParseTime([]byte(v))
			_, isNumber := telemetry.ParseNumber([]byte(v))
			if v != "" && !isTime && !isNumber {
				all[at] = v
			}
		}
	}
	walk("", v)

	return all
}

// timeOf returns the name under which all elements, which are objects, have a time of their own; empty if they have none.
func timeOf(elements []any) string {
	count := map[string]int{}
	for _, element := range elements {
		object, _ := element.(map[string]any)
		for name, v := range object {
			if isTimeOf(name, v) {
				count[name]++
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(count)) {
		if count[name] == len(elements) {
			return name
		}
	}

	return ""
}

// isTimeOf reports whether v is a time: a text that reads as one, or a number since 1970 under the name of one.
func isTimeOf(name string, v any) bool {
	switch v := v.(type) {
	case string:
		_, ok := telemetry.ParseTime([]byte(v))
		return ok
	case float64:
		at, ok := telemetry.UnixTime(v)
		called := strings.Contains(strings.ToLower(name), "time") || strings.EqualFold(name, "ts")
		return ok && called && at.Year() > 2000 && at.Year() < 2100
	}

	return false
}

// turns proposes sensor if one measurement comes with a message, and they take turns: a text that is called like a name
// of a sensor is not always the same.
func (s *shape) turns(device string, events []shaped) string {
	values := map[string][]string{}
	count := map[string]int{}
	note := func(name, text string) {
		count[name]++
		if !slices.Contains(values[name], text) {
			values[name] = append(values[name], text)
		}
	}
	for _, e := range events {
		texts := textsOf(e.body)
		for name, p := range e.event.Properties.All() {
			if text, ok := p.Text(); ok {
				if _, has := texts[string(name)]; !has {
					texts[string(name)] = string(text)
				}
			}
		}
		for name, text := range texts {
			if isName(name) {
				note(name, text)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) < 2 || count[name] < len(events) {
			continue
		}

		const text = "%s sends measurements in turn, with a %s each (%s): sensor: %s would keep them apart"
		return fmt.Sprintf(text, device, name, examples(values[name]), name)
	}

	return ""
}

// apart says if all readings of a device are further apart than For: the next one decides, whenever that comes.
func (s *shape) apart(device string, events []shaped) string {
	least := time.Duration(0)
	for _, l := range s.rule.Levels {
		if l.For > 0 && (least == 0 || l.For < least) {
			least = l.For
		}
	}

	if least == 0 || len(events) < 3 || s.rule.Each != "" {
		return ""
	}

	gap := time.Duration(0)
	for i := 1; i < len(events); i++ {
		between := events[i].event.Enqueued.Sub(events[i-1].event.Enqueued)
		if between <= least {
			return ""
		}
		gap = max(gap, between)
	}

	const text = "%s's messages are up to %s apart, and never less than for (%s): it may send changes only, and its alarm opens with the next one"
	return fmt.Sprintf(text, device, humanize.Plain(gap.Round(time.Second)), humanize.Plain(least))
}

// A sibling is one of several places for readings that differ by one name.
type sibling struct {
	each, field string
	keys        []string
}

// siblings returns the largest group of places that differ by one name; none if there is no such group.
func siblings(places []string) (largest sibling) {
	groups := map[string]*sibling{}
	for _, p := range places {
		parts := strings.Split(p, ".")
		for i, key := range parts {
			if _, err := strconv.Atoi(key); err == nil {
				continue
			}
			id := fmt.Sprintf("%q", slices.Concat(parts[:i], []string{"*"}, parts[i+1:]))
			if groups[id] == nil {
				groups[id] = &sibling{field: place(parts[i+1:], ".")}
			}
			g := groups[id]
			g.keys = append(g.keys, key)
			g.each = strings.Join(append(slices.Clone(parts[:i]), pattern(g.keys)), ".")
		}
	}

	for _, id := range slices.Sorted(maps.Keys(groups)) {
		g := groups[id]
		if len(g.keys) > 1 && len(g.keys) > len(largest.keys) && (g.field != "." || isAlike(g.keys)) {
			largest = *g
		}
	}

	return largest
}

// pattern returns the pattern of a name that all keys match: what they begin with, and a star.
func pattern(keys []string) string {
	begin := keys[0]
	for _, key := range keys[1:] {
		for !strings.HasPrefix(key, begin) {
			begin = begin[:len(begin)-1]
		}
	}

	return strings.ToValidUTF8(strings.TrimRight(begin, "0123456789"), "") + "*"
}

// isAlike reports whether keys differ by digits at their ends alone, such as temp1 and temp2.
func isAlike(keys []string) bool {
	bare := func(key string) string { return strings.TrimRight(key, "0123456789") }
	return !slices.ContainsFunc(keys, func(key string) bool { return bare(key) != bare(keys[0]) || bare(key) == "" })
}
