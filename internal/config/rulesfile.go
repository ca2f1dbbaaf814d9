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
// otherwise. An error is mistakes, all of them; after one in the YAML itself there is
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
	return rules.Set{Rules: r.rules, Show: r.show}, nil
}

// A rulesReader reads one file, and goes on after a mistake.
type rulesReader struct {
	window   time.Duration
	resolved bool
	levels   int // of all rules so far
	rules    []rules.Rule
	show     []string
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

// refused are parts of YAML that a file of rules has no use for. Some of them make little text into much.
var refused = map[token.Type]string{
	token.AnchorType:     "anchors (&) are not supported: write the value out",
	token.AliasType:      "aliases (*) are not supported: write the value out, or put it in quotes if it begins with *",
	token.MergeKeyType:   "merge keys (<<) are not supported: write the values out",
	token.TagType:        "tags (!) are not supported: put the value in quotes if it begins with !",
	token.DirectiveType:  "directives (%) are not supported",
	token.MappingKeyType: "keys with ? are not supported: write name: value",
	token.LiteralType:    "text over several lines (|) is not supported: write it on one line",
	token.FoldedType:     "text over several lines (>) is not supported: write it on one line",
}

// typographicQuotes are what word processors and chats make of typed quotation marks, and typographicMinus of hyphens.
const (
	typographicQuotes = "“”„‟‘’‚‛«»"
	typographicMinus  = "−–—‐‑"
)

// typographic reports whether t begins with a quotation mark that YAML does not take for one.
func typographic(t *token.Token) bool {
	first, _ := utf8.DecodeRuneInString(strings.TrimSpace(t.Value))
	return t.Type == token.StringType && strings.ContainsRune(typographicQuotes, first)
}

// document returns the one document in text, nil if there is none that could be read.
func (r *rulesReader) document(text []byte) ast.Node {
	if !utf8.Valid(text) {
		r.wrongAt(nil, "is not UTF-8 text")
		return nil
	}
	source := strings.TrimPrefix(string(text), "\uFEFF")
	// Tokens come without recursion. So what would make the parser recurse deeply is refused
	// before it sees it.
	tokens := lexer.Tokenize(source)
	depth := 0
	for i, t := range tokens {
		if why := refused[t.Type]; why != "" {
			r.wrongAt(t, "%s", why)
		}
		if typographic(t) {
			r.wrongAt(t, "%s has typographic quotation marks: use \" or none", shown(strings.TrimSpace(t.Value)))
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType:
			if i > 0 && tokens[i-1].Type == token.SequenceEntryType && tokens[i-1].Position.Line == t.Position.Line {
				r.wrongAt(t, "is a list in a list")
				return nil
			}
		}
		if depth > maxNesting {
			r.wrongAt(t, "is nested too deep")
			return nil
		}
	}
	if len(r.mistakes) > 0 {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		// Its text quotes the file; its message and its token do not.
		var detailed interface {
			GetMessage() string
			GetToken() *token.Token
		}
		if errors.As(err, &detailed) {
			r.wrongAt(detailed.GetToken(), "is not YAML: %s; check that lines are indented alike, with spaces, and that a space follows each colon and hyphen", printable(strings.ReplaceAll(detailed.GetMessage(), "\t", "tab")))
		} else {
			r.wrongAt(nil, "is not YAML")
		}
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

// A member is one key of a mapping and its value.
type member struct{ key, value ast.Node }

// members returns the members of a mapping, in order, and whether it is one.
func members(n ast.Node) ([]member, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		all := make([]member, 0, len(n.Values))
		for _, v := range n.Values {
			all = append(all, member{v.Key, v.Value})
		}
		return all, true
	case *ast.MappingValueNode:
		return []member{{n.Key, n.Value}}, true
	}
	return nil, false
}

// pick returns the values of a mapping by key, without those that are not known, occur twice or have
// no value, which are mistakes.
func (r *rulesReader) pick(n ast.Node, known ...string) map[string]ast.Node {
	list, _ := members(n)
	values, seen := map[string]ast.Node{}, map[string]bool{}
	for _, m := range list {
		name, _, ok := scalar(m.key)
		switch {
		case !ok:
			r.wrong(m.key, "must be the name of a setting")
		case name == "quiet":
			r.wrong(m.key, "quiet belongs in QUIET_PROPERTY, which applies to all rules")
		case isNull(m.value) && decimal.MatchString(name): // {above: -15,5}
			r.wrong(m.key, "%s is not known: a number has a point, not a comma", name)
		case !slices.Contains(known, name):
			r.wrong(m.key, "%s is not known%s", shown(name), didYouMean(name, known))
		case seen[name]:
			r.wrong(m.key, "%s is a duplicate: remove one of them", name)
		case isNull(m.value):
			r.wrong(m.key, "%s has no value: set it, or remove it", name)
		default:
			values[name] = m.value
		}
		seen[name] = true
	}
	return values
}

// didYouMean suggests one of known, or lists them.
func didYouMean(name string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		// In short names a letter or two make another word.
		if d := editDistance(strings.ToLower(printable(name)), k); d < distance && len(k) >= 2*d+1 {
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
	if _, ok := members(root); !ok {
		if _, list := root.(*ast.SequenceNode); list {
			r.wrong(root, "is a list: put rules: in front of it")
		} else {
			r.wrong(root, "must be rules: and a list of them")
		}
		return
	}
	wrong := len(r.mistakes)
	top := r.pick(root, "rules", "show")
	if at := top["show"]; at != nil {
		r.readShow(at)
	}
	all, ok := top["rules"]
	if !ok {
		if len(r.mistakes) == wrong {
			r.wrong(root, "has no rules: must be rules: and a list of them")
		}
		return
	}
	list, ok := all.(*ast.SequenceNode)
	switch {
	case !ok:
		r.wrong(all, "rules must be a list: begin each rule with a hyphen")
		return
	case len(list.Values) == 0:
		r.wrong(all, "has no rules: must be at least one")
	case len(list.Values) > maxRules:
		r.wrong(list.Values[maxRules], "is rule %d: must be at most %d", maxRules+1, maxRules)
		return
	}
	names := map[string]bool{}
	for _, n := range list.Values {
		if _, ok := members(n); !ok {
			r.wrong(n, "is not a rule: must be name: …, field: … and so on")
			continue
		}
		rule, nameAt := r.rule(n)
		if nameAt != nil && names[rule.Name] {
			r.wrong(nameAt, "%s is the name of an earlier rule: each needs a name of its own", rule.Name)
		}
		names[rule.Name] = true
		r.rules = append(r.rules, rule)
	}
	if _, err := (&rules.Set{Rules: r.rules}).Decoder(); err != nil && len(r.mistakes) == wrong {
		r.wrong(all, "%v", err)
	}
}

// ruleKeys are the settings of a rule.
var ruleKeys = []string{"name", "title", "field", "unit", "above", "below", "is", "silent", "forget", "clear", "hysteresis", "for", "window", "per", "resolved", "override", "valid", "only", "runbook"}

// rule reads one rule. name is where it has a valid name, nil if it has none.
func (r *rulesReader) rule(n ast.Node) (rule rules.Rule, name ast.Node) {
	values := r.pick(n, ruleKeys...)
	rule = rules.Rule{Window: r.window, Resolved: r.resolved}

	if at := values["name"]; at == nil {
		r.wrong(n, "a rule has no name")
	} else if text, ok := r.name(at, "name"); ok {
		rule.Name, name = text, at
	}
	silent := values["silent"]
	if at := values["field"]; at == nil && silent == nil {
		r.wrong(n, "a rule has no field: must be where its reading is, such as field: %s", telemetry.DefaultFields)
	} else if at != nil {
		rule.Field = r.field(at)
	}
	if at := values["window"]; at != nil {
		rule.Window = r.duration(at, "window", minWindow, maxWindow)
	}
	if at := values["resolved"]; at != nil {
		if b, ok := at.(*ast.BoolNode); ok {
			rule.Resolved = b.Value
		} else {
			r.wrong(at, "resolved must be true or false")
		}
	}

	if at := values["per"]; at != nil {
		text, _, _ := scalar(at)
		if err := checkProperty(text); err != nil {
			r.wrong(at, "per %v", err)
		} else if rule.Per = text; rule.Resolved {
			r.wrong(at, "per is set and recoveries are on: a %s has no single moment in which it is normal again; write resolved: false", text)
		}
	}

	rule.Title, rule.Unit = r.text(values["title"], "title", maxTitle), r.text(values["unit"], "unit", maxUnit)
	if at := values["runbook"]; at != nil {
		text, _, _ := scalar(at)
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(text) > maxPublicURL {
			r.wrong(at, "runbook must be a URL such as https://wiki.example.com/ovens, without a user and of at most %d bytes", maxPublicURL)
		} else {
			rule.Runbook = text
		}
	}
	if at := values["valid"]; at != nil {
		rule.Valid = r.valid(at)
	}
	if at := values["only"]; at != nil {
		rule.Only = r.only(at)
	}

	if at := values["forget"]; at != nil && silent == nil {
		r.wrong(at, "forget is set without silent: it says when a silent device is forgotten")
	}
	switch is, above, below := values["is"], values["above"], values["below"]; {
	case silent != nil:
		r.silence(&rule, silent, values)
		return rule, name
	case is != nil:
		for _, other := range []string{"above", "below", "clear", "hysteresis", "override", "valid"} {
			if at := values[other]; at != nil {
				r.wrong(at, "%s is set beside is, which compares words: remove one of them", other)
			}
		}
		rule.Is = r.words(is, "is")
		rule.Levels = []rules.Level{{Limit: 1, Clear: 1}}
		r.levels++
	case above != nil:
		if below != nil {
			r.wrong(below, "below and above are both set: make two rules of them")
		}
		r.limits(&rule, above, values)
	case below != nil:
		rule.Below = true
		r.limits(&rule, below, values)
	default:
		r.wrong(n, "a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration")
	}
	if at := values["for"]; at != nil {
		r.lasts(&rule, at)
	}
	return rule, name
}

// ruleName is what a rule or a level may be called: it is a part of ids, of keys and of
// labels of metrics.
var ruleName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

func (r *rulesReader) name(n ast.Node, what string) (string, bool) {
	text, _, ok := scalar(n)
	if !ok || !ruleName.MatchString(text) {
		r.wrong(n, "%s must be 1 to 32 lower-case letters, digits and hyphens", what)
		return "", false
	}
	return text, true
}

// Bounds of texts for people, in characters.
const (
	maxTitle = 64
	maxUnit  = 16
)

// text returns a text for people, empty if n is nil.
func (r *rulesReader) text(n ast.Node, what string, most int) string {
	if n == nil {
		return ""
	}
	text, _, ok := scalar(n)
	if !ok || text == "" || utf8.RuneCountInString(text) > most || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		r.wrong(n, "%s must be 1 to %d printable characters", what, most)
		return ""
	}
	return text
}

// readShow reads the names of the properties that messages show.
func (r *rulesReader) readShow(n ast.Node) {
	list, ok := n.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 || len(list.Values) > notify.MaxShown {
		r.wrong(n, "show must be a list of 1 to %d application properties, such as [site, name]", notify.MaxShown)
		return
	}
	for _, value := range list.Values {
		name, _, _ := scalar(value)
		if err := checkProperty(name); err != nil {
			r.wrong(value, "%v", err)
		} else if slices.Contains(r.show, name) {
			r.wrong(value, "%s is a duplicate: remove one of them", name)
		} else {
			r.show = append(r.show, name)
		}
	}
}

func (r *rulesReader) field(n ast.Node) string {
	text, _, ok := scalar(n)
	if !ok || text == "" {
		r.wrong(n, "field must be one path, or several separated by commas, such as %s", telemetry.DefaultFields)
		return ""
	}
	if _, err := telemetry.NewDecoder(text); err != nil {
		r.wrong(n, "%v", err)
		return ""
	}
	return withoutSpaces(text)
}

// withoutSpaces returns the paths of a field without the spaces around them.
func withoutSpaces(field string) string {
	paths := strings.Split(field, ",")
	for i, path := range paths {
		paths[i] = strings.TrimSpace(path)
	}
	return strings.Join(paths, ",")
}

func (r *rulesReader) duration(n ast.Node, what string, low, high time.Duration) time.Duration {
	text, _, _ := scalar(n)
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && text == "":
		r.wrong(n, "%s must be a duration such as 30s, 5m or 1h30m", what)
	case err != nil:
		r.wrong(n, "%s is %s; must be a duration such as 30s, 5m or 1h30m", what, shown(text))
	case d < low || d > high:
		r.wrong(n, "%s is %s; must be %s to %s", what, Plain(d), Plain(low), Plain(high))
	}
	return d
}

// decimal is a number as people write it. YAML knows more, of which some mean another number
// to another program.
var decimal = regexp.MustCompile(`^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

func (r *rulesReader) number(n ast.Node, what string) (float64, bool) {
	text, quoted, ok := scalar(n)
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case !ok:
		r.wrong(n, "%s must be a number such as 80 or 80.5", what)
	case strings.ContainsAny(text, typographicMinus):
		r.wrong(n, "%s is %s, with a typographic minus: type a hyphen", what, shown(text))
	case !decimal.MatchString(text):
		r.wrong(n, "%s is %s; must be a number such as 80 or 80.5", what, shown(text))
	case quoted:
		r.wrong(n, "%s must be a number: remove the quotes", what)
	case err != nil || math.IsInf(f, 0):
		r.wrong(n, "%s is too large a number", what)
	default:
		return f + 0, true // -0 is 0
	}
	return 0, false
}

// limit reads a number, or the reading that true or false is.
func (r *rulesReader) limit(n ast.Node, what string) (float64, bool) {
	if b, ok := n.(*ast.BoolNode); ok {
		if b.Value {
			return 1, true
		}
		return 0, true
	}
	return r.number(n, what)
}

// Bounds of the conditions of a rule, and of the values of one.
const (
	maxConditions = 4
	maxWords      = 16
	maxWord       = 128 // bytes
)

// words reads one text, number or boolean, or a list of them.
func (r *rulesReader) words(n ast.Node, what string) (words []string) {
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}
	if len(values) == 0 || len(values) > maxWords {
		r.wrong(n, "%s has %d values; must be 1 to %d", what, len(values), maxWords)
		return nil
	}
	for _, value := range values {
		text, _, ok := scalar(value)
		switch text = strings.TrimSpace(text); {
		case !ok || text == "" || len(text) > maxWord || text != printable(text):
			r.wrong(value, "%s must be a word such as open, or a list of words such as [open, ajar]", what)
		case slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, text) }):
			r.wrong(value, "%s is a duplicate: remove one of them", shown(text))
		default:
			words = append(words, text)
		}
	}
	return words
}

// valid reads the range of readings that count.
func (r *rulesReader) valid(n ast.Node) *telemetry.Range {
	if _, ok := members(n); !ok {
		r.wrong(n, "valid must be a range such as {from: -60, to: 60}")
		return nil
	}
	valid := telemetry.Range{From: math.Inf(-1), To: math.Inf(1)}
	values, ok := r.pick(n, "from", "to"), false
	if at := values["from"]; at != nil {
		valid.From, ok = r.number(at, "from")
	}
	if at := values["to"]; at != nil {
		valid.To, ok = r.number(at, "to")
	}
	if ok && valid.From >= valid.To {
		r.wrong(n, "valid is from %v to %v; from must be less than to", valid.From, valid.To)
		return nil
	}
	return &valid
}

// only reads the conditions of a rule.
func (r *rulesReader) only(n ast.Node) (all []rules.Condition) {
	list, ok := members(n)
	switch {
	case !ok || len(list) == 0:
		r.wrong(n, "only must say which value a field or property has, such as {door: open, mode: [run, start]}")
	case len(list) > maxConditions:
		r.wrong(n, "only has %d conditions; must be at most %d", len(list), maxConditions)
	}
	for _, m := range list {
		name, _, ok := scalar(m.key)
		if _, err := telemetry.NewDecoder(name); !ok || err != nil || strings.TrimSpace(name) == "" || strings.Contains(name, ",") {
			r.wrong(m.key, "must be the name of a field or of an application property")
			continue
		}
		if slices.ContainsFunc(all, func(c rules.Condition) bool { return c.Name == name }) {
			r.wrong(m.key, "%s is a duplicate: list its values, as in %[1]s: [run, start]", shown(name))
			continue
		}
		if values := r.words(m.value, name); len(values) > 0 {
			all = append(all, rules.Condition{Name: name, Values: values})
		}
	}
	return all
}

// A levelValue is one value for all levels, or one per level for some of them.
type levelValue struct {
	one    ast.Node
	levels []member
	names  []string // of levels
}

// byLevel reads a value that may be a mapping by level.
func (r *rulesReader) byLevel(n ast.Node, what string) (g levelValue, ok bool) {
	list, isMap := members(n)
	if !isMap {
		return levelValue{one: n}, true
	}
	if len(list) == 0 {
		r.wrong(n, "%s has no levels", what)
	}
	ok = len(list) > 0
	for _, m := range list {
		name, valid := r.name(m.key, "the name of a level")
		switch {
		case !valid:
			ok = false
		case slices.Contains(g.names, name):
			r.wrong(m.key, "%s is a duplicate: remove one of them", name)
			ok = false
		default:
			g.levels, g.names = append(g.levels, m), append(g.names, name)
		}
	}
	return g, ok
}

// limitKey returns what the file calls the limits of a rule.
func limitKey(rule *rules.Rule) string {
	if rule.Below {
		return "below"
	}
	return "above"
}

// limits reads the limits of a rule, and what values say of each: clear or hysteresis, and override.
func (r *rulesReader) limits(rule *rules.Rule, limits ast.Node, values map[string]ast.Node) {
	what := limitKey(rule)
	g, ok := r.byLevel(limits, what)
	at := map[string]ast.Node{} // where each level's limit is
	if g.one != nil {
		limit, valid := r.limit(g.one, what)
		ok = valid
		rule.Levels = []rules.Level{{Limit: limit, Clear: limit}}
	}
	for i, m := range g.levels {
		limit, valid := r.limit(m.value, g.names[i])
		ok = ok && valid
		at[g.names[i]] = m.value
		rule.Levels = append(rule.Levels, rules.Level{Name: g.names[i], Limit: limit, Clear: limit})
	}
	ok = r.countLevels(limits, what, len(rule.Levels)) && ok

	slices.SortStableFunc(rule.Levels, func(a, b rules.Level) int {
		if rule.Below {
			a, b = b, a
		}
		return cmp.Compare(a.Limit, b.Limit)
	})
	for i := 1; ok && i < len(rule.Levels); i++ {
		if a, b := rule.Levels[i-1], rule.Levels[i]; a.Limit == b.Limit {
			r.wrong(at[b.Name], "%s and %s have the same limit", a.Name, b.Name)
		}
	}
	for _, l := range rule.Levels {
		if v := rule.Valid; ok && v != nil && (l.Limit < v.From || l.Limit > v.To) {
			r.wrong(limits, "%s is %v, which is not valid: no reading would ever reach it", what, l.Limit)
		}
	}
	// What is said of levels that could not be read would only repeat their mistakes.
	if !ok {
		rule.Levels = nil
		return
	}
	clear, hysteresis := values["clear"], values["hysteresis"]
	switch {
	case clear != nil && hysteresis != nil:
		r.wrong(hysteresis, "clear and hysteresis are both set: they say the same, so remove one of them")
	case clear != nil:
		r.clears(rule, clear, "clear")
	case hysteresis != nil:
		r.clears(rule, hysteresis, "hysteresis")
	}
	if override := values["override"]; override != nil {
		r.overrides(rule, override)
	}
}

// countLevels reports whether a rule may have so many levels, which are those of n.
func (r *rulesReader) countLevels(n ast.Node, what string, levels int) (ok bool) {
	if ok = levels <= maxRuleLevels; !ok {
		r.wrong(n, "%s has %d levels; must be at most %d", what, levels, maxRuleLevels)
	}
	if was := r.levels; was <= maxLevels && was+levels > maxLevels {
		r.wrong(n, "all rules together have more than %d levels", maxLevels)
	}
	r.levels += levels
	return ok
}

// apply calls set with the value of each level that g gives one. all says whether one value may stand for several levels.
func (r *rulesReader) apply(rule *rules.Rule, g levelValue, what string, all bool, set func(l *rules.Level, value ast.Node, what string)) {
	var names []string
	for i := range rule.Levels {
		names = append(names, rule.Levels[i].Name)
	}
	if g.one != nil {
		if len(names) > 1 && !all {
			r.wrong(g.one, "%s must be given by level, as in %s: {%s: …}, because the rule has more than one", what, what, names[0])
			return
		}
		for i := range rule.Levels {
			set(&rule.Levels[i], g.one, what)
		}
		return
	}
	for i, m := range g.levels {
		name := g.names[i]
		index := slices.Index(names, name)
		switch {
		case index >= 0:
			set(&rule.Levels[index], m.value, strings.TrimSuffix(what+" of "+name, " of "))
		case names[0] == "":
			r.wrong(m.key, "%s is not a level: the rule has one limit without a name", name)
		default:
			r.wrong(m.key, "%s is not a level of this rule%s", name, didYouMean(name, names))
		}
	}
}

// lasts reads n, the value of for. The rule has no levels if they could not be read.
func (r *rulesReader) lasts(rule *rules.Rule, n ast.Node) {
	if g, _ := r.byLevel(n, "for"); g.one != nil {
		d := r.duration(n, "for", 0, rules.MaxFor)
		for i := range rule.Levels {
			rule.Levels[i].For = d
		}
	} else if len(rule.Levels) > 0 {
		r.apply(rule, g, "for", true, func(l *rules.Level, value ast.Node, what string) {
			l.For = r.duration(value, what, 0, rules.MaxFor)
		})
	}
}

// clears reads n, the value of clear, or of hysteresis: how far clear is from the limit.
func (r *rulesReader) clears(rule *rules.Rule, n ast.Node, key string) {
	wrong := len(r.mistakes)
	g, _ := r.byLevel(n, key)
	r.apply(rule, g, key, true, func(l *rules.Level, value ast.Node, what string) {
		if len(r.mistakes) > wrong && value == n {
			return // one number is wrong once, not for each level
		}
		f, ok := r.number(value, what)
		switch {
		case !ok:
		case key == "hysteresis" && f < 0:
			r.wrong(value, "%s is %v; must be 0 or more, the distance between the limit and where an alarm ends", what, f)
		case key == "hysteresis" && rule.Below:
			l.Clear = l.Limit + f
		case key == "hysteresis":
			l.Clear = l.Limit - f
		case !rule.Below && f > l.Limit:
			r.wrong(value, "%s is %v, above the limit %v: the alarm would clear while still active", what, f, l.Limit)
		case rule.Below && f < l.Limit:
			r.wrong(value, "%s is %v, below the limit %v: the alarm would clear while still active", what, f, l.Limit)
		default:
			l.Clear = f
		}
	})
	for i := 1; len(r.mistakes) == wrong && i < len(rule.Levels); i++ {
		a, b := rule.Levels[i-1], rule.Levels[i]
		if !rule.Below && b.Clear < a.Clear || rule.Below && b.Clear > a.Clear {
			r.wrong(n, "%s would be normal again before %s: its clear, %v, must not be beyond that of %s, %v", a.Name, b.Name, b.Clear, a.Name, a.Clear)
		}
	}
}

// overrides reads n, the value of override: one property for the limit, or some by what they replace, which is a level, the
// one limit by its key, or clear.
func (r *rulesReader) overrides(rule *rules.Rule, n ast.Node) {
	seen := map[string]string{}
	property := func(value ast.Node, of, what string) string {
		text, _, _ := scalar(value)
		if err := checkProperty(text); err != nil {
			r.wrong(value, "%s %v", what, err)
			return ""
		}
		if other, ok := seen[text]; ok {
			r.wrong(value, "%s is the property of %s too: they would be the same", what, other)
		}
		seen[text] = of
		return text
	}
	g, _ := r.byLevel(n, "override")
	limits := levelValue{one: g.one}
	for i, name := range g.names {
		switch {
		case name == "clear":
			clear := property(g.levels[i].value, name, "override of clear")
			for j := range rule.Levels {
				rule.Levels[j].ClearOverride = clear
			}
			continue
		case rule.Levels[0].Name == "" && name == limitKey(rule):
			name = ""
		}
		limits.levels, limits.names = append(limits.levels, g.levels[i]), append(limits.names, name)
	}
	r.apply(rule, limits, "override", false, func(l *rules.Level, value ast.Node, what string) {
		l.Override = property(value, cmp.Or(l.Name, limitKey(rule)), what)
	})
}

// maxProperty is more than what the names of message enrichments may have.
const maxProperty = 128

// checkProperty says what is wrong with the name of an application property. Its error continues the setting's name.
func checkProperty(name string) error {
	switch {
	case strings.HasPrefix(name, "$"):
		return errors.New("must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's message enrichment")
	case name == "" || len(name) > maxProperty || strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) || c == utf8.RuneError }):
		return fmt.Errorf("must be the name of an application property: 1 to %d printable characters without spaces", maxProperty)
	}
	return nil
}

// scalar returns what a node says that is no list, no mapping and not nothing.
func scalar(n ast.Node) (text string, quoted, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		t := n.GetToken().Type
		return n.Value, t == token.SingleQuoteType || t == token.DoubleQuoteType, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return strings.TrimSpace(n.GetToken().Value), false, true
	case *ast.NullNode:
		if n.GetToken().Type == token.NullType { // a level may be called null
			return strings.TrimSpace(n.GetToken().Value), false, true
		}
	}
	return "", false, false
}

// isNull reports whether a member's value is nothing, or null.
func isNull(n ast.Node) bool { return n == nil || n.Type() == ast.NullType }

// shown quotes a name out of the file, of which nobody knows what it is.
func shown(name string) string {
	if len(name) > maxProperty {
		return "this key"
	}
	return show(name)
}

// printable makes text out of the file fit for one line of an error, of bounded length.
func printable(text string) string {
	const most = 120
	text = humanize.Clean(text)
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return text
}
