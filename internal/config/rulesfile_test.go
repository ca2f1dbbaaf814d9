package config

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func parse(text string) ([]rules.Rule, error) {
	set, err := parseRules([]byte(text), ruleDefaults{time.Minute, false, time.UTC})
	return set.Rules, err
}

// A file in which everything is wrong gets one message, in the file's order.
func TestRulesFileEverythingWrong(t *testing.T) {
	path, err := filepath.Abs("testdata/rules-wrong.yaml")
	if err != nil {
		t.Fatal(err)
	}
	environment(t, valid("TEMPERATURE_THRESHOLD=", "RULES_FILE="+path, "LOG_LEVEL=loud"))
	_, _, err = Load()
	if err == nil {
		t.Fatal("no error")
	}
	golden(t, "rules-wrong.golden", err.Error()+"\n")
}

const likeValid = "valid must be a range such as {from: -60, to: 60}, and may name the values of up to 4 flags, such as {q: [good, 192]}"

// notYAML ends what is said of text that is not YAML.
const notYAML = "; check that lines are indented alike, with spaces, and that a space follows each colon and hyphen"

const sameLevels = "a and b are the same: one needs another limit, or a longer for"
const twoBases = "count both from the same, write hysteresis, or make two rules"
const likeLimit = ", or a name in messages: maxTemp or 80, setpoint + 3"

// noAnchors is what is said of the first of them.
const noAnchors = "anchors (&, * and <<) are not read: write the values out, or put quotes around a text that begins like this"

// Each mistake, alone, at its place.
func TestRulesFileMistakes(t *testing.T) {
	rule := func(s string) string { return "rules:\n- {name: hot, field: temp, " + s + "}\n" }
	many := func(n, each int) string {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: r%d, field: temp, above: {", i)
			for j := range each {
				fmt.Fprintf(&b, "l%d: %d, ", j, j)
			}
			b.WriteString("}}\n")
		}
		return b.String()
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                {"# only a comment\n", "line 1, column 1: has no rules: must be rules: and a list of them"},
		"null":                   {"~\n", "line 1, column 1: has no rules: must be rules: and a list of them"},
		"a text":                 {"Endpoint=sb://ns/;SharedAccessKey=abc", "line 1, column 1: must be rules: and a list of 1 to 32 rules, each of which begins with a hyphen"},
		"a list":                 {"- name: hot\n", "line 1, column 1: must be rules: and a list of 1 to 32 rules, each of which begins with a hyphen"},
		"another key":            {"rule:\n- name: hot\n", "line 1, column 1: \"rule\" is not known; did you mean rules?\nline 1, column 1: must be rules: and a list of 1 to 32 rules, each of which begins with a hyphen"},
		"a secret as a key":      {"rules: []\nEndpoint=sb://ns/;SharedAccessKey=abc: 1\n", "line 1, column 8: rules has 0 values; must be 1 to 32\nline 2, column 1: [not shown: may be a secret] is not known: must be rules, show or mute"},
		"no list":                {"rules: hot\n", "line 1, column 8: is not a rule: must be - name: …, field: … and so on"},
		"a mapping":              {"rules:\n  hot: {above: 1}\n", "line 2, column 3: \"hot\" is not known: must be name, title, each, field, sensor, unit, valid, only, silent, forget, is, above, below, for, clear, hysteresis, clear_for, window, repeat, per, resolved or runbook\nline 2, column 3: a rule has no name\nline 2, column 3: a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration\nline 2, column 3: a rule has no field: must be where its reading is, such as field: temperature,temp"},
		"no rules":               {"rules: []\n", "line 1, column 8: rules has 0 values; must be 1 to 32"},
		"rules without a value":  {"rules:\n", "line 1, column 1: rules has no value: set it, or remove it\nline 1, column 1: must be rules: and a list of 1 to 32 rules, each of which begins with a hyphen"},
		"twice":                  {"rules: [{name: a, field: temp, above: 1}]\nrules: []\n", "line 2, column 1: is not YAML: mapping key \"rules\" already defined at [1:1]" + notYAML},
		"too many":               {many(33, 1), "line 2, column 1: rules has 33 values; must be 1 to 32"},
		"levels of one":          {many(1, 9), "line 2, column 34: above has 9 levels; must be at most 8"},
		"levels of all":          {many(9, 8), "line 2, column 1: have 72 levels together; must be at most 64"},
		"no rule":                {"rules:\n- hot\n", "line 2, column 3: is not a rule: must be - name: …, field: … and so on"},
		"no name":                {"rules:\n- field: temp\n  above: 1\n", "line 2, column 3: a rule has no name"},
		"name":                   {"rules:\n- {name: Hot Oven, field: temp, above: 1}\n", "line 2, column 10: name must be 1 to 32 lower-case letters, digits and hyphens"},
		"one name for two":       {"rules:\n- {name: a, field: temp, above: 1}\n- {name: a, field: temp, below: 1}\n", `line 3, column 10: "a" is the name of an earlier rule: each needs a name of its own`},
		"no field":               {"rules:\n- {name: hot, above: 1}\n", "line 2, column 3: a rule has no field: must be where its reading is, such as field: temperature,temp"},
		"field in JSONPath":      {"rules:\n- {name: hot, field: 'a.b[1]', above: 1}\n", `line 2, column 22: field is invalid: field 1 of 1: "a.b[1]" is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only`},
		"field with a condition": {"rules:\n- {name: hot, field: 'readings[?(@.x)]', above: 1}\n", "line 2, column 22: field is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only"},
		"field":                  {"rules:\n- {name: hot, field: a..b, above: 1}\n", `line 2, column 22: field is invalid: field 1 of 1: "a..b" has an empty name or a space beside a dot: write names joined by single dots, as in "machine.temperature"`},
		"fields in a list":       {"rules:\n- {name: hot, field: [a, b], above: 1}\n", "line 2, column 22: field must be one path, or several separated by commas, such as temperature,temp"},
		"a key misspelled":       {rule("abov: 1, above: 2"), `line 2, column 28: "abov" is not known; did you mean above?`},
		"show":                   {"show: [site, site, $twin.x]\n" + rule("above: 2"), "line 1, column 14: show has \"site\" twice: remove one of them\nline 1, column 20: show must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's message enrichment"},
		"no list to show":        {"show: site\n" + rule("above: 2"), ""},
		"words for people":       {rule("above: 2, title: \"\", unit: [], runbook: wiki"), "line 2, column 45: title must be 1 to 64 printable characters\nline 2, column 55: unit must be 1 to 16 printable characters\nline 2, column 68: runbook must be a URL such as https://www.example.com/alerts, without a user and of at most 1024 bytes"},
		"a key of version 1.0":   {rule("silent: 15m, expect: devices.txt"), "line 2, column 41: expect is gone: az iot hub query lists devices that never connected, with connectionState and lastActivityTime"},
		"a key of nobody":        {rule("above: 2, severity: 1"), `line 2, column 38: "severity" is not known: must be name, title, each, field, sensor, unit, valid, only, silent, forget, is, above, below, for, clear, hysteresis, clear_for, window, repeat, per, resolved or runbook`},
		"a key twice":            {rule("above: 2, above: 3"), "line 2, column 38: is not YAML: mapping key \"above\" already defined at [2:28]" + notYAML},
		"a key without a value":  {"rules:\n- name: hot\n  field: temp\n  above: 1\n  clear:\n", "line 5, column 3: clear has no value: set it, or remove it"},
		"a list as a key":        {rule("above: 2, [a]: 3"), "line 2, column 41: is not YAML: found an invalid key for this map" + notYAML},
		"no direction":           {rule("for: 2m"), `line 2, column 3: a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration`},
		"silent and a limit":     {rule("silent: 15m, above: 2"), "line 2, column 48: above conflicts with silent: remove one, or split the rule"},
		"silent and for":         {rule("silent: 15m, for: 2m"), "line 2, column 46: for conflicts with silent: remove one, or split the rule"},
		"silent too short":       {rule("silent: 59s"), "line 2, column 36: silent is 59s; must be 1m to 168h"},
		"silent too long":        {rule("silent: 169h"), "line 2, column 36: silent is 169h; must be 1m to 168h"},
		"silent by level":        {rule("silent: {warning: 15m, critical: 2h}"), "line 2, column 36: silent must be a duration such as 30s, 5m or 1h30m"},
		"silent by one level":    {"rules:\n- name: off\n  silent:\n    warning: 15m\n", "line 4, column 5: silent must be a duration such as 30s, 5m or 1h30m"},
		"silent is a list":       {rule("silent: [15m]"), "line 2, column 36: silent must be a duration such as 30s, 5m or 1h30m"},
		"silent and valid":       {"rules:\n- {name: dead, silent: 15m, valid: {from: 1}}\n", "line 2, column 36: valid is set without field: name the field whose readings count"},
		"silent temperature":     {"rules:\n- {name: temperature, silent: 15m}\n", "line 2, column 10: temperature is not a name for a rule about silence: receivers expect a temperature"},
		"forget too short":       {rule("silent: 15m, forget: 29m"), "line 2, column 49: forget is 29m; must be 30m to 87600h"},
		"forget alone":           {rule("above: 1, forget: 29h"), "line 2, column 46: forget is set without silent: it says when a silent device is forgotten"},
		"both directions":        {rule("above: 2, below: 1"), "line 2, column 45: below conflicts with above: remove one, or split the rule"},
		"limit is text":          {rule("above: hot"), `line 2, column 35: above is "hot"; must be a number such as 80 or 80.5` + likeLimit},
		"limit with a comma":     {"rules:\n- name: hot\n  field: temp\n  above: 80,5\n", `line 4, column 10: above is "80,5"; must be a number with a decimal point, 80.5` + likeLimit},
		"a comma in braces":      {rule("above: -8,5, for: 1m"), `line 2, column 38: "5" stands alone: if it belongs to the number before it, write a decimal point`},
		"limit is a list":        {rule("above: [80]"), "line 2, column 35: above must be a number such as 80 or 80.5" + likeLimit},
		"limit is too large":     {rule("above: 1e400"), `line 2, column 35: above is "1e400"; must be a number such as 80 or 80.5` + likeLimit},
		"limit is NaN":           {rule("above: .nan"), `line 2, column 35: above is ".nan"; must be a number such as 80 or 80.5` + likeLimit},
		"limit is infinite":      {rule("above: -.inf"), `line 2, column 35: above is "-.inf"; must be a number such as 80 or 80.5` + likeLimit},
		"limit in hexadecimal":   {rule("above: 0x1F"), `line 2, column 35: above is "0x1F"; must be a number such as 80 or 80.5` + likeLimit},
		"no levels":              {rule("above: {}"), "line 2, column 35: above must be a number such as 80 or 80.5" + likeLimit},
		"name of a level":        {rule("above: {Warning: 1}"), "line 2, column 36: the name of a level must be 1 to 32 lower-case letters, digits and hyphens"},
		"level twice":            {rule("above: {a: 1, a: 2}"), "line 2, column 42: is not YAML: mapping key \"a\" already defined at [2:36]" + notYAML},
		"equal limits":           {rule("above: {a: 1, b: 1.0}"), "line 2, column 35: " + sameLevels},
		"equal levels":           {rule("above: {a: 6, b: 6}, for: 2m"), "line 2, column 35: " + sameLevels},
		"level without a limit":  {"rules:\n- name: hot\n  field: temp\n  above:\n    a:\n", "line 5, column 8: above of a must be a number such as 80 or 80.5" + likeLimit},
		"clear above":            {rule("above: 80, clear: 81"), "line 2, column 46: clear is 81, beyond the limit 80: the alarm would clear while still active"},
		"hysteresis":             {rule("above: 80, hysteresis: -1"), "line 2, column 51: hysteresis is -1; must be 0 or more, the distance between the limit and where an alarm ends"},
		"hysteresis and clear":   {rule("above: 80, clear: 75, hysteresis: 5"), "line 2, column 62: hysteresis conflicts with clear: remove one, or split the rule"},
		"hysteresis of a level":  {rule("above: {a: 70, b: 80}, hysteresis: {c: 1}"), `line 2, column 64: "c" is not a level of this rule: must be a or b`},
		"is and above":           {rule("is: open, above: 1"), "line 2, column 45: above conflicts with is: remove one, or split the rule"},
		"is nothing":             {rule("is: []"), "line 2, column 32: is has 0 values; must be 1 to 16"},
		"is a mapping":           {rule("is: {a: b}"), `line 2, column 32: is must be a word such as open, or a list of words such as [open, ajar]`},
		"valid is a number":      {rule("above: 1, valid: 60"), "line 2, column 45: " + likeValid},
		"valid is nothing":       {rule("above: 1, valid: {from: 60, to: -60}"), "line 2, column 35: above is 1, which is not valid: no reading would ever reach it\nline 2, column 45: " + likeValid},
		"valid has a typo":       {rule("above: 1, valid: {form: 60}"), `line 2, column 46: "form" is not a bound; did you mean from?`},
		"valid with words":       {"rules:\n- {name: a, field: door, is: open, valid: {from: 1}}", "line 2, column 43: valid conflicts with is: words have no bounds; remove from and to, or split the rule"},
		"valid by JSONPath":      {rule("above: 1, valid: {$.q: good}"), `line 2, column 46: a name is invalid: field 1 of 1: "$.q" is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only`},
		"limit is not valid":     {rule("above: 80, valid: {to: 60}"), "line 2, column 35: above is 80, which is not valid: no reading would ever reach it"},
		"only is a word":         {rule("above: 1, only: open"), "line 2, column 44: only must say which values 1 to 4 fields or properties have, such as {door: open, mode: [run, start]}"},
		"only of no field":       {rule(`above: 1, only: {"a..b": 1}`), `line 2, column 45: a name is invalid: field 1 of 1: "a..b" has an empty name or a space beside a dot: write names joined by single dots, as in "machine.temperature"`},
		"each is JSONPath":       {rule(`above: 1, each: "readings[?(@.x)]"`), `line 2, column 44: each is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only`},
		"each is a position":     {rule(`above: 1, each: "a.b[1]"`), `line 2, column 44: each is invalid: "a.b[1]" is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only`},
		"each is the hub's":      {rule(`above: 1, each: $module`), `line 2, column 44: each is invalid: "$module" is no place in a message: must be a path such as readings, or . for the body itself`},
		"field in each":          {"rules:\n- {name: hot, field: 'Readings.t, u', above: 1, each: readings}", "line 2, column 22: field is looked up in each of readings: write t"},
		"sensor is unknown":      {rule(`above: 1, sensor: $moduel`), `line 2, column 46: sensor is invalid: field 1 of 1: "$moduel" is not known: a name that begins with $ must be $module, $component, $device, $key or $property.NAME`},
		"sensor has four names":  {rule(`above: 1, sensor: [a, b, c, d]`), "line 2, column 46: sensor has 4 values; must be 1 to 3"},
		"sensor of the twin":     {rule(`above: 1, sensor: $twin.tags.id`), "line 2, column 46: sensor must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's message enrichment"},
		"sensor without each":    {rule(`above: 1, sensor: [a, $KEY]`), "line 2, column 3: $key is set without each: it is the name under which a measurement stands"},
		"only of a mapping":      {rule("above: 1, only: {door: {a: b}}"), `line 2, column 51: "door" must be a word such as open, or a list of words such as [open, ajar]`},
		"a tab":                  {"rules:\n- name: a\n\tfield: t\n", "line 3, column 1: is not YAML: found character 'tab' that cannot start any token" + notYAML},
		"no space after :":       {"rules:\n- name:freezer\n  field: t\n", "line 2, column 3: is not YAML: unexpected key name" + notYAML},
		"no space after :, 2":    {"rules:\n- name: a\n  above:80\n", "line 3, column 3: is not YAML: non-map value is specified" + notYAML},
		"no space after -":       {"rules:\n-name: a\n  above: 80\n", "line 2, column 8: is not YAML: mapping value is not allowed in this context" + notYAML},
		"indented too far":       {"rules:\n- name: a\n   field: t\n  above: 1\n", "line 2, column 9: is not YAML: mapping value is not allowed in this context" + notYAML},
		"indented too little":    {"rules:\n  - name: a\n    field: t\n   above: 1\n", "line 4, column 4: is not YAML: value is not allowed in this context" + notYAML},
		"days":                   {rule("above: 1, for: 1d"), `line 2, column 43: for is "1d"; must be a duration such as 30s, 5m or 1h30m`},
		"minutes":                {rule("above: 1, for: 10 minutes"), `line 2, column 43: for is "10 minutes"; must be a duration such as 30s, 5m or 1h30m`},
		"a unit":                 {rule("above: -15C"), `line 2, column 35: above is "-15C"; must be a number such as 80 or 80.5` + likeLimit},
		"a unit after a space":   {rule("above: 80 °C"), `line 2, column 35: above is "80 °C"; must be a number such as 80 or 80.5` + likeLimit},
		"clear below":            {rule("below: 2, clear: 1"), "line 2, column 45: clear is 1, beyond the limit 2: the alarm would clear while still active"},
		"clear above one":        {rule("above: {a: 70, b: 80}, clear: 75"), "line 2, column 58: clear is 75, beyond the limit 70: the alarm would clear while still active"},
		"clear above two":        {rule("above: {a: 70, b: 80}, clear: 85"), "line 2, column 58: clear is 85, beyond the limit 70: the alarm would clear while still active\nline 2, column 58: clear is 85, beyond the limit 80: the alarm would clear while still active"},
		"clear of a level":       {rule("above: {a: 70, b: 80}, clear: {a: 65, b: 81}"), "line 2, column 69: clear of b is 81, beyond the limit 80: the alarm would clear while still active"},
		"clear of no level":      {rule("above: {warning: 70, b: 80}, clear: {waring: 65}"), `line 2, column 65: "waring" is not a level of this rule; did you mean warning?`},
		"clear by level":         {rule("above: 70, clear: {a: 65}"), `line 2, column 47: "a" is not a level: the rule has one limit without a name`},
		"clears crossed":         {rule("above: {a: 70, b: 80}, clear: {b: 60}"), "line 2, column 58: a would be normal again before b: its clear, 60, must not be beyond that of a, 70"},
		"for without a unit":     {rule("above: 1, for: 120"), `line 2, column 43: for is "120"; must be a duration such as 30s, 5m or 1h30m`},
		"for in words":           {rule("above: 1, for: a while"), `line 2, column 43: for is "a while"; must be a duration such as 30s, 5m or 1h30m`},
		"for too long":           {rule("above: 1, for: 25h"), "line 2, column 43: for is 25h; must be 0s to 24h"},
		"for below zero":         {rule("above: 1, for: -2m"), "line 2, column 43: for is -2m; must be 0s to 24h"},
		"for of a level":         {rule("above: {a: 1, b: 2}, for: {a: 25h, b: soon}"), `line 2, column 58: for of a is 25h; must be 0s to 24h` + "\n" + `line 2, column 66: for of b is "soon"; must be a duration such as 30s, 5m or 1h30m`},
		"for of all levels":      {rule("above: {a: 1, b: 2}, for: 25h"), "line 2, column 54: for is 25h; must be 0s to 24h"},
		"for of no level":        {rule("above: {a: 1, b: 2}, for: {c: 2m}"), `line 2, column 55: "c" is not a level of this rule: must be a or b`},
		"for by level":           {rule("above: 1, for: {a: 2m}"), `line 2, column 44: "a" is not a level: the rule has one limit without a name`},
		"for of a word":          {rule("is: open, for: {open: 2m}"), `line 2, column 44: "open" is not a level: the rule has one limit without a name`},
		"clear_for in words":     {rule("above: 1, clear_for: soon"), `line 2, column 49: clear_for is "soon"; must be a duration such as 30s, 5m or 1h30m`},
		"clear_for too long":     {rule("above: 1, clear_for: 25h"), "line 2, column 49: clear_for is 25h; must be 0s to 24h"},
		"clear_for by level":     {rule("above: {a: 1, b: 2}, clear_for: {a: 5m}"), "line 2, column 60: clear_for must be a duration such as 30s, 5m or 1h30m"},
		"clear_for and silent":   {"rules:\n- {name: off, silent: 15m, clear_for: 5m}\n", "line 2, column 39: clear_for conflicts with silent: remove one, or split the rule"},
		"repeat in words":        {rule("above: 1, repeat: seldom"), `line 2, column 46: repeat (or never) is "seldom"; must be a duration such as 30s, 5m or 1h30m`},
		"repeat by level":        {rule("above: {a: 1, b: 2}, repeat: {a: 5m}"), "line 2, column 57: repeat (or never) must be a duration such as 30s, 5m or 1h30m"},
		"repeat in the window":   {rule("above: 1, repeat: 9m, window: 10m"), "line 2, column 46: repeat (or never) is 9m; must be 10m to 168h"},
		"repeat too late":        {rule("above: 1, repeat: 169h"), "line 2, column 46: repeat (or never) is 169h; must be 1m to 168h"},
		"repeat and silent":      {"rules:\n- {name: off, silent: 15m, repeat: 4h}\n", "line 2, column 36: repeat conflicts with silent: remove one, or split the rule"},
		"repeat and per":         {rule("above: 1, per: site, repeat: 4h"), "line 2, column 57: repeat conflicts with per without recoveries: what devices share is sent when its window is over; set resolved: true, or a longer window"},
		"limit from no number":   {rule("above: setpoint + three"), `line 2, column 35: above is "setpoint + three"; must be a number such as 80 or 80.5` + likeLimit},
		"limit from a number":    {rule("above: {a: 80 + 3}"), `line 2, column 39: above of a is "80 + 3"; must be a number such as 80 or 80.5` + likeLimit},
		"limit from two":         {rule("above: {a: setpoint + 3, b: target + 5}"), "line 2, column 56: above of b is counted from target, but the first limit from setpoint: " + twoBases},
		"limits of two kinds":    {rule("above: {a: 70, b: setpoint + 5}"), "line 2, column 46: above of b is counted from setpoint, but the first limit from nothing: " + twoBases},
		"clear of another kind":  {rule("above: setpoint + 3, clear: 5"), "line 2, column 56: clear is counted from nothing, but the first limit from setpoint: " + twoBases},
		"clear beyond a base":    {rule("above: setpoint + 3, clear: setpoint + 4"), "line 2, column 56: clear is 4, beyond the limit 3: the alarm would clear while still active"},
		"limit without a number": {rule("above: maxTemp"), `line 2, column 35: above is "maxTemp"; must be a number such as 80 or 80.5` + likeLimit},
		"limit the wrong way":    {rule("above: 80 or maxTemp"), `line 2, column 35: above is "80 or maxTemp"; must be a number such as 80 or 80.5` + likeLimit},
		"limit by two names":     {rule("above: a or b"), `line 2, column 35: above is "a or b"; must be a number such as 80 or 80.5` + likeLimit},
		"limit of the twin":      {rule("above: $twin.tags.limit or 80"), `line 2, column 35: above is "$twin.tags.limit or 80"; must be a number such as 80 or 80.5` + likeLimit},
		"own clear beyond":       {rule("above: maxTemp or 80, clear: minTemp or 81"), "line 2, column 57: clear is 81, beyond the limit 80: the alarm would clear while still active"},
		"own clear and a base":   {rule("above: setpoint + 3, clear: minTemp or 2"), "line 2, column 56: clear is counted from nothing, but the first limit from setpoint: " + twoBases},
		"override":               {rule("above: 1, override: maxTemp"), "line 2, column 38: override is gone: write it where the limit is, as in above: maxTemp or 80, and clear: minTemp or 75"},
		"window too short":       {rule("above: 1, window: 0s"), "line 2, column 46: window is 0s; must be 1s to 24h"},
		"resolved":               {rule("above: 1, resolved: yes"), `line 2, column 48: resolved is "yes"; must be true or false`},
		"per of the twin":        {rule("above: 1, per: $twin.tags.site"), "line 2, column 43: per must be the name of an application property, as a message has it: the path in the twin belongs in the IoT Hub's message enrichment"},
		"per by level":           {rule("above: 1, per: {a: site}"), "line 2, column 43: per must be the name of a field or of an application property, of 1 to 128 printable characters"},
		"two documents":          {"rules: [{name: a, field: temp, above: 1}]\n---\nrules: []\n", "line 3, column 1: is a second document: one file holds one list of rules"},
		"tab":                    {"rules:\n\t- name: hot\n", "line 2, column 1: is not YAML: found character 'tab' that cannot start any token" + notYAML},
		"indentation":            {"rules:\n- name: hot\n  field: temp\n above: 3\n", "line 4, column 2: is not YAML: value is not allowed in this context" + notYAML},
		"bracket":                {"rules: [\n", "line 1, column 8: is not YAML: sequence end token ']' not found" + notYAML},
		"anchor":                 {rule("above: &a 1"), "line 2, column 35: " + noAnchors},
		"alias":                  {"a: &a 1\nrules: *a\n", "line 1, column 4: " + noAnchors},
		"merge":                  {"rules:\n- <<: {name: a}\n", "line 2, column 3: " + noAnchors},
		"tag":                    {rule("above: !!float 1"), "line 2, column 35: above must be a number such as 80 or 80.5" + likeLimit},
		"literal":                {"rules:\n- name: |\n    hot\n", "line 2, column 3: a rule has no limit: must have above: or below: and a number, is: and a word, or silent: and a duration\nline 2, column 3: a rule has no field: must be where its reading is, such as field: temperature,temp\nline 2, column 9: name must be 1 to 32 lower-case letters, digits and hyphens"},
		"nested":                 {"rules: " + strings.Repeat("[", 9) + strings.Repeat("]", 9), "line 1, column 9: is not a rule: must be - name: …, field: … and so on"},
		"nested lists":           {"rules:\n- - - name: hot\n", "line 2, column 3: is not a rule: must be - name: …, field: … and so on"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.text)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestRulesFileAccepts(t *testing.T) {
	base := rules.Rule{Name: "hot", Field: "temp", Window: time.Minute}
	with := func(levels ...rules.Level) []rules.Rule {
		r := base
		r.Levels = levels
		return []rules.Rule{r}
	}
	below := with(rules.Level{Name: "warning", Limit: 2, Clear: 4}, rules.Level{Name: "critical", Limit: 0, Clear: 3})
	below[0].Below = true
	words, valid := with(rules.Level{Limit: 1, Clear: 1}), with(rules.Level{Limit: 1, Clear: 1})
	per := with(rules.Level{Limit: 1, Clear: 1})
	per[0].Per = "site"
	incidents := with(rules.Level{Limit: 1, Clear: 1})
	incidents[0].Per, incidents[0].Resolved, incidents[0].Repeat = "site", true, 4*time.Hour
	gateways := []rules.Rule{{Name: "off", Silent: 15 * time.Minute, Forget: rules.DefaultForget, Per: "gateway", Window: time.Minute, Levels: []rules.Level{{}}}}
	words[0].Is = []string{"open", "3", "true"}
	valid[0].Valid = &telemetry.Range{From: -60, To: math.Inf(1)}
	valid[0].Only = []rules.Condition{{Name: "door", Values: []string{"open"}}, {Name: "mode", Values: []string{"run", "1.5"}}}
	lowest := with(rules.Level{Limit: 2, Clear: 2, LimitAt: rules.Reference{Name: "low"}, ClearAt: rules.Reference{Name: "high"}})
	lowest[0].Below = true
	settling := with(rules.Level{Limit: 80, Clear: 75})
	settling[0].ClearedFor = 5 * time.Minute
	seldom := with(rules.Level{Limit: 80, Clear: 80})
	seldom[0].Repeat = 4 * time.Hour
	once := with(rules.Level{Limit: 80, Clear: 80})
	once[0].Repeat = rules.Never
	based := with(rules.Level{Name: "a", Limit: 3, Clear: -1}, rules.Level{Name: "b", Limit: 6.5, Clear: -1})
	for i := range based[0].Levels {
		based[0].Levels[i].LimitAt = rules.Reference{Name: "setpoint", Plus: true}
	}
	byDuration := with(
		rules.Level{Name: "warning", Limit: 6, Clear: 6, For: 5 * time.Minute},
		rules.Level{Name: "critical", Limit: 6, Clear: 6, For: 30 * time.Minute},
	)
	measurements, flagged := with(rules.Level{Limit: 1, Clear: 1}), with(rules.Level{Limit: 1, Clear: 1})
	good := rules.Condition{Name: "q", Values: []string{"good"}}
	flagged[0].Flags, flagged[0].Sensor = []rules.Condition{good}, []string{"$module"}
	flaggedWord := with(rules.Level{Limit: 1, Clear: 1})
	flaggedWord[0].Is, flaggedWord[0].Flags = []string{"open", "3", "true"}, []rules.Condition{good}
	measurements[0].Field, measurements[0].Each, measurements[0].Sensor, measurements[0].Per = "Value", "Content.*", []string{"HwId", "$key"}, "site,line"
	measurements[0].Valid = &telemetry.Range{From: math.Inf(-1), To: 60}
	measurements[0].Flags = []rules.Condition{{Name: "q", Values: []string{"good", "192", "true"}}, {Name: "$component", Values: []string{"probe"}}}
	const longer = "rules: [{name: hot, field: temp, above: {critical: 6, warning: 6}, for: {warning: 5m, critical: 30m}}]"
	for name, test := range map[string]struct {
		text string
		want []rules.Rule
	}{
		"JSON":              {`{"rules": [{"name": "hot", "field": "temp", "above": -18.5}]}`, with(rules.Level{Limit: -18.5, Clear: -18.5})},
		"Windows":           {"\uFEFFrules:\r\n- name: hot\r\n  field: temp\r\n  above: 8e1\r\n", with(rules.Level{Limit: 80, Clear: 80})},
		"header":            {"---\nrules:\n- name: hot\n  field: temp\n  above: +1.\n...\n", with(rules.Level{Limit: 1, Clear: 1})},
		"odd names":         {"rules: [{name: hot, field: temp, above: {1: 2, true: 3}}]", with(rules.Level{Name: "1", Limit: 2, Clear: 2}, rules.Level{Name: "true", Limit: 3, Clear: 3})},
		"below, any order":  {"rules: [{name: hot, field: temp, below: {critical: -0, warning: 2}, clear: {warning: 4, critical: 3}}]", below},
		"one named level":   {"rules: [{name: hot, field: temp, above: {critical: limit or 80}, clear: 75}]", with(rules.Level{Name: "critical", Limit: 80, Clear: 75, LimitAt: rules.Reference{Name: "limit"}})},
		"quotes":            {`rules: [{name: hot, field: temp, above: "80"}]`, with(rules.Level{Limit: 80, Clear: 80})},
		"clear by property": {"rules: [{name: hot, field: temp, above: 80, clear: low or 80}]", with(rules.Level{Limit: 80, Clear: 80, ClearAt: rules.Reference{Name: "low"}})},
		"both by property":  {"rules: [{name: hot, field: temp, above: {a: 70, b: high or 80}, clear: low or 65}]", with(rules.Level{Name: "a", Limit: 70, Clear: 65, ClearAt: rules.Reference{Name: "low"}}, rules.Level{Name: "b", Limit: 80, Clear: 65, LimitAt: rules.Reference{Name: "high"}, ClearAt: rules.Reference{Name: "low"}})},
		"limit by its key":  {"rules: [{name: hot, field: temp, below: low or 2, clear: high or 2}]", lowest},
		"a boolean":         {"rules: [{name: hot, field: temp, above: true}]", with(rules.Level{Limit: 1, Clear: 1})},
		"hysteresis":        {"rules: [{name: hot, field: temp, above: {warning: 70, critical: 80}, hysteresis: 5}]", with(rules.Level{Name: "warning", Limit: 70, Clear: 65}, rules.Level{Name: "critical", Limit: 80, Clear: 75})},
		"for":               {"rules: [{name: hot, field: temp, above: {warning: 70, critical: 80}, for: {warning: 10m, critical: 0s}}]", with(rules.Level{Name: "warning", Limit: 70, Clear: 70, For: 10 * time.Minute}, rules.Level{Name: "critical", Limit: 80, Clear: 80})},
		"for of all":        {"rules: [{name: hot, field: temp, above: {warning: 70, critical: 80}, for: 2m}]", with(rules.Level{Name: "warning", Limit: 70, Clear: 70, For: 2 * time.Minute}, rules.Level{Name: "critical", Limit: 80, Clear: 80, For: 2 * time.Minute})},
		"clear_for":         {"rules: [{name: hot, field: temp, above: 80, clear: 75, clear_for: 5m}]", settling},
		"repeat":            {"rules: [{name: hot, field: temp, above: 80, repeat: 4h}]", seldom},
		"repeat never":      {"rules: [{name: hot, field: temp, above: 80, repeat: never}]", once},
		"repeat as window":  {"rules: [{name: hot, field: temp, above: 80, repeat: 1m}]", with(rules.Level{Limit: 80, Clear: 80})},
		"from the message":  {"rules: [{name: hot, field: temp, above: {a: setpoint + 3, b: setpoint + 6.5}, clear: setpoint - 1}]", based},
		"by duration":       {longer, byDuration},
		"per":               {"rules: [{name: hot, field: temp, above: 1, per: site}]", per},
		"incidents":         {"rules: [{name: hot, field: temp, above: 1, per: site, resolved: true, repeat: 4h}]", incidents},
		"silent gateways":   {"rules: [{name: off, silent: 15m, per: gateway}]", gateways},
		"words":             {"rules: [{name: hot, field: temp, is: [open, 3, true]}]", words},
		"valid":             {"rules: [{name: hot, field: temp, above: 1, valid: {from: -60}, only: {door: open, mode: [run, 1.5]}}]", valid},
		"measurements":      {"rules: [{name: hot, each: Content.*, field: Value, sensor: [HwId, $key], above: 1, valid: {to: 60, q: [good, 192, true], $component: probe}, per: 'site, line'}]", measurements},
		"flags of a word":   {"rules: [{name: hot, field: temp, is: [open, 3, true], valid: {q: good}}]", flaggedWord},
		"flags alone":       {"rules: [{name: hot, field: temp, sensor: $module, above: 1, valid: {q: good}}]", flagged},
		"in quotes":         {`rules: [{name: "hot", field: ' temp ', above: 80, clear: 8.0e+1, for: "0s", window: '60s'}]`, with(rules.Level{Limit: 80, Clear: 80})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.text)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, test.want)
			}
		})
	}
}

// However much is wrong, the message has an end.
func TestRulesFileMessageIsBounded(t *testing.T) {
	_, err := parse("rules:\n" + strings.Repeat("- {name: 1e9, field: "+strings.Repeat("x", 300)+", above: x, oops: 1}\n", 32))
	if err == nil {
		t.Fatal("no error")
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxMistakes+1 || lines[maxMistakes] != "and 97 more" {
		t.Errorf("got %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// text writes rules as a file that means them.
func text(all []rules.Rule, show []string) string {
	var b strings.Builder
	if len(show) > 0 {
		fmt.Fprintf(&b, "show: %q\n", show)
	}
	b.WriteString("rules:\n")
	for _, r := range all {
		direction := "above"
		if r.Below {
			direction = "below"
		}
		fmt.Fprintf(&b, "- name: %q\n  field: %q\n  window: %v\n  resolved: %v\n", r.Name, r.Field, r.Window, r.Resolved)
		if r.ClearedFor > 0 {
			fmt.Fprintf(&b, "  clear_for: %v\n", r.ClearedFor)
		}
		switch {
		case r.Repeat == rules.Never:
			b.WriteString("  repeat: never\n")
		case r.Repeat > 0:
			fmt.Fprintf(&b, "  repeat: %v\n", r.Repeat)
		}
		for key, value := range map[string]string{"title": r.Title, "unit": r.Unit, "runbook": r.Runbook} {
			if value != "" {
				fmt.Fprintf(&b, "  %s: %q\n", key, value)
			}
		}
		if r.Per != "" {
			fmt.Fprintf(&b, "  per: %q\n", r.Per)
		}
		if len(r.Only) > 0 {
			b.WriteString("  only:\n")
			for _, c := range r.Only {
				fmt.Fprintf(&b, "    %q: %s\n", c.Name, quoted(c.Values))
			}
		}
		if len(r.Is) > 0 {
			fmt.Fprintf(&b, "  is: %s\n  for: %v\n", quoted(r.Is), r.Levels[0].For)
			continue
		}
		if v := r.Valid; v != nil {
			var ends []string
			if !math.IsInf(v.From, 0) {
				ends = append(ends, fmt.Sprint("from: ", v.From))
			}
			if !math.IsInf(v.To, 0) {
				ends = append(ends, fmt.Sprint("to: ", v.To))
			}
			fmt.Fprintf(&b, "  valid: {%s}\n", strings.Join(ends, ", "))
		}
		limit := func(l rules.Level) string { return strconv.Quote(r.LimitText(&l)) }
		clear := func(l rules.Level) string { return strconv.Quote(r.ClearText(&l)) }
		r.Unit = "" // limits have none
		if l := r.Levels[0]; l.Name == "" {
			fmt.Fprintf(&b, "  %s: %v\n  clear: %v\n  for: %v\n", direction, limit(l), clear(l), l.For)
			continue
		}
		var limits, clears, lasts []string
		for _, l := range r.Levels {
			limits = append(limits, fmt.Sprintf("%q: %v", l.Name, limit(l)))
			clears = append(clears, fmt.Sprintf("%q: %v", l.Name, clear(l)))
			lasts = append(lasts, fmt.Sprintf("%q: %v", l.Name, l.For))
		}
		fmt.Fprintf(&b, "  %s: {%s}\n  clear: {%s}\n  for: {%s}\n", direction, strings.Join(limits, ", "), strings.Join(clears, ", "), strings.Join(lasts, ", "))
	}
	return b.String()
}

// quoted writes words as a list.
func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, strconv.Quote(w))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// No text makes the parser panic or run on; what it accepts is within its bounds, and means
// the same when it is written and read again.
func FuzzRulesFile(f *testing.F) {
	f.Add([]byte(exampleRules))
	wrong, err := os.ReadFile("testdata/rules-wrong.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wrong)
	for _, seed := range []string{
		"", "~", "- a", "rules: [{", "a: &a [*a]", "? a", "- - - -", "!!binary x", "%YAML 1.2\n---\n", "a: |\n b\n", "\uFEFF{}", "rules: [{<<: *a}]", "\"\\u0000\": 'a''b'",
		"rules: [{name: a, field: \"b\", below: {x: 1, y: p or -2e3}, clear: {x: 2}, for: {y: 5m}, window: 1h1s}]",
		"rules: [{name: a, field: b, above: p or 1, clear: q or 1, clear_for: 2m}, {name: c, field: b, below: {clear: 1, y: p or 2}, clear: {y: a.b or 3}}]",
		"rules: [{name: a, field: b, above: {x: c.d + 1, y: c.d + 2e0}, clear: c.d - 3, repeat: 2m}, {name: b, field: b, below: s - 1, hysteresis: 2}]",
		oneRule + "mute: [{days: [sat, mon-wed], from: 22:00, to: 6:00, zone: Asia/Tokyo}]",
		oneRule + "mute: [{to: 1:00, device: a, rule: hot, where: b=c}]",
		oneRule + "mute: [{where: maintenance=true}, {until: quietUntil, device: a*}]",
		"rules: [{name: a, field: b, is: [x, 1, true], only: {c: 1, d: [e, f]}, for: 1s, per: s}, {name: b, field: c, above: true, repeat: never, hysteresis: 0.5, valid: {from: -1, to: 3}}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > maxFile || !utf8.Valid(in) { // ReadFile refuses both
			return
		}
		set, err := parseRules(in, ruleDefaults{time.Minute, false, time.UTC})
		got := set.Rules
		if err != nil {
			if len(err.Error()) > 64<<10 {
				t.Fatalf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		if len(got) == 0 || len(got) > maxRules {
			t.Fatalf("%d rules", len(got))
		}
		for _, r := range got {
			if !ruleName.MatchString(r.Name) || len(r.Levels) == 0 || len(r.Levels) > maxRuleLevels || r.Window < minWindow || r.Window > maxWindow {
				t.Fatalf("accepts %+v", r)
			}
			for i, l := range r.Levels {
				if l.For < 0 || l.For > rules.MaxFor || !finite(l.Limit) || !finite(l.Clear) || r.Breaching(l.Clear, l.Limit) && l.Clear != l.Limit {
					t.Fatalf("accepts %+v", r)
				}
				if i == 0 {
					continue
				}
				milder := r.Levels[i-1]
				same := l.Limit == milder.Limit
				if same && l.For <= milder.For || !same && r.Breaching(milder.Limit, l.Limit) {
					t.Fatalf("levels of %+v are not in order", r)
				}
			}
		}
		again, err := parseRules([]byte(text(got, set.Show)+muteText(set.Mutes)), ruleDefaults{time.Hour, true, time.Local})
		if err != nil || !reflect.DeepEqual(again, set) {
			t.Fatalf("reads  %+v\nwrites %s\nreads  %+v, %v", set, text(got, set.Show), again, err)
		}
	})
}

// A rule about silence needs no field, and what it forgets depends on its duration.
func TestSilentRule(t *testing.T) {
	got, err := parse("rules:\n- {name: offline, silent: 15m}\n- {name: probe-dead, field: probe.temp, silent: 100h}\n- {name: gone, silent: 168h, forget: 400h, only: {kind: frozen}}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []rules.Rule{
		{Name: "offline", Silent: 15 * time.Minute, Levels: []rules.Level{{}}, Window: time.Minute, Forget: 168 * time.Hour},
		{Name: "probe-dead", Field: "probe.temp", Silent: 100 * time.Hour, Levels: []rules.Level{{}}, Window: time.Minute, Forget: 200 * time.Hour},
		{Name: "gone", Silent: 168 * time.Hour, Levels: []rules.Level{{}}, Window: time.Minute, Forget: 400 * time.Hour, Only: []rules.Condition{{Name: "kind", Values: []string{"frozen"}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
