package receivers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/eventgrid"
	"alertworker/internal/notify/smtp"
	"alertworker/internal/notify/webhook"
)

// An Entry is what one entry of NOTIFY_URLS says.
type Entry struct {
	ID, Name string // empty if not given
	Filter   notify.Filter
	Batch    int      // alerts in a message; 0: as many as the channel likes
	Secrets  []string // that sign webhooks, the first of two or both; nil: Options.WebhookSecret
	// Header is what each request has besides what the channel sets; nil if there is nothing.
	Header http.Header

	url *url.URL
}

// attribute is what may stand in front of a URL. No URL begins like this.
var attribute = regexp.MustCompile(`^([a-z]+)=(\S*)\s+`)

// What an id may be, such as one that [Entry.id] makes of a URL, and what a name, a level or a rule.
var (
	anyID = regexp.MustCompile(`^[A-Za-z0-9-][A-Za-z0-9._-]{0,71}$`)
	word  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

const (
	attributes = "id=, name=, level=, rule=, where=, batch=, secret= and header="
	maxBatch   = 100
	maxValues  = 64 // of one filter
	maxHeaders = 8
	maxHeader  = 4096 // bytes of a value
)

// Parse reads an entry: a URL, and in front of it, each followed by spaces, any of
//
//	id=ID                      the receiver's identity, which otherwise is its name or what is stable in its URL
//	name=NAME                  for people
//	level=LEVEL|LEVEL          only alerts of these levels
//	rule=RULE|RULE             only alerts of these rules
//	where=PROPERTY:VALUE|VALUE only alerts about messages with such an application property
//	batch=N                    alerts in one message
//	secret=SECRET|SECRET       that sign a webhook
//	header=NAME:VALUE|NAME:VALUE  HTTP headers of each request
//
// Its errors continue "entry 1 …" and repeat nothing of the URL or an attribute.
func Parse(text string) (Entry, error) {
	var e Entry
	seen := map[string]bool{}
	text = strings.TrimSpace(text)
	for m := attribute.FindStringSubmatch(text); m != nil; m = attribute.FindStringSubmatch(text) {
		name, value := m[1], m[2]
		read := readers[name]
		if read == nil {
			return Entry{}, fmt.Errorf("has something other than %s in front of its URL", attributes)
		}
		if seen[name] {
			return Entry{}, fmt.Errorf("has more than one %s=…", name)
		}

		seen[name] = true
		if must := read(&e, value); must != "" {
			return Entry{}, fmt.Errorf("has an invalid %s: must be %s", name, must)
		}

		text = text[len(m[0]):]
	}

	if text == "" {
		return Entry{}, fmt.Errorf("is empty: must be %s", known)
	}

	if m := another.FindStringSubmatch(text); m != nil && find(m[1]).open != nil {
		return Entry{}, errors.New("has another entry behind a semicolon: separate entries by commas or line breaks")
	}

	var err error
	if e.url, err = url.Parse(text); err != nil {
		// What net/url says may quote half a password.
		return Entry{}, errors.New(
			"is not a URL: percent-encode what is special in a user, password or token, and a comma as %2C",
		)
	}

	if find(e.url.Scheme).open == nil { // which may be a key, or a user, and is not repeated
		return Entry{}, fmt.Errorf("begins with no known scheme: must be %s", known)
	}

	return e, nil
}

const mustBeWord = "up to 63 letters, digits, '.', '-' and '_', the first a letter or a digit"

// readers read the value of an attribute, and return what it must be if it is not.
var readers = map[string]func(e *Entry, value string) (must string){
	"id": func(e *Entry, value string) string {
		e.ID = value
		return unless(anyID.MatchString(value), "up to 72 letters, digits, '.', '-' and '_', the first no '.' or '_'")
	},
	"name": func(e *Entry, value string) string {
		e.Name = value
		return unless(word.MatchString(value), mustBeWord)
	},
	"level": func(e *Entry, value string) string { return readWords(&e.Filter.Levels, value) },
	"rule":  func(e *Entry, value string) string { return readWords(&e.Filter.Rules, value) },
	"where": func(e *Entry, value string) string {
		const must = "an application property and what it may be, such as site:berlin|hamburg, with spaces, commas, | and " +
			"% written as %20, %2C, %7C and %25"
		property, values, ok := strings.Cut(value, ":")
		list := append([]string{property}, strings.Split(values, "|")...)
		for i := range list {
			var err error
			if list[i], err = url.PathUnescape(list[i]); err != nil || list[i] == "" {
				return must
			}
		}

		if !ok || len(list) > maxValues {
			return must
		}

		e.Filter.Property, e.Filter.Values = list[0], list[1:]

		return ""
	},
	"batch": func(e *Entry, value string) string {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 || n > maxBatch {
			return fmt.Sprintf("1 to %d", maxBatch)
		}

		e.Batch = int(n)
		return ""
	},
	"secret": func(e *Entry, value string) string {
		if strings.HasPrefix(value, "/") || strings.HasPrefix(value, ".") {
			return "the secret itself, no longer the path of its file: put the entries into a file, which NOTIFY_URLS_FILE names"
		}

		if e.Secrets = strings.Split(value, "|"); len(e.Secrets) > webhook.MaxSecrets || strings.Trim(value, "|") == "" {
			return "one secret, or two separated by |"
		}

		return ""
	},
	"header": func(e *Entry, value string) string {
		const must = "1 to 8 HTTP headers, such as X-Scope-OrgID:prod or Authorization:Bearer%20TOKEN, separated by |, in values " +
			"spaces, commas, | and % written as %20, %2C, %7C and %25"
		list := strings.Split(value, "|")
		if len(list) > maxHeaders {
			return must
		}

		e.Header = http.Header{}
		for _, one := range list {
			name, text, _ := strings.Cut(one, ":")
			text, err := url.PathUnescape(text)
			if err != nil || !headerName.MatchString(name) || !headerValue.MatchString(text) || len(text) > maxHeader {
				return must
			}

			name = http.CanonicalHeaderKey(name)
			switch {
			case e.Header.Get(name) != "":
				return "headers of different names"
			case slices.Contains(ownHeaders, name):
				return "other headers: " + name + " is set by the worker"
			}

			e.Header.Set(name, text)
		}

		return ""
	},
}

var (
	headerName  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	headerValue = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?$`)
)

// ownHeaders are those that requests have anyway.
var ownHeaders = []string{"Connection", "Content-Length", "Content-Type", "Host", "Transfer-Encoding", "User-Agent"}

// unless returns what a value must be, unless it is.
func unless(is bool, must string) string {
	if is {
		return ""
	}
	return must
}

// readWords reads the values of a filter.
func readWords(into *[]string, value string) string {
	*into = strings.Split(value, "|")
	isWrong := len(*into) > maxValues || slices.ContainsFunc(*into, func(s string) bool { return !word.MatchString(s) })
	return unless(!isWrong, mustBeWord+"; several are separated by |")
}

// another is what looks like an entry behind the first, with its scheme.
var another = regexp.MustCompile(`;\s*(?:[a-z]+=\S+\s+)*([a-z]+(?:\+[a-z]+)?):`)

// Place returns scheme, host and port of the URL, or only the scheme if the rest is a
// secret or missing.
func (e Entry) Place() (scheme, host string) {
	if find(e.url.Scheme).hidden {
		return e.url.Scheme, ""
	}
	return e.url.Scheme, e.url.Host
}

// IsWebhook reports whether alerts go there as signed CloudEvents.
func (e Entry) IsWebhook() bool { return slices.Contains(webhooks, e.url.Scheme) }

// NeedsEventGridToken reports whether Options.EventGridToken is used.
func (e Entry) NeedsEventGridToken() bool {
	return strings.HasPrefix(e.url.Scheme, "eventgrid+") && !eventgrid.HasKey(e.url)
}

// NeedsMailToken reports whether Options.MailToken is used.
func (e Entry) NeedsMailToken() bool {
	return strings.HasPrefix(e.url.Scheme, "smtp") && smtp.UsesToken(e.url)
}

// mistakes are entries that would otherwise work in a way that nobody means: alerts that a service accepts and shows nobody,
// or secrets that everybody can read. host is in lower case, and at the channel of the service there, if it is known.
var mistakes = []struct {
	is   func(e Entry, host string, at channel) bool
	what string
}{
	{
		// slack.com/help/articles/360041352714: these start a workflow instead of posting a message
		func(e Entry, _ string, at channel) bool {
			isSlack := at.example == slackExample || at.example == "" && strings.HasPrefix(e.url.Scheme, "slack+")
			return isSlack && slackTrigger.MatchString(e.url.Path) && !strings.HasPrefix(e.url.Scheme, "webhook+")
		},
		"is the trigger of a Slack workflow, which shows alerts to nobody: make an incoming webhook, whose URL has /services/, " +
			"and put slack+ in front of it",
	},
	{
		func(e Entry, host string, _ channel) bool {
			ip, _ := netip.ParseAddr(host) // else the zero Addr, which is none
			isHere := host == "localhost" || ip.IsLoopback()
			return e.NeedsEventGridToken() && e.url.Scheme == "eventgrid+http" && !isHere
		},
		"would send the identity's token in clear text: must be eventgrid+https://…",
	},
	{
		func(e Entry, _ string, _ channel) bool { return len(e.Secrets) > 0 && !e.IsWebhook() },
		"has secret=…, but only webhooks are signed",
	},
	{
		func(e Entry, _ string, _ channel) bool { return e.Header != nil && !find(e.url.Scheme).headers },
		"has header=…, but is not sent to a web address of yours",
	},
	{
		func(e Entry, _ string, _ channel) bool {
			return e.Header.Get("Authorization") != "" && e.url.User != nil
		},
		"has the header Authorization and a user in its URL: remove one of them",
	},
	{
		func(e Entry, _ string, _ channel) bool { return e.Batch > 1 && find(e.url.Scheme).single },
		"has batch=…, but gets one alert in a message: remove it",
	},
}

// slackTrigger is the path of one.
var slackTrigger = regexp.MustCompile(`^/(triggers|workflows)/`)

// check says what is wrong with an entry that can be read.
func (e Entry) check() error {
	host := strings.ToLower(e.url.Hostname())
	isBelow := func(known string) bool { return strings.HasSuffix("."+host, "."+known) }
	at := first(func(c channel) bool { return slices.ContainsFunc(c.hosts, isBelow) })
	for _, m := range mistakes {
		if m.is(e, host, at) {
			return errors.New(m.what)
		}
	}

	name, inClear := strings.CutSuffix(e.url.Scheme, "+http")
	switch {
	case at.example == "" || strings.HasPrefix(e.url.Scheme, "webhook+"):
		return nil
	case at.example != find(e.url.Scheme).example:
		return fmt.Errorf("would get messages that nobody sees: did you mean %s?%s", at.example, at.instead)
	case inClear:
		return fmt.Errorf("would be sent in clear text: did you mean %s+https://…?", name)
	}

	return nil
}

// receiver opens the receiver of an entry that was checked. It has a Name only if one is given. Its errors are like Parse's.
func (e Entry) receiver(opts Options) (Receiver, error) {
	if len(e.Secrets) > 0 {
		var err error
		if opts.WebhookSecrets, err = webhook.ParseSecrets(strings.Join(e.Secrets, " ")); err != nil {
			return Receiver{}, fmt.Errorf("has an invalid secret: %w", err)
		}
	}
	opts.header = e.Header

	c := find(e.url.Scheme)
	n, reach, err := c.open(e.url, opts)
	if err != nil {
		return Receiver{}, fmt.Errorf("cannot be used: %w", err)
	}

	r := Receiver{ID: e.id(), Name: e.Name, Notifier: n, Reach: reach}
	if !reflect.DeepEqual(e.Filter, notify.Filter{}) {
		r.Filters = notify.Filters{e.Filter}
	}

	r.Limits.People = c.people
	r.Limits.Forgets = c.forgets
	r.Limits.Places = c.places
	if c.rateAt == "" || strings.EqualFold(c.rateAt, e.url.Hostname()) {
		r.Limits.Rate = c.rate
	}

	r.Limits.Batch = e.Batch
	if e.Batch == 0 && c.together {
		r.Limits.Batch = maxBatch
	}

	return r, nil
}

// id identifies e's receiver in records, as its channel says. What may be rotated, or added, is no part of it. It
// must never change.
func (e Entry) id() string {
	if given := cmp.Or(e.ID, e.Name); given != "" {
		return given
	}
	if e.url.Scheme == "log" {
		return "log"
	}

	u := *e.url
	channel, _, _ := strings.Cut(u.Scheme, "+")
	scheme := u.Scheme[strings.LastIndexByte(u.Scheme, '+')+1:]
	if e.IsWebhook() {
		channel = "webhook"
	}

	host, stable := u.Hostname(), u.EscapedPath()
	if of := find(u.Scheme).stable; of != nil {
		host, stable = of(&u)
	}
	host, stable = strings.ToLower(host), cmp.Or(stable, "/")

	usual := map[string]string{"http": "80", "https": "443", "smtp": "587", "smtps": "465"}
	port := cmp.Or(u.Port(), usual[scheme])

	text := channel + " " + scheme + "://" + net.JoinHostPort(host, port) + stable

	sum := sha256.Sum256([]byte(text)) // it tells apart what ids cannot show

	return fit(host, "") + "-" + hex.EncodeToString(sum[:4])
}

// usual is what the receiver is called if it is given no name.
func (e Entry) usual() string {
	if find(e.url.Scheme).hidden {
		return e.url.Scheme
	}
	place := net.JoinHostPort(fit(e.url.Hostname(), ":"), e.url.Port())
	return cmp.Or(strings.TrimSuffix(place, ":"), e.url.Scheme)
}
