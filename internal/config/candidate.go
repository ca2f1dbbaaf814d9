package config

import (
	"os"
	"reflect"
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
	var c Config
	var e configError
	values := reflect.ValueOf(&c).Elem()
	for i := range values.NumField() {
		readVariable(values.Type().Field(i), values.Field(i), &e)
	}
	if os.Getenv("NOTIFY_URLS")+os.Getenv("NOTIFY_URLS_FILE") == "" {
		c.NotifyURLs = NewURLs("log:")
		e.problems = slices.DeleteFunc(e.problems, func(p problem) bool { return p.variable == "NOTIFY_URLS" })
	}
	c.expand()
	c.validate(&e)
	e.problems = slices.DeleteFunc(e.problems, func(p problem) bool {
		i := position(p.variable)
		return i < len(Variables()) && !slices.Contains(deciding, Variables()[i].Group) && !(hub && Variables()[i].Group == "Event hub")
	})
	if len(e.problems) > 0 {
		return Config{}, &e
	}
	return c, nil
}

// Tries reports whether another value of the variable is a candidate for rules.
func Tries(variable string) bool {
	i := position(variable)
	return i < len(Variables()) && (Variables()[i].Group == "Readings" && variable != "RULES_FILE" || variable == "THROTTLE_WINDOW" || variable == "NOTIFY_RESOLVED" || variable == "NOTIFY_URLS")
}
