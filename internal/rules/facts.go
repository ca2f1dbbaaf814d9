package rules

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/humanize"
)

// Facts says in lines of a key and a value, such as "above: 80", all that s decides by: of each rule by its name, and
// under "" what is for all of them. Sets with equal facts decide alike. What is only for people is not in it.
func (s *Set) Facts() map[string]string {
	all := map[string]string{}
	var general facts
	general.add("time", s.Time)
	for i := range s.Mutes {
		m := &s.Mutes[i]
		general.add("mute", fmt.Sprintf("%v %v %v %v", m, m.Times, m.From, m.Until))
	}

	if len(general) > 0 {
		all[""] = strings.Join(general, "\n")
	}

	for i := range s.Rules {
		all[s.Rules[i].Name] = strings.Join(s.Rules[i].facts(), "\n")
	}

	return all
}

// Facts says in a line all that r decides by, with the keys of a file of rules: "field: temperature; above: 80".
func (r *Rule) Facts() string { return strings.Join(r.facts(), "; ") }

func (r *Rule) facts() (f facts) {
	f.add("field", r.Field)
	f.add("is", strings.Join(r.Is, ", "))
	if r.Valid != nil {
		f.add("valid", fmt.Sprintf("from: %v to: %v", r.Valid.From, r.Valid.To))
	}
	f.add("flags", conditionsText(r.Flags))
	f.add("each", r.Each)
	f.add("sensor", strings.Join(r.Sensor, ", "))
	f.add("only", conditionsText(r.Only))
	f.add("clear_for", durationText(r.ClearedFor))
	f.add("window", durationText(r.Window))
	f.add("repeat", durationText(r.Repeat))
	f.add("resolved", map[bool]string{true: "true"}[r.Resolved])
	f.add("silent", durationText(r.Silent))
	f.add("forget", durationText(r.Forget))
	f.add("per", r.Per)
	f.add("unit", r.Unit)

	side := map[bool]string{false: "above", true: "below"}[r.Below]
	for i := range r.Levels {
		l := &r.Levels[i]
		of := ""
		if l.Name != "" {
			of = l.Name + " "
		}

		if !r.Silence() && len(r.Is) == 0 {
			f.add(of+side, r.LimitText(l))
		}

		if l.Clear != l.Limit || l.ClearAt.Name != "" {
			f.add(of+"clear", r.ClearText(l))
		}

		f.add(of+"for", durationText(l.For))
	}

	return f
}

// facts are lines of a key and a value.
type facts []string

// add adds a line, unless there is no value.
func (f *facts) add(key, value string) {
	if value != "" {
		*f = append(*f, key+": "+strings.ReplaceAll(value, "\n", " "))
	}
}

// conditionsText is such as "mode is run or test, door is open".
func conditionsText(all []Condition) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, c.Name+" is "+humanize.Or(c.Values))
	}

	return strings.Join(texts, ", ")
}

// durationText is such as 10m, for 10m0s; empty for 0.
func durationText(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case Never:
		return "never"
	}

	return humanize.Plain(d)
}
