package rules

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"alertworker/internal/humanize"
)

// Facts says in lines of a key and a value, such as "above: 80", all that s decides by: of each rule by its name, and
// under "" what is for all of them. Sets with equal facts decide alike. What is only for people is not in it.
func (s *Set) Facts() map[string]string {
	all := map[string]string{}
	var general facts
	general.fields(reflect.ValueOf(*s), "", "Rules", "Show", "Mutes")
	for i := range s.Mutes {
		m := &s.Mutes[i]
		general.add("mute", fmt.Sprintf("%v %v %v %v", m, m.Times, m.From, m.Until))
	}

	if len(general) > 0 {
		all[""] = general.String()
	}

	for i := range s.Rules {
		all[s.Rules[i].Name] = s.Rules[i].facts().String()
	}

	return all
}

// Facts says in a line all that r decides by, with the keys of a file of rules: "field: temperature; above: 80".
func (r *Rule) Facts() string { return strings.Join(r.facts(), "; ") }

func (r *Rule) facts() (f facts) {
	f.fields(reflect.ValueOf(*r), "", "Name", "Below", "Levels", "Title", "Runbook")
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

		f.fields(reflect.ValueOf(*l), of, "Name", "Limit", "Clear", "LimitAt", "ClearAt")
	}

	return f
}

// facts are lines of a key and a value.
type facts []string

func (f *facts) add(key, value string) {
	*f = append(*f, key+": "+strings.ReplaceAll(value, "\n", " "))
}

// fields adds the fields of a struct that are set, but for some.
func (f *facts) fields(of reflect.Value, prefix string, but ...string) {
	for i := range of.NumField() {
		if name := of.Type().Field(i).Name; !of.Field(i).IsZero() && !slices.Contains(but, name) {
			f.add(prefix+keyOf(name), textOf(of.Field(i)))
		}
	}
}

func (f facts) String() string { return strings.Join(f, "\n") }

// keyOf returns a field's name as a file of rules has it, or nearly so.
func keyOf(field string) string {
	var b strings.Builder
	for i, c := range field {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}

	return strings.Replace(b.String(), "cleared_for", "clear_for", 1)
}

// textOf returns v as text, which is the same in every process.
func textOf(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return durationText(time.Duration(v.Int()))
	case v.Type() == reflect.TypeFor[Condition]():
		c := v.Interface().(Condition)
		return c.Name + " is " + humanize.Or(c.Values)
	case v.Kind() == reflect.Pointer && v.IsNil():
		return ""
	case v.Kind() == reflect.Pointer:
		return textOf(v.Elem())
	case v.Kind() == reflect.Struct:
		var f facts
		f.fields(v, "")
		return strings.Join(f, " ")
	case v.Kind() == reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, textOf(v.Index(i)))
		}
		return strings.Join(all, ", ")
	}

	return fmt.Sprint(v)
}

// durationText is such as 10m, for 10m0s.
func durationText(d time.Duration) string {
	if d == Never {
		return "never"
	}

	text := zeros.ReplaceAllString(d.String(), "$1")
	return zeros.ReplaceAllString(text, "$1")
}

// zeros matches the end of a duration in full minutes or hours.
var zeros = regexp.MustCompile(`([mh])0[sm]$`)
