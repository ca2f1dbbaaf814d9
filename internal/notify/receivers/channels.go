package receivers

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

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
)

// A channel is one kind of receiver: a row in channels, and a package.
type channel struct {
	schemes []string
	example string // for errors
	hidden  bool   // the host is a secret
	// open returns a receiver without Name and Level. Its errors continue "entry 1 …".
	open func(u *url.URL, opts Options) (Receiver, error)
}

// channels is all that NOTIFY_URLS knows.
var channels = []channel{
	{schemes: []string{"http", "https"}, example: "https://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return webhook.New(u, webhook.Options{Secret: opts.WebhookSecret, Concurrency: opts.Concurrency, Transport: opts.Transport})
	})},
	{schemes: over("teams"), example: "teams+https://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return teams.New(u, opts.Link, opts.post())
	})},
	{schemes: over("slack"), example: "slack+https://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return slack.New(u, opts.Link, opts.post())
	})},
	{schemes: []string{"pagerduty"}, example: "pagerduty://ROUTING_KEY", hidden: true, open: openPagerDuty},
	{schemes: over("alertmanager"), example: "alertmanager+http://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return alertmanager.New(u, opts.Link, opts.post())
	})},
	{schemes: over("ntfy"), example: "ntfy+https://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return ntfy.New(u, opts.Link, opts.post())
	})},
	{schemes: over("eventgrid"), example: "eventgrid+https://…", open: byHTTP(func(u *url.URL, opts Options) (httpNotifier, error) {
		return eventgrid.New(u, opts.Token, opts.post())
	})},
	{schemes: []string{"smtp", "smtps"}, example: "smtp://USER:PASSWORD@HOST/?from=…&to=…", open: openMail},
	{schemes: []string{"log"}, example: "log:", open: openLog},
}

// over returns the schemes of a channel over HTTP.
func over(name string) []string { return []string{name + "+http", name + "+https"} }

// known lists the channels, for people.
var known = func() string {
	var all []string
	for _, c := range channels {
		all = append(all, c.example)
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}()

// find returns the channel of a scheme, the zero one if there is none.
func find(scheme string) channel {
	if i := slices.IndexFunc(channels, func(c channel) bool { return slices.Contains(c.schemes, scheme) }); i >= 0 {
		return channels[i]
	}
	return channel{}
}

// post returns what the clients of all channels over HTTP share.
func (o Options) post() httppost.Options {
	return httppost.Options{Concurrency: o.Concurrency, Transport: o.Transport}
}

// An httpNotifier has an HTTP client.
type httpNotifier interface {
	notify.Notifier
	Close()
}

// byHTTP returns the open function of a channel whose URLs are web addresses, perhaps
// with the channel's name in front.
func byHTTP(open func(u *url.URL, opts Options) (httpNotifier, error)) func(u *url.URL, opts Options) (Receiver, error) {
	return func(u *url.URL, opts Options) (Receiver, error) {
		address := *u
		address.Scheme = u.Scheme[strings.LastIndexByte(u.Scheme, '+')+1:]
		n, err := open(&address, opts)
		if err != nil {
			return Receiver{}, fmt.Errorf("cannot be used: %w", err)
		}
		return Receiver{ID: id(u), usual: place(u), Notifier: n, Reach: &url.URL{Scheme: address.Scheme, Host: u.Host}, close: n.Close}, nil
	}
}

// openPagerDuty names the receiver after the service: what stands where others have a
// host is the key.
func openPagerDuty(u *url.URL, opts Options) (Receiver, error) {
	key, host, err := pagerduty.Split(u)
	if err != nil {
		return Receiver{}, err
	}
	n, err := pagerduty.New(u, opts.Link, opts.post())
	if err != nil {
		return Receiver{}, fmt.Errorf("cannot be used: %w", err)
	}
	return Receiver{ID: "pagerduty-" + hash(key), usual: "pagerduty", Notifier: n, Reach: &url.URL{Scheme: "https", Host: host}, close: n.Close}, nil
}

func openMail(u *url.URL, opts Options) (Receiver, error) {
	n, err := smtp.New(u, smtp.Options{Link: opts.Link, Log: opts.Log})
	if err != nil {
		return Receiver{}, fmt.Errorf("cannot be used: %w", err)
	}
	return Receiver{ID: id(u), usual: place(u), Notifier: n, Reach: &url.URL{Scheme: u.Scheme, Host: u.Host}}, nil
}

func openLog(u *url.URL, opts Options) (Receiver, error) {
	if u.String() != "log:" {
		return Receiver{}, errors.New("must be log: with nothing after the colon")
	}
	return Receiver{ID: lognotify.Name, usual: lognotify.Name, Notifier: lognotify.New(opts.Log)}, nil
}
