package config

import (
	"regexp"
	"slices"
	"strings"
)

// families are first words of names that no other program uses, unlike STORAGE, HTTP
// and LOG.
var families = []string{
	"THROTTLE_",
	"NOTIFY_",
	"EVENTHUB_",
	"IOTHUB_",
	"CHECKPOINT_",
	"TEMPERATURE_",
	"COSMOS_",
	"OWNERSHIP_",
	"DEAD_LETTER_",
}

// othersNames are names of our families that belong to systemd, or that Kubernetes
// sets for a service named, for example, notify.
var othersNames = regexp.MustCompile(
	`^NOTIFY_SOCKET$|_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?$`,
)

// plainName is a name that a message can show.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

const (
	maxNameWarnings = 20
	maxName         = 64
)

// misspelled returns a warning for each variable that is not ours but looks as if it
// was meant to be, in alphabetical order.
func misspelled(environ []string) []Warning {
	known := map[string]bool{}
	for _, v := range Variables() {
		known[v.Name], known[v.Name+"_FILE"] = true, v.Secret
	}

	var list []Warning
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		canBeShown := len(name) <= maxName && plainName.MatchString(name)
		if value == "" || known[name] || gone[name] != "" || !canBeShown || othersNames.MatchString(name) {
			continue
		}

		if text := nearMiss(name); text != "" {
			list = append(list, Warning{name, text})
		}
	}

	return list[:min(len(list), maxNameWarnings)]
}

// nearMiss returns what an unknown name was probably meant to be; empty if it does
// not resemble any of ours.
func nearMiss(name string) string {
	upper := strings.TrimPrefix(strings.ToUpper(name), "ALERTWORKER_")
	base, isFile := strings.CutSuffix(upper, "_FILE")
	if v, ok := variableOf(base); isFile && ok && !v.Secret {
		return "is ignored: only secrets can be read from a file; set " + base
	}

	if best := nearest(upper); best != "" {
		return "is ignored; did you mean " + best + "?"
	}

	i := slices.IndexFunc(families, func(prefix string) bool { return strings.HasPrefix(upper, prefix) })
	if i < 0 {
		return ""
	}

	var family []string
	for _, v := range Variables() {
		if strings.HasPrefix(v.Name, families[i]) {
			family = append(family, v.Name)
		}
	}

	return "is ignored; the settings with this prefix are " + strings.Join(family, ", ")
}

// nearest returns the name of ours that is most like an unknown one; empty if none is.
func nearest(name string) string {
	best, bestDistance := "", 3
	for _, candidate := range names() {
		distance := max(len(name)-len(candidate), len(candidate)-len(name))
		switch {
		case distance <= 2:
			distance = editDistance(name, candidate)
		case strings.HasPrefix(name, candidate+"_"):
			distance = 2 // THROTTLE_WINDOW_SECONDS
		}

		// In short names two letters make another word.
		if distance < bestDistance && (distance < 2 || len(candidate) >= 10) {
			best, bestDistance = candidate, distance
		}
	}

	return best
}

// Alike reports whether name was probably meant to be known: they differ in case, or in a letter or two.
func Alike(name, known string) bool {
	d := editDistance(strings.ToLower(name), strings.ToLower(known))
	return d < 3 && len(known) >= 2*d+1 // in short names a letter or two make another word
}

// names returns all names that variables can have.
func names() (list []string) {
	for _, v := range Variables() {
		list = append(list, v.Name)
		if v.Secret {
			list = append(list, v.Name+"_FILE")
		}
	}

	return list
}

// editDistance returns how many letters must be inserted, removed, replaced or swapped
// with their neighbour to turn a into b.
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
