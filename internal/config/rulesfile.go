package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Bounds of a file of rules.
const (
	maxRules      = 32
	maxRuleLevels = 8
	maxLevels     = 64 // of all rules: each has a gate, with a memory, for every receiver
	maxConditions = 4  // of a rule
	maxWords      = 16
	maxWord       = 128 // characters
	maxTitle      = 64  // characters
	maxUnit       = 16  // characters
	maxForget     = maxRetention
	maxMutes      = 32
	maxMistakes   = 30 // that are shown
)

// A RulesFile is RULES_FILE: the path, and once Load has read it, what is there.
type RulesFile struct {
	path   string
	set    rules.Set
	beside []string // variables that are set, and that rules in a file replace
}

// A RulesText is RULES: a file of rules, inline. It is read when all other settings are known.
type RulesText string

// String says only how long it is.
func (t RulesText) String() string {
	if t == "" {
		return ""
	}
	return fmt.Sprintf("%d bytes of rules", len(t))
}

// RulesOf returns a RulesFile that has been read, for tests and local mode. Nobody checks the rules.
func RulesOf(set rules.Set) RulesFile { return RulesFile{path: "RULES_FILE", set: set} }

// String returns the path, which is no secret.
func (f RulesFile) String() string { return f.path }

// UnmarshalText takes the path. The file is read when all other settings are known.
func (f *RulesFile) UnmarshalText(text []byte) error {
	f.path = strings.TrimSpace(string(text))
	return nil
}

// A mistake is something wrong in a file of rules.
type mistake struct {
	line, column int
	text         string
}

// mistakes are all that is wrong in a file of rules, in its order.
type mistakes []mistake

// Error has a line for each of the first mistakes, and says how many more there are.
func (m mistakes) Error() string {
	lines := make([]string, 0, maxMistakes+1)
	for _, one := range m[:min(len(m), maxMistakes)] {
		lines = append(lines, fmt.Sprintf("line %d, column %d: %s", one.line, one.column, one.text))
	}

	if n := len(m) - maxMistakes; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}

	return strings.Join(lines, "\n")
}

// parseRules reads a file of rules, whose window, resolved and zone are those of defaults unless they say otherwise. text
// is UTF-8. An error is mistakes, all of them; after one in the YAML itself there is only that.
func parseRules(text []byte, defaults ruleDefaults) (rules.Set, error) {
	r := &rulesReader{ruleDefaults: defaults}
	if root := r.document(text); root != nil {
		r.file(root)
	}

	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b mistake) int {
			return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
		})
		return rules.Set{}, slices.Compact(r.mistakes)
	}

	return r.set, nil
}

// A rulesReader reads one file, and goes on after a mistake. Of a value that it cannot read it takes one of which no
// check that follows complains.
type rulesReader struct {
	ruleDefaults
	set      rules.Set
	mistakes mistakes
}

// ruleDefaults are what settings say of what a file of rules does not.
type ruleDefaults struct {
	window   time.Duration
	resolved bool
	zone     *time.Location
}

// wrong records a mistake at n.
func (r *rulesReader) wrong(n ast.Node, format string, args ...any) {
	// The token of a mapping without braces is its first colon.
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	r.wrongAt(n.GetToken(), format, args...)
}

// wrongIf records a mistake at n, which may be nil where there is none.
func (r *rulesReader) wrongIf(isWrong bool, n ast.Node, format string, args ...any) {
	if isWrong {
		r.wrong(n, format, args...)
	}
}

// wrongAt records a mistake at t, or at the beginning of the file if t is nil.
func (r *rulesReader) wrongAt(t *token.Token, format string, args ...any) {
	m := mistake{1, 1, fmt.Sprintf(format, args...)}
	if t != nil && t.Position != nil {
		m.line, m.column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	r.mistakes = append(r.mistakes, m)
}

// mustBe records that n, the value of name, is not what it must be.
func (r *rulesReader) mustBe(n ast.Node, name, what string) {
	if text := scalar(n); text != "" {
		name += " is " + show(text) + ";"
	}
	r.wrong(n, "%s must be %s", name, what)
}

// references are the tokens of values that stand elsewhere in the file.
var references = []token.Type{token.AnchorType, token.AliasType, token.MergeKeyType}

// document returns the one document in text, nil if there is none that could be read.
func (r *rulesReader) document(text []byte) ast.Node {
	tokens := lexer.Tokenize(strings.TrimPrefix(string(text), "\uFEFF"))
	for _, t := range tokens {
		if slices.Contains(references, t.Type) {
			r.wrongAt(t, "anchors (&, * and <<) are not read: write the values out, or put quotes around a text that begins like this")
			return nil
		}
	}

	file, err := parser.Parse(tokens, 0)
	if err != nil {
		// Its text quotes the file; its message and its token do not, except for a key that is there twice.
		detailed, ok := errors.AsType[yaml.Error](err)
		if !ok || mayBeSecret(detailed.GetMessage()) {
			r.wrongAt(nil, "is not YAML")
			return nil
		}

		const hint = "; check that lines are indented alike, with spaces, and that a space follows each colon and hyphen"
		message := strings.ReplaceAll(detailed.GetMessage(), "\t", "tab")
		r.wrongAt(detailed.GetToken(), "is not YAML: %s"+hint, humanize.Clean(message))

		return nil
	}

	nothing := []ast.NodeType{ast.NullType, ast.CommentType}
	documents := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool {
		return d.Body == nil || slices.Contains(nothing, d.Body.Type())
	})
	switch len(documents) {
	case 0:
		r.wrongAt(nil, "has no rules: must be rules: and a list of them")
		return nil
	case 1:
		return documents[0].Body
	}

	r.wrong(documents[1].Body, "is a second document: one file holds one list of rules")

	return nil
}

// members returns the keys and values of a mapping, none if n is something else.
func members(n ast.Node) []*ast.MappingValueNode {
	if m, ok := n.(*ast.MappingNode); ok {
		return m.Values
	}
	return nil
}

// scalar returns what n says if it is a text, a number or a boolean, else nothing. What YAML has beyond these, such
// as tags, a file of rules has no use for.
func scalar(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return strings.TrimSpace(n.GetToken().Value)
	}

	return ""
}

// list returns the values in n, the value of name: one, or a list of 1 to most.
func (r *rulesReader) list(n ast.Node, name string, most int) []ast.Node {
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}

	if len(values) == 0 || len(values) > most {
		r.wrong(n, "%s has %d values; must be 1 to %d", name, len(values), most)
		return nil
	}

	return values
}

// A reader reads n, the value of a key that people call name.
type reader func(n ast.Node, name string)

// A key is one that a mapping may have.
type key struct {
	name string
	read reader
	not  []string // keys beside which it means nothing
}

// mapping reads the values of the mapping n in the order of keys, and returns what it has read by key. Other keys are
// mistakes, and so are keys without a value.
func (r *rulesReader) mapping(n ast.Node, keys ...key) map[string]ast.Node {
	var known []string
	for _, k := range keys {
		known = append(known, k.name)
	}

	values := map[string]ast.Node{}
	for _, m := range members(n) {
		switch name := scalar(m.Key); {
		case m.Key.Type() == ast.IntegerType && m.Value.Type() == ast.NullType:
			r.wrong(m.Key, "%s stands alone: if it belongs to the number before it, write a decimal point", show(name))
		case goneKeys[name] != "":
			r.wrong(m.Key, "%s is gone: %s", name, goneKeys[name])
		case !slices.Contains(known, name):
			r.wrong(m.Key, "%s is not known%s", show(cmp.Or(name, m.Key.GetToken().Value)), didYouMean(name, known))
		case m.Value.Type() == ast.NullType:
			r.wrong(m.Key, "%s has no value: set it, or remove it", name)
		default:
			values[name] = m.Value
		}
	}

	for _, k := range keys {
		at := values[k.name]
		other := slices.IndexFunc(k.not, func(other string) bool { return values[other] != nil })
		switch {
		case at == nil:
		case other >= 0:
			r.wrong(at, "%s conflicts with %s: remove one, or split the rule", k.name, k.not[other])
			delete(values, k.name)
		default:
			k.read(at, k.name)
		}
	}

	return values
}

// mappings returns what reads a list of up to most mappings, each of which is what.
func (r *rulesReader) mappings(most int, what string, read func(n ast.Node)) reader {
	return func(n ast.Node, name string) {
		for _, one := range r.list(n, name, most) {
			if len(members(one)) == 0 {
				r.wrong(one, "is not %s", what)
				continue
			}
			read(one)
		}
	}
}

// goneKeys are keys that version 1.0 had, and what to do instead.
var goneKeys = map[string]string{
	"override": "write it where the limit is, as in above: maxTemp or 80, and clear: minTemp or 75",
	"expect":   "az iot hub query lists devices that never connected, with connectionState and lastActivityTime",
}

// didYouMean suggests one of known, or lists them.
func didYouMean(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ": must be " + humanize.Or(known)
}

// file reads the whole file.
func (r *rulesReader) file(root ast.Node) {
	top := r.mapping(root,
		key{name: "rules", read: r.mappings(maxRules, "a rule: must be - name: …, field: … and so on", r.rule)},
		key{name: "show", read: r.texts(&r.set.Show, notify.MaxShown, checkLookup)},
		key{name: "mute", read: r.mappings(maxMutes, "a mute: must be - days: …, from: …, where: … and so on", r.mute)},
	)
	at := top["rules"]
	if at == nil {
		r.wrong(root, "must be rules: and a list of 1 to %d rules, each of which begins with a hyphen", maxRules)
		return
	}

	levels := 0
	for i := range r.set.Rules {
		levels += len(r.set.Rules[i].Levels)
	}

	r.wrongIf(levels > maxLevels, at, "have %d levels together; must be at most %d", levels, maxLevels)
	if len(r.mistakes) == 0 {
		_, err := r.set.Decoder()
		r.wrongIf(err != nil, at, "%v", err)
	}
}

// rule reads one rule.
func (r *rulesReader) rule(n ast.Node) {
	rule := &rules.Rule{Window: r.window, Resolved: r.resolved}
	limits := func(n ast.Node, name string) {
		rule.Below = name == "below"
		r.limits(rule, n, name)
	}
	values := r.mapping(n,
		key{name: "name", read: r.text(&rule.Name, checkName)},
		key{name: "title", read: r.text(&rule.Title, checkPrintable(maxTitle))},
		key{name: "each", read: r.text(&rule.Each, checkEach)},
		key{name: "field", read: r.text(&rule.Field, checkField)},
		key{name: "sensor", read: r.texts(&rule.Sensor, rules.MaxSensorNames, checkLookup)},
		key{name: "unit", not: []string{"silent"}, read: r.text(&rule.Unit, checkPrintable(maxUnit))},
		key{name: "valid", read: func(n ast.Node, _ string) { rule.Valid, rule.Flags = r.valid(n) }},
		key{name: "only", read: func(n ast.Node, _ string) {
			list := members(n)
			r.wrongIf(len(list) == 0 || len(list) > maxConditions, n,
				"only must say which values 1 to %d fields or properties have, such as {door: open, mode: [run, start]}", maxConditions)
			for _, m := range list {
				rule.Only = append(rule.Only, r.condition(m))
			}
		}},
		key{name: "silent", read: func(n ast.Node, name string) {
			r.duration(&rule.Silent, rules.MinSilent, rules.MaxSilent)(n, name)
			rule.Forget = max(rules.DefaultForget, 2*rule.Silent)
			rule.Levels = []rules.Level{{}}
		}},
		key{name: "forget", read: func(n ast.Node, name string) {
			r.wrongIf(rule.Forget == 0, n, "forget is set without silent: it says when a silent device is forgotten")
			r.duration(&rule.Forget, 2*rule.Silent, maxForget)(n, name)
		}},
		key{name: "is", not: []string{"silent"}, read: func(n ast.Node, name string) {
			rule.Is = r.words(n, name)
			rule.Levels = []rules.Level{{Limit: 1, Clear: 1}}
		}},
		key{name: "above", not: []string{"silent", "is"}, read: limits},
		key{name: "below", not: []string{"silent", "is", "above"}, read: limits},
		key{name: "for", not: []string{"silent"}, read: r.byLevel(rule, func(l *rules.Level, n ast.Node, name string) {
			r.duration(&l.For, 0, rules.MaxFor)(n, name)
		})},
		key{name: "clear", not: []string{"silent", "is"}, read: r.byLevel(rule, func(l *rules.Level, n ast.Node, name string) {
			l.ClearAt, l.Clear = r.limit(rule, n, name)
			if l.ClearAt.Plus {
				l.ClearAt = rules.Reference{} // as LimitAt says
			}
			r.wrongIf(rule.Cleared(l.Limit, l.Clear), n,
				"%s is %v, beyond the limit %v: the alarm would clear while still active", name, l.Clear, l.Limit)
		})},
		key{name: "hysteresis", not: []string{"silent", "is", "clear"}, read: r.byLevel(rule, func(l *rules.Level, n ast.Node, name string) {
			distance := r.number(n, name)
			r.wrongIf(distance < 0, n, "%s is %v; must be 0 or more, the distance between the limit and where an alarm ends", name, distance)
			if !rule.Below {
				distance = -distance
			}
			l.Clear = rules.Counted(l.Limit, distance)
		})},
		key{name: "clear_for", not: []string{"silent"}, read: r.duration(&rule.ClearedFor, 0, rules.MaxFor)},
		key{name: "window", read: r.duration(&rule.Window, minWindow, maxWindow)},
		key{name: "repeat", not: []string{"silent"}, read: func(n ast.Node, name string) {
			rule.Repeat = rules.Never
			if scalar(n) != "never" {
				r.duration(&rule.Repeat, rule.Window, maxRepeat)(n, name+" (or never)")
			}
			if rule.Repeat == rule.Window {
				rule.Repeat = 0
			}
		}},
		key{name: "per", read: r.text(&rule.Per, checkLookup)},
		key{name: "resolved", read: func(n ast.Node, name string) {
			flag, err := strconv.ParseBool(scalar(n))
			if err != nil {
				r.mustBe(n, name, "true or false")
			}
			rule.Resolved = flag
		}},
		key{name: "runbook", read: r.text(&rule.Runbook, checkPage)},
	)
	rule.Field, rule.Per = withoutSpaces(rule.Field), withoutSpaces(rule.Per)

	// The mildest level comes first, and of those with the same limit the one that needs it for the shortest time.
	slices.SortStableFunc(rule.Levels, func(a, b rules.Level) int {
		limits := cmp.Compare(a.Limit, b.Limit)
		if rule.Below {
			limits = -limits
		}
		return cmp.Or(limits, cmp.Compare(a.For, b.For))
	})

	r.checkRule(n, rule, values)
	r.set.Rules = append(r.set.Rules, *rule)
}

// checkRule reports what does not go together in a rule, whose levels are in their order.
func (r *rulesReader) checkRule(n ast.Node, rule *rules.Rule, values map[string]ast.Node) {
	isSilent, name := values["silent"] != nil, values["name"]
	isTwice := slices.ContainsFunc(r.set.Rules, func(earlier rules.Rule) bool { return earlier.Name == rule.Name })
	r.wrongIf(name == nil, n, "a rule has no name")
	r.wrongIf(name != nil && isTwice, name, "%s is the name of an earlier rule: each needs a name of its own", show(rule.Name))
	r.wrongIf(isSilent && rule.Name == rules.DefaultName, name,
		"%s is not a name for a rule about silence: receivers expect a temperature", rule.Name)
	r.wrongIf(len(rule.Levels) == 0, n,
		"a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration")
	r.wrongIf(values["field"] == nil && !isSilent, n,
		"a rule has no field: must be where its reading is, such as field: %s", telemetry.DefaultFields)
	r.wrongIf(values["field"] == nil && isSilent && values["valid"] != nil, values["valid"],
		"valid is set without field: name the field whose readings count")
	r.wrongIf(rule.Is != nil && rule.Valid != nil, values["valid"],
		"valid conflicts with is: words have no bounds; remove from and to, or split the rule")
	r.wrongIf(rule.Repeat != 0 && rule.Per != "" && !rule.Grouped(), values["repeat"],
		"repeat conflicts with per without recoveries: what devices share is sent when its window is over; set resolved: true, or "+
			"a longer window")

	for i := 1; i < len(rule.Levels); i++ {
		milder, worse := rule.Levels[i-1], rule.Levels[i]
		r.wrongIf(milder.Limit == worse.Limit && milder.For == worse.For, cmp.Or(values["above"], values["below"]),
			"%s and %s are the same: one needs another limit, or a longer for", milder.Name, worse.Name)
		r.wrongIf(rule.Cleared(worse.Clear, milder.Clear), cmp.Or(values["clear"], values["hysteresis"]),
			"%s would be normal again before %s: its clear, %v, must not be beyond that of %s, %v",
			milder.Name, worse.Name, worse.Clear, milder.Name, milder.Clear)
	}

	fields := strings.Split(rule.Field, ",")
	for _, path := range fields {
		inEach := strings.HasPrefix(strings.ToLower(path), strings.ToLower(rule.Each)+".")
		r.wrongIf(rule.Each != "" && inEach, values["field"],
			"field is looked up in each of %s: write %s", rule.Each, path[min(len(path), len(rule.Each)+1):])
	}

	names := slices.Concat(fields, rule.Sensor, strings.Split(rule.Per, ","))
	hasKey := slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, telemetry.NameOfKey) })
	r.wrongIf(rule.Each == "" && hasKey, n, "%s is set without each: it is the name under which a measurement stands", telemetry.NameOfKey)
}

// text returns what reads a text into a variable.
func (r *rulesReader) text(into *string, check func(string) error) reader {
	return func(n ast.Node, name string) {
		*into = scalar(n)
		err := check(*into)
		r.wrongIf(err != nil, n, "%s %v", name, err)
	}
}

// texts returns what reads one text or up to most different ones, the paths of names in messages.
func (r *rulesReader) texts(into *[]string, most int, check func(string) error) reader {
	return func(n ast.Node, name string) {
		for _, value := range r.list(n, name, most) {
			var text string
			r.text(&text, check)(value, name)
			r.wrongIf(slices.Contains(*into, text), value, "%s has %s twice: remove one of them", name, show(text))
			*into = append(*into, withoutSpaces(text))
		}
	}
}

// maxRepeat is the longest that a rule may have an open alarm sent again after, unless it never does.
const maxRepeat = 7 * 24 * time.Hour

// duration returns what reads a duration of low to high into a variable.
func (r *rulesReader) duration(into *time.Duration, low, high time.Duration) reader {
	return func(n ast.Node, name string) {
		d, err := time.ParseDuration(scalar(n))
		if err != nil {
			r.mustBe(n, name, "a duration such as 30s, 5m or 1h30m")
		} else if d < low || d > high {
			r.wrong(n, "%s is %s; must be %s to %s", name, humanize.Plain(d), humanize.Plain(low), humanize.Plain(high))
		}
		*into = d
	}
}

// number returns the reading that n is. If n is none it returns NaN, which is beyond no limit.
func (r *rulesReader) number(n ast.Node, name string) float64 {
	f, err := parseReading(scalar(n))
	if err != nil {
		r.mustBe(n, name, likeNumber(scalar(n)))
	}
	return f
}

// parseReading returns the reading that text is: a number, or true, which is 1, or false, which is 0. Infinity and NaN
// are an error, and -0 is 0.
func parseReading(text string) (float64, error) {
	switch text {
	case "true":
		return 1, nil
	case "false":
		return 0, nil
	}

	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !finite(f) {
		return math.NaN(), cmp.Or(err, strconv.ErrRange)
	}

	return f + 0, nil
}

// expression is a limit that messages say, or that is counted from what they do.
var expression = regexp.MustCompile(`^([^\s,]+)\s+(?:or|([+-]))\s+(\S+)$`)

// limit reads a limit of a rule: a number, NAME or NUMBER, or NAME plus or minus NUMBER. Of a mistake the number is NaN.
func (r *rulesReader) limit(rule *rules.Rule, n ast.Node, name string) (at rules.Reference, number float64) {
	text := scalar(n)
	number, err := parseReading(text)
	if parts := expression.FindStringSubmatch(text); parts != nil {
		at = rules.Reference{Name: parts[1], Plus: parts[2] != ""}
		number, err = parseReading(parts[2] + parts[3])
		if _, notNumber := parseReading(at.Name); notNumber == nil || checkLookup(at.Name) != nil {
			err = strconv.ErrSyntax
		}
	}

	if err != nil {
		r.mustBe(n, name, likeNumber(text)+", or a name in messages: maxTemp or 80, setpoint + 3")
		return rules.Reference{}, math.NaN()
	}

	if len(rule.Levels) > 0 && at.Base() != rule.Base() {
		r.wrong(n, "%s is counted from %s, but the first limit from %s: count both from the same, write hysteresis, or make two rules",
			name, cmp.Or(at.Base(), "nothing"), cmp.Or(rule.Base(), "nothing"))
		return at, math.NaN()
	}

	return at, number
}

// words reads one text, number or boolean, or a list of them.
func (r *rulesReader) words(n ast.Node, name string) (words []string) {
	for _, value := range r.list(n, name, maxWords) {
		word := strings.TrimSpace(scalar(value))
		isNone := checkPrintable(maxWord)(word) != nil
		r.wrongIf(isNone, value, "%s must be a word such as open, or a list of words such as [open, ajar]", name)
		words = append(words, word)
	}

	return words
}

// valid reads the range of readings that count, which is nil if all do, and what else is said of those.
func (r *rulesReader) valid(n ast.Node) (*telemetry.Range, []rules.Condition) {
	valid := telemetry.Range{From: math.Inf(-1), To: math.Inf(1)}
	var flags []rules.Condition
	for _, m := range members(n) {
		switch name := scalar(m.Key); name {
		case "from":
			valid.From = r.number(m.Value, name)
		case "to":
			valid.To = r.number(m.Value, name)
		default:
			typo := nearest(name, []string{"from", "to"})
			r.wrongIf(typo != "", m.Key, "%s is not a bound; did you mean %s?", show(name), typo)
			flags = append(flags, r.condition(m))
		}
	}

	r.wrongIf(len(members(n)) == 0 || len(flags) > maxConditions || valid.From >= valid.To, n,
		"valid must be a range such as {from: -60, to: 60}, and may name the values of up to %d flags, such as {q: [good, 192]}",
		maxConditions)
	if len(flags) == len(members(n)) {
		return nil, flags
	}

	return &valid, flags
}

// condition reads a name and the values that it must have.
func (r *rulesReader) condition(m *ast.MappingValueNode) rules.Condition {
	var name string
	r.text(&name, checkLookup)(m.Key, "a name")
	return rules.Condition{Name: withoutSpaces(name), Values: r.words(m.Value, show(name))}
}

// limits reads the levels of a rule, which are the limits in n: one without a name, or several by name.
func (r *rulesReader) limits(rule *rules.Rule, n ast.Node, name string) {
	add := func(level string, n ast.Node, name string) {
		at, limit := r.limit(rule, n, name)
		isOut := rule.Valid != nil && !at.Plus && (limit < rule.Valid.From || limit > rule.Valid.To)
		r.wrongIf(isOut, n, "%s is %v, which is not valid: no reading would ever reach it", name, limit)
		rule.Levels = append(rule.Levels, rules.Level{Name: level, Limit: limit, Clear: limit, LimitAt: at})
	}

	list := members(n)
	if len(list) == 0 {
		add("", n, name)
	}

	r.wrongIf(len(list) > maxRuleLevels, n, "%s has %d levels; must be at most %d", name, len(list), maxRuleLevels)
	for _, m := range list {
		var level string
		r.text(&level, checkName)(m.Key, "the name of a level")
		add(level, m.Value, name+" of "+level)
	}
}

// byLevel returns what reads a value for all levels of a rule, or a mapping with those of some: read is called with each
// level and its value. The levels have been read.
func (r *rulesReader) byLevel(rule *rules.Rule, read func(l *rules.Level, n ast.Node, name string)) reader {
	return func(n ast.Node, name string) {
		all := rule.Levels
		if len(all) == 0 {
			all = make([]rules.Level, 1) // what is wrong with the value shows all the same
		}

		levels := map[string]*rules.Level{}
		var names []string
		isByLevel := len(members(n)) > 0
		for i := range all {
			l := &all[i]
			levels[l.Name], names = l, append(names, l.Name)
			if !isByLevel {
				read(l, n, name)
			}
		}

		for _, m := range members(n) {
			switch level := scalar(m.Key); {
			case levels[level] != nil:
				read(levels[level], m.Value, name+" of "+level)
			case levels[""] != nil:
				r.wrong(m.Key, "%s is not a level: the rule has one limit without a name", show(level))
			default:
				r.wrong(m.Key, "%s is not a level of this rule%s", show(level), didYouMean(level, names))
			}
		}
	}
}

// ruleName is what a rule or a level may be called: it is a part of ids, of keys and of
// labels of metrics.
var ruleName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// The errors of checks continue the name of a setting, and do not hold its value unless it may be shown.

// checkName checks the name of a rule or a level.
func checkName(name string) error {
	if !ruleName.MatchString(name) {
		return errors.New("must be 1 to 32 lower-case letters, digits and hyphens")
	}
	return nil
}

// checkPrintable checks a text for people.
func checkPrintable(most int) func(text string) error {
	return func(text string) error {
		length := utf8.RuneCountInString(text)
		if length == 0 || length > most || text != humanize.Clean(text) {
			return fmt.Errorf("must be 1 to %d printable characters", most)
		}
		return nil
	}
}

// checkField checks the paths of a field.
func checkField(paths string) error {
	if paths == "" {
		return fmt.Errorf("must be one path, or several separated by commas, such as %s", telemetry.DefaultFields)
	}
	_, err := telemetry.NewDecoder(paths)
	return asName(paths, err)
}

// checkEach checks where measurements are.
func checkEach(path string) error {
	_, err := telemetry.NewEach(path)
	return asName(path, err)
}

// checkLookup checks a name that is looked up in a message: of a field, of an application property, or of the hub's.
func checkLookup(name string) error {
	switch {
	case strings.HasPrefix(name, "$twin."):
		return checkProperty(name)
	case checkPrintable(maxProperty)(name) != nil:
		return fmt.Errorf(
			"must be the name of a field or of an application property, of 1 to %d printable characters", maxProperty)
	}

	_, err := telemetry.NewDecoder(name)

	return asName(name, err)
}

// asName returns err, which is about a name in a message, as part of a sentence. It does not show what may be a secret.
func asName(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case !mayBeSecret(name):
		return fmt.Errorf("is invalid: %w", err)
	case errors.Is(err, telemetry.ErrJSONPath):
		return telemetry.ErrJSONPath
	}

	return errors.New("must be a name such as machine.temperature; it may hold a secret and is not shown")
}

// withoutSpaces returns the paths of a field without the spaces around them.
func withoutSpaces(field string) string {
	paths := strings.Split(field, ",")
	for i, path := range paths {
		paths[i] = strings.TrimSpace(path)
	}
	return strings.Join(paths, ",")
}

// maxPage is far more than the address of a page takes, and less than what any receiver takes.
const maxPage = 1024

// checkPage checks the URL of a page for people.
func checkPage(text string) error {
	u, err := url.Parse(text)
	isPage := err == nil && slices.Contains([]string{"http", "https"}, u.Scheme) && u.Hostname() != "" && u.User == nil
	if !isPage || len(text) > maxPage {
		return fmt.Errorf(
			"must be a URL such as https://www.example.com/alerts, without a user and of at most %d bytes",
			maxPage,
		)
	}

	return nil
}

// maxProperty is more than what the names of message enrichments may have.
const maxProperty = 128

// checkProperty checks the name of an application property.
func checkProperty(name string) error {
	switch {
	case strings.HasPrefix(name, "$"):
		return errors.New(
			"must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's " +
				"message enrichment",
		)

	case checkPrintable(maxProperty)(name) != nil || strings.ContainsFunc(name, unicode.IsSpace):
		return fmt.Errorf(
			"must be the name of an application property: 1 to %d printable characters without spaces",
			maxProperty,
		)
	}

	return nil
}
