package config

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// deciding are the groups of variables that decide about alerts, and not where they are read, kept or shown.
var deciding = []string{"Readings", "Windows", "Alerts", "Duties of one replica for all"}

// LoadRules is Load for commands that ask what rules decide, and connect to nothing but the hub. changed are
// variables with other values than in the environment; an empty value unsets one. Only mistakes in variables that
// decide about alerts count, and with hub in those that say where the hub is. Without NOTIFY_URLS alerts go to the
// log.
func LoadRules(changed map[string]string, hub bool) (Config, error) {
	values := map[string]string{}
	maps.Copy(values, changed)
	env := lookup(func(name string) (string, bool) {
		value, ok := values[name]
		if !ok {
			return os.LookupEnv(name)
		}
		return value, value != ""
	})
	if env.get("NOTIFY_URLS")+env.get("NOTIFY_URLS_FILE") == "" {
		values["NOTIFY_URLS"] = "log:"
	}

	var e configError
	c := readVariables(env, &e)
	c.expand()
	c.validate(&e)

	groups := deciding
	if hub {
		groups = append(slices.Clone(groups), "Event hub")
	}

	e.problems = slices.DeleteFunc(e.problems, func(p problem) bool {
		return !slices.Contains(groups, variableOf(p.variable).Group) && gone[p.variable] == ""
	})
	if len(e.problems) > 0 {
		return Config{}, &e
	}

	return c, nil
}

// triedBeside are variables of other groups than Readings that are candidates.
var triedBeside = []string{"THROTTLE_WINDOW", "NOTIFY_RESOLVED", "NOTIFY_URLS"}

// Tries reports whether another value of the variable is a candidate for rules.
func Tries(variable string) bool {
	isReadings := variableOf(variable).Group == "Readings" && !strings.HasPrefix(variable, "RULES")
	return isReadings || slices.Contains(triedBeside, variable)
}
