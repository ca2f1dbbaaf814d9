package config

import (
	"regexp"
	"slices"
	"strings"
)

// families are the first words of names that nobody else uses; STORAGE, HTTP
// and LOG are not among them.
var families = []string{"THROTTLE_", "NOTIFY_", "EVENTHUB_", "IOTHUB_", "CHECKPOINT_", "TEMPERATURE_", "COSMOS_", "OWNERSHIP_", "DEAD_LETTER_"}

// othersNames are names of our families that belong to others: to systemd, and
// to what Kubernetes makes of a service that is called, say, notify.
var othersNames = regexp.MustCompile(`^NOTIFY_SOCKET$|_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?$`)

const (
	maxNameWarnings = 20
	maxName         = 64
)

// misspelled warns of variables that are not ours but look as if they were
// meant to be, in alphabetical order.
func misspelled(environ []string) []Warning {
	known, set := map[string]bool{}, map[string]bool{}
	for _, v := range Variables() {
		known[v.Name] = true
		if v.Secret {
			known[v.Name+"_FILE"] = true
		}
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" {
			set[strings.TrimSuffix(name, "_FILE")] = true
		}
	}
	for _, names := range alternatives {
		if slices.ContainsFunc(names, func(name string) bool { return set[name] }) {
			for _, name := range names {
				set[name] = true
			}
		}
	}
	var list []Warning
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || known[name] || len(name) > maxName || !isName(name) || othersNames.MatchString(name) {
			continue
		}
		text := nearMiss(name)
		// What it holds says more than what it is called: the samples of Azure Functions
		// have an Event Hubs string in iothub_connectionstring.
		if what, home := content(name, value); home != "" && !set[home] {
			text = "is not used; it holds " + what + ": set " + home + " to it"
		} else if home != "" && !strings.Contains(text, home) {
			text = ""
		}
		if text != "" && len(list) < maxNameWarnings {
			list = append(list, Warning{name, text})
		}
	}
	return list
}

// alternatives are variables of which one is enough.
var alternatives = [][]string{
	{"EVENTHUB_CONNECTION_STRING", "EVENTHUB_NAMESPACE", "IOTHUB_CONNECTION_STRING"},
	{"STORAGE_CONNECTION_STRING", "STORAGE_ACCOUNT_URL"},
	{"COSMOS_CONNECTION_STRING", "COSMOS_ENDPOINT"},
}

// services are what the names of settings for them hold.
var services = []string{"iothub", "eventhub", "cosmos", "storage"}

// content tells which connection string a variable holds that is not ours, and which of
// our variables takes it; empty if its name says that it is something else's.
func content(name, value string) (what, home string) {
	plain := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	if !slices.ContainsFunc(services, func(s string) bool { return strings.Contains(plain, s) }) {
		return "", ""
	}
	pairs, err := parsePairs(value)
	if err != nil {
		return "", ""
	}
	return belongsTo(pairs)
}

func isName(s string) bool { return s != "" && strings.Trim(s, alphanumerics+"_") == "" }

// nearMiss says what name, which is not ours, was meant to be; empty if it has
// nothing to do with us.
func nearMiss(name string) string {
	upper := strings.TrimPrefix(strings.ToUpper(name), "ALERTWORKER_")
	best, bestDistance := "", 3
	var family []string
	for _, v := range Variables() {
		if upper == v.Name+"_FILE" && !v.Secret {
			return "is not used: only secrets can come from a file; set " + v.Name
		}
		names := []string{v.Name}
		if v.Secret {
			names = append(names, v.Name+"_FILE")
		}
		for _, candidate := range names {
			distance := bestDistance
			if difference := len(upper) - len(candidate); difference >= -2 && difference <= 2 {
				distance = editDistance(upper, candidate)
			} else if strings.HasPrefix(upper, candidate+"_") {
				distance = 2 // THROTTLE_WINDOW_SECONDS
			}
			// In short names two letters make another word.
			if distance < bestDistance && (distance < 2 || len(candidate) >= 10) {
				best, bestDistance = candidate, distance
			}
		}
		for _, prefix := range families {
			if strings.HasPrefix(upper, prefix) && strings.HasPrefix(v.Name, prefix) {
				family = append(family, v.Name)
			}
		}
	}
	switch {
	case best != "":
		return "is not used; did you mean " + best + "?"
	case family != nil:
		return "is not used; there is " + strings.Join(family, ", ")
	}
	return ""
}

// editDistance counts the letters to insert, remove, replace or swap with their
// neighbour to make b of a.
func editDistance(a, b string) int {
	beforeLast := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}
