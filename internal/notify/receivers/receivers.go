// Package receivers opens what NOTIFY_URLS names.
package receivers

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/lognotify"
	"alertworker/internal/notify/webhook"
)

// A Receiver is a notifier with a name.
type Receiver struct {
	// Name differs from the other receivers', is the same after a restart, has
	// at most 72 bytes of a-z, 0-9, "." and "-", and no secrets: fit for a
	// throttle key and a metric label.
	Name     string
	Notifier notify.Notifier
}

// Close gives back the connections that the notifier keeps, if it does.
func (r Receiver) Close() {
	if c, ok := r.Notifier.(interface{ Close() }); ok {
		c.Close()
	}
}

// Options are what the receivers share.
type Options struct {
	Log           *zap.Logger // where log: writes
	WebhookSecret string      // NOTIFY_WEBHOOK_SECRET as it is; may be empty
	Concurrency   int         // alerts in flight at a time
}

// Open returns a receiver for each URL, in their order. It connects to nothing.
// Its error has everything that is wrong with the URLs and the secret, and of a
// URL no more than scheme and host.
func Open(rawURLs []string, opts Options) ([]Receiver, error) {
	var errs []error
	secret, err := webhook.ParseSecret(opts.WebhookSecret)
	if err != nil {
		errs = append(errs, err)
	}
	if len(rawURLs) == 0 {
		errs = append(errs, fmt.Errorf("NOTIFY_URLS is empty: want %s", known))
	}

	var rs []Receiver
	seen := make(map[string]int) // the entry that has the name
	for i, raw := range rawURLs {
		entry := i + 1
		r, err := open(strings.TrimSpace(raw), secret, opts)
		if err != nil {
			errs = append(errs, fmt.Errorf("NOTIFY_URLS entry %d: %w", entry, err))
			continue
		}
		if first, ok := seen[r.Name]; ok {
			errs = append(errs, fmt.Errorf("NOTIFY_URLS entry %d (%s) is the same receiver as entry %d", entry, r.Name, first))
			continue
		}
		seen[r.Name] = entry
		rs = append(rs, r)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return rs, nil
}

// known lists what open knows, for people.
const known = "log:, http://… or https://…"

func open(raw string, secret webhook.Secret, opts Options) (Receiver, error) {
	if raw == "" {
		return Receiver{}, fmt.Errorf("is empty: want %s", known)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// What net/url says may quote half a password.
		return Receiver{}, errors.New("is not a URL: percent-encode what is special in a user, password or token, and a comma as %2C")
	}
	switch u.Scheme {
	case "log":
		if u.String() != "log:" {
			return Receiver{}, errors.New("log: takes nothing after the colon")
		}
		return Receiver{Name: lognotify.Name, Notifier: lognotify.New(opts.Log)}, nil
	case "http", "https":
		w, err := webhook.New(u, webhook.Options{Secret: secret, Concurrency: opts.Concurrency})
		if err != nil {
			return Receiver{}, fmt.Errorf("%s URL: %w", u.Scheme, err)
		}
		return Receiver{Name: w.Name(), Notifier: w}, nil
	}
	if u.Host != "" {
		return Receiver{}, fmt.Errorf("%s://%s: unknown scheme: want %s", u.Scheme, u.Host, known)
	}
	// Without a host, what looks like a scheme may be a user.
	return Receiver{}, fmt.Errorf("unknown scheme: want %s", known)
}
