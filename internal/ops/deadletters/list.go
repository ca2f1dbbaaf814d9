package deadletters

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
)

// WriteJSON prints letters to the receivers rs, or to former ones, one per line.
func WriteJSON(out io.Writer, letters []deadletter.Letter, rs []receivers.Receiver) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, l := range letters {
		line := struct {
			ID       string          `json:"id"`
			State    deadletter.Kind `json:"state"`
			Kept     time.Time       `json:"kept,omitzero"`
			Replayed time.Time       `json:"replayed,omitzero"`
			Receiver string          `json:"receiver,omitempty"` // its id
			Name     string          `json:"receiverName,omitempty"`
			Reason   string          `json:"reason,omitempty"`
			Alert    json.RawMessage `json:"alert,omitempty"` // as webhooks get it
			Event    json.RawMessage `json:"event,omitempty"` // what is kept of one that could not be decoded
			Broken   string          `json:"broken,omitempty"`
		}{ID: l.ID, State: l.Kind, Kept: l.Kept, Replayed: l.Replayed, Receiver: l.Receiver, Name: nameOf(l.Receiver, rs), Reason: l.Reason, Alert: l.Payload}
		if l.Kind == deadletter.Undecodable {
			line.Alert, line.Event = nil, l.Payload
		}
		if l.Broken != nil {
			line.Broken = l.Broken.Error()
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// nameOf returns the name of the receiver with an id, or the id if rs has none.
func nameOf(id string, rs []receivers.Receiver) string {
	if r := receivers.WithID(rs, id); r != nil {
		return r.Name
	}
	return id
}

// WriteTable prints letters to the receivers rs, or to former ones, in aligned columns,
// below a head if head is true.
func WriteTable(out io.Writer, letters []deadletter.Letter, rs []receivers.Receiver, head bool) error {
	var rows [][]string
	if head {
		rows = append(rows, []string{"ID", "STATE", "TIME", "DEVICE", "VALUE", "RULE", "RECEIVER", "REASON"})
	}
	for _, l := range letters {
		row := []string{l.ID, string(l.Kind), "", "", "", "", nameOf(l.Receiver, rs), l.Reason}
		switch {
		case l.Broken != nil:
			row[7] = strings.TrimPrefix(fmt.Sprintf("%s; the letter %v", l.Reason, l.Broken), "; ")
		case l.Event != nil:
			row[2] = l.Event.Enqueued.UTC().Format(time.DateTime + "Z")
			row[3] = l.Event.Device
			row[7] = fmt.Sprintf("%s; partition %s, sequence %d, %d bytes: %s", l.Reason, l.Event.Partition, l.Event.Sequence, l.Event.Size, excerpt(l.Event))
		default:
			row[2] = l.Alert.Enqueued.UTC().Format(time.DateTime + "Z")
			row[3] = l.Alert.Device
			row[4] = fmt.Sprint(l.Alert.Temperature)
			row[5] = about(l.Alert)
			if l.Kind == deadletter.Replayed {
				row[7] = fmt.Sprintf("replayed at %s; before that: %s", l.Replayed.UTC().Format(time.DateTime+"Z"), l.Reason)
			}
		}
		rows = append(rows, row)
	}
	widths := []int{0, 11, 0, 8, 8, 11, 24, 0} // minimum widths: pages should look alike
	for _, row := range rows {
		for i, cell := range row {
			row[i] = humanize.OneLine(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s  %-*s  %-*s  %-*s  %*s  %-*s  %-*s  %s\n",
			widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4], widths[5], row[5], widths[6], row[6], row[7])
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// about says which rule and level an alert is about, and whether it is resolved.
func about(a notify.Alert) string {
	s := a.Rule
	if a.Level != "" {
		s += "/" + a.Level
	}
	if a.Resolved {
		s += ", recovery"
	}
	return s
}

// maxExcerpt is how many characters of an event's body are shown.
const maxExcerpt = 80

// excerpt returns the beginning of an event's body, or what it is instead of text.
func excerpt(e *deadletter.Event) string {
	switch {
	case e.Size == 0:
		return "empty"
	case e.Body == "":
		return "not text"
	}
	return notify.Cut(e.Body, maxExcerpt)
}
