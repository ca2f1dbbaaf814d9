package simulation

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"alertworker/internal/lab/verify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// Some worlds have a receiver whose messages people read, ntfy. It gets alerts of the rule about limits, several in a
// message, which have no ids: all that is judged is that no alert is missing.
const (
	people      = "people"
	peopleWait  = 40 * time.Second // the most that a message to people waits for others
	peoplePlace = 9                // of their address
)

// A reader is what serves ntfy.
type reader struct{ world *World }

// ServeHTTP takes a message to people, and has the judge know which devices it alerts them of.
func (r reader) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var message struct{ Title, Message string }
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxBody)).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	told := alerted(message.Title + "\n" + message.Message)
	r.world.say(people, "%q: %v", message.Title, told)
	for _, of := range told {
		r.world.shown.Delivered(verify.Delivery{
			Device:   of.Device,
			Sensor:   of.Name,
			Rule:     rules.DefaultName,
			At:       r.world.now(),
			Receiver: people,
		})
	}
}

var (
	names = regexp.MustCompile(`(device-\d\d)(?: / (\w+))?`)
	ends  = regexp.MustCompile(`normal again|no longer applies|was removed`)
)

// alerted returns the devices and sensors that a text alerts people of. Its lines name them, or say what the next lines
// are about.
func alerted(text string) (all []sensor.ID) {
	over := false
	for line := range strings.Lines(text) {
		found := names.FindAllStringSubmatch(line, -1)
		if ends.MatchString(line) {
			over = true
		} else if len(found) == 0 && introduces(line) {
			over = false
		}

		for _, name := range found {
			if !over {
				all = append(all, sensor.ID{Device: name[1], Name: name[2]})
			}
		}
	}

	return all
}

// introduces reports whether a line that names no device says what the next lines are about.
func introduces(line string) bool {
	return strings.Contains(line, ": ") && (strings.Contains(line, " device") || strings.Contains(line, " sensor"))
}

// unshown returns what people should have been alerted of and were not. An alarm that is sent again seldom is not
// judged: their messages do not say which event they are about, so that nobody can tell whether the last one was of
// this alarm.
func (w *World) unshown(until time.Time) []verify.Violation {
	if !w.plan.People || w.plan.Repeat > 0 {
		return nil
	}

	r := w.rules(until)
	r.Bound += peopleWait
	r.Early = prompt + peopleWait
	r.Receivers = []string{people}

	return w.shown.Check(r).Lost
}
