// Package httppost is the one HTTP client of all receivers, and of the heartbeat: it posts alerts and says
// what the answer means. A channel encodes, and has a Client.
package httppost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/redact"
)

const (
	dialTimeout = 5 * time.Second

	// idleTimeout is less than the 5 s of Node.js, the shortest keep-alive in wide use.
	// If a receiver closes a connection while we write to it, we do not know whether
	// it took the alert.
	idleTimeout = 4 * time.Second

	maxAnswer     = 4 << 10     // bytes read of an answer's body
	answerTimeout = time.Second // for reading them
	maxHeader     = 32 << 10    // bytes of an answer's header
)

// Options are what a Client has besides its URL. The zero value is usable.
type Options struct {
	Concurrency int               // calls of Post at a time for which connections are kept; 0 is 1
	Transport   http.RoundTripper // instead of the built-in one, for tests
	// Secrets are left out of errors, besides those in the URL and in Header.
	Secrets []string
	// Header is added to each request, unless that has fields of the same names. Its values are secrets.
	Header http.Header
	// Setting names the variable with the URL, for errors, and Credentials those with credentials; "" is NOTIFY_URLS, and the same.
	Setting, Credentials string
	// Settings is found in the body of an answer of 400, 413, 415 or 422 that is about the receiver's settings, and not about
	// the message. Nil: none is.
	Settings *regexp.Regexp
	// Says is the body with which the service accepts a message, apart from space around it: a 2xx with another one is
	// not its answer, but that of a proxy or a login page. Empty: any body is.
	Says string
}

// A Client posts to one URL. It keeps connections open until Close. It is safe for
// concurrent use.
//
// One Post is at most one request that reaches the receiver: the transport
// repeats a POST by itself only on a kept connection to which it has not written a byte.
//
// Errors and the Client itself print as scheme and host. The URL's user, path and query
// and other secrets are left out, even if the receiver repeats them.
type Client struct {
	site        string // scheme://host[:port]
	url         string // without user
	user        *url.Userinfo
	header      http.Header
	redact      *strings.Replacer
	setting     string
	credentials string
	settings    *regexp.Regexp
	says        string
	client      *http.Client
	ahead       atomic.Pointer[time.Duration] // the receiver's clock, as its last answer showed it; nil: not known
}

// A Message is what is posted.
type Message struct {
	What        string // "alert" or "alerts", for errors
	Method      string // "" is POST
	URL         string // of the same server, without user; "" is that of the Client
	ContentType string
	Header      http.Header // further fields; nil if there are none
	Body        []byte
}

// New returns a Client for an http or https URL. A user in u becomes basic
// authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, opts Options) (*Client, error) {
	if err := notify.CheckURL(u, u.EscapedPath()+u.RawQuery+u.Fragment); err != nil {
		return nil, err
	}

	// It speaks HTTP/1.1 alone: there a request that times out takes its
	// connection with it, while on HTTP/2 the next ones would go to the same dead one.
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           max(opts.Concurrency, 1),
		MaxIdleConnsPerHost:    max(opts.Concurrency, 1),
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
	}

	secrets := slices.Clone(opts.Secrets)
	for _, values := range opts.Header {
		secrets = append(secrets, values...)
	}

	setting := cmp.Or(opts.Setting, "NOTIFY_URLS")
	bare := *u
	bare.User = nil
	c := &Client{
		site:        u.Scheme + "://" + u.Host,
		url:         bare.String(),
		user:        u.User,
		setting:     setting,
		credentials: cmp.Or(opts.Credentials, setting),
		header:      opts.Header,
		redact:      redact.New(u, secrets),
		settings:    opts.Settings,
		says:        opts.Says,
		client: &http.Client{
			Transport:     cmp.Or(opts.Transport, http.RoundTripper(transport)),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return c, nil
}

// Format prints scheme and host, whatever the verb.
func (c *Client) Format(f fmt.State, _ rune) { io.WriteString(f, "receiver at "+c.site) }

// Close closes the connections that are not in use.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Post makes one attempt to deliver m, under a notifier's contract. A 2xx, with the body that Options.Says, means that m
// is taken, a 400, 413, 415 or 422 about it that it is refused for good, and any other answer, or none, that
// the receiver is down or busy.
func (c *Client) Post(ctx context.Context, m Message) error {
	// connected says whether the last attempt of the transport got as far as
	// having a connection; before that nothing can have been sent.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	reqCtx, cancel := context.WithCancel(ctx)
	defer cancel()

	req, err := http.NewRequestWithContext(reqCtx, cmp.Or(m.Method, http.MethodPost), cmp.Or(m.URL, c.url), bytes.NewReader(m.Body))
	if err != nil {
		return c.wrap(m.What, &notify.Error{Untaken: true, Err: c.clean(err)})
	}

	maps.Copy(req.Header, c.header)
	maps.Copy(req.Header, m.Header)

	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("User-Agent", "alertworker")

	if c.user != nil {
		password, _ := c.user.Password()
		req.SetBasicAuth(c.user.Username(), password)
	}

	resp, err := c.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = notify.Ended(ctx, map[bool]string{false: "no connection in time", true: "no answer in time"}[connected.Load()])
		}
		return c.wrap(m.What, &notify.Error{Untaken: !connected.Load(), Err: c.clean(err)})
	}
	defer resp.Body.Close()

	if ahead, ok := Ahead(resp.Header); ok {
		c.ahead.Store(&ahead)
	}

	// The status line decides. The body is read, for a short time, to reuse the
	// connection and for the error.
	timer := time.AfterFunc(answerTimeout, cancel)
	defer timer.Stop()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	isSuccess := resp.StatusCode >= 200 && resp.StatusCode < 300
	if isSuccess && (c.says == "" || strings.TrimSpace(string(answer)) == c.says) {
		return nil
	}

	text := c.redact.Replace(string(answer))
	if _, token, _ := strings.Cut(m.Header.Get("Authorization"), " "); token != "" {
		text = strings.ReplaceAll(text, token, "[redacted]")
	}

	return c.wrap(m.What, c.explain(resp, string(answer), text))
}

// PostJSON posts v as JSON.
func (c *Client) PostJSON(ctx context.Context, what string, v any) error {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return c.Unsent(what, true, fmt.Errorf("encode %s: %w", what, err))
	}

	return c.Post(ctx, Message{What: what, ContentType: "application/json", Body: body.Bytes()})
}

// Unsent returns the error for a message that was not posted: refused for good, if that
// is its own fault.
func (c *Client) Unsent(what string, refused bool, err error) error {
	return c.wrap(what, &notify.Error{Refused: refused, Untaken: true, Err: err})
}

// clean takes the URL out of an error of net/http. If there still is a secret in
// it, only its redacted text is kept.
func (c *Client) clean(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}

	if text := err.Error(); c.redact.Replace(text) != text {
		return errors.New(c.redact.Replace(text))
	}

	return err
}

func (c *Client) wrap(what string, e *notify.Error) error {
	e.Err = fmt.Errorf("post %s to %s: %w", what, c.site, e.Err)
	return e
}
