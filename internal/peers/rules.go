package peers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"alertworker/internal/rules"
)

// maxRules is more than the rules of two configurations need, in bytes.
const maxRules = 8 << 10

// resolved marks rules that tell when a device is normal again.
const resolved = "+resolved"

// Rules returns the windows of set's rules, and which of them tell when a device is normal again, for Settings
// whose Window is window: "cold-chain=1m0s hot=10m0s+resolved". It is empty if there is only the
// rule that every version has, with that window, and without resolved.
func Rules(set rules.Set, window time.Duration) string {
	all := map[string]string{}
	for _, r := range set.Rules {
		all[r.Name] = r.Window.String()
		if r.Resolved {
			all[r.Name] += resolved
		}
	}
	return format(all, window)
}

func format(all map[string]string, window time.Duration) string {
	if len(all) == 1 && all[rules.DefaultName] == window.String() {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, " ")
}

// rules returns what s has of each rule, by its name.
func (s Settings) rules() map[string]string {
	if s.Rules == "" {
		return map[string]string{rules.DefaultName: s.Window.String()}
	}
	all := map[string]string{}
	for _, part := range strings.Fields(s.Rules) {
		name, value, _ := strings.Cut(part, "=")
		all[name] = value
	}
	return all
}

// differentRules says how rules that both have differ. One that only one has shares no key
// with those of the other.
func (s Settings) differentRules(other Settings) (parts []string) {
	if s.Window != other.Window && s.Rules == "" && other.Rules == "" {
		return nil // THROTTLE_WINDOW says it
	}
	ours, theirs := s.rules(), other.rules()
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		there, both := theirs[name]
		if !both || there == ours[name] {
			continue
		}
		window, told := strings.CutSuffix(ours[name], resolved)
		theirWindow, theyTell := strings.CutSuffix(there, resolved)
		if window != theirWindow {
			parts = append(parts, fmt.Sprintf("the window of the rule %s is %s there and %s here", name, theirWindow, window))
		}
		if told != theyTell {
			parts = append(parts, fmt.Sprintf("resolved of the rule %s is %t there and %t here", name, theyTell, told))
		}
	}
	return parts
}

// longest returns the longest window of s.
func (s Settings) longest() time.Duration {
	longest := s.Window
	for _, value := range s.rules() {
		window, err := time.ParseDuration(strings.TrimSuffix(value, resolved))
		if err == nil {
			longest = max(longest, window)
		}
	}
	return longest
}

// withRules returns s with the rules that only other has.
func (s Settings) withRules(other Settings) Settings {
	all := other.rules()
	maps.Copy(all, s.rules())
	if text := format(all, s.Window); len(text) <= maxRules {
		s.Rules = text
	}
	return s
}
