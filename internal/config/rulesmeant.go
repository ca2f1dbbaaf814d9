package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// What people write in a file of rules, and what they mean by it.

// The quotation marks and minus signs that word processors and chats make of typed ones.
const (
	typographicQuotes = "“”„‟‘’‚‛«»"
	typographicMinus  = "−–—‐‑"
)

var (
	numberWithUnit = regexp.MustCompile(`^([-+]?[0-9.]+)\s*(°|º|[A-Za-z%])[^0-9]*$`)
	longDuration   = regexp.MustCompile(`^([0-9]+)\s*(s|m|h|d|w|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?|weeks?)?$`)
)

// numberMeant returns the number that text stands for, empty if nobody can tell.
func numberMeant(text string) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case strings.ContainsRune(typographicMinus, c):
			return '-'
		case strings.ContainsRune(typographicQuotes, c):
			return -1
		}
		return c
	}, text)
	if strings.Count(text, ",") == 1 && !strings.Contains(text, ".") {
		text = strings.Replace(text, ",", ".", 1)
	}
	if m := numberWithUnit.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	if text = strings.TrimSpace(text); !decimal.MatchString(text) {
		return ""
	}
	return text
}

// durationMeant returns the duration that text stands for, empty if nobody can tell.
func durationMeant(text string) string {
	m := longDuration.FindStringSubmatch(strings.ToLower(strings.Trim(text, typographicQuotes)))
	if m == nil || len(m[1]) > 6 {
		return ""
	}
	unit := "s"
	if m[2] != "" {
		unit = m[2][:1]
	}
	n, _ := strconv.Atoi(m[1]) // at most six digits
	switch unit {
	case "d":
		n, unit = 24*n, "h"
	case "w":
		n, unit = 7*24*n, "h"
	}
	return fmt.Sprint(n, unit)
}

// didYouMeanValue ends a sentence about a value.
func didYouMeanValue(meant string) string {
	if meant == "" {
		return ""
	}
	return ": did you mean " + meant + "?"
}

// ruleKeys are the settings of a rule.
var ruleKeys = []string{"name", "title", "field", "unit", "above", "below", "is", "silent", "forget", "clear", "hysteresis", "for", "window", "per", "resolved", "override", "valid", "only", "runbook"}

var (
	keyOfRule    = strings.Join(ruleKeys, "|")
	gluedKey     = regexp.MustCompile(`^(\s*(?:- +)?)(` + keyOfRule + `|rules|show):([^\s].*)$`)
	gluedHyphen  = regexp.MustCompile(`^\s*-(` + keyOfRule + `):`)
	firstKey     = regexp.MustCompile(`^(\s*- +)(` + keyOfRule + `):`)
	followingKey = regexp.MustCompile(`^(\s*)(` + keyOfRule + `):`)
)

// typed looks in text that is not YAML for what people mistype, and records the first such place.
// It reports whether there is one. A parser often only notices later, and says something else.
func (r *rulesReader) typed(text string) bool {
	wrong := func(line, column int, format string, args ...any) bool {
		r.mistakes = append(r.mistakes, mistake{line + 1, column + 1, fmt.Sprintf(format, args...)})
		return true
	}
	column, first := -1, "" // where the keys of the rule stand, and its first one
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r ")
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if at := strings.IndexByte(indent, '\t'); at >= 0 && len(indent) < len(line) {
			return wrong(i, at, "is indented with a tab: use spaces")
		}
		if m := gluedKey.FindStringSubmatch(line); m != nil && m[3][0] != '#' {
			return wrong(i, len(m[1]), "%s has no space after the colon: did you mean %s?", shown(m[2]+":"+m[3]), shown(m[2]+": "+m[3]))
		}
		if m := gluedHyphen.FindStringSubmatch(line); m != nil {
			return wrong(i, len(indent), `"-%s" has no space after the hyphen: did you mean "- %[1]s"?`, m[1])
		}
		if m := firstKey.FindStringSubmatch(line); m != nil {
			column, first = len(m[1]), m[2]
		} else if m := followingKey.FindStringSubmatch(line); m != nil && column >= 0 && len(m[1]) != column {
			return wrong(i, len(m[1]), "%s is in column %d; must be in column %d, below %s", m[2], len(m[1])+1, column+1, first)
		}
	}
	return false
}

// typographic reports whether t begins with a quotation mark that YAML does not take for one.
func typographic(t *token.Token) bool {
	for _, c := range strings.TrimSpace(t.Value) {
		return t.Type == token.StringType && strings.ContainsRune(typographicQuotes, c)
	}
	return false
}
