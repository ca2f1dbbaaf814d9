package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// typographicQuotes are what word processors and chats make of typed quotation marks, and typographicMinus of hyphens.
const (
	typographicQuotes = "“”„‟‘’‚‛«»"
	typographicMinus  = "−–—‐‑"
)

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
