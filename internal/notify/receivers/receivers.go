// Package receivers opens the receivers named in NOTIFY_URLS.
package receivers

import (
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
	"alertworker/internal/notify/wording"
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
}

// Close closes the connections that the notifier keeps open.
func (r Receiver) Close() {
	if n, ok := r.Notifier.(interface{ Close() }); ok {
		n.Close()
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
	Style          wording.Style      // of messages for people
	EventGridToken notify.TokenSource // for topics without an access key; nil if there are none
	MailToken      notify.TokenSource // for mail servers with auth=oauth2; nil if there are none
	Concurrency    int                // calls of Notify at a time
	Transport      http.RoundTripper  // of channels over HTTP, instead of the built-in one, for tests

	header http.Header // Entry.Header
}

// Max is how many receivers there may be: every alert goes to all of them.
const Max = 32

// Open returns the receivers of entries, in their order. An entry is a URL, perhaps with attributes
// in front of it: see Parse. Entries with the same URL and different filters are one receiver. Open
// connects to nothing. Its error is one line that says everything that is wrong with the
// entries, by number. It repeats nothing of a URL.
func Open(entries []string, opts Options) ([]Receiver, error) {
	switch {
	case len(entries) == 0:
		return nil, fmt.Errorf("names no receiver: must be %s", known)
	case len(entries) > Max:
		return nil, fmt.Errorf("names %d receivers: must be at most %d", len(entries), Max)
	}

	var all opened
	var wrong []string
	for i, text := range entries {
		if err := all.add(text, i+1, opts); err != nil {
			wrong = append(wrong, fmt.Sprintf("entry %d %v", i+1, err))
		}
	}

	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}

	rs := all.receivers
	for i := range rs {
		if rs[i].Name != "" {
			continue
		}

		usual := all.from[i].usual()
		free := usual
		for n := 2; slices.ContainsFunc(rs, func(r Receiver) bool { return r.Name == free }); n++ {
			free = fmt.Sprintf("%s-%d", usual, n)
		}
		rs[i].Name = free
	}

	return rs, nil
}

// opened are receivers, and what each was made of.
type opened struct {
	receivers []Receiver
	from      []source
}

// A source is the entry that a receiver was made of, and its number.
type source struct {
	Entry
	number int
}

// add opens the receiver of an entry, or adds its filter to the one with the same id or name, if they differ by their filters
// alone.
func (o *opened) add(text string, number int, opts Options) error {
	e, err := Parse(text)
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return err
	}

	r, err := e.receiver(opts)
	if err != nil {
		return err
	}

	same := slices.IndexFunc(o.from, func(first source) bool {
		isName := e.Name != "" && e.Name == first.Name
		return isName || strings.EqualFold(e.id(), first.id()) // some stores ignore case
	})
	if same < 0 {
		o.receivers = append(o.receivers, r)
		o.from = append(o.from, source{e, number})
		return nil
	}

	filters := &o.receivers[same].Filters
	one, other := o.from[same].Entry, e
	one.Filter, other.Filter = notify.Filter{}, notify.Filter{}
	getsAll := len(*filters) == 0 || len(r.Filters) == 0
	hasFilter := slices.ContainsFunc(*filters, func(f notify.Filter) bool { return reflect.DeepEqual(f, e.Filter) })
	if getsAll || hasFilter || !reflect.DeepEqual(one, other) {
		return fmt.Errorf(
			"is the same receiver as entry %d, by its URL, name or id: only level=, rule= and where= may differ; if both are "+
				"wanted, put a name=… of its own in front of each",
			o.from[same].number,
		)
	}

	*filters = append(*filters, r.Filters...)

	return nil
}

// fit returns at most 63 bytes of host, in lower case: letters, digits, dots and what is in also, and "-" for
// anything else.
func fit(host, also string) string {
	const usual = "abcdefghijklmnopqrstuvwxyz0123456789."
	host = strings.Map(func(r rune) rune {
		if strings.ContainsRune(usual+also, r) {
			return r
		}
		return '-'
	}, strings.ToLower(host))

	return host[:min(len(host), 63)]
}
