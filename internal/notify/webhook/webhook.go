// Package webhook posts alerts and summaries as CloudEvents to an HTTP receiver.
package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/notify"
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

// Options are what a Webhook has besides its URL. The zero value is usable.
type Options struct {
	Secret      Secret          // signs every request; the zero Secret none
	Concurrency int             // calls of Notify at a time for which connections are kept; 0 is 1
	Transport   *http.Transport // instead of the built-in one, for tests
}

// A Webhook is a [notify.Notifier] and a [notify.Reporter] that posts to one URL. It
// keeps connections open until Close.
//
// One Notify or Report is at most one request that reaches the receiver: the transport
// repeats a POST by itself only on a kept connection to which it has not written a byte.
//
// Errors and the Webhook itself print as scheme and host. The URL's user, path and query
// and the secret are left out, even if the receiver repeats them.
type Webhook struct {
	name   string
	site   string // scheme://host[:port]
	url    string // without user
	user   *url.Userinfo
	secret Secret
	redact *strings.Replacer
	client *http.Client
}

// New returns a Webhook for an http or https URL. A user in u becomes basic
// authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, opts Options) (*Webhook, error) {
	if err := check(u); err != nil {
		return nil, err
	}
	transport := opts.Transport
	if transport == nil {
		transport = newTransport(max(opts.Concurrency, 1))
	}
	bare := *u
	bare.User = nil
	return &Webhook{
		name:   name(u),
		site:   u.Scheme + "://" + u.Host,
		url:    bare.String(),
		user:   u.User,
		secret: opts.Secret,
		redact: newRedactor(u, opts.Secret),
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("want http:// or https://")
	}
	// "https://user:1/2@host" is the host "user" to a parser.
	if u.User == nil && strings.Contains(u.EscapedPath()+u.RawQuery+u.Fragment, "@") {
		return errors.New("there is an @ after the host: write it as %40, and / ? # in a user or password as %2F %3F %23")
	}
	if u.Fragment != "" {
		return errors.New("a fragment (#…) is never sent: leave it out, or write # as %23")
	}
	if u.Opaque != "" || u.Hostname() == "" {
		return errors.New("there is no host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return errors.New("the port is not one of 1 to 65535")
		}
	}
	return nil
}

// name is the host, for people, and a hash of the URL's parts that identify a receiver.
// User and password do not.
func name(u *url.URL) string {
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

// newTransport speaks HTTP/1.1 alone: there a request that times out takes its
// connection with it, while on HTTP/2 the next ones would go to the same dead one.
func newTransport(concurrency int) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           concurrency,
		MaxIdleConnsPerHost:    concurrency,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
	}
}

// Name is the host and a hash of the URL without its user: at most 72 bytes of a-z, 0-9,
// "." and "-". It is stable across restarts and new passwords, and different for
// different receivers.
func (w *Webhook) Name() string { return w.name }

// Format prints scheme and host, whatever the verb.
func (w *Webhook) Format(f fmt.State, _ rune) { io.WriteString(f, "webhook "+w.site) }

// Close closes the connections that are not in use.
func (w *Webhook) Close() { w.client.CloseIdleConnections() }

// Notify posts a. Any 2xx means taken; 400, 413, 415 and 422 mean that a is refused; any
// other answer, or none, that the receiver is down or busy.
func (w *Webhook) Notify(ctx context.Context, a notify.Alert) error {
	body, err := Encode(a)
	if err != nil {
		return w.wrap("alert", &notify.Error{Refused: true, Untaken: true, Err: err})
	}
	return w.post(ctx, "alert", a.ID, body)
}

// Report posts s. Answers mean what they do to Notify.
func (w *Webhook) Report(ctx context.Context, s notify.Summary) error {
	body, err := EncodeSummary(s)
	if err != nil {
		return w.wrap("summary", &notify.Error{Refused: true, Untaken: true, Err: err})
	}
	return w.post(ctx, "summary", s.ID, body)
}

// post makes one attempt at the event with the id, which is an alert or a summary.
func (w *Webhook) post(ctx context.Context, what, id string, body []byte) error {
	// connected says whether the last attempt of the transport got as far as
	// having a connection; before that nothing can have been sent.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	reqCtx, cancel := context.WithCancel(ctx)
	defer cancel()

	req, err := http.NewRequestWithContext(reqCtx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return w.wrap(what, &notify.Error{Untaken: true, Err: w.clean(err)})
	}
	req.Header.Set("Content-Type", ContentType)
	req.Header.Set("User-Agent", "alertworker")
	if w.user != nil {
		password, _ := w.user.Password()
		req.SetBasicAuth(w.user.Username(), password)
	}
	if !w.secret.IsZero() {
		w.secret.sign(req.Header, id, body)
	}

	resp, err := w.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = timeout(ctx, connected.Load())
		}
		return w.wrap(what, &notify.Error{Untaken: !connected.Load(), Err: w.clean(err)})
	}
	defer resp.Body.Close()

	// The status line decides. The body is read, for a short time, to reuse the
	// connection and for the error.
	timer := time.AfterFunc(answerTimeout, cancel)
	defer timer.Stop()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	return w.wrap(what, explain(resp, w.redact.Replace(string(answer))))
}

// timeout returns why ctx ended and whether there was a connection by then.
func timeout(ctx context.Context, connected bool) error {
	what := "no connection in time"
	if connected {
		what = "no answer in time"
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%s: %w: %w", what, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", what, ctx.Err())
}

// clean takes the URL out of an error of net/http. If there still is a secret in
// it, only its redacted text is kept.
func (w *Webhook) clean(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if text := err.Error(); w.redact.Replace(text) != text {
		return errors.New(w.redact.Replace(text))
	}
	return err
}

func (w *Webhook) wrap(what string, e *notify.Error) error {
	e.Err = fmt.Errorf("post %s to %s: %w", what, w.site, e.Err)
	return e
}
