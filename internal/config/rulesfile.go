package config

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
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

// Bounds of a file of rules.
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
	maxMutes      = 32
	maxNesting    = 8  // of {} and [], which a file of rules needs 4 of
	maxMistakes   = 30 // that are shown
)

// A RulesFile is RULES_FILE: the path, and once Load has read it, what is there.
type RulesFile struct {
	path   string
	set    rules.Set
	beside []string // variables that are set, and that rules in a file replace
}

// A RulesText is RULES: a file of rules, inline.
type RulesText string

// String says only how long it is.
func (t RulesText) String() string {
	if t == "" {
		return ""
	}
	return fmt.Sprintf("%d bytes of rules", len(t))
}

// UnmarshalText takes the text. It is read when all other settings are known.
func (t *RulesText) UnmarshalText(text []byte) error {
	*t = RulesText(text)
	return nil
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

// parseRules reads a file of rules, whose window, resolved and zone are those of defaults unless they say otherwise. text is UTF-8. An error is mistakes, all of them; after one in the YAML itself there is only that.
func parseRules(text []byte, defaults ruleDefaults) (rules.Set, error) {
	r := &rulesReader{ruleDefaults: defaults}
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

// document returns the one document in text, nil if there is none that could be read.
func (r *rulesReader) document(text []byte) ast.Node {
	tokens := lexer.Tokenize(strings.TrimPrefix(string(text), "\uFEFF"))
	if !r.parseable(tokens) {
		return nil
	}

	file, err := parser.Parse(tokens, 0)
	if err != nil {
		r.notYAML(err)
		return nil
	}

	return r.oneDocument(file.Docs)
}

// nesting is how much deeper what follows a token is.
var nesting = map[token.Type]int{
	token.MappingStartType:  1,
	token.SequenceStartType: 1,
	token.MappingEndType:    -1,
	token.SequenceEndType:   -1,
}

// references are the tokens of values that stand elsewhere in the file.
var references = []token.Type{token.AnchorType, token.AliasType, token.MergeKeyType}

// parseable reports whether tokens may be parsed. The parser takes minutes for what is nested deep enough.
func (r *rulesReader) parseable(tokens token.Tokens) bool {
	depth := 0
	var previous token.Type
	for _, t := range tokens {
		depth += nesting[t.Type]
		listInList := t.Type == token.SequenceEntryType && previous == t.Type
		previous = t.Type

		switch {
		case slices.Contains(references, t.Type):
			r.wrongAt(
				t,
				"anchors (&, * and <<) are not read: write the values out, or put quotes around a text that begins like this",
			)
			return false

		case depth > maxNesting || listInList:
			r.wrongAt(t, "is nested too deep")
			return false
		}
	}

	return true
}

// notYAML records the parser's error. Its text quotes the file; its message and its token do not, except for a key
// that is there twice.
func (r *rulesReader) notYAML(err error) {
	var detailed interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &detailed) || mayBeSecret(detailed.GetMessage()) {
		r.wrongAt(nil, "is not YAML")
		return
	}

	r.wrongAt(
		detailed.GetToken(),
		"is not YAML: %s; check that lines are indented alike, with spaces, and that a space follows each colon and hyphen",
		humanize.Clean(strings.ReplaceAll(detailed.GetMessage(), "\t", "tab")),
	)
}

// oneDocument returns what is in the only document that is not empty, nil if there is no such document.
func (r *rulesReader) oneDocument(all []*ast.DocumentNode) ast.Node {
	var documents []ast.Node
	for _, d := range all {
		if d.Body != nil && d.Body.Type() != ast.NullType && d.Body.Type() != ast.CommentType {
			documents = append(documents, d.Body)
		}
	}

	switch len(documents) {
	case 0:
		r.wrongAt(nil, "has no rules: must be rules: and a list of them")
		return nil
	case 1:
		return documents[0]
	}

	r.wrong(documents[1], "is a second document: one file holds one list of rules")

	return nil
}

// members returns the keys and values of a mapping, none if n is something else.
func members(n ast.Node) []*ast.MappingValueNode {
	if m, ok := n.(*ast.MappingNode); ok {
		return m.Values
	}
	return nil
}

// items returns the values of a list of 1 to most, none if n is something else.
func items(n ast.Node, most int) []ast.Node {
	if list, ok := n.(*ast.SequenceNode); ok && len(list.Values) <= most {
		return list.Values
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

	return values
}

// goneKeys are keys that version 1.0 had, and what to do instead.
var goneKeys = map[string]string{
	"override": "write it where the limit is, as in above: maxTemp or 80, and clear: minTemp or 75",
	"expect":   "az iot hub query lists devices that never connected, with connectionState and lastActivityTime",
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
	top := r.mapping(root, "rules", "show", "mute")
	r.set.Show = r.show(top["show"])

	list := items(top["rules"], maxRules)
	if len(list) == 0 {
		at := cmp.Or(top["rules"], root)
		r.wrong(at, "must be rules: and a list of 1 to %d rules, each of which begins with a hyphen", maxRules)
		return
	}

	levels := 0
	for _, n := range list {
		if members(n) == nil {
			r.wrong(n, "is not a rule: must be name: …, field: … and so on")
			continue
		}

		rule := r.rule(n)
		levels += len(rule.Levels)
		r.set.Rules = append(r.set.Rules, rule)
	}

	r.mutes(top["mute"])
	r.wrongIf(levels > maxLevels, top["rules"], "have %d levels together; must be at most %d", levels, maxLevels)
	if len(r.mistakes) > 0 {
		return
	}

	_, err := r.set.Decoder()
	r.wrongIf(err != nil, top["rules"], "%v", err)
}

// show reads the names of the properties that messages show, none if n is nil.
func (r *rulesReader) show(n ast.Node) (names []string) {
	list := items(n, notify.MaxShown)
	if n != nil && len(list) == 0 {
		r.wrong(n, "show must be a list of 1 to %d application properties, such as [site, name]", notify.MaxShown)
	}

	for _, value := range list {
		name := scalar(value)
		if err := checkLookup(name); err != nil {
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
	"each",
	"field",
	"sensor",
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
	"repeat",
	"per",
	"resolved",
	"valid",
	"only",
	"runbook",
}

// conflicts are settings that mean nothing beside the first.
var conflicts = [][]string{
	{"silent", "above", "below", "is", "clear", "hysteresis", "clear_for", "for", "repeat", "unit"},
	{"is", "above", "below", "clear", "hysteresis"},
	{"above", "below"},
	{"clear", "hysteresis"},
}

// rule reads one rule.
func (r *rulesReader) rule(n ast.Node) rules.Rule {
	values := r.mapping(n, ruleKeys...)
	r.removeConflicts(values)

	rule := rules.Rule{
		Name:       r.text(values["name"], "name", checkName),
		Title:      r.text(values["title"], "title", checkPrintable(maxTitle)),
		Field:      withoutSpaces(r.text(values["field"], "field", checkField)),
		Unit:       r.text(values["unit"], "unit", checkPrintable(maxUnit)),
		Below:      values["below"] != nil,
		ClearedFor: r.durationOr(0, values["clear_for"], "clear_for", 0, rules.MaxFor),
		Window:     r.durationOr(r.window, values["window"], "window", minWindow, maxWindow),
		Per:        withoutSpaces(r.text(values["per"], "per", checkLookup)),
		Resolved:   r.flagOr(r.resolved, values["resolved"], "resolved"),
		Only:       r.only(values["only"]),
		Runbook:    r.text(values["runbook"], "runbook", checkPage),
	}

	rule.Each = r.text(values["each"], "each", func(path string) error {
		_, err := telemetry.NewEach(path)
		return asName(path, err)
	})
	rule.Sensor = r.sensor(values["sensor"])
	rule.Valid, rule.Flags = r.valid(values["valid"])
	r.wrongIf(
		values["is"] != nil && rule.Valid != nil,
		values["valid"],
		"valid conflicts with is: words have no bounds; remove from and to, or split the rule",
	)
	rule.Repeat = r.repeat(values["repeat"], rule.Window)
	r.limits(n, &rule, values)
	r.settings(&rule, values)
	r.checkRule(n, &rule, values)

	return rule
}

// removeConflicts removes settings that mean nothing beside another.
func (r *rulesReader) removeConflicts(values map[string]ast.Node) {
	for _, keys := range conflicts {
		for _, other := range keys[1:] {
			at := values[other]
			if at == nil || values[keys[0]] == nil {
				continue
			}

			r.wrong(at, "%s conflicts with %s: remove one, or split the rule", other, keys[0])
			delete(values, other)
		}
	}
}

// limits reads when a rule alerts: what its levels are, and where each begins.
func (r *rulesReader) limits(n ast.Node, rule *rules.Rule, values map[string]ast.Node) {
	switch limit := limitKey(rule); {
	case values["silent"] != nil:
		rule.Silent = r.silent(values["silent"])
		rule.Levels = []rules.Level{{}}
		least := 2 * rule.Silent
		rule.Forget = r.durationOr(max(rules.DefaultForget, least), values["forget"], "forget", least, maxForget)

	case values["is"] != nil:
		rule.Is = r.words(values["is"], "is")
		rule.Levels = []rules.Level{{Limit: 1, Clear: 1}}

	case values[limit] != nil:
		r.levels(rule, values[limit], limit)

	default:
		r.wrong(n, "a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration")
	}
}

// limitKey returns the key of a rule's limits.
func limitKey(rule *rules.Rule) string {
	if rule.Below {
		return "below"
	}
	return "above"
}

// checkRule reports what does not go together in a rule.
func (r *rulesReader) checkRule(n ast.Node, rule *rules.Rule, values map[string]ast.Node) {
	silent := values["silent"] != nil
	hasSameName := func(earlier rules.Rule) bool { return earlier.Name == rule.Name }

	switch at := values["name"]; {
	case at == nil:
		r.wrong(n, "a rule has no name")
	case slices.ContainsFunc(r.set.Rules, hasSameName):
		r.wrong(at, "%s is the name of an earlier rule: each needs a name of its own", show(rule.Name))
	case silent && rule.Name == rules.DefaultName:
		r.wrong(at, "%s is not a name for a rule about silence: receivers expect a temperature", rule.Name)
	}

	switch valid := values["valid"]; {
	case values["field"] != nil:
	case !silent:
		r.wrong(n, "a rule has no field: must be where its reading is, such as field: %s", telemetry.DefaultFields)
	case valid != nil:
		r.wrong(valid, "valid is set without field: name the field whose readings count")
	}

	r.checkNames(rule, values)

	forget := values["forget"]
	r.wrongIf(
		forget != nil && !silent,
		forget,
		"forget is set without silent: it says when a silent device is forgotten",
	)

	repeat := values["repeat"]
	r.wrongIf(
		repeat != nil && rule.Per != "" && !rule.Grouped(),
		repeat,
		"repeat conflicts with per without recoveries: what devices share is sent when its window is over; set resolved: true, or "+
			"a longer window",
	)
}

// checkNames reports names of a rule that lead nowhere.
func (r *rulesReader) checkNames(rule *rules.Rule, values map[string]ast.Node) {
	for _, path := range strings.Split(rule.Field, ",") {
		each := rule.Each + "."
		if rule.Each != "" && len(path) > len(each) && strings.EqualFold(path[:len(each)], each) {
			r.wrong(values["field"], "field is looked up in each of %s: write %s", rule.Each, path[len(each):])
		}
	}

	if rule.Each != "" {
		return
	}

	for key, names := range map[string]string{
		"field":  rule.Field,
		"sensor": strings.Join(rule.Sensor, ","),
		"per":    rule.Per,
	} {
		hasKey := slices.ContainsFunc(strings.Split(names, ","), func(name string) bool {
			return strings.EqualFold(name, telemetry.NameOfKey)
		})
		r.wrongIf(hasKey, values[key], "%s is %s without each: it is the name under which a measurement stands",
			key, telemetry.NameOfKey)
	}
}

// text returns what n, the value of name, says, and "" if it is nil.
func (r *rulesReader) text(n ast.Node, name string, check func(string) error) string {
	if n == nil {
		return ""
	}

	text := scalar(n)
	err := check(text)
	r.wrongIf(err != nil, n, "%s %v", name, err)

	return text
}

// flagOr returns the boolean that n, the value of name, is, and otherwise if it is nil.
func (r *rulesReader) flagOr(otherwise bool, n ast.Node, name string) bool {
	if n == nil {
		return otherwise
	}

	flag, err := strconv.ParseBool(scalar(n))
	if err != nil {
		r.mustBe(n, name, "true or false")
	}

	return flag
}

// maxRepeat is the longest that a rule may have an open alarm sent again after, unless it never does.
const maxRepeat = 7 * 24 * time.Hour

// repeat reads how long after an alert an open alarm of a rule with that window is sent again: 0 if that is when the
// window is over, as without n.
func (r *rulesReader) repeat(n ast.Node, window time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	if scalar(n) == "never" {
		return rules.Never
	}

	repeat, err := time.ParseDuration(scalar(n))
	switch {
	case err != nil || repeat == 0:
		r.mustBe(n, "repeat", "a duration such as 4h, or never")
	case repeat < window || repeat > maxRepeat:
		r.wrong(n, "repeat is %s; must be the window (%s) to %s, or never", Plain(repeat), Plain(window), Plain(maxRepeat))
	}

	if repeat <= window {
		return 0
	}

	return repeat
}

// silent reads after how long a device is silent.
func (r *rulesReader) silent(n ast.Node) time.Duration {
	if len(members(n)) > 0 {
		r.wrong(n, "silent has levels; must be one duration such as 15m: write a rule for each")
		return rules.MinSilent
	}
	return r.duration(n, "silent", rules.MinSilent, rules.MaxSilent)
}

// durationOr is duration, and otherwise if n is nil.
func (r *rulesReader) durationOr(
	otherwise time.Duration,
	n ast.Node,
	name string,
	low, high time.Duration,
) time.Duration {
	if n == nil {
		return otherwise
	}
	return r.duration(n, name, low, high)
}

// duration returns the duration that n, the value of name, is, and 0 if it is none.
func (r *rulesReader) duration(n ast.Node, name string, low, high time.Duration) time.Duration {
	d, err := time.ParseDuration(scalar(n))
	if err != nil {
		r.mustBe(n, name, "a duration such as 30s, 5m or 1h30m")
	} else if d < low || d > high {
		r.wrong(n, "%s is %s; must be %s to %s", name, Plain(d), Plain(low), Plain(high))
	}

	return d
}

// number returns the reading that n is: true is 1 and false is 0. If n is none it returns NaN, which is
// beyond no limit.
func (r *rulesReader) number(n ast.Node, name string) float64 {
	text := scalar(n)
	switch text {
	case "true":
		return 1
	case "false":
		return 0
	}

	f, err := parseFinite(text)
	if err != nil {
		r.mustBe(n, name, likeNumber(text))
		return math.NaN()
	}

	return f
}

// parseFinite returns the number that text is. Infinity and NaN are an error, and -0 is 0.
func parseFinite(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && !finite(f) {
		return 0, strconv.ErrRange
	}
	return f + 0, err
}

// expression is a limit that messages say, or that is counted from what they do.
var expression = regexp.MustCompile(`^(\S+)\s+(or|[+-])\s+(\S+)$`)

// limit reads a limit: a number, NAME or NUMBER, or NAME plus or minus NUMBER. Of a mistake the number is NaN.
func (r *rulesReader) limit(n ast.Node, name string) (at rules.Reference, number float64) {
	text := scalar(n)
	parts := expression.FindStringSubmatch(text)
	isName := text != "" && unicode.IsLetter(rune(text[0])) && isPlace(text)
	if parts == nil && !isName {
		return at, r.number(n, name)
	}

	err := errors.New("only a name")
	if parts != nil {
		at = rules.Reference{Name: parts[1], Plus: parts[2] != "or"}
		number, err = parseFinite(parts[3])
	}

	if err != nil || !isPlace(at.Name) {
		r.mustBe(n, name, "a number, or a name with which messages say theirs: maxTemp or 80, setpoint + 3")
		return rules.Reference{}, math.NaN()
	}

	if parts[2] == "-" {
		number = 0 - number // never -0
	}

	return at, number
}

// isPlace reports whether text can be where a message has a number.
func isPlace(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	isWord := text == "true" || text == "false"
	return err != nil && !isWord && checkPath(text) == nil && !strings.Contains(text, ",")
}

// base returns what a limit is counted from, empty if it is not.
func base(at rules.Reference) string {
	if !at.Plus {
		return ""
	}
	return at.Name
}

// countedFrom names what a limit is counted from.
func countedFrom(base string) string { return cmp.Or(base, "nothing") }

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
		isWord := word != "" && len(word) <= maxWord && word == humanize.Clean(word)
		r.wrongIf(!isWord, value, "%s must be a word such as open, or a list of words such as [open, ajar]", name)
		words = append(words, word)
	}

	return words
}

// valid reads the range of readings that count, which is nil if all do, and what else is said of those.
func (r *rulesReader) valid(n ast.Node) (*telemetry.Range, []rules.Condition) {
	if n == nil {
		return nil, nil
	}

	valid := telemetry.Range{From: math.Inf(-1), To: math.Inf(1)}
	var flags []rules.Condition
	for _, m := range members(n) {
		switch name := scalar(m.Key); name {
		case "from":
			valid.From = r.number(m.Value, name)
		case "to":
			valid.To = r.number(m.Value, name)
		default:
			if hint, known := strings.CutPrefix(didYouMean(name, []string{"from", "to"}), "; "); known {
				r.wrong(m.Key, "%s is not a bound; %s", show(name), hint)
			} else {
				flags = append(flags, r.condition(m))
			}
		}
	}

	const like = "such as {from: -60, to: 60}, and may name the values of up to %d flags, such as {q: [good, 192]}"
	isRange := !math.IsInf(valid.From, -1) || !math.IsInf(valid.To, 1)
	if len(members(n)) == 0 || len(flags) > maxConditions || isRange && valid.From >= valid.To {
		r.wrong(n, "valid must be a range "+like, maxConditions)
		return nil, nil
	}

	if !isRange {
		return nil, flags
	}

	return &valid, flags
}

// sensor reads the names of a sensor's: none if n is nil.
func (r *rulesReader) sensor(n ast.Node) (names []string) {
	if n == nil {
		return nil
	}

	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}

	r.wrongIf(
		len(values) == 0 || len(values) > rules.MaxSensorNames,
		n,
		"sensor must be one name, such as deviceId or $module, or a list of up to %d",
		rules.MaxSensorNames,
	)

	for _, value := range values {
		names = append(names, withoutSpaces(r.text(value, "sensor", checkPath)))
	}

	return names
}

// only reads the conditions of a rule: none if n is nil.
func (r *rulesReader) only(n ast.Node) (all []rules.Condition) {
	if n == nil {
		return nil
	}

	list := members(n)
	r.wrongIf(
		len(list) == 0 || len(list) > maxConditions,
		n,
		"only must say which values 1 to %d fields or properties have, such as {door: open, mode: [run, start]}",
		maxConditions,
	)

	for _, m := range list {
		all = append(all, r.condition(m))
	}

	return all
}

// condition reads a name and the values that it must have.
func (r *rulesReader) condition(m *ast.MappingValueNode) rules.Condition {
	name := scalar(m.Key)
	if err := checkPath(name); err != nil {
		r.wrong(m.Key, "a name %v", err)
	}

	return rules.Condition{Name: withoutSpaces(name), Values: r.words(m.Value, show(name))}
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

	for a, b := range neighbours(rule.Levels) {
		same := a.Limit == b.Limit && a.For == b.For
		r.wrongIf(same, n, "%s and %s are the same: one needs another limit, or a longer for", a.Name, b.Name)
	}
}

// neighbours returns each level with the next.
func neighbours(levels []rules.Level) iter.Seq2[rules.Level, rules.Level] {
	return func(yield func(a, b rules.Level) bool) {
		for i := range len(levels) - 1 {
			if !yield(levels[i], levels[i+1]) {
				return
			}
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

// byLevel returns the values of key: n, or if n is a mapping by level, those in it. There are none if n is nil.
func (r *rulesReader) byLevel(n ast.Node, key string) (values []levelValue) {
	if n == nil {
		return nil
	}

	list := members(n)
	if len(list) == 0 {
		return []levelValue{{name: key, at: n, value: n}}
	}

	r.wrongIf(len(list) > maxRuleLevels, n, "%s has %d levels; must be at most %d", key, len(list), maxRuleLevels)

	for _, m := range list {
		level := r.text(m.Key, "the name of a level", checkName)
		values = append(values, levelValue{level, key + " of " + level, m.Key, m.Value})
	}

	return values
}

// levels reads the levels of a rule, which are the limits in n, the value of key.
func (r *rulesReader) levels(rule *rules.Rule, n ast.Node, key string) {
	for i, v := range r.byLevel(n, key) {
		at, limit := r.limit(v.value, v.name)
		first := base(at)
		if i > 0 {
			first = rule.Base()
		}

		isOut := rule.Valid != nil && (limit < rule.Valid.From || limit > rule.Valid.To)
		switch {
		case base(at) != first:
			r.wrong(v.value, "%s is counted from %s, and the first limit from %s: make two rules",
				v.name, countedFrom(base(at)), countedFrom(first))
		case !at.Plus && isOut:
			r.wrong(v.value, "%s is %v, which is not valid: no reading would ever reach it", v.name, limit)
		}

		rule.Levels = append(rule.Levels, rules.Level{Name: v.level, Limit: limit, Clear: limit, LimitAt: at})
	}
}

// settings reads what values say of a rule's levels.
func (r *rulesReader) settings(rule *rules.Rule, values map[string]ast.Node) {
	for _, v := range r.byLevel(values["for"], "for") {
		d := r.duration(v.value, v.name, 0, rules.MaxFor)
		r.apply(rule, v, func(l *rules.Level) { l.For = d })
	}

	r.order(rule, values[limitKey(rule)])

	for _, v := range r.byLevel(values["clear"], "clear") {
		r.clear(rule, v)
	}

	for _, v := range r.byLevel(values["hysteresis"], "hysteresis") {
		r.hysteresis(rule, v)
	}

	for milder, worse := range neighbours(rule.Levels) {
		r.wrongIf(
			beyond(rule, milder.Clear, worse.Clear),
			cmp.Or(values["clear"], values["hysteresis"]),
			"%s would be normal again before %s: its clear, %v, must not be beyond that of %s, %v",
			milder.Name,
			worse.Name,
			worse.Clear,
			milder.Name,
			milder.Clear,
		)
	}
}

// clear reads where the alarms of a level end.
func (r *rulesReader) clear(rule *rules.Rule, v levelValue) {
	at, clear := r.limit(v.value, v.name)
	if base(at) != rule.Base() {
		r.wrong(v.value, "%s is counted from %s, and the limit from %s: must be from the same, or hysteresis: and a number",
			v.name, countedFrom(base(at)), countedFrom(rule.Base()))
		clear = math.NaN()
	}

	if at.Plus {
		at = rules.Reference{} // as LimitAt says
	}

	r.apply(rule, v, func(l *rules.Level) {
		l.Clear = clear
		l.ClearAt = at
		r.wrongIf(beyond(rule, clear, l.Limit), v.value,
			"%s is %v, beyond the limit %v: the alarm would clear while still active", v.name, clear, l.Limit)
	})
}

// hysteresis reads how far from its limit the alarms of a level end.
func (r *rulesReader) hysteresis(rule *rules.Rule, v levelValue) {
	distance := r.number(v.value, v.name)
	if distance < 0 {
		r.mustBe(v.value, v.name, "0 or more, the distance between the limit and where an alarm ends")
	}

	if !rule.Below {
		distance = -distance
	}

	r.apply(rule, v, func(l *rules.Level) { l.Clear = rules.Counted(l.Limit, distance) })
}

// beyond reports whether a reading is further in the direction of a rule's limits than another.
func beyond(rule *rules.Rule, reading, other float64) bool {
	return reading != other && rule.Breaching(reading, other)
}

// apply calls set with each level that v is for.
func (r *rulesReader) apply(rule *rules.Rule, v levelValue, set func(l *rules.Level)) {
	var names []string
	for i := range rule.Levels {
		l := &rule.Levels[i]
		names = append(names, l.Name)
		if v.isFor(l.Name) {
			set(l)
		}
	}

	switch {
	case slices.ContainsFunc(names, v.isFor) || v.level == "":
	case slices.Contains(names, ""):
		r.wrong(v.at, "%s is not a level: the rule has one limit without a name", show(v.level))
	default:
		r.wrong(v.at, "%s is not a level of this rule%s", show(v.level), didYouMean(v.level, names))
	}
}

// isFor reports whether v is for the level of that name.
func (v levelValue) isFor(level string) bool { return v.level == "" || v.level == level }

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
		if length := utf8.RuneCountInString(text); length == 0 || length > most || !isPrintable(text) {
			return fmt.Errorf("must be 1 to %d printable characters", most)
		}
		return nil
	}
}

// isPrintable reports whether text can be shown in one line.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// checkField checks the paths of a field.
func checkField(paths string) error {
	_, err := telemetry.NewDecoder(paths)
	switch {
	case paths == "":
		return fmt.Errorf("must be one path, or several separated by commas, such as %s", telemetry.DefaultFields)
	case err == nil:
		return nil
	case mayBeSecret(paths) && errors.Is(err, telemetry.ErrJSONPath):
		return errNoJSONPath
	case mayBeSecret(paths):
		return errors.New(
			"may hold a secret and is not shown; must be paths such as machine.temperature, separated by commas",
		)
	}

	return fmt.Errorf("is invalid: %w", err)
}

var errNoJSONPath = errors.New(
	"is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only",
)

// checkLookup checks a name that is looked up in a message: of a field, of an application property, or of the hub's.
func checkLookup(name string) error {
	return checkInMessage(name, telemetry.NewNameDecoder)
}

// checkPath is checkLookup for a name that is looked up in each message, and not only in those that alert.
func checkPath(name string) error {
	return checkInMessage(name, func(f telemetry.Field) (*telemetry.Decoder, error) { return telemetry.NewFieldsDecoder(f) })
}

func checkInMessage(name string, decoder func(telemetry.Field) (*telemetry.Decoder, error)) error {
	switch {
	case strings.HasPrefix(name, "$twin."):
		return checkProperty(name)
	case name == "" || len(name) > maxProperty || !isPrintable(name):
		return fmt.Errorf(
			"must be the name of a field or of an application property, of 1 to %d printable characters", maxProperty)
	}

	_, err := decoder(telemetry.Field{Paths: name})

	return asName(name, err)
}

// asName returns err, which is about a name in a message, as part of a sentence. It does not show what may be a secret.
func asName(name string, err error) error {
	if err = unlessSecret(name, err); err == nil || err == errNoJSONPath {
		return err
	}
	return fmt.Errorf("is invalid: %w", err)
}

// unlessSecret returns err, which is about a name, or one that does not show that if it may be a secret.
func unlessSecret(name string, err error) error {
	switch {
	case err == nil || !mayBeSecret(name):
		return err
	case errors.Is(err, telemetry.ErrJSONPath):
		return errNoJSONPath
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

	case name == "" || len(name) > maxProperty || strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == utf8.RuneError
	}):
		return fmt.Errorf(
			"must be the name of an application property: 1 to %d printable characters without spaces",
			maxProperty,
		)
	}

	return nil
}
