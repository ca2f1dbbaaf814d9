package receivers

import (
	"cmp"
	"errors"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/alertmanager"
	"alertworker/internal/notify/eventgrid"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/lognotify"
	"alertworker/internal/notify/ntfy"
	"alertworker/internal/notify/pagerduty"
	"alertworker/internal/notify/slack"
	"alertworker/internal/notify/smtp"
	"alertworker/internal/notify/teams"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

// A channel is one kind of receiver: a row in channels, and a package.
type channel struct {
	schemes []string
	example string   // for errors and help
	what    string   // it is, in the help, if example does not say so
	hidden  bool     // the host is a secret
	hosts   []string // of the service, and those below them: their URLs belong here and nowhere else
	instead string   // ends the error about such a URL that is elsewhere; mostly empty

	single   bool // it takes one alert in a message, and others up to maxBatch
	together bool // what is ready goes in one message, also if nobody asks for that
	people   bool // read its messages
	forgets  bool // what it was sent, when it restarts
	headers  bool // requests may have headers of the user's
	places   int  // calls of Notify at a time; 0: as many as there are
	// rate is how many messages the service takes, as it documents; zero if no rate is known. Others than the service may run the
	// same software: then it is only for rateAt, its host.
	rate   notify.Rate
	rateAt string
	// stable returns what of a URL says which receiver it is, without what may be rotated or added: the host, and
	// what else there is. It must never change. Nil: the path is.
	stable func(u *url.URL) (host, rest string)
	// open returns what sends to a URL, and scheme and host that it connects to, nil if to none. Its errors hold no
	// part of the URL.
	open func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error)
}

// webhooks are the schemes of URLs that get CloudEvents. With webhook+ in front, a URL means that whatever
// its host is.
var webhooks = append([]string{"http", "https"}, over("webhook")...)

const slackExample = "slack+https://…"

// workflows are the hosts of Logic Apps and of Power Automate, in the clouds of Azure: public, US government (GCC, GCC High,
// DoD) and China (learn.microsoft.com/power-platform/admin/online-requirements,
// learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure,
// learn.microsoft.com/azure/china/resources-developer-guide).
var workflows = []string{
	"logic.azure.com", "logic.azure.us", "logic.azure.cn",
	"api.powerplatform.com", "powerplatform.microsoft.us", "api.appsplatform.us",
	"powerplatform.partner.microsoftonline.cn", "powerplatform.azure.cn", "powerplatform.cn",
}

// channels is all that NOTIFY_URLS knows.
var channels = []channel{
	{
		schemes: webhooks,
		headers: true,
		example: "https://…",
		what:    "webhook",
		open: func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
			address, reach := overHTTP(u)
			n, err := webhook.New(address, opts.Style, opts.WebhookSecrets, opts.post())
			return n, reach, err
		},
	},
	{
		schemes:  over("teams"),
		headers:  true,
		example:  "teams+https://…",
		hosts:    workflows,
		instead:  "; for a logic app that takes CloudEvents: webhook+https://…",
		people:   true,
		together: true,
		// 1,800 an hour and conversation, and 8 within two seconds.
		rate: notify.Rate{Burst: 5, Every: 2 * time.Second},
		open: byHTTP(teams.New),
	},
	{
		schemes:  over("slack"),
		headers:  true,
		example:  slackExample,
		hosts:    []string{"hooks.slack.com", "hooks.slack-gov.com"},
		people:   true,
		together: true,
		rate:     notify.Rate{Every: time.Second},
		stable: func(u *url.URL) (host, rest string) {
			return u.Hostname(), path.Dir(cmp.Or(u.EscapedPath(), "/")) // the last part is the key
		},
		open: byHTTP(slack.New),
	},
	{
		schemes: []string{"pagerduty"},
		example: "pagerduty://ROUTING_KEY",
		single:  true,
		hidden:  true,
		hosts:   []string{"events.pagerduty.com", "events.eu.pagerduty.com"},
		rate:    notify.Rate{Burst: 20, Every: 600 * time.Millisecond}, // 120 a minute
		stable: func(u *url.URL) (host, rest string) {
			_, host, _ = pagerduty.Split(u)
			return host, "/"
		},
		open: func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
			n, err := pagerduty.New(u, opts.Style, opts.post())
			_, host, _ := pagerduty.Split(u) // fails if New does
			return n, &url.URL{Scheme: "https", Host: host}, err
		},
	},
	{
		schemes:  over("alertmanager"),
		headers:  true,
		example:  "alertmanager+http://…",
		together: true,
		forgets:  true,
		open:     byHTTP(alertmanager.New),
	},
	{
		schemes:  over("ntfy"),
		headers:  true,
		example:  "ntfy+https://…",
		hosts:    []string{"ntfy.sh"},
		people:   true,
		together: true,
		rateAt:   "ntfy.sh",
		rate:     notify.Rate{Burst: 60, Every: 5 * time.Second},
		open:     byHTTP(ntfy.New),
	},
	{
		schemes: over("eventgrid"),
		example: "eventgrid+https://…",
		hosts:   []string{"eventgrid.azure.net", "eventgrid.azure.us", "eventgrid.azure.cn"},
		open: func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
			address, reach := overHTTP(u)
			n, err := eventgrid.New(address, opts.Style, opts.EventGridToken, opts.post())
			return n, reach, err
		},
	},
	{
		schemes:  []string{"smtp", "smtps"},
		example:  "smtp://USER:PASSWORD@HOST/?from=…&to=…",
		people:   true,
		together: true,
		places:   smtp.Connections,
		rateAt:   "smtp.office365.com",
		rate:     notify.Rate{Burst: 5, Every: 2400 * time.Millisecond}, // 30 a minute
		stable: func(u *url.URL) (host, rest string) {
			return u.Hostname(), "/?from=" + url.QueryEscape(u.Query().Get("from"))
		},
		open: func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
			n, err := smtp.New(u, smtp.Options{Style: opts.Style, Log: opts.Log, Token: opts.MailToken})
			return n, &url.URL{Scheme: u.Scheme, Host: u.Host}, err
		},
	},
	{
		schemes: []string{"log"},
		example: "log:",
		single:  true,
		what:    "only written to the log",
		open: func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
			if u.String() != "log:" {
				return nil, nil, errors.New("must be log: with nothing after the colon")
			}
			return lognotify.New(opts.Log, opts.Style), nil, nil
		},
	},
}

// over returns the schemes of a channel over HTTP.
func over(name string) []string { return []string{name + "+http", name + "+https"} }

// known lists the channels, for people.
var known = func() string {
	var all []string
	for _, c := range channels {
		all = append(all, c.example)
	}
	return humanize.Or(all)
}()

// Help lists the channels, for a help text in ASCII.
func Help() string {
	var all []string
	for _, c := range channels {
		text := strings.ReplaceAll(c.example, "…", "...")
		if c.what != "" {
			text += " (" + c.what + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// find returns the channel of a scheme, the zero one if there is none.
func find(scheme string) channel {
	return first(func(c channel) bool { return slices.Contains(c.schemes, scheme) })
}

// first returns the first channel that is like that, the zero one if none is.
func first(is func(channel) bool) channel {
	if i := slices.IndexFunc(channels, is); i >= 0 {
		return channels[i]
	}
	return channel{}
}

// post returns what the clients of all channels over HTTP share.
func (o Options) post() httppost.Options {
	return httppost.Options{Concurrency: o.Concurrency, Transport: o.Transport, Header: o.header}
}

// byHTTP returns the open function of a channel whose URLs are web addresses.
func byHTTP[N notify.Notifier](
	open func(*url.URL, wording.Style, httppost.Options) (N, error),
) func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
	return func(u *url.URL, opts Options) (notify.Notifier, *url.URL, error) {
		address, reach := overHTTP(u)
		n, err := open(address, opts.Style, opts.post())
		return n, reach, err
	}
}

// overHTTP returns the web address of a URL that has the name of its channel in front, and what of it is connected to.
func overHTTP(u *url.URL) (address, reach *url.URL) {
	bare := *u
	bare.Scheme = u.Scheme[strings.LastIndexByte(u.Scheme, '+')+1:]
	return &bare, &url.URL{Scheme: bare.Scheme, Host: u.Host}
}
