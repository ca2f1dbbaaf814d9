// Package receivers opens the receivers named in NOTIFY_URLS.
package receivers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
)

// A Receiver is a notifier with an id and a name, which differ from the other receivers'
// and hold no secrets.
type Receiver struct {
	// ID is for records: throttle keys, dead letters and counts. It is the same after a restart and
	// in every version, whatever other receivers there are and whichever secrets are rotated. It
	// has at most 72 bytes of letters, digits and "._-".
	ID string
	// Name is for people, in log, metrics and pages: the one given, or else host and port
	// as in the URL, or "pagerduty". The second receiver of a host and port, and those
	// after it, have a number behind it. It has at most 76 bytes of letters, digits and
	// "._-:[]".
	Name     string
	Filters  notify.Filters // which alerts it gets
	Limits   notify.Limits  // how it wants to be used
	Notifier notify.Notifier
	// Reach is scheme and host that the notifier connects to; nil if to none.
	Reach *url.URL

	close func() // nil if there is nothing to close
}

// Close closes the connections that the notifier keeps open.
func (r Receiver) Close() {
	if r.close != nil {
		r.close()
	}
}

// WithID returns the receiver with an id, nil if rs has none.
func WithID(rs []Receiver, id string) *Receiver {
	if i := slices.IndexFunc(rs, func(r Receiver) bool { return r.ID == id }); i >= 0 {
		return &rs[i]
	}
	return nil
}

// Options are what the receivers share.
type Options struct {
	Log            *zap.Logger        // where log: writes
	WebhookSecrets []webhook.Secret   // of webhooks without secret=; with none, they are not signed
	Style          notify.Style       // of messages for people
	EventGridToken notify.TokenSource // for topics without an access key; nil if there are none
	MailToken      notify.TokenSource // for mail servers with auth=oauth2; nil if there are none
	Concurrency    int                // calls of Notify at a time
	Transport      *http.Transport    // instead of the built-in one, for tests
}

// Max is how many receivers there may be: every alert goes to all of them.
const Max = 32

// Open returns the receivers of entries, in their order. An entry is a URL, perhaps with attributes
// in front of it: see Parse. Entries with the same URL and different filters are one receiver. Open
// connects to nothing. Its error is one line that says everything that is wrong with the
// entries, by number. It repeats no more of a URL than its scheme.
func Open(entries []string, opts Options) ([]Receiver, error) {
	switch {
	case len(entries) == 0:
		return nil, fmt.Errorf("names no receiver: must be %s", known)
	case len(entries) > Max:
		return nil, fmt.Errorf("names %d receivers: must be at most %d", len(entries), Max)
	}
	var rs []Receiver
	var wrong []string
	found := map[string]opened{} // by id
	names := map[string]int{}    // the entries that have them
	usual := map[string]string{} // what is unique makes a name of, by id
	for i, text := range entries {
		n := i + 1
		e, r, err := open(text, opts)
		var id string
		known := false
		if err == nil {
			id = e.id()
			var first opened
			if first, known = found[id]; known {
				err = first.join(e, &rs[first.index])
			} else if names[e.Name] > 0 {
				err = fmt.Errorf("has the name of entry %d", names[e.Name])
			} else {
				err = checkID(id, found)
			}
		}
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("entry %d %v", n, err))
			continue
		case known:
			continue
		}
		if e.Name != "" {
			names[e.Name] = n
		}
		r.ID, usual[id] = id, e.usual()
		found[id] = opened{entry: e, number: n, index: len(rs)}
		rs = append(rs, r)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	for i := range rs {
		if rs[i].Name == "" {
			rs[i].Name = unique(usual[rs[i].ID], rs)
		}
	}
	return rs, nil
}

// An opened entry has made a receiver.
type opened struct {
	entry         Entry
	number, index int // of the entry, and of its receiver
}

// checkID returns an error if another entry has the id but for case, which some stores ignore.
func checkID(id string, found map[string]opened) error {
	for other, first := range found {
		if strings.EqualFold(id, other) {
			return fmt.Errorf("differs from the id of entry %d only in case", first.number)
		}
	}
	return nil
}

// join adds e, which has the id of o, to o's receiver r, if they differ by their filters alone.
func (o opened) join(e Entry, r *Receiver) error {
	one, other := o.entry, e
	one.Filter, other.Filter = notify.Filter{}, notify.Filter{}
	one.url, other.url = nil, nil
	switch {
	case e.url.String() != o.entry.url.String() && (e.ID != "" || e.Name != ""):
		what := "name"
		if e.ID != "" {
			what = "id"
		}
		return fmt.Errorf("has the %s of entry %d", what, o.number)
	case e.url.String() != o.entry.url.String():
		return fmt.Errorf("differs from entry %d only in what may rotate, such as a key: if both are wanted, put a name=… of its own in front of each", o.number)
	case !reflect.DeepEqual(one, other):
		return fmt.Errorf("is the receiver of entry %d with other attributes: only level=, rule= and where= may differ, unless it has a name=… of its own", o.number)
	case len(r.Filters) == 0 || reflect.DeepEqual(e.Filter, notify.Filter{}) ||
		slices.ContainsFunc(r.Filters, func(f notify.Filter) bool { return reflect.DeepEqual(f, e.Filter) }):
		return fmt.Errorf("is the same receiver as entry %d", o.number)
	}
	r.Filters = append(r.Filters, e.Filter)
	return nil
}

// unique returns name, or name with a number if one of rs has it.
func unique(name string, rs []Receiver) string {
	free := name
	for n := 2; slices.ContainsFunc(rs, func(r Receiver) bool { return r.Name == free }); n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
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

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
