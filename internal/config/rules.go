package config

import (
	"path/filepath"
	"slices"
	"strings"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// HasRules reports whether RULES or RULES_FILE is set.
func (c Config) HasRules() bool { return c.rulesVariable() != "" }

// rulesVariable returns the variable that has the rules: RULES or RULES_FILE; empty if neither is set.
func (c Config) rulesVariable() string {
	switch {
	case c.RulesFile.path != "":
		return "RULES_FILE"
	case c.RulesText != "":
		return "RULES"
	}
	return ""
}

// Rules returns what is worth an alert: the rules of RULES or RULES_FILE as Load read them, or the one of
// TEMPERATURE_THRESHOLD. Nobody changes them.
func (c Config) Rules() rules.Set {
	set := c.RulesFile.set
	if !c.HasRules() {
		set = rules.Threshold(withoutSpaces(c.TemperatureField), c.TemperatureThreshold, c.ThrottleWindow)
		set.Rules[0].Resolved = c.NotifyResolved
	}

	set.Time = c.TimeProperty

	return set
}

// validateRules reads RULES or RULES_FILE, once, and compares what all rules say with other settings.
func (c *Config) validateRules(e *configError) {
	if c.HasRules() && len(c.RulesFile.set.Rules) == 0 {
		c.readRules(e)
	}

	if e.has(c.rulesVariable()) {
		return
	}

	c.validateFilters(e)
	if !e.has("THROTTLE_WINDOW") {
		c.validateWindows(e)
	}
}

// validateWindows compares what all rules say of time with other settings.
func (c *Config) validateWindows(e *configError) {
	const retention = "is %s; must be more than %s of the rule %s (%s), or %s"
	longest, of := c.ThrottleWindow, "THROTTLE_WINDOW"
	for _, r := range c.Rules().Rules {
		e.addIf(
			!c.Store().Lasts(r.Window),
			c.rulesVariable(),
			"has a window of %s in the rule %s; must be %s with THROTTLE_STORE=%s (%s)",
			humanize.Plain(r.Window),
			r.Name,
			c.Store().lasting(),
			c.ThrottleStore,
			unlimited(),
		)
		// Records of devices outlive what rules remember of them, or need of them.
		e.addIf(r.Forget >= c.LeaseRetention, "LEASE_RETENTION", retention, humanize.Plain(c.LeaseRetention),
			"forget", r.Name, humanize.Plain(r.Forget), "the recovery of a device that is heard again could be lost")
		e.addIf(r.Repeat != rules.Never && r.Repeat >= c.LeaseRetention, "LEASE_RETENTION", retention, humanize.Plain(c.LeaseRetention),
			"repeat", r.Name, humanize.Plain(r.Repeat), "nobody would know when its alarm was sent")

		if r.Window > longest {
			longest, of = r.Window, "the window of the rule "+r.Name
		}
	}

	e.addIf(
		c.NotifyGiveUp < longest,
		"NOTIFY_GIVE_UP",
		"is %s; must be at least %s (%s)",
		humanize.Plain(c.NotifyGiveUp),
		of,
		humanize.Plain(longest),
	)
	if e.has("NOTIFY_GIVE_UP") {
		return
	}

	late := longest + c.NotifyGiveUp
	e.addIf(
		c.LeaseRetention <= late,
		"LEASE_RETENTION",
		"is %s; must be more than the sum of %s and NOTIFY_GIVE_UP (%s), or a retried alert could be sent twice",
		humanize.Plain(c.LeaseRetention),
		of,
		humanize.Plain(late),
	)
}

// readRules reads RULES or RULES_FILE.
func (c *Config) readRules(e *configError) {
	var wrong []string
	if others := c.RulesFile.beside; len(others) > 0 {
		wrong = append(wrong, "and "+strings.Join(others, " and ")+
			" are set: use one or the other (each rule has its own field and limits)")
	}

	text, where, err := []byte(c.RulesText), "", checkContent([]byte(c.RulesText))
	if c.RulesFile.path != "" {
		where = " in " + show(filepath.Base(c.RulesFile.path))
		text, err = ReadFile(c.RulesFile.path)
		if c.RulesText != "" {
			wrong = append(wrong, "and RULES are both set: remove one of them")
		}
	}

	if err != nil {
		wrong = append(wrong, "cannot be used: "+err.Error())
	} else if c.RulesFile.set, err = parseRules(text, ruleDefaults{c.ThrottleWindow, c.NotifyResolved, c.Zone()}); err != nil {
		mistakes := strings.ReplaceAll("\n"+err.Error(), "\n", "\n    ")
		wrong = append(wrong, "has mistakes"+where+":"+mistakes)
	}

	e.addIf(len(wrong) > 0, c.rulesVariable(), "%s", strings.Join(wrong, "; it also "))
}

// validateFilters compares what receivers ask for with what there is: one that asks for what no rule sends gets
// nothing.
func (c *Config) validateFilters(e *configError) {
	set := c.Rules()
	names := set.Names()
	for i, r := range c.receivers() {
		wrong := func(format string, args ...any) {
			e.add("NOTIFY_URLS", "entry %d has "+format, append([]any{i + 1}, args...)...)
		}
		f := r.Filter
		var levels []string // of the rules that it asks for
		for _, of := range set.Rules {
			for _, l := range of.Levels {
				if l.Name != "" && (len(f.Rules) == 0 || slices.Contains(f.Rules, of.Name)) {
					levels = append(levels, l.Name)
				}
			}
		}

		slices.Sort(levels)
		levels = slices.Compact(levels)
		rule := slices.IndexFunc(f.Rules, isNot(names))
		level := slices.IndexFunc(f.Levels, isNot(levels))
		switch {
		case rule >= 0:
			wrong("rule=%s, which is not the name of a rule%s", f.Rules[rule], didYouMean(f.Rules[rule], names))
		case level >= 0 && len(levels) == 0:
			wrong("level=%s, but its rules have no levels: remove it", f.Levels[level])
		case level >= 0:
			wrong("level=%s, which none of its rules has%s", f.Levels[level], didYouMean(f.Levels[level], levels))
		case f.Property != "":
			if err := checkLookup(f.Property); err != nil {
				wrong("an invalid where=: %v", err)
			}
		}
	}
}

// isNot returns a function that reports whether a name is not among known.
func isNot(known []string) func(name string) bool {
	return func(name string) bool { return !slices.Contains(known, name) }
}

// warnOfRules warns of what in valid rules may not be intended: alerts that no receiver gets.
func (c Config) warnOfRules(w *warner) {
	set := c.Rules()
	w.warnIf(
		c.CheckpointStore == StoreMemory && set.Stateful(),
		"CHECKPOINT_STORE",
		"is memory: alarms are forgotten at every start, so that a device that was hot before it may alert again, and no "+
			"recoveries are sent for the others",
	)

	var all notify.Filters
	for _, r := range c.receivers() {
		all = append(all, r.Filter)
	}

	for _, r := range set.Rules {
		for _, l := range r.Levels {
			w.warnIf(
				!all.Cover(r.Name, l.Name),
				"NOTIFY_URLS",
				"has no receiver for %s: nobody is notified of it",
				RuleAndLevel(r.Name, l.Name),
			)
		}
	}
}

// RuleAndLevel names both, for people.
func RuleAndLevel(rule, level string) string {
	if level == "" {
		return "the rule " + rule
	}
	return "the level " + level + " of the rule " + rule
}
