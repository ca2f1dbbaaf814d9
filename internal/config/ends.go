package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"alertworker/internal/humanize"
)

// An Ending is when a credential stops working, as it says itself.
type Ending struct {
	Credential string // the variable that it is in, with an entry's number if that has several
	What       string // what of it ends: "the signature"
	At         time.Time
}

// endsSoon is how long before its end a credential is worth a word.
const endsSoon = 14 * 24 * time.Hour

// Soon reports whether e is within 14 days, or over.
func (e Ending) Soon(now time.Time) bool { return now.After(e.At.Add(-endsSoon)) }

// Line says in a clause when e is, or was, and what to do.
func (e Ending) Line(now time.Time) string {
	at := e.At.Format(time.RFC3339)
	if now.Location() != time.Local { // it is that of those who read it
		at = e.At.In(now.Location()).Format(time.RFC3339)
	}

	if left := e.At.Sub(now); left > 0 {
		return fmt.Sprintf("%s in %s ends in %s, at %s: replace it before", e.What, e.Credential, humanize.Span(left), at)
	}
	return fmt.Sprintf("%s in %s ended %s ago, at %s: replace it", e.What, e.Credential, humanize.Span(now.Sub(e.At)), at)
}

// Endings returns when what c signs in with ends, as far as that can be read, the first to end first: signatures and tokens
// in secrets.
func (c Config) Endings() (all []Ending) {
	for i, v := range Variables() {
		entries := c.secret(i)
		for n, entry := range entries {
			what, at, ok := ends(entry)
			if !ok {
				continue
			}

			name := v.Name
			if len(entries) > 1 {
				name = fmt.Sprintf("%s, entry %d", v.Name, n+1)
			}
			all = append(all, Ending{name, what, at})
		}
	}

	slices.SortStableFunc(all, func(a, b Ending) int { return a.At.Compare(b.At) })

	return all
}

// Forms of an end. The first of a signature is that of shared access signatures: of Azure Storage as a date, and of Event
// Hubs, IoT Hub and relays in seconds; the second that of Event Grid's tokens
// (learn.microsoft.com/azure/event-grid/authenticate-with-access-keys-shared-access-signatures).
var (
	signatureEnd = regexp.MustCompile(`(?:^|[?&;=\s])se=([^&;\s]+)|&e=([^&\s]+)&s=`)
	webToken     = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.(eyJ[A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+`)
)

// endLayouts are those of signatures.
var endLayouts = []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02", "1/2/2006 3:04:05 PM", "1/2/2006 15:04:05"}

// ends returns what of a credential ends, and when; false if it does not say.
func ends(credential string) (what string, at time.Time, ok bool) {
	plain, _ := url.PathUnescape(credential) // as the password of a URL
	for _, found := range signatureEnd.FindAllStringSubmatch(credential+"\n"+plain, -1) {
		text, _ := url.QueryUnescape(found[1] + found[2])
		if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
			return "the signature", time.Unix(seconds, 0).UTC(), true
		}

		for _, layout := range endLayouts {
			if at, err := time.Parse(layout, text); err == nil {
				return "the signature", at.UTC(), true
			}
		}
	}

	if found := webToken.FindStringSubmatch(credential); found != nil {
		var claims struct {
			Exp float64 `json:"exp"`
		}
		payload, _ := base64.RawURLEncoding.DecodeString(found[1])
		if json.Unmarshal(payload, &claims) == nil && claims.Exp > 0 {
			return "the token", time.Unix(int64(claims.Exp), 0).UTC(), true
		}
	}

	return "", time.Time{}, false
}
