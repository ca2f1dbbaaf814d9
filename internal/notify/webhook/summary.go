package webhook

import (
	"time"

	"alertworker/internal/notify"
)

// summaryType names what a summary's event is. Receivers should look at its end alone,
// ".temperature.summary".
const summaryType = "alertworker.temperature.summary"

type summaryData struct {
	Scope string    `json:"scope"`
	Due   time.Time `json:"due"`
	Days  [2]day    `json:"days"`
	More  bool      `json:"more,omitempty"`
}

type day struct {
	Date           string        `json:"date"` // UTC, 2006-01-02
	Alerts         int64         `json:"alerts"`
	Suppressed     int64         `json:"suppressed"`
	Devices        int64         `json:"devices"`
	DeadLetters    *int          `json:"deadLetters,omitempty"`
	MostAlerts     []deviceCount `json:"mostAlerts"`
	MostSuppressed []deviceCount `json:"mostSuppressed"`
}

type deviceCount struct {
	Device     string `json:"device"`
	Alerts     int64  `json:"alerts"`
	Suppressed int64  `json:"suppressed"`
}

// EncodeSummary returns s as a CloudEvent 1.0 in structured JSON. Times are UTC in RFC 3339. It fails for
// what JSON or CloudEvents cannot say: an id that is empty or has control characters.
func EncodeSummary(s notify.Summary) ([]byte, error) {
	return encode("summary", event[summaryData]{
		ID:      s.ID,
		Source:  s.Source,
		Type:    summaryType,
		Subject: s.Scope,
		Time:    s.Made,
		Data: summaryData{
			Scope: s.Scope,
			Due:   s.Due.UTC(),
			Days:  [2]day{encodeDay(s.Days[0]), encodeDay(s.Days[1])},
			More:  s.More,
		},
	})
}

func encodeDay(d notify.Day) day {
	return day{
		Date:           d.Date.UTC().Format(time.DateOnly),
		Alerts:         d.Alerts,
		Suppressed:     d.Suppressed,
		Devices:        d.Devices,
		DeadLetters:    d.DeadLetters,
		MostAlerts:     encodeDevices(d.MostAlerts),
		MostSuppressed: encodeDevices(d.MostSuppressed),
	}
}

// encodeDevices returns an empty list, not none, for no devices.
func encodeDevices(devices []notify.DeviceCount) []deviceCount {
	list := make([]deviceCount, 0, len(devices))
	for _, d := range devices {
		list = append(list, deviceCount(d))
	}
	return list
}
