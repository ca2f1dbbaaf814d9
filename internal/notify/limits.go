package notify

import (
	"slices"
	"time"
)

// Limits are how a receiver wants to be used. The zero Limits know of none.
type Limits struct {
	Places int  // calls of Notify at a time, over all alerts of a replica; 0: as many as there are
	Rate   Rate // of messages
	Batch  int  // alerts in one message; 0 and 1 are one
	// Forgets means that it has to be told again and again what is open, because it keeps that in memory: see
	// delivery.Outbox.Refresh. What it has already it notifies nobody of
	Forgets bool
	People  bool // people read each message, and had rather read a few that say much: see package pace
}

// A Rate is how many messages a service takes: Burst at once, and one more every Every. The zero
// Rate is not limited.
type Rate struct {
	Burst int // 0 is 1
	Every time.Duration
}

// A Filter says which alerts a receiver gets: those that match each of its parts that are set.
type Filter struct {
	// Levels are names of levels. An alert without a level matches, because nothing says that
	// it is a lesser one.
	Levels []string
	Rules  []string // names of rules
	// Property is the name of an application property, and Values what it may be.
	Property string
	Values   []string
}

// Filters are those of one receiver, which gets what any of them matches. No filters match everything.
type Filters []Filter

// Want reports whether fs match alerts of a rule and level about a message. property returns the text of one of the message's
// application properties, "" if it has none. If it is nil, any message will do.
func (fs Filters) Want(rule, level string, property func(name string) string) bool {
	return len(fs) == 0 || slices.ContainsFunc(fs, func(f Filter) bool {
		isLevel := len(f.Levels) == 0 || level == "" || slices.Contains(f.Levels, level)
		isRule := len(f.Rules) == 0 || slices.Contains(f.Rules, rule)
		return isLevel && isRule && (f.Property == "" || property == nil || slices.Contains(f.Values, property(f.Property)))
	})
}

// Cover reports whether fs match alerts of a rule and level about some messages.
func (fs Filters) Cover(rule, level string) bool { return fs.Want(rule, level, nil) }
