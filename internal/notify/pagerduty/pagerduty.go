// Package pagerduty sends alerts to PagerDuty, through its Events API v2.
package pagerduty

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

// maxKey is how many characters PagerDuty takes in a dedup_key. It takes 1,024 in a summary.
const maxKey = 255

const defaultHost = "events.pagerduty.com"

// New returns a channel for pagerduty://KEY, or pagerduty://KEY@HOST with the host of
// another region, such as events.eu.pagerduty.com. New connects to nothing. Its errors hold no part of u. An alert
// triggers and its recovery resolves: all alerts of a device, rule and level reach one incident until then.
// It is asked about one alert at a time.
func New(u *url.URL, style wording.Style, opts httppost.Options) (*httppost.Channel, error) {
	key, host, err := Split(u)
	if err != nil {
		return nil, err
	}

	opts.Settings = settings
	opts.Secrets = []string{key}
	api := &url.URL{Scheme: "https", Host: host, Path: "/v2/enqueue"}

	return httppost.NewChannel(api, opts, func(alerts []notify.Alert) any { return encode(alerts[0], key, style) })
}

// address is what names a service: its routing key, and in other regions the host of the API.
var address = regexp.MustCompile(`^pagerduty://(?:([A-Za-z0-9]+)@([A-Za-z0-9.:-]+)|([A-Za-z0-9]+))/?$`)

// Split returns the routing key in u, which is a secret, and the host of the API. Its
// error holds no part of u.
func Split(u *url.URL) (key, host string, err error) {
	parts := address.FindStringSubmatch(u.String())
	if parts == nil {
		return "", "", errors.New(
			"must be pagerduty:// and the routing key, which has only letters and digits, followed by " +
				"@events.eu.pagerduty.com in the European region",
		)
	}

	return parts[1] + parts[3], cmp.Or(parts[2], defaultHost), nil
}

// settings is in the answer, a 400, if PagerDuty complains about the routing key.
var settings = regexp.MustCompile("(?i)routing[ _]key")

type event struct {
	RoutingKey  string   `json:"routing_key"`
	EventAction string   `json:"event_action"`
	DedupKey    string   `json:"dedup_key"`
	Payload     *payload `json:"payload,omitempty"`
	Links       []link   `json:"links,omitempty"`
	Client      string   `json:"client,omitempty"`
	ClientURL   string   `json:"client_url,omitempty"`
}

type payload struct {
	Summary       string            `json:"summary"`
	Source        string            `json:"source"`
	Severity      notify.Severity   `json:"severity"`
	Timestamp     time.Time         `json:"timestamp"`
	Group         string            `json:"group,omitempty"`
	Class         string            `json:"class,omitempty"`
	CustomDetails map[string]string `json:"custom_details"`
}

type link struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

func encode(a notify.Alert, key string, style wording.Style) event {
	// The incident's name. Different alarms never share one, except by a collision of hashes where the names are long.
	alarm := a.Alarm()
	if len(alarm) > maxKey {
		sum := sha256.Sum256([]byte(alarm))
		hash := hex.EncodeToString(sum[:])
		alarm = alarm[:maxKey-len(hash)-1] + "-" + hash
	}

	e := event{RoutingKey: key, EventAction: "trigger", DedupKey: alarm}
	if a.Resolved {
		e.EventAction = "resolve"
		return e
	}

	e.Payload = &payload{
		Summary:       style.Message(a),
		Source:        style.Facts(a)[0].Value,
		Severity:      a.Severity(),
		Timestamp:     a.Enqueued.UTC(),
		Group:         a.Source,
		Class:         a.Rule,
		CustomDetails: style.Fields(a),
	}
	e.Client = "alertworker"
	e.ClientURL = style.Page
	for _, l := range style.Links(a) {
		e.Links = append(e.Links, link{Href: l.URL, Text: l.Text})
	}

	return e
}
