package config

import (
	"os"
	"slices"
)

// deciding are the groups of variables that decide about alerts, and not where they are read, kept or shown.
var deciding = []string{"Readings", "Windows", "Alerts", "Duties, performed by one replica for all"}

// LoadRules is Load for commands that ask what rules decide, and connect to nothing but the hub. changed are variables with other
// values than in the environment; an empty value unsets one. Only mistakes in variables that decide about alerts count, and with
// hub in those that say where the hub is. Without NOTIFY_URLS alerts go to the log. It sets the environment while it runs, so
// it must run alone.
func LoadRules(changed map[string]string, hub bool) (Config, error) {
	for name, value := range changed {
		was, set := os.LookupEnv(name)
		_ = os.Setenv(name, value) // it fails for a name that no variable can have
		defer func() {
			if _ = os.Unsetenv(name); set {
				_ = os.Setenv(name, was)
			}
		}()
	}
	var e configError
	c := readVariables(&e)
	if os.Getenv("NOTIFY_URLS")+os.Getenv("NOTIFY_URLS_FILE") == "" {
		c.NotifyURLs = NewURLs("log:")
		e.problems = slices.DeleteFunc(e.problems, func(p problem) bool { return p.variable == "NOTIFY_URLS" })
	}
	c.expand()
	c.validate(&e)
	e.problems = slices.DeleteFunc(e.problems, func(p problem) bool {
		group := groupOf(p.variable)
		return group != "" && !slices.Contains(deciding, group) && !(hub && group == "Event hub")
	})
	if len(e.problems) > 0 {
		return Config{}, &e
	}
	return c, nil
}

// Tries reports whether another value of the variable is a candidate for rules.
func Tries(variable string) bool {
	switch variable {
	case "THROTTLE_WINDOW", "NOTIFY_RESOLVED", "NOTIFY_URLS":
		return true
	}
	return groupOf(variable) == "Readings" && variable != "RULES_FILE"
}

// groupOf returns the group of a variable; "" if there is none of that name.
func groupOf(name string) string {
	if i := position(name); i < len(Variables()) {
		return Variables()[i].Group
	}
	return ""
}
