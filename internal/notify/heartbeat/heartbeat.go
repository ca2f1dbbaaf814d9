// Package heartbeat calls a monitoring service again and again while an alert would go out, and tells it
// why when none would. The service has a clock of its own: if the calls stop, it wakes somebody.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

const (
	defaultInterval = time.Minute
	minInterval     = time.Second
	maxInterval     = time.Hour

	look        = 5 * time.Second  // how often Check is asked, at the default interval
	grace       = 15 * time.Second // for which a failure must last, at the default interval: partitions change hands
	callTimeout = 10 * time.Second
	maxReason   = 500 // bytes that are sent
)

// A Target is where calls go.
type Target struct {
	Interval time.Duration // between two calls
	url      *url.URL
	push     *push // nil: POST to the URL, or to the URL with /fail
	fails    bool  // failures are reported; else nothing is called while they last
}

// A push is how a service takes calls as GET: the names of the query's parameters, and a state's values.
type push struct{ state, good, bad, message string }

var (
	kuma     = &push{"status", "up", "down", "msg"} // Uptime Kuma
	cronitor = &push{"state", "complete", "fail", "message"}
)

// Parse reads the value of HEARTBEAT_URL: a URL, with interval=1m or fail=off and a space in front of it if wanted. The
// error has no part of the URL.
func Parse(text string) (*Target, error) {
	t := &Target{Interval: defaultInterval, fails: true}
	text = strings.TrimSpace(text)
	space := strings.LastIndexByte(text, ' ')
	for option := range strings.FieldsSeq(text[:space+1]) {
		name, value, _ := strings.Cut(option, "=")
		interval, err := time.ParseDuration(value)

		switch {
		case option == "fail=off":
			t.fails = false
		case name == "fail":
			return nil, errors.New("has an invalid fail: must be off, or be left out")
		case name != "interval":
			return nil, errors.New("must be a URL, optionally preceded by interval=… or fail=off and a space")
		case err != nil || interval < minInterval || interval > maxInterval:
			return nil, fmt.Errorf("has an invalid interval: must be %v to %v, such as interval=1m", minInterval, maxInterval)
		default:
			t.Interval = interval
		}
	}

	var err error
	t.url, err = url.Parse(text[space+1:])
	switch {
	case err != nil:
		return nil, errors.New("is not a URL")
	case strings.HasPrefix(t.url.Scheme, "alertmanager+"):
		return nil, errors.New("cannot be Alertmanager any more: the rules in deploy/prometheus/alerts.yaml watch replicas for it")
	case t.url.Scheme != "http" && t.url.Scheme != "https" || t.url.Hostname() == "":
		return nil, errors.New("must be a URL that begins with https:// or http://")
	}

	if err := notify.CheckURL(t.url, t.url.EscapedPath()+t.url.RawQuery+t.url.Fragment); err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}

	switch { // the services do not say themselves who they are
	case strings.Contains(t.url.Path, "/api/push/"):
		t.push = kuma
	case strings.HasSuffix(t.url.Hostname(), "cronitor.link"):
		t.push = cronitor
	}

	return t, nil
}

// message returns the call that says that all is well, or why it is not.
func (t *Target) message(why string) httppost.Message {
	m := httppost.Message{What: "heartbeat", ContentType: "text/plain; charset=utf-8", Body: []byte(why)}
	u := *t.url
	u.User = nil

	switch {
	case t.push != nil:
		m.Method, m.Body = http.MethodGet, nil
		state, message := t.push.good, "OK"
		if why != "" {
			state, message = t.push.bad, why
		}

		query := u.Query()
		query.Set(t.push.state, state)
		query.Set(t.push.message, message)
		u.RawQuery = query.Encode()

	case why != "":
		u = *u.JoinPath("fail")
	}

	m.URL = u.String()

	return m
}

// A Call is one that was made.
type Call struct {
	At  time.Time
	Why string // why no alert would go out; empty if it would
	Err string // why the call failed; empty if the service accepted it
}

// A Heartbeat makes the calls of one replica. All of its fields are required, but Transport. Run may be called once.
type Heartbeat struct {
	Target *Target

	// Leading reports whether this replica makes the calls.
	Leading func() bool
	// Check returns why an alert would not go out, empty if it would, within some seconds.
	Check func(context.Context) string
	// Made is called after each call.
	Made func(Call)

	Log       *zap.Logger
	Transport http.RoundTripper // instead of the built-in one, for tests

	client *httppost.Client // made by Run
}

// Run calls the service, while this replica leads, until ctx ends: at every interval, and as soon as what
// there is to say has changed. A call that fails is repeated sooner. A failure must last for a
// moment before it is reported, and until then nothing is.
func (h *Heartbeat) Run(ctx context.Context) {
	// Parse has checked the URL.
	h.client, _ = httppost.New(h.Target.url, httppost.Options{Setting: "HEARTBEAT_URL", Transport: h.Transport})
	defer h.client.Close()

	tick := time.NewTicker(h.Target.every())
	defer tick.Stop()

	var bad time.Time // since when no alert would go out; zero if all would
	var said Call     // the last one
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}

		if !h.Leading() {
			bad, said = time.Time{}, Call{}
			continue
		}

		why := h.Check(ctx)
		if ctx.Err() != nil {
			return
		}

		now := time.Now()
		switch {
		case why == "":
			bad = time.Time{}
		case bad.IsZero():
			bad = now
		}

		pause := h.Target.Interval
		if (why != "") != (said.Why != "") || said.Err != "" { // it is news, or has to be repeated
			pause = h.Target.every()
		}

		mayFail := h.Target.fails && now.Sub(bad) >= min(grace, h.Target.Interval/4)
		if (why == "" || mayFail) && now.Sub(said.At) >= pause-h.Target.every()/10 {
			said = h.report(ctx, said, Call{At: now, Why: why})
		}
	}
}

// every returns how often Check is asked.
func (t *Target) every() time.Duration { return min(look, t.Interval/4) }

// report makes a call after said, and returns it with its result. It logs that if it is news.
func (h *Heartbeat) report(ctx context.Context, said, c Call) Call {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := h.client.Post(calling, h.Target.message(humanize.Cut(c.Why, maxReason))); err != nil {
		c.Err = err.Error()
	}

	h.Made(c)

	switch {
	case (said.Err == "") == (c.Err == ""):
	case c.Err == "":
		h.Log.Info("heartbeat accepted again")
	default:
		h.Log.Warn("heartbeat not accepted; trying again", zap.String("error", c.Err))
	}

	switch {
	case (said.Why == "") == (c.Why == ""):
	case c.Why == "":
		h.Log.Info("heartbeat reports success again")
	default:
		h.Log.Warn("heartbeat reports a failure: an alert would not go out", zap.String("why", c.Why))
	}

	return c
}
