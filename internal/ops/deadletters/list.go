package deadletters

import (
	"fmt"
	"io"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
)

// nameOf returns the name of the receiver with an id, or the id if rs has none.
func nameOf(id string, rs []receivers.Receiver) string {
	if r := receivers.WithID(rs, id); r != nil {
		return r.Name
	}
	return id
}

// WriteTable prints letters to the receivers rs, or to former ones, in columns with times in zone, below a head if head
// is true.
func WriteTable(
	out io.Writer, letters []deadletter.Letter, rs []receivers.Receiver, zone *time.Location, head bool,
) error {
	var b strings.Builder
	line := func(columns ...any) {
		for i, text := range columns {
			columns[i] = humanize.OneLine(text.(string))
		}
		fmt.Fprintf(&b, "%-37s  %-11s  %-20s  %-16s  %8s  %-16s  %-24s  %s\n", columns...)
	}

	if head {
		line("ID", "STATE", "TIME", "DEVICE", "VALUE", "RULE", "RECEIVER", "REASON")
	}

	for _, l := range letters {
		var at, device, value, rule string
		reason := l.Reason

		if l.Broken != nil {
			reason = strings.TrimPrefix(fmt.Sprintf("%s; the letter %v", l.Reason, l.Broken), "; ")
		} else {
			at = moment(l.Alert.Enqueued, zone)
			device = l.Alert.From().String()
			value = humanize.Number(l.Alert.Temperature)
			rule = l.Alert.Rule
			if l.Alert.Level != "" {
				rule += "/" + l.Alert.Level
			}
			if l.Alert.Resolved {
				rule += ", recovery"
			}
		}

		ended := map[deadletter.Kind]time.Time{deadletter.Replayed: l.Replayed, deadletter.Discarded: l.Discarded}[l.Kind]
		if !ended.IsZero() {
			text := fmt.Sprintf("%s at %s by %s", l.Kind, moment(ended, zone), l.By)
			reason = strings.TrimSuffix(text, " by ") + "; before that: " + reason // version 1.0 did not say who
		}

		line(l.ID, string(l.Kind), at, device, value, rule, nameOf(l.Receiver, rs), reason)
	}

	_, err := io.WriteString(out, b.String())

	return err
}

// moment shows a time in a zone: 2026-03-01 12:00:00Z, or with +01:00.
func moment(t time.Time, zone *time.Location) string {
	return t.In(zone).Format(time.DateTime + "Z07:00")
}
