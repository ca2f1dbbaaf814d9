// Package receivers opens the receivers named in NOTIFY_URLS.
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

	close func() // nil if there is nothing to close
}

// Close closes the connections that the notifier keeps open.
func (r Receiver) Close() {
	if r.close != nil {
		r.close()
	}
}

// Options are what the receivers share.
type Options struct {
	Log           *zap.Logger    // where log: writes
	WebhookSecret webhook.Secret // the zero Secret signs nothing
	Concurrency   int            // calls of Notify at a time
}

// Max is how many receivers there may be: every alert goes to all of them.
const Max = 32

// Open returns a receiver for each URL, in their order. It connects to nothing.
// Its error is one line that says everything that is wrong with the URLs, by number. It
// repeats no more of a URL than its scheme.
func Open(rawURLs []string, opts Options) ([]Receiver, error) {
	switch {
	case len(rawURLs) == 0:
		return nil, fmt.Errorf("names no receiver: must be %s", known)
	case len(rawURLs) > Max:
		return nil, fmt.Errorf("names %d receivers: must be at most %d", len(rawURLs), Max)
	}
	var rs []Receiver
	var wrong []string
	seen := make(map[string]int) // the entry that has the name
	for i, raw := range rawURLs {
		entry := i + 1
		r, err := open(strings.TrimSpace(raw), opts)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("entry %d %v", entry, err))
			continue
		}
		if first, ok := seen[r.Name]; ok {
			wrong = append(wrong, fmt.Sprintf("entry %d is the same receiver as entry %d", entry, first))
			continue
		}
		seen[r.Name] = entry
		rs = append(rs, r)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return rs, nil
}

// maxScheme keeps what only looks like a scheme out of errors.
const maxScheme = 16

// known lists what open knows, for people.
const known = "log:, http://… or https://…"

// open returns the receiver of one URL. Its errors continue "entry 1 …".
func open(raw string, opts Options) (Receiver, error) {
	if raw == "" {
		return Receiver{}, fmt.Errorf("is empty: must be %s", known)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// What net/url says may quote half a password.
		return Receiver{}, errors.New("is not a URL: percent-encode what is special in a user, password or token, and a comma as %2C")
	}
	switch u.Scheme {
	case "":
		return Receiver{}, fmt.Errorf("has no scheme: must be %s", known)
	case "log":
		if u.String() != "log:" {
			return Receiver{}, errors.New("must be log: with nothing after the colon")
		}
		return Receiver{Name: lognotify.Name, Notifier: lognotify.New(opts.Log)}, nil
	case "http", "https":
		w, err := webhook.New(u, webhook.Options{Secret: opts.WebhookSecret, Concurrency: opts.Concurrency})
		if err != nil {
			return Receiver{}, fmt.Errorf("cannot be used: %w", err)
		}
		return Receiver{Name: w.Name(), Notifier: w, close: w.Close}, nil
	}
	if u.Host != "" && len(u.Scheme) <= maxScheme {
		// The host of a scheme that we do not know is often a key.
		return Receiver{}, fmt.Errorf("has the unknown scheme %q: must be %s", u.Scheme, known)
	}
	// Without a host, what looks like a scheme may be a user.
	return Receiver{}, fmt.Errorf("has an unknown scheme: must be %s", known)
}
