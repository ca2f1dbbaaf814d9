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
var plainName = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

const maxNameWarnings = 20

// misspelled returns a warning for each variable that is not ours but looks as if it
// was meant to be, in alphabetical order.
func misspelled(environ []string) []Warning {
	var known []string
	for _, v := range Variables() {
		known = append(known, v.Name)
		if v.Secret {
			known = append(known, v.Name+"_FILE")
		}
	}

	var list []Warning
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		isKnown := slices.Contains(known, name) || gone[name] != ""
		if value == "" || isKnown || !plainName.MatchString(name) || othersNames.MatchString(name) {
			continue
		}

		upper := strings.TrimPrefix(strings.ToUpper(name), "ALERTWORKER_")
		best := nearest(upper, known)
		switch {
		case best != "":
			list = append(list, Warning{name, "is ignored; did you mean " + best + "?"})
		case slices.ContainsFunc(families, func(prefix string) bool { return strings.HasPrefix(upper, prefix) }):
			list = append(list, Warning{name, "is ignored: there is no such setting (alertworker --help lists them; only secrets, with a *, have a _FILE)"})
		}
	}

	return list[:min(len(list), maxNameWarnings)]
}

// nearest returns the one of known that name was probably meant to be, empty if there is none.
func nearest(name string, known []string) string {
	alike := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !Alike(name, k) })
	if len(alike) == 0 {
		return ""
	}

	distance := func(k string) int { return editDistance(strings.ToLower(name), strings.ToLower(k)) }

	return slices.MinFunc(alike, func(a, b string) int { return distance(a) - distance(b) })
}

// Alike reports whether name was probably meant to be known: they differ in case, or in a letter or two.
func Alike(name, known string) bool {
	d := editDistance(strings.ToLower(name), strings.ToLower(known))
	return d < 3 && len(known) >= 3*d // in short names a letter or two make another word: ROLE is not meant to be RULES
}

// editDistance returns how many letters must be inserted, removed, replaced or swapped
// with their neighbour to turn a into b.
func editDistance(a, b string) int {
	d := make([][]int, len(a)+1) // from the first i letters of a to the first j of b
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			case i > 1 && j > 1 && a[i-2:i] == b[j-1:j]+b[j-2:j-1]:
				d[i][j] = 1 + min(d[i-1][j], d[i][j-1], d[i-1][j-1], d[i-2][j-2])
			default:
				d[i][j] = 1 + min(d[i-1][j], d[i][j-1], d[i-1][j-1])
			}
		}
	}

	return d[len(a)][len(b)]
}
