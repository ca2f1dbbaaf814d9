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

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Bounds of RULES_FILE.
const (
	maxRules      = 32
	maxRuleLevels = 8
	maxLevels     = 64 // of all rules: each has a gate, with a memory, for every receiver
	maxConditions = 4  // of a rule
	maxWords      = 16
	maxWord       = 128 // bytes
	maxTitle      = 64  // characters
	maxUnit       = 16  // characters
	maxForget     = maxRetention
	maxNesting    = 8  // of {} and [], which a file of rules needs 4 of
	maxMistakes   = 30 // that are shown
)

// A RulesFile is RULES_FILE: the path, and once Load has read it, what is there.
type RulesFile struct {
	path   string
	set    rules.Set
	beside []string // variables that are set, and that rules in a file replace
}

// RulesOf returns a RulesFile that has been read, for tests and local mode. Nobody checks the rules.
func RulesOf(set rules.Set) RulesFile { return RulesFile{path: "RULES_FILE", set: set} }

func (f RulesFile) String() string { return f.path }

func (f *RulesFile) UnmarshalText(text []byte) error {
	f.path = strings.TrimSpace(string(text))
	return nil
}

// A mistake is something wrong in RULES_FILE.
type mistake struct {
	line, column int
	text         string
}

// mistakes are all that is wrong in RULES_FILE, in its order.
type mistakes []mistake

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

// parseRules reads a file of rules, whose window and resolved are as given unless they say
// otherwise. text is UTF-8. An error is mistakes, all of them; after one in the YAML itself there is
// only that.
func parseRules(text []byte, window time.Duration, resolved bool) (rules.Set, error) {
	r := &rulesReader{window: window, resolved: resolved}
	if root := r.document(text); root != nil {
		r.file(root)
	}

	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b mistake) int {
			return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
		})
		return rules.Set{}, r.mistakes
	}

	return r.set, nil
}

// A rulesReader reads one file, and goes on after a mistake. Of a value that it cannot read it takes one of which no
// check that follows complains.
type rulesReader struct {
	window   time.Duration
	resolved bool
	set      rules.Set
	mistakes mistakes
}

// wrong records a mistake at n.
func (r *rulesReader) wrong(n ast.Node, format string, args ...any) {
	// The token of a mapping without braces is its first colon.
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	r.wrongAt(n.GetToken(), format, args...)
}

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

// document returns the one document in text, nil if there is none that could be read.
func (r *rulesReader) document(text []byte) ast.Node {
	tokens := lexer.Tokenize(strings.TrimPrefix(string(text), "\uFEFF"))
	// The parser takes minutes for what is nested deep enough.
	depth := 0
	for i, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			r.wrongAt(
				t,
				"anchors (&, * and <<) are not read: write the values out, or put quotes around a text that begins like this",
			)
			return nil

		case token.MappingStartType, token.SequenceStartType:
			depth++

		case token.MappingEndType, token.SequenceEndType:
			depth--
		}

		listInList := i > 0 && t.Type == token.SequenceEntryType && tokens[i-1].Type == t.Type
		if depth > maxNesting || listInList {
			r.wrongAt(t, "is nested too deep")
			return nil
		}
	}

	file, err := parser.Parse(tokens, 0)
	if err != nil {
		// Its text quotes the file; its message and its token do not, except for a key that is there twice.
		var detailed interface {
			GetMessage() string
			GetToken() *token.Token
		}
		if !errors.As(err, &detailed) || mayBeSecret(detailed.GetMessage()) {
			r.wrongAt(nil, "is not YAML")
			return nil
		}

		r.wrongAt(
			detailed.GetToken(),
			"is not YAML: %s; check that lines are indented alike, with spaces, and that a space follows each colon and hyphen",
			humanize.Clean(strings.ReplaceAll(detailed.GetMessage(), "\t", "tab")),
		)
		return nil
	}

	var root ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil || d.Body.Type() == ast.NullType || d.Body.Type() == ast.CommentType:
		case root != nil:
			r.wrong(d.Body, "is a second document: one file holds one list of rules")
			return nil
		default:
			root = d.Body
		}
	}

	if root == nil {
		r.wrongAt(nil, "has no rules: must be rules: and a list of them")
	}

	return root
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

// mapping returns the values of a mapping by key. Those of keys that are not known are mistakes, and so are keys
// without a value.
func (r *rulesReader) mapping(n ast.Node, known ...string) map[string]ast.Node {
	values := map[string]ast.Node{}
	for _, m := range members(n) {
		switch name := scalar(m.Key); {
		case m.Key.Type() == ast.IntegerType && m.Value.Type() == ast.NullType:
			r.wrong(m.Key, "%s stands alone: if it belongs to the number before it, write a decimal point", show(name))
		case !slices.Contains(known, name):
			r.wrong(m.Key, "%s is not known%s", show(cmp.Or(name, m.Key.GetToken().Value)), didYouMean(name, known))
		case m.Value.Type() == ast.NullType:
			r.wrong(m.Key, "%s has no value: set it, or remove it", name)
		default:
			values[name] = m.Value
		}
	}

	return values
}

// didYouMean suggests one of known, or lists them.
func didYouMean(name string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		// In short names a letter or two make another word.
		if d := editDistance(strings.ToLower(name), k); d < distance && len(k) >= 2*d+1 {
			best, distance = k, d
		}
	}

	if best != "" {
		return "; did you mean " + best + "?"
	}

	return ": must be " + humanize.Or(known)
}

// file reads the whole file.
func (r *rulesReader) file(root ast.Node) {
	top := r.mapping(root, "rules", "show")
	if n := top["show"]; n != nil {
		r.set.Show = r.show(n)
	}

	at := cmp.Or(top["rules"], root)
	list, ok := at.(*ast.SequenceNode)
	if !ok || list == root || len(list.Values) == 0 || len(list.Values) > maxRules {
		r.wrong(at, "must be rules: and a list of 1 to %d rules, each of which begins with a hyphen", maxRules)
		return
	}

	levels := 0
	for _, n := range list.Values {
		if members(n) == nil {
			r.wrong(n, "is not a rule: must be name: …, field: … and so on")
			continue
		}

		rule := r.rule(n)
		levels += len(rule.Levels)
		r.set.Rules = append(r.set.Rules, rule)
	}

	if levels > maxLevels {
		r.wrong(list, "have %d levels together; must be at most %d", levels, maxLevels)
	}

	if _, err := r.set.Decoder(); err != nil && len(r.mistakes) == 0 {
		r.wrong(list, "%v", err)
	}
}

// show reads the names of the properties that messages show.
func (r *rulesReader) show(n ast.Node) (names []string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 || len(list.Values) > notify.MaxShown {
		r.wrong(n, "show must be a list of 1 to %d application properties, such as [site, name]", notify.MaxShown)
		return nil
	}

	for _, value := range list.Values {
		name := scalar(value)
		if err := checkProperty(name); err != nil {
			r.wrong(value, "%v", err)
		} else if slices.Contains(names, name) {
			r.wrong(value, "%s is a duplicate: remove one of them", name)
		}

		names = append(names, name)
	}

	return names
}

// ruleKeys are the settings of a rule.
var ruleKeys = []string{
	"name",
	"title",
	"field",
	"unit",
	"above",
	"below",
	"is",
	"silent",
	"forget",
	"clear",
	"hysteresis",
	"clear_for",
	"for",
	"window",
	"per",
	"resolved",
	"override",
	"valid",
	"only",
	"runbook",
}

// conflicts are settings that mean nothing beside the first.
var conflicts = [][]string{
	{"silent", "above", "below", "is", "clear", "hysteresis", "clear_for", "for", "override", "only", "unit", "per"},
	{"is", "above", "below", "clear", "hysteresis", "override", "valid"},
	{"above", "below"},
	{"clear", "hysteresis"},
}

// rule reads one rule.
func (r *rulesReader) rule(n ast.Node) rules.Rule {
	values := r.mapping(n, ruleKeys...)
	for _, keys := range conflicts {
		for _, other := range keys[1:] {
			if at := values[other]; at != nil && values[keys[0]] != nil {
				r.wrong(at, "%s is set beside %s: remove one of them, or make two rules", other, keys[0])
				delete(values, other)
			}
		}
	}

	text := func(key string, check func(string) error) string {
		at := values[key]
		if at == nil {
			return ""
		}

		text := scalar(at)
		if err := check(text); err != nil {
			r.wrong(at, "%s %v", key, err)
		}

		return text
	}
	rule := rules.Rule{
		Name:  text("name", checkName),
		Field: withoutSpaces(text("field", checkField)),
		Per:   text("per", checkProperty),
		Title: text(
			"title",
			checkPrintable(maxTitle),
		),
		Unit:     text("unit", checkPrintable(maxUnit)),
		Runbook:  text("runbook", checkPage),
		Below:    values["below"] != nil,
		Window:   r.window,
		Resolved: r.resolved,
	}

	r.times(&rule, values)

	if at := values["resolved"]; at != nil {
		var err error
		if rule.Resolved, err = strconv.ParseBool(scalar(at)); err != nil {
			r.mustBe(at, "resolved", "true or false")
		}
	}

	if at := values["valid"]; at != nil {
		rule.Valid = r.valid(at)
	}

	if at := values["only"]; at != nil {
		rule.Only = r.only(at)
	}

	silent := values["silent"]
	switch is, above, below := values["is"], values["above"], values["below"]; {
	case silent != nil:
		rule.Silent, rule.Levels = r.silent(silent), []rules.Level{{}}
		rule.Forget = max(rules.DefaultForget, 2*rule.Silent)
		if at := values["forget"]; at != nil {
			rule.Forget = r.duration(at, "forget", 2*rule.Silent, maxForget)
		}

	case is != nil:
		rule.Is = r.words(is, "is")
		rule.Levels = []rules.Level{{Limit: 1, Clear: 1}}

	case above != nil:
		r.levels(&rule, above, "above")

	case below != nil:
		r.levels(&rule, below, "below")

	default:
		r.wrong(n, "a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration")
	}

	r.settings(&rule, values)

	r.checkRule(n, &rule, values)

	return rule
}

// checkRule reports what does not go together in a rule.
func (r *rulesReader) checkRule(n ast.Node, rule *rules.Rule, values map[string]ast.Node) {
	silent := values["silent"]
	switch at := values["name"]; {
	case at == nil:
		r.wrong(n, "a rule has no name")
	case slices.ContainsFunc(r.set.Rules, func(earlier rules.Rule) bool { return earlier.Name == rule.Name }):
		r.wrong(at, "%s is the name of an earlier rule: each needs a name of its own", show(rule.Name))
	case silent != nil && rule.Name == rules.DefaultName:
		r.wrong(at, "%s is not a name for a rule about silence: receivers expect a temperature", rule.Name)
	}

	switch {
	case values["field"] != nil:
	case silent == nil:
		r.wrong(n, "a rule has no field: must be where its reading is, such as field: %s", telemetry.DefaultFields)
	case values["valid"] != nil:
		r.wrong(values["valid"], "valid is set without field: name the field whose readings count")
	}

	if at := values["forget"]; at != nil && silent == nil {
		r.wrong(at, "forget is set without silent: it says when a silent device is forgotten")
	}

	if at := values["per"]; at != nil && rule.Resolved {
		r.wrong(
			at,
			"per is set and recoveries are on: devices that share alerts have no single moment in which they are normal "+
				"again; write resolved: false",
		)
	}
}

// times reads the durations that a rule has for all of its levels.
func (r *rulesReader) times(rule *rules.Rule, values map[string]ast.Node) {
	if at := values["window"]; at != nil {
		rule.Window = r.duration(at, "window", minWindow, maxWindow)
	}

	if at := values["clear_for"]; at != nil {
		rule.ClearedFor = r.duration(at, "clear_for", 0, rules.MaxFor)
	}
}

// silent reads after how long a device is silent.
func (r *rulesReader) silent(n ast.Node) time.Duration {
	if len(members(n)) > 0 {
		r.wrong(n, "silent has levels; must be one duration such as 15m: write a rule for each")
		return rules.MinSilent
	}
	return r.duration(n, "silent", rules.MinSilent, rules.MaxSilent)
}

// duration returns 0 if n is none.
func (r *rulesReader) duration(n ast.Node, name string, low, high time.Duration) time.Duration {
	d, err := time.ParseDuration(scalar(n))
	if err != nil {
		r.mustBe(n, name, "a duration such as 30s, 5m or 1h30m")
	} else if d < low || d > high {
		r.wrong(n, "%s is %s; must be %s to %s", name, Plain(d), Plain(low), Plain(high))
	}

	return d
}

// number returns the reading that n is, of which true is 1 and false is 0. If n is none it returns NaN, which is
// beyond no limit.
func (r *rulesReader) number(n ast.Node, name string) float64 {
	text := scalar(n)
	switch text {
	case "true":
		return 1
	case "false":
		return 0
	}

	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !finite(f) {
		r.mustBe(n, name, likeNumber(text))
		return math.NaN()
	}

	return f + 0 // -0 is 0
}

// expression is a number that is counted from one in the message.
var expression = regexp.MustCompile(`^(\S+)\s+([+-])\s+(\S+)$`)

// limit reads a number, or one that is counted from the number at base in the message, which otherwise is empty.
func (r *rulesReader) limit(n ast.Node, name string) (base string, distance float64) {
	parts := expression.FindStringSubmatch(scalar(n))
	if parts == nil {
		return "", r.number(n, name)
	}

	base = parts[1]
	distance, err := strconv.ParseFloat(parts[3], 64)
	if err != nil || !finite(distance) || !isPlace(base) {
		r.mustBe(n, name, "a number, or a field or application property plus or minus a number, such as setpoint + 3")
		return "", math.NaN()
	}

	if parts[2] == "-" {
		distance = -distance
	}

	return base, distance + 0 // -0 is 0
}

// isPlace reports whether text can be where a message has a value: the name of a field or of an application property.
func isPlace(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err != nil && checkField(text) == nil && !strings.Contains(text, ",")
}

// countedFrom says what a limit is counted from.
func countedFrom(base string) string {
	if base == "" {
		return "nothing"
	}
	return base
}

// words reads one text, number or boolean, or a list of them.
func (r *rulesReader) words(n ast.Node, name string) (words []string) {
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}

	if len(values) == 0 || len(values) > maxWords {
		r.wrong(n, "%s has %d values; must be 1 to %d", name, len(values), maxWords)
		return nil
	}

	for _, value := range values {
		word := strings.TrimSpace(scalar(value))
		if word == "" || len(word) > maxWord || word != humanize.Clean(word) {
			r.wrong(value, "%s must be a word such as open, or a list of words such as [open, ajar]", name)
		}
		words = append(words, word)
	}

	return words
}

// valid reads the range of readings that count.
func (r *rulesReader) valid(n ast.Node) *telemetry.Range {
	valid := telemetry.Range{From: math.Inf(-1), To: math.Inf(1)}
	values := r.mapping(n, "from", "to")
	if at := values["from"]; at != nil {
		valid.From = r.number(at, "from")
	}

	if at := values["to"]; at != nil {
		valid.To = r.number(at, "to")
	}

	if len(members(n)) == 0 || valid.From >= valid.To {
		r.wrong(n, "valid must be a range such as {from: -60, to: 60}")
		return nil
	}

	return &valid
}

// only reads the conditions of a rule.
func (r *rulesReader) only(n ast.Node) (all []rules.Condition) {
	list := members(n)
	if len(list) == 0 || len(list) > maxConditions {
		r.wrong(
			n,
			"only must say which values 1 to %d fields or properties have, such as {door: open, mode: [run, start]}",
			maxConditions,
		)
	}

	for _, m := range list {
		name := scalar(m.Key)
		if checkField(name) != nil || strings.Contains(name, ",") {
			r.wrong(m.Key, "must be the name of a field or of an application property")
		}
		all = append(all, rules.Condition{Name: name, Values: r.words(m.Value, show(name))})
	}

	return all
}

// order puts the levels of a rule, whose limits are n, into their order: the mildest first, and of those with the same
// limit the one that needs it for the shortest time.
func (r *rulesReader) order(rule *rules.Rule, n ast.Node) {
	slices.SortStableFunc(rule.Levels, func(a, b rules.Level) int {
		limits := cmp.Compare(a.Limit, b.Limit)
		if rule.Below {
			limits = -limits
		}
		return cmp.Or(limits, cmp.Compare(a.For, b.For))
	})

	for i := 1; i < len(rule.Levels); i++ {
		if a, b := rule.Levels[i-1], rule.Levels[i]; a.Limit == b.Limit && a.For == b.For {
			r.wrong(n, "%s and %s are the same: one needs another limit, or a longer for", a.Name, b.Name)
		}
	}
}

// A levelValue is a value of a setting: that of one level, or of all.
type levelValue struct {
	level string   // empty if it is for all
	name  string   // what messages call it
	at    ast.Node // the name of the level
	value ast.Node
}

// byLevel returns the values of key: n, or if n is a mapping by level, those in it.
func (r *rulesReader) byLevel(n ast.Node, key string) (values []levelValue) {
	list := members(n)
	if n == nil {
		return nil
	}
	if len(list) == 0 {
		return []levelValue{{name: key, at: n, value: n}}
	}

	if len(list) > maxRuleLevels {
		r.wrong(n, "%s has %d levels; must be at most %d", key, len(list), maxRuleLevels)
	}

	for _, m := range list {
		level := scalar(m.Key)
		if err := checkName(level); err != nil {
			r.wrong(m.Key, "the name of a level %v", err)
		}
		values = append(values, levelValue{level, key + " of " + level, m.Key, m.Value})
	}

	return values
}

// levels reads the levels of a rule, which are the limits in n, the value of key.
func (r *rulesReader) levels(rule *rules.Rule, n ast.Node, key string) {
	for i, v := range r.byLevel(n, key) {
		base, limit := r.limit(v.value, v.name)
		if i == 0 {
			rule.Base = base
		}

		switch {
		case base != rule.Base:
			r.wrong(v.value, "%s is counted from %s, and the first limit from %s: make two rules",
				v.name, countedFrom(base), countedFrom(rule.Base))
		case rule.Base == "" && rule.Valid != nil && (limit < rule.Valid.From || limit > rule.Valid.To):
			r.wrong(v.value, "%s is %v, which is not valid: no reading would ever reach it", v.name, limit)
		}
		rule.Levels = append(rule.Levels, rules.Level{Name: v.level, Limit: limit, Clear: limit})
	}
}

// settings reads what values say of a rule's levels.
func (r *rulesReader) settings(rule *rules.Rule, values map[string]ast.Node) {
	for _, v := range r.byLevel(values["for"], "for") {
		d := r.duration(v.value, v.name, 0, rules.MaxFor)
		r.apply(rule, v, func(l *rules.Level) { l.For = d })
	}

	r.order(rule, cmp.Or(values["above"], values["below"]))

	for _, v := range r.byLevel(values["clear"], "clear") {
		base, clear := r.limit(v.value, v.name)
		if base != rule.Base {
			r.wrong(v.value, "%s is counted from %s, and the limit from %s: must be from the same, or hysteresis: and a number",
				v.name, countedFrom(base), countedFrom(rule.Base))
			clear = math.NaN()
		}

		r.apply(rule, v, func(l *rules.Level) {
			if l.Clear = clear; clear != l.Limit && rule.Breaching(clear, l.Limit) {
				r.wrong(v.value, "%s is %v, beyond the limit %v: the alarm would clear while still active", v.name, clear, l.Limit)
			}
		})
	}

	for _, v := range r.byLevel(values["hysteresis"], "hysteresis") {
		distance := r.number(v.value, v.name)
		if distance < 0 {
			r.mustBe(v.value, v.name, "0 or more, the distance between the limit and where an alarm ends")
		}

		if !rule.Below {
			distance = -distance
		}

		r.apply(rule, v, func(l *rules.Level) { l.Clear = l.Limit + distance })
	}

	for i := 1; i < len(rule.Levels); i++ {
		if a, b := rule.Levels[i-1], rule.Levels[i]; a.Clear != b.Clear && rule.Breaching(a.Clear, b.Clear) {
			r.wrong(
				cmp.Or(values["clear"], values["hysteresis"]),
				"%s would be normal again before %s: its clear, %v, must not be beyond that of %s, %v",
				a.Name,
				b.Name,
				b.Clear,
				a.Name,
				a.Clear,
			)
		}
	}

	for _, v := range r.byLevel(values["override"], "override") {
		r.override(rule, v)
	}
}

// override reads the property of v, which replaces the limit of a level, of the one level by the key of its limit, or
// clear.
func (r *rulesReader) override(rule *rules.Rule, v levelValue) {
	if rule.Base != "" {
		r.wrong(v.at, "override is set, but the limits are counted from %s in each message: remove one of them", rule.Base)
		return
	}

	property := scalar(v.value)
	if err := checkProperty(property); err != nil {
		r.wrong(v.value, "%s %v", v.name, err)
	}

	limit := "above"
	if rule.Below {
		limit = "below"
	}

	one := len(rule.Levels) == 1 && rule.Levels[0].Name == ""
	switch {
	case v.level == "clear":
		for i := range rule.Levels {
			rule.Levels[i].ClearOverride = property
		}
		return

	case v.level == limit && one:
		v.level = ""

	case v.level == "" && len(rule.Levels) > 1:
		r.wrong(
			v.at,
			"override must be given by level, as in override: {%s: …}, because the rule has more than one",
			rule.Levels[0].Name,
		)
		return
	}

	r.apply(rule, v, func(l *rules.Level) { l.Override = property })
}

// apply calls set with each level that v is for.
func (r *rulesReader) apply(rule *rules.Rule, v levelValue, set func(l *rules.Level)) {
	var names []string
	found := v.level == ""
	for i := range rule.Levels {
		if l := &rule.Levels[i]; v.level == "" || v.level == l.Name {
			set(l)
			found = true
		}
		names = append(names, rule.Levels[i].Name)
	}

	switch {
	case found:
	case slices.Contains(names, ""):
		r.wrong(v.at, "%s is not a level: the rule has one limit without a name", show(v.level))
	default:
		r.wrong(v.at, "%s is not a level of this rule%s", show(v.level), didYouMean(v.level, names))
	}
}

// ruleName is what a rule or a level may be called: it is a part of ids, of keys and of
// labels of metrics.
var ruleName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// The errors of checks continue the name of a setting, and do not hold its value unless it may be shown.

func checkName(name string) error {
	if !ruleName.MatchString(name) {
		return errors.New("must be 1 to 32 lower-case letters, digits and hyphens")
	}
	return nil
}

// checkPrintable checks a text for people.
func checkPrintable(most int) func(text string) error {
	return func(text string) error {
		if text == "" || utf8.RuneCountInString(text) > most ||
			strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return fmt.Errorf("must be 1 to %d printable characters", most)
		}
		return nil
	}
}

// checkField checks the paths of a field.
func checkField(paths string) error {
	_, err := telemetry.NewDecoder(paths)
	switch {
	case paths == "":
		return fmt.Errorf("must be one path, or several separated by commas, such as %s", telemetry.DefaultFields)
	case err == nil:
		return nil
	case mayBeSecret(paths):
		return errors.New(
			"may hold a secret and is not shown; must be paths such as machine.temperature, separated by commas",
		)
	}

	return fmt.Errorf("is invalid: %w", err)
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
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil ||
		len(text) > maxPage {
		return fmt.Errorf(
			"must be a URL such as https://www.example.com/alerts, without a user and of at most %d bytes",
			maxPage,
		)
	}

	return nil
}

// maxProperty is more than what the names of message enrichments may have.
const maxProperty = 128

// unfitForProperty reports whether the name of an application property may not have c.
func unfitForProperty(c rune) bool {
	return unicode.IsSpace(c) || !unicode.IsPrint(c) || c == utf8.RuneError
}

// checkProperty checks the name of an application property.
func checkProperty(name string) error {
	switch {
	case strings.HasPrefix(name, "$"):
		return errors.New(
			"must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's " +
				"message enrichment",
		)

	case name == "" || len(name) > maxProperty || strings.ContainsFunc(name, unfitForProperty):
		return fmt.Errorf(
			"must be the name of an application property: 1 to %d printable characters without spaces",
			maxProperty,
		)
	}

	return nil
}
