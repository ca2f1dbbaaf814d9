package simulation

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/records"
)

// times are what may be one in a record: as text, or as a number of seconds, milliseconds or microseconds.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\b\d{9,16}\b`)

// localTimes returns where records that replicas share hold a time by their own clock, of a world whose services'
// clock is far from it.
func (w *World) localTimes() (all []string) {
	if w.plan.Ahead.Abs() < time.Since(w.began) {
		return nil
	}

	for _, container := range []string{checkpointContainer, throttleContainer} {
		for _, name := range w.blobs.Names(container) {
			for _, found := range times.FindAllString(w.shared(container, name), -1) {
				if w.isLocal(found) {
					all = append(all, fmt.Sprintf("%s, a time by the replicas' clock, is in %s/%s", found, container, name))
				}
			}
		}
	}

	return all
}

// shared returns what is in a record that must be the same to all replicas, as text.
func (w *World) shared(container, name string) string {
	if strings.Contains(name, "/roster/") { // its floor is the later of two clocks, so that no silence is too early
		return ""
	}

	content := w.blobs.Content(container, name)
	if strings.Contains(name, "/owner/") { // what a replica says about itself to people: nothing is decided by it
		content = nil
	}

	plain, err := records.Decompress(content, maxBody)
	if err == nil {
		content = plain
	}

	return fmt.Sprintf("%s %v", content, w.blobs.Metadata(container, name))
}

// isLocal reports whether a time is one by the clock of replicas since the world began.
func (w *World) isLocal(text string) bool {
	at, err := time.Parse("2006-01-02T15:04:05", text)
	if err != nil {
		n, _ := strconv.ParseInt(text, 10, 64)
		for n > 1e10 {
			n /= 1000
		}

		at = time.Unix(n, 0)
	}

	return !at.Before(w.began.Truncate(time.Second)) && !at.After(time.Now())
}
