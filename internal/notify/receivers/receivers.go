// Package receivers opens the receivers named in NOTIFY_URLS.
package receivers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/eventgrid"
	"alertworker/internal/notify/webhook"
)

// A Receiver is a notifier with an id and a name, which differ from the other receivers'
// and hold no secrets.
type Receiver struct {
	// ID is for records: throttle keys, dead letters and counts. It is the same after a
	// restart and in every version, whatever other receivers there are, and has at most 72
	// bytes of a-z, 0-9, "." and "-".
	ID string
	// Name is for people, in log, metrics and pages: the one given, or else host and port
	// as in the URL, or "pagerduty". The second receiver of a host and port, and those
	// after it, have a number behind it. It has at most 76 bytes of letters, digits and
	// "._-:[]".
	Name string
	// Level is the only level whose alerts the receiver gets; empty for all.
	Level    string
	Notifier notify.Notifier
	// Reach is scheme and host that the notifier connects to; nil if to none.
	Reach *url.URL

	usual string // the name, unless one is given or another receiver has it
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
	Log           *zap.Logger           // where log: writes
	WebhookSecret webhook.Secret        // the zero Secret signs nothing
	Link          string                // to the status page; empty for none
	Token         eventgrid.TokenSource // for topics without an access key; nil if there are none
	Concurrency   int                   // calls of Notify at a time
	Transport     *http.Transport       // instead of the built-in one, for tests
}

// Max is how many receivers there may be: every alert goes to all of them.
const Max = 32

// Open returns a receiver for each entry, in their order: a URL, and in front of it, each followed by
// spaces, name=NAME and level=LEVEL if wanted. It connects to nothing.
// Its error is one line that says everything that is wrong with the entries, by number. It
// repeats no more of a URL than its scheme.
func Open(entries []string, opts Options) ([]Receiver, error) {
	switch {
	case len(entries) == 0:
		return nil, fmt.Errorf("names no receiver: must be %s", known)
	case len(entries) > Max:
		return nil, fmt.Errorf("names %d receivers: must be at most %d", len(entries), Max)
	}
	var rs []Receiver
	var wrong []string
	ids, names := map[string]int{}, map[string]int{} // the entries that have them
	for i, text := range entries {
		n := i + 1
		r, err := open(text, opts)
		if err == nil && ids[r.ID] > 0 {
			err = fmt.Errorf("is the same receiver as entry %d", ids[r.ID])
		}
		if err == nil && names[r.Name] > 0 {
			err = fmt.Errorf("has the name of entry %d", names[r.Name])
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("entry %d %v", n, err))
			continue
		}
		ids[r.ID] = n
		if r.Name != "" {
			names[r.Name] = n
		}
		rs = append(rs, r)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	for i := range rs {
		if rs[i].Name == "" {
			rs[i].Name = unique(rs[i].usual, rs)
		}
	}
	return rs, nil
}

// attribute is what may stand in front of a URL. No URL begins like this.
var attribute = regexp.MustCompile(`^([a-z]+)=(\S*)\s+`)

// word is what a name or a level may be.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// An Entry is what one entry of NOTIFY_URLS says.
type Entry struct {
	Name, Level string // empty if not given
	url         *url.URL
}

// Parse reads an entry. Its errors continue "entry 1 …" and repeat no more of the URL
// than its scheme.
func Parse(text string) (Entry, error) {
	var e Entry
	text = strings.TrimSpace(text)
	for m := attribute.FindStringSubmatch(text); m != nil; m = attribute.FindStringSubmatch(text) {
		into := map[string]*string{"name": &e.Name, "level": &e.Level}[m[1]]
		switch {
		case into == nil:
			return Entry{}, errors.New("has something other than name=… and level=… in front of its URL")
		case *into != "":
			return Entry{}, fmt.Errorf("has more than one %s=…", m[1])
		case !word.MatchString(m[2]):
			return Entry{}, fmt.Errorf("has an invalid %s: must be up to 63 letters, digits, '.', '-' and '_', the first a letter or a digit", m[1])
		}
		*into = m[2]
		text = text[len(m[0]):]
	}
	var err error
	e.url, err = parse(text)
	return e, err
}

// maxScheme keeps what only looks like a scheme out of errors.
const maxScheme = 18

// parse returns the URL of an entry, whose scheme is known. Its errors are Parse's.
func parse(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, fmt.Errorf("is empty: must be %s", known)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		// What net/url says may quote half a password.
		return nil, errors.New("is not a URL: percent-encode what is special in a user, password or token, and a comma as %2C")
	case u.Scheme == "":
		return nil, fmt.Errorf("has no scheme: must be %s", known)
	case find(u.Scheme).open != nil:
		return u, nil
	case u.Host != "" && len(u.Scheme) <= maxScheme:
		// The host of a scheme that we do not know is often a key.
		return nil, fmt.Errorf("has the unknown scheme %q: must be %s", u.Scheme, known)
	}
	// Without a host, what looks like a scheme may be a user.
	return nil, fmt.Errorf("has an unknown scheme: must be %s", known)
}

// Place returns scheme, host and port of the URL, or only the scheme if the rest is a
// secret or missing.
func (e Entry) Place() (scheme, host string) {
	if find(e.url.Scheme).hidden {
		return e.url.Scheme, ""
	}
	return e.url.Scheme, e.url.Host
}

// IsWebhook reports whether alerts go there as signed CloudEvents.
func (e Entry) IsWebhook() bool { return e.url.Scheme == "http" || e.url.Scheme == "https" }

// NeedsToken reports whether Options.Token is used.
func (e Entry) NeedsToken() bool {
	return strings.HasPrefix(e.url.Scheme, "eventgrid+") && !eventgrid.HasKey(e.url)
}

// open returns the receiver of one entry. Its Name is empty unless one is given. Its
// errors are like Parse's.
func open(text string, opts Options) (Receiver, error) {
	e, err := Parse(text)
	if err != nil {
		return Receiver{}, err
	}
	r, err := find(e.url.Scheme).open(e.url, opts)
	r.Name, r.Level = e.Name, e.Level
	return r, err
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

// ports are those of URLs that have none.
var ports = map[string]string{"http": "80", "https": "443", "smtp": "587", "smtps": "465"}

// id is the host, for people, and a hash of the URL's parts that identify a receiver.
// User and password do not. Records have it as a key: it must never change.
func id(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = ports[u.Scheme[strings.LastIndexByte(u.Scheme, '+')+1:]]
	}
	same := url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(host, port), Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if same.Path == "" {
		same.Path = "/"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), 63)] + "-" + hash(same.String())
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
