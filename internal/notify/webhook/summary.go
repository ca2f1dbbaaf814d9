package webhook

import (
	"time"

	"alertworker/internal/notify"
)

// summaryType is the type of a summary's event. Receivers should check only its suffix,
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
	Alerts         *int64        `json:"alerts,omitempty"`
	Suppressed     *int64        `json:"suppressed,omitempty"`
	Devices        *int64        `json:"devices,omitempty"`
	DeadLetters    *int          `json:"deadLetters,omitempty"`
	MostAlerts     []deviceCount `json:"mostAlerts,omitzero"`
	MostSuppressed []deviceCount `json:"mostSuppressed,omitzero"`
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
	encoded := day{Date: d.Date.UTC().Format(time.DateOnly), DeadLetters: d.DeadLetters}
	if !d.Unknown {
		encoded.Alerts, encoded.Suppressed, encoded.Devices = &d.Alerts, &d.Suppressed, &d.Devices
		encoded.MostAlerts, encoded.MostSuppressed = encodeDevices(d.MostAlerts), encodeDevices(d.MostSuppressed)
	}
	return encoded
}

// encodeDevices returns an empty list, not none, for no devices.
func encodeDevices(devices []notify.DeviceCount) []deviceCount {
	list := make([]deviceCount, 0, len(devices))
	for _, d := range devices {
		list = append(list, deviceCount(d))
	}
	return list
}
