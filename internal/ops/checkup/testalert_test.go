package checkup

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/notify/wording"
	"alertworker/internal/rules"
)

// What check sends says something true of the rule, whatever that is about.
func TestTestAlertOfRule(t *testing.T) {
	for _, tt := range []struct {
		rule         rules.Rule
		alert, after string
	}{
		{rules.Rule{Name: "offline", Silent: 10 * time.Minute}, "not heard for 10m, since 20", "heard again"},
		{rules.Rule{Name: "probe-dead", Field: "probe.temp", Silent: 10 * time.Minute}, "without probe.temp for 10m, since 20", "heard again"},
		{rules.Rule{Name: "door", Field: "door", Is: []string{"open", "ajar"}}, "open", "not open"},
	} {
		tt.rule.Levels = []rules.Level{{Limit: 1, Clear: 1}}
		c := config.Config{RulesFile: config.RulesOf(rules.Set{Rules: []rules.Rule{tt.rule}}), NotifyTimeout: time.Second}
		k := &checkup{config: c, resolved: func() (config.Config, error) { return c, nil }}
		alert, recovery := k.testMessages()
		if text := (wording.Style{}).Message(alert); !strings.Contains(text, tt.alert) {
			t.Errorf("the alert says %q, want %q in it", text, tt.alert)
		}
		if text := (wording.Style{}).Message(recovery); !strings.Contains(text, tt.after) {
			t.Errorf("the recovery says %q, want %q in it", text, tt.after)
		}
	}
}
