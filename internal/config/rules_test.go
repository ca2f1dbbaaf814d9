package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"alertworker/internal/rules"
)

// withRules is an environment with a file of rules; with replaces variables in it.
func withRules(t *testing.T, text string, with ...string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return valid(append([]string{"TEMPERATURE_THRESHOLD=", "RULES_FILE=" + path}, with...)...)
}

const exampleRules = `# What is worth an alert.
rules:
- name: hot
  field: temperature, temp            # the first that holds a number counts
  above: {critical: maxTemp or 80, warning: 70}  # or one number
  clear: 65
  for: 2m
  window: 10m                         # default THROTTLE_WINDOW
  resolved: true
- {name: cold-chain, field: probe.temp, below: 2}
`

func TestRules(t *testing.T) {
	one := func(change func(r *rules.Rule)) []rules.Rule {
		r := rules.Rule{Name: "temperature", Field: "temperature,temp", Window: time.Minute, Levels: []rules.Level{{Limit: 80, Clear: 80}}}
		change(&r)
		return []rules.Rule{r}
	}
	cold := rules.Rule{Name: "cold-chain", Field: "probe.temp", Below: true, Window: time.Minute, Levels: []rules.Level{{Limit: 2, Clear: 2}}}
	hot := rules.Rule{
		Name: "hot", Field: "temperature,temp", Window: 10 * time.Minute, Resolved: true,
		Levels: []rules.Level{{Name: "warning", Limit: 70, Clear: 65, For: 2 * time.Minute}, {Name: "critical", Limit: 80, Clear: 65, For: 2 * time.Minute, LimitAt: rules.Reference{Name: "maxTemp"}}},
	}
	seldom, once, minutely := hot, cold, cold
	seldom.Repeat, once.Repeat = 4*time.Hour, rules.Never
	minutely.Name = "minutely"
	repeats := strings.NewReplacer("clear: 65", "repeat: 4h\n  clear: 65", "below: 2}", "below: 2, repeat: never}").Replace(exampleRules) +
		"- {name: minutely, field: probe.temp, below: 2, repeat: 60s}\n"
	resolved := cold
	resolved.Resolved, resolved.Window = true, 5*time.Minute
	for name, test := range map[string]struct {
		env  map[string]string
		want rules.Set
	}{
		"field":           {valid("TEMPERATURE_FIELD= temperature , temp"), rules.Set{Rules: one(func(*rules.Rule) {})}},
		"threshold":       {valid(), rules.Set{Rules: one(func(*rules.Rule) {})}},
		"resolved":        {valid("NOTIFY_RESOLVED=true"), rules.Set{Rules: one(func(r *rules.Rule) { r.Resolved = true })}},
		"repeat":          {withRules(t, repeats), rules.Set{Rules: []rules.Rule{seldom, once, minutely}}},
		"time":            {valid("TIME_PROPERTY=iothub-creation-time-utc"), rules.Set{Rules: one(func(*rules.Rule) {}), Time: "iothub-creation-time-utc"}},
		"time in a body":  {withRules(t, exampleRules, "TIME_PROPERTY=body:meta.at"), rules.Set{Rules: []rules.Rule{hot, cold}, Time: "body:meta.at"}},
		"file":            {withRules(t, exampleRules+"mute: [{until: quiet}]"), rules.Set{Rules: []rules.Rule{hot, cold}, Mutes: rules.Mutes{{UntilAt: "quiet"}}}},
		"inline":          {valid("TEMPERATURE_THRESHOLD=", "RULES="+exampleRules), rules.Set{Rules: []rules.Rule{hot, cold}}},
		"defaults of it":  {withRules(t, "rules: [{name: cold-chain, field: probe.temp, below: 2}]", "NOTIFY_RESOLVED=true", "THROTTLE_WINDOW=5m"), rules.Set{Rules: []rules.Rule{resolved}}},
		"not by template": {withRules(t, "rules: [{name: cold-chain, field: probe.temp, below: 2}]", "TEMPERATURE_FIELD="), rules.Set{Rules: []rules.Rule{cold}}},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, test.env)
			c, warnings, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 {
				t.Errorf("warnings: %v", warnings)
			}
			if got := c.Rules(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestRulesWrong(t *testing.T) {
	for _, test := range []struct {
		name     string
		env      map[string]string
		variable string
		says     string
	}{
		{"time has spaces", valid("TIME_PROPERTY=taken at"), "TIME_PROPERTY", "without spaces"},
		{"time of the twin", valid("TIME_PROPERTY=$twin.tags.at"), "TIME_PROPERTY", "as a message has it"},
		{"time in no field", valid("TIME_PROPERTY=body:"), "TIME_PROPERTY", "such as body:timestamp"},
		{"time in a wrong field", valid("TIME_PROPERTY=body:a..b"), "TIME_PROPERTY", "empty name"},
		{"time in a field as a property", valid("TIME_PROPERTY=body.ts"), "TIME_PROPERTY", "for the field ts of the body write body:ts"},
		{"time in JSONPath", valid("TIME_PROPERTY=body:$.a[0]"), "TIME_PROPERTY", "write names joined by dots"},
		{"field in JSONPath", valid("TEMPERATURE_FIELD=a.b[1]"), "TEMPERATURE_FIELD", "write names joined by dots"},
		{"condition in JSONPath", valid("TEMPERATURE_FIELD=readings[?(@.x,@.y)]"), "TEMPERATURE_FIELD", "is JSONPath: write names joined by dots"},
		{"resolved", valid("NOTIFY_RESOLVED=sometimes"), "NOTIFY_RESOLVED", "true or false"},
		{"repeat and retention", withRules(t, strings.Replace(exampleRules, "below: 2}", "below: 2, repeat: 168h}", 1), "LEASE_RETENTION=168h"), "LEASE_RETENTION", "must be more than repeat of the rule cold-chain (168h)"},
		{"neither", valid("TEMPERATURE_THRESHOLD="), "TEMPERATURE_THRESHOLD", "; or set RULES or RULES_FILE"},
		{"file and text", withRules(t, exampleRules, "RULES=rules: []"), "RULES_FILE", "and RULES are both set: remove one of them"},
		{"text without a rule", valid("TEMPERATURE_THRESHOLD=", "RULES= "), "RULES", "cannot be used: is empty"},
		{"text beside a threshold", valid("RULES=" + exampleRules), "RULES", "and TEMPERATURE_THRESHOLD are set: use one or the other"},
		{"both", withRules(t, exampleRules, "TEMPERATURE_THRESHOLD=80", "TEMPERATURE_FIELD=temp"), "RULES_FILE", "and TEMPERATURE_THRESHOLD and TEMPERATURE_FIELD are set"},
		{"no file", valid("TEMPERATURE_THRESHOLD=", "RULES_FILE=/nonexistent/rules.yaml"), "RULES_FILE", "no such file"},
		{"empty file", withRules(t, " \n"), "RULES_FILE", "is empty"},
		{"large file", withRules(t, exampleRules+strings.Repeat("#\n", 40<<10)), "RULES_FILE", "larger than 64 KiB"},
		{"window of a lease", withRules(t, exampleRules, "THROTTLE_STORE=blob-lease"), "RULES_FILE", "window of 10m in the rule hot; must be 15s to 60s"},
		{"give up", withRules(t, exampleRules, "NOTIFY_GIVE_UP=5m"), "NOTIFY_GIVE_UP", "must be at least the window of the rule hot (10m)"},
		{"retention", withRules(t, strings.Replace(exampleRules, "10m", "24h", 1), "NOTIFY_GIVE_UP=24h", "LEASE_RETENTION=48h"), "LEASE_RETENTION", "more than the sum of the window of the rule hot and NOTIFY_GIVE_UP (48h)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			_, _, err := Load()
			if err == nil {
				t.Fatal("no error")
			}
			lines := problemLines(err)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], test.variable+"  ") || !strings.Contains(lines[0], test.says) {
				t.Errorf("got %q, want %s … %s", lines, test.variable, test.says)
			}
		})
	}
}

// Mistakes in RULES have their place in it.
func TestRulesTextWrong(t *testing.T) {
	environment(t, valid("TEMPERATURE_THRESHOLD=", "RULES=rules:\n- {name: hot, field: t, above: 8O}"))
	_, _, err := Load()
	want := "  RULES  has mistakes:\n    line 2, column 32: above is \"8O\"; must be"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What the log says of the configuration is what is in force.
func TestRulesFileInLog(t *testing.T) {
	environment(t, withRules(t, exampleRules))
	c, _, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	fields := logged(t, c)
	if _, ok := fields["TEMPERATURE_FIELD"]; ok || fields["RULES_FILE"] != c.RulesFile.path {
		t.Errorf("got %v", fields)
	}

	environment(t, valid("TEMPERATURE_THRESHOLD=", "RULES="+exampleRules))
	if c, _, err = Load(); err != nil {
		t.Fatal(err)
	}
	if fields := logged(t, c); fields["RULES"] != fmt.Sprint(len(exampleRules), " bytes of rules") {
		t.Errorf("got %v", fields)
	}
}

func TestRulesWarnings(t *testing.T) {
	oneLevel := "rules: [{name: hot, field: temp, above: {critical: 80}}]"
	for name, test := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"levels that are there":  {withRules(t, exampleRules, "NOTIFY_URLS=log:,level=critical https://a/"), nil},
		"one that nobody gets":   {withRules(t, exampleRules, "NOTIFY_URLS=level=critical https://a/"), []string{"NOTIFY_URLS has no receiver for the level warning of the rule hot: nobody is notified of it"}},
		"together":               {withRules(t, exampleRules, "NOTIFY_URLS=level=critical https://a/,level=warning rule=hot where=site:berlin https://a/"), nil},
		"a short window":         {withRules(t, strings.Replace(exampleRules, "10m", "10s", 1)), []string{"OWNERSHIP_EXPIRY and BALANCE_INTERVAL add up to 11s, longer than the window of the rule hot (10s): while the partitions of a dead replica are taken over, alerts may be that late"}},
		"a window that is short": {withRules(t, oneLevel, "THROTTLE_WINDOW=10s"), []string{"OWNERSHIP_EXPIRY and BALANCE_INTERVAL add up to 11s, longer than THROTTLE_WINDOW (10s): while the partitions of a dead replica are taken over, alerts may be that late"}},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, test.env)
			_, warnings, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range warnings {
				got = append(got, w.String())
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A receiver that asks for what no rule sends would get nothing, and nobody would notice before it matters.
func TestFiltersThatMatchNothing(t *testing.T) {
	const two = "rules: [{name: hot, field: t, above: {warning: 70, critical: 80}}, {name: cold, field: t, below: {low: 2}}, {name: door, field: d, is: open}]"
	for name, test := range map[string]struct{ urls, want string }{
		"a level":             {"log:,level=critcal https://a/", "entry 2 has level=critcal, which none of its rules has; did you mean critical?"},
		"one unlike any":      {"level=fatal log:", "entry 1 has level=fatal, which none of its rules has: must be critical, low or warning"},
		"another rule's":      {"rule=cold level=critical log:", "entry 1 has level=critical, which none of its rules has: must be low"},
		"where there is none": {"rule=door level=critical log:", "entry 1 has level=critical, but its rules have no levels: remove it"},
		"a rule":              {"rule=hot|colt log:", "entry 1 has rule=colt, which is not the name of a rule; did you mean cold?"},
		"a path in the twin":  {"where=$twin.tags.site:berlin log:", "entry 1 has an invalid where=: must be the name of an application property"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, withRules(t, two, "NOTIFY_URLS="+test.urls))
			_, _, err := Load()
			if err == nil || !strings.Contains(err.Error(), "NOTIFY_URLS") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	environment(t, withRules(t, two, "NOTIFY_URLS=rule=hot|door level=critical log:,where=site:berlin level=low|warning https://a/"))
	if _, _, err := Load(); err != nil {
		t.Error(err)
	}
	environment(t, valid("NOTIFY_URLS=log:,level=critical https://a/"))
	if _, _, err := Load(); err == nil || !strings.Contains(err.Error(), "entry 2 has level=critical, but its rules have no levels: remove it") {
		t.Errorf("got %v", err)
	}
}
