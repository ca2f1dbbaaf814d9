// Package receivers opens the receivers named in NOTIFY_URLS.
package receivers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/lognotify"
	"alertworker/internal/notify/webhook"
)

// A Receiver is a notifier with an id and a name, which differ from the other receivers'
// and hold no secrets.
type Receiver struct {
	// ID is for records: throttle keys, dead letters and counts. It is the same after a
	// restart and in every version, whatever other receivers there are, and has at most 72
	// bytes of a-z, 0-9, "." and "-".
	ID string
	// Name is for people, in log, metrics and pages: host and port as in the URL, and a
	// number for the second receiver of that host and port and those after it. It has at
	// most 76 bytes of a-z, 0-9 and ".-:[]".
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
	seen := make(map[string]int) // the entry that has the id
	for i, raw := range rawURLs {
		entry := i + 1
		r, err := open(strings.TrimSpace(raw), opts)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("entry %d %v", entry, err))
			continue
		}
		if first, ok := seen[r.ID]; ok {
			wrong = append(wrong, fmt.Sprintf("entry %d is the same receiver as entry %d", entry, first))
			continue
		}
		seen[r.ID] = entry
		r.Name = unique(r.Name, rs)
		rs = append(rs, r)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return rs, nil
}

// unique returns name, or name with a number if one of rs has it.
func unique(name string, rs []Receiver) string {
	free := name
	for n := 2; slices.ContainsFunc(rs, func(r Receiver) bool { return r.Name == free }); n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
}

// id is the host, for people, and a hash of the URL's parts that identify a receiver.
// User and password do not. Records have it as a key: it must never change.
func id(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	same := url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(host, port), Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if same.Path == "" {
		same.Path = "/"
	}
	sum := sha256.Sum256([]byte(same.String()))

	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), 63)] + "-" + hex.EncodeToString(sum[:4])
}

// place returns the host and port of u, as they are there, fit for a name.
func place(u *url.URL) string {
	host := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == ':' {
			return r
		}
		return '-'
	}, strings.ToLower(u.Hostname()))
	host = host[:min(len(host), 63)]
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if u.Port() != "" {
		host += ":" + u.Port()
	}
	return host
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
		return Receiver{ID: lognotify.Name, Name: lognotify.Name, Notifier: lognotify.New(opts.Log)}, nil
	case "http", "https":
		w, err := webhook.New(u, webhook.Options{Secret: opts.WebhookSecret, Concurrency: opts.Concurrency})
		if err != nil {
			return Receiver{}, fmt.Errorf("cannot be used: %w", err)
		}
		return Receiver{ID: id(u), Name: place(u), Notifier: w, close: w.Close}, nil
	}
	if u.Host != "" && len(u.Scheme) <= maxScheme {
		// The host of a scheme that we do not know is often a key.
		return Receiver{}, fmt.Errorf("has the unknown scheme %q: must be %s", u.Scheme, known)
	}
	// Without a host, what looks like a scheme may be a user.
	return Receiver{}, fmt.Errorf("has an unknown scheme: must be %s", known)
}
