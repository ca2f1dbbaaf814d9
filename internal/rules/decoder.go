package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Cut is how some rules of a Set take messages apart into measurements: those with the same Each.
type Cut struct {
	Each    *telemetry.Each    // nil: a message is one
	Decoder *telemetry.Decoder // for Fields
	Rules   []int              // indexes in Set.Rules
	Reads   []Reads            // of each of Rules
	// Fields are what the rules read, all different. Readings come first, and then conditions. Of several readings at one
	// place the worst one counts: the highest, or the lowest for a rule that is Below.
	Fields   []telemetry.Field
	Readings int // how many of Fields are
}

// Reads says which of the fields of its cut a rule reads.
type Reads struct {
	Field  int   // -1: none
	Limits []int // of each level: LimitAt; -1: none
	Clears []int // likewise: ClearAt
	Only   []int // of each condition
	Sensor []int // of each name
}

// A Decoder finds in messages what the rules of a Set read. It does not change, and is safe for concurrent use.
type Decoder struct {
	Cuts  []Cut    // at least one; the first is that of rules without Each if there are any
	names sync.Map // decoders of one name, of the first maxNames that Text was asked for
	known atomic.Int32
}

// maxNames is how many names a Decoder remembers how to look up: more than rules and receivers have. People add others
// with what they mute.
const maxNames = 1024

// Decoder returns the Decoder for s.
func (s *Set) Decoder() (*Decoder, error) {
	d := &Decoder{}
	var all []string
	rules := map[string][]int{} // by their Each
	for i := range s.Rules {
		each := s.Rules[i].Each
		if rules[each] == nil {
			all = append(all, each)
		}
		rules[each] = append(rules[each], i)
	}

	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(min(len(a), 1), min(len(b), 1)) })

	for _, each := range all {
		c := Cut{Rules: rules[each]}
		c.read(s)
		var err error
		if c.Decoder, err = telemetry.NewFieldsDecoder(c.Fields...); err != nil {
			return nil, err
		}

		if each != "" {
			if c.Each, err = telemetry.NewEach(each); err != nil {
				return nil, err
			}
		}

		d.Cuts = append(d.Cuts, c)
	}

	return d, nil
}

// read sets what the rules of c read.
func (c *Cut) read(s *Set) {
	var all fieldList
	groups := map[string]int{"": 0} // the numbers of groups
	group := make([]int, len(c.Rules))

	for j, i := range c.Rules {
		r := &s.Rules[i]
		id := r.group()
		if _, known := groups[id]; !known {
			groups[id] = len(groups)
		}
		group[j] = groups[id]

		reads := Reads{Field: -1}
		if r.Field != "" || !r.Silence() {
			reads.Field = all.index(telemetry.Field{
				Paths:  r.Field,
				Lowest: r.Below,
				Valid:  r.Valid,
				Words:  r.Is,
				Unit:   r.Unit,
				Group:  group[j],
			})
		}

		c.Reads = append(c.Reads, reads)
	}

	c.Readings = len(all)

	for j, i := range c.Rules {
		r, reads := &s.Rules[i], &c.Reads[j]
		condition := func(f telemetry.Field) int {
			f.Condition = true
			f.Group = group[j]
			return all.index(f)
		}

		number := func(ref Reference, f telemetry.Field) int {
			if f.Paths = ref.Name; ref.Name == "" {
				return -1
			}
			return condition(f)
		}

		for k := range r.Levels {
			l := &r.Levels[k]
			limit := telemetry.Field{Limit: k == 0} // the mildest says which element is the worst
			if limit.Limit && !l.LimitAt.Plus {
				limit.Otherwise = &l.Limit
			}

			reads.Limits = append(reads.Limits, number(l.LimitAt, limit))
			reads.Clears = append(reads.Clears, number(l.ClearAt, telemetry.Field{}))
		}

		for _, f := range r.Flags {
			condition(telemetry.Field{Paths: f.Name, Words: f.Values, Flag: true})
		}

		for _, o := range r.Only {
			reads.Only = append(reads.Only, condition(telemetry.Field{Paths: o.Name, Words: o.Values}))
		}

		for _, name := range r.Sensor {
			reads.Sensor = append(reads.Sensor, condition(telemetry.Field{Paths: name, Text: true}))
		}
	}

	c.Fields = all
}

// group returns a text that rules have in common of which all is of one element, if it is of one at all. It is empty if
// r reads nothing but a field.
func (r *Rule) group() string {
	if !r.HasReferences() && len(r.Only)+len(r.Flags)+len(r.Sensor) == 0 {
		return ""
	}

	limits := ""
	for _, l := range r.Levels {
		limits += fmt.Sprintf("%q %q ", l.LimitAt.Name, l.ClearAt.Name)
		if l.LimitAt.Name != "" {
			limits += fmt.Sprint(l.Limit, " ")
		}
	}

	return fmt.Sprintf("%q %q %q %q %v %s", r.HeardBy(), r.ExpectedBy(), r.Is, r.Unit, r.Below, limits)
}

// A fieldList is fields that are all different.
type fieldList []telemetry.Field

// index returns the index of a field, which is added if there is none like it.
func (l *fieldList) index(f telemetry.Field) int {
	i := slices.IndexFunc(*l, func(g telemetry.Field) bool { return reflect.DeepEqual(f, g) })
	if i >= 0 {
		return i
	}

	*l = append(*l, f)

	return len(*l) - 1
}

// MaxSensorNames is how many names a sensor's may have.
const MaxSensorNames = 3

// AppendSensor appends the name of the sensor that the measurement just read from m is of, by what a decoder found in it;
// nothing if it has none, or r does not ask. See sensor.Name.
func (r *Rule) AppendSensor(to []byte, m *telemetry.Measurements, found []telemetry.Found, reads *Reads) []byte {
	begin := len(to)
	for _, i := range reads.Sensor {
		if found[i].Reason != telemetry.ReasonOK {
			continue
		}

		end := len(to)
		if end > begin {
			to = append(to, '/')
		}

		before := len(to)
		if to = m.AppendText(to, found[i]); len(to) == before {
			to = to[:end]
		}
	}

	if len(to)-begin <= sensor.MaxName {
		return to
	}

	return append(to[:begin], sensor.Name(string(to[begin:]))...)
}

// Text returns the text, number or boolean that the i-th of m has at a name; empty if it has none, or an invalid name.
func (d *Decoder) Text(m *telemetry.Measurements, i int, name string) string {
	text, _ := d.text(m, i, name)
	return text
}

// text is Text, and reports whether that is around the measurement.
func (d *Decoder) text(m *telemetry.Measurements, i int, name string) (text string, around bool) {
	of, _ := d.names.Load(name)
	if of == nil {
		one, err := telemetry.NewFieldsDecoder(telemetry.Field{Paths: name, Text: true, Condition: true})
		if err != nil {
			return "", false
		}
		of = one
		if d.known.Load() < maxNames {
			d.known.Add(1)
			d.names.Store(name, one)
		}
	}

	var found [1]telemetry.Found
	m.Read(of.(*telemetry.Decoder), i, found[:])
	if found[0].Reason != telemetry.ReasonOK {
		return "", false
	}

	return string(m.AppendText(nil, found[0])), found[0].Around
}
