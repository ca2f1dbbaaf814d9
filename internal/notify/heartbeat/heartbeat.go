// Package heartbeat calls a monitoring service again and again while an alert would go out, and tells it
// why when none would. The service has a clock of its own: if the calls stop, it wakes somebody.
package heartbeat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify/redact"
)

const (
	defaultInterval = time.Minute
	minInterval     = time.Second
	maxInterval     = time.Hour

	look        = 5 * time.Second  // how often Check is asked, at the default interval
	grace       = 15 * time.Second // for which a failure must last, at the default interval: partitions change hands
	callTimeout = 10 * time.Second
	maxReason   = 500     // bytes that are sent
	maxAnswer   = 4 << 10 // bytes of an answer that are read
)

// A Target is where calls go.
type Target struct {
	Interval time.Duration // between two calls
	url      *url.URL
	kind     kind
	fails    bool // failures are reported; else nothing is called while they last
}

type kind int

const (
	plain        kind = iota // POST to the URL, or to the URL with /fail
	kuma                     // Uptime Kuma: GET with status=up or status=down
	cronitor                 // GET with state=complete or state=fail
	alertmanager             // an alert named Watchdog that ends soon unless it is repeated
)

// Parse reads the value of HEARTBEAT_URL: a URL, with interval=1m or fail=off and a space in front of it if wanted. The
// error has no part of the URL.
func Parse(text string) (*Target, error) {
	t := &Target{Interval: defaultInterval, fails: true}
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New("is empty")
	}

	for _, word := range words[:len(words)-1] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "interval":
			d, err := time.ParseDuration(value)
			if err != nil || d < minInterval || d > maxInterval {
				return nil, fmt.Errorf("has an invalid interval: must be %v to %v, such as interval=1m", minInterval, maxInterval)
			}
			t.Interval = d

		case "fail":
			if value != "off" {
				return nil, errors.New("has an invalid fail: must be off, or be left out")
			}
			t.fails = false

		default:
			return nil, errors.New("must be a URL, optionally preceded by interval=… or fail=off and a space")
		}
	}

	u, err := url.Parse(words[len(words)-1])
	if err != nil {
		return nil, errors.New("is not a URL")
	}

	if scheme, ok := strings.CutPrefix(u.Scheme, "alertmanager+"); ok {
		u.Scheme = scheme
		t.kind = alertmanager
		t.fails = false
		u = u.JoinPath("api/v2/alerts")
	}

	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("must be a URL that begins with https://, http:// or alertmanager+https://")
	}

	switch {
	case t.kind == alertmanager:
	case strings.Contains(u.Path, "/api/push/"):
		t.kind = kuma
	case strings.HasSuffix(u.Hostname(), "cronitor.link"):
		t.kind = cronitor
	}

	t.url = u

	return t, nil
}

// Host returns the service's host and port.
func (t *Target) Host() string { return t.url.Host }

// request returns the call that says that all has been well since then, or why it is not.
func (t *Target) request(ctx context.Context, source, why string, since time.Time) (*http.Request, error) {
	u := *t.url
	method := http.MethodPost
	body := []byte(why)
	kind := "text/plain; charset=utf-8"
	u.User = nil
	query := u.Query()
	pick := func(good, bad string) string {
		if why == "" {
			return good
		}
		return bad
	}

	switch t.kind {
	case plain:
		if why != "" {
			u = *u.JoinPath("fail")
		}

	case kuma:
		method, body = http.MethodGet, nil
		query.Set("status", pick("up", "down"))
		query.Set("msg", pick("OK", why))
		u.RawQuery = query.Encode()

	case cronitor:
		method, body = http.MethodGet, nil
		query.Set("state", pick("complete", "fail"))
		query.Set("message", pick("OK", why))
		u.RawQuery = query.Encode()

	case alertmanager:
		kind = "application/json"
		body, _ = json.Marshal([]map[string]any{{ // strings and times: cannot fail
			"labels": map[string]string{
				"alertname": "Watchdog",
				"service":   "alertworker",
				"source":    source,
				"severity":  "none",
			},
			"annotations": map[string]string{"summary": "alertworker's alerts go out: if this alert ends, they do not."},
			"startsAt":    since,
			"endsAt":      time.Now().Add(3 * t.Interval),
		}})
	}

	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL is invalid")
	}

	if user := t.url.User; user != nil {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}

	r.Header.Set("User-Agent", "alertworker")
	if len(body) > 0 {
		r.Header.Set("Content-Type", kind)
	}

	return r, nil
}

// A Call is one that was made.
type Call struct {
	At  time.Time
	Why string // why no alert would go out; empty if it would
	Err string // why the call failed; empty if the service accepted it
}

// Config says what to report. All fields are required.
type Config struct {
	Target *Target
	Source string // what is read, as shown to people

	// Leading reports whether this replica makes the calls.
	Leading func() bool
	// Check returns why an alert would not go out, empty if it would, within some seconds.
	Check func(context.Context) string
	// Made is called after each call.
	Made func(Call)

	Log *zap.Logger
}

// A Heartbeat makes the calls of one replica. Run may be called once.
type Heartbeat struct {
	Config
	client *http.Client
	redact *strings.Replacer
}

func New(c Config) *Heartbeat {
	return &Heartbeat{
		Config: c,
		client: &http.Client{
			Timeout:       callTimeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		redact: redact.New(c.Target.url, nil),
	}
}

// Run calls the service, while this replica leads, until ctx ends: at every interval, and as soon as what
// there is to say has changed. A call that fails is repeated sooner. A failure must last for a
// moment before it is reported, and until then nothing is.
func (h *Heartbeat) Run(ctx context.Context) {
	interval := h.Target.Interval
	every := min(look, interval/4)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var bad time.Time  // since when no alert would go out
	var well time.Time // since when all would
	var said Call      // in this term
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}

		if !h.Leading() {
			bad = time.Time{}
			well = time.Time{}
			said = Call{}
			continue
		}

		why := h.Check(ctx)
		if ctx.Err() != nil {
			return
		}

		now := time.Now()

		switch {
		case why == "" && well.IsZero():
			bad, well = time.Time{}, now
		case why != "" && bad.IsZero():
			bad, well = now, time.Time{}
		}

		if why != "" && (!h.Target.fails || now.Sub(bad) < min(grace, interval/4)) {
			continue
		}

		pause := interval
		if said.Err != "" || (why == "") != (said.Why == "") {
			pause = every
		}

		if !said.At.IsZero() && now.Sub(said.At) < pause-every/10 {
			continue
		}

		next := Call{At: now, Why: why}
		if err := h.call(ctx, why, well); err != nil {
			next.Err = err.Error()
		}

		h.Made(next)
		h.log(said, next)
		said = next
	}
}

// log logs what was said if it is news.
func (h *Heartbeat) log(before, now Call) {
	switch {
	case now.Err != "" && before.Err == "":
		h.Log.Warn("heartbeat not accepted; trying again", zap.String("error", now.Err))
	case now.Err == "" && before.Err != "":
		h.Log.Info("heartbeat accepted again")
	}

	switch {
	case now.Why != "" && before.Why == "":
		h.Log.Warn("heartbeat reports a failure: an alert would not go out", zap.String("why", now.Why))
	case now.Why == "" && before.Why != "":
		h.Log.Info("heartbeat reports success again")
	}
}

// call makes one call. Its error holds no secret.
func (h *Heartbeat) call(ctx context.Context, why string, since time.Time) error {
	if len(why) > maxReason {
		why = strings.ToValidUTF8(why[:maxReason], "") + "…"
	}

	r, err := h.Target.request(ctx, h.Source, why, since)
	if err != nil {
		return err
	}

	answer, err := h.client.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return fmt.Errorf("call %s: %s", h.Target.Host(), h.redact.Replace(err.Error()))
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // for the error

	if answer.StatusCode/100 != 2 {
		return fmt.Errorf(
			"call %s: answered %s: %s",
			h.Target.Host(),
			answer.Status,
			redact.Excerpt(h.redact.Replace(string(text))),
		)
	}

	return nil
}
