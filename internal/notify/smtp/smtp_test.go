package smtp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	gosmtp "github.com/emersion/go-smtp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/smtp"
	"alertworker/internal/notify/wording"
)

func TestContract(t *testing.T) {
	for name, k := range map[string]kind{
		"STARTTLS": startTLS, "TLS": implicit, "no TLS": open,
		"LOGIN": {starttls: true, signIn: true, mechanisms: []string{sasl.Login}},
	} {
		t.Run(name, func(t *testing.T) {
			notifytest.Run(t, func(t *testing.T) (notify.Notifier, func() int) {
				s := newServer(t, k)
				return s.notifier(t, k), func() int { return len(s.mails()) }
			})
		})
	}
}

// What arrives: an alert, the same alert in a second attempt, and that the device is normal again.
func TestWhatArrives(t *testing.T) {
	s := newServer(t, startTLS)
	m := s.notifier(t, startTLS)
	alert := notifytest.Alert(1)
	alert.Device = "Öl<kessel>"
	well := notifytest.Alert(2)
	well.Device, well.Resolved, well.Temperature = alert.Device, true, 71
	for _, a := range []notify.Alert{alert, alert, well} {
		if err := m.Notify(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	got := s.mails()
	if len(got) != 3 {
		t.Fatalf("%d mails, want 3", len(got))
	}
	var mails []parsed
	for _, g := range got {
		if g.from != "alerts@example.com" || !slices.Equal(g.to, []string{"ops@example.com"}) {
			t.Errorf("from %q to %q", g.from, g.to)
		}
		mails = append(mails, parse(t, g.raw))
	}
	first, repeated, resolved := mails[0], mails[1], mails[2]
	for name, want := range map[string]string{
		"From": "<alerts@example.com>", "To": "<ops@example.com>",
		"Auto-Submitted": "auto-generated", "Importance": "high",
	} {
		if got := first.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if at, err := first.header.Date(); err != nil || time.Since(at).Abs() > time.Hour {
		t.Errorf("date %v, %v", at, err)
	}
	if first.subject != "Öl<kessel>: temperature" {
		t.Errorf("subject %q", first.subject)
	}
	for _, want := range []string{wording.Style{}.Message(alert) + "\n", "Device                Öl<kessel>\n", "Value                 91.5\n", "Suppressed            3 readings since the last alert\n"} {
		if !strings.Contains(first.text, want) {
			t.Errorf("the text lacks %q:\n%s", want, first.text)
		}
	}
	if !strings.Contains(first.html, "<td>Öl&lt;kessel&gt;</td>") || strings.Contains(first.html, "<kessel>") {
		t.Errorf("the page is\n%s", first.html)
	}
	if repeated.header.Get("Message-Id") != first.header.Get("Message-Id") {
		t.Error("the second attempt has another Message-ID")
	}
	if resolved.header.Get("Message-Id") == first.header.Get("Message-Id") || resolved.header.Get("References") != first.header.Get("References") {
		t.Error("that the device is normal again must be another mail of the same conversation")
	}
	if resolved.subject != first.subject || resolved.header.Get("Importance") != "" {
		t.Errorf("subject %q, importance %q", resolved.subject, resolved.header.Get("Importance"))
	}
}

// A mail leads to the status page.
func TestLink(t *testing.T) {
	s := newServer(t, startTLS)
	m := newMail(t, s.url(startTLS), smtp.Options{TLS: s.client, Style: wording.Style{Page: "https://alerts.example.com/?a=1&b=2"}})
	if err := m.Notify(t.Context(), notifytest.Alert(1)); err != nil {
		t.Fatal(err)
	}
	got := parse(t, s.mails()[0].raw)
	if !strings.Contains(got.text, "\nStatus page           https://alerts.example.com/?a=1&b=2&device=device-1\n") {
		t.Errorf("the text is\n%s", got.text)
	}
	if !strings.Contains(got.html, `<a href="https://alerts.example.com/?a=1&amp;b=2&amp;device=device-1">Status page</a>`) {
		t.Errorf("the page is\n%s", got.html)
	}
}

// answer is what a server says that repeats all it knows.
func answer(code int, enhanced gosmtp.EnhancedCode) error {
	return &gosmtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: "no \x07 " + strings.Join(secrets, " ")}
}

// What each answer means, and that none prints a secret.
func TestAnswers(t *testing.T) {
	none := gosmtp.NoEnhancedCode
	data := func(err error) func(*server) {
		return func(s *server) { s.data = func(*gosmtp.Conn) error { return err } }
	}
	for _, test := range []struct {
		name    string
		script  func(*server)
		refused bool
		untaken bool
		says    string
	}{
		{"signing in", func(s *server) {
			s.auth = func(string, string, string) error { return answer(535, gosmtp.EnhancedCode{5, 7, 8}) }
		}, false, true, "check user and password in NOTIFY_URLS"},
		{"signing in, for now", func(s *server) {
			s.auth = func(string, string, string) error { return answer(454, gosmtp.EnhancedCode{4, 7, 0}) }
		}, false, true, "454"},
		{"sender", func(s *server) { s.mail = func(string) error { return answer(550, gosmtp.EnhancedCode{5, 7, 60}) } }, false, true, "check from= in NOTIFY_URLS"},
		{"only recipient", func(s *server) { s.rcpt = func(string) error { return answer(550, gosmtp.EnhancedCode{5, 1, 1}) } }, false, true, "check to= in NOTIFY_URLS"},
		{"only recipient, for now", func(s *server) { s.rcpt = func(string) error { return answer(451, gosmtp.EnhancedCode{4, 7, 1}) } }, false, true, "451"},
		{"the mail", data(answer(554, none)), true, true, "rejects it for good"},
		{"the mail, unspecified", data(answer(554, gosmtp.EnhancedCode{5, 0, 0})), true, true, "rejects it for good"},
		{"content", data(answer(554, gosmtp.EnhancedCode{5, 6, 0})), true, true, "rejects it for good"},
		{"unwanted", data(answer(550, gosmtp.EnhancedCode{5, 7, 1})), true, true, "rejects it for good"},
		{"size", data(answer(552, gosmtp.EnhancedCode{5, 3, 4})), true, true, "rejects it for good"},
		{"may not send as", data(answer(554, gosmtp.EnhancedCode{5, 2, 252})), false, true, "check NOTIFY_URLS and the server"},
		{"quota", data(answer(550, gosmtp.EnhancedCode{5, 7, 708})), false, true, "check NOTIFY_URLS and the server"},
		{"the mail, for now", data(answer(451, gosmtp.EnhancedCode{4, 3, 0})), false, true, "451"},
		{"too many connections", data(answer(421, gosmtp.EnhancedCode{4, 3, 2})), false, true, "421"},
		{"lost after the mail", func(s *server) {
			s.data = func(c *gosmtp.Conn) error { _ = c.Conn().Close(); return nil }
		}, false, false, "no answer to the mail"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, startTLS)
			test.script(s)
			m := s.notifier(t, startTLS)
			err := m.Notify(t.Context(), notifytest.Alert(1))
			var e *notify.Error
			if !errors.As(err, &e) {
				t.Fatalf("%T %v is no *notify.Error", err, err)
			}
			t.Log(err)
			if e.Refused != test.refused || e.Untaken != test.untaken || !strings.Contains(err.Error(), test.says) {
				t.Errorf("refused %v, untaken %v: %v; want %v, %v, %q", e.Refused, e.Untaken, err, test.refused, test.untaken, test.says)
			}
			if !strings.HasPrefix(err.Error(), "mail alert by smtp://localhost:"+s.port+": ") || strings.ContainsAny(err.Error(), "\r\n\x07") {
				t.Errorf("error %q", err)
			}
			notifytest.HoldsNoSecret(t, secrets, m, err)
		})
	}
}

// A yes is a yes, whatever comes after it or with it.
func TestTakenIsTaken(t *testing.T) {
	for name, last := range map[string]string{"251": "251 forwarded", "250, and gone": "250 ok", "250, and silence": "250 ok"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMail(t, play(t, stages[len(stages)-1], func(c net.Conn) {
				_, _ = io.WriteString(c, last+"\r\n")
				if name != "250, and gone" {
					_, _ = io.Copy(io.Discard, c)
				}
			}), smtp.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			if err := m.Notify(ctx, notifytest.Alert(1)); err != nil || ctx.Err() != nil {
				t.Errorf("Notify: %v, context %v", err, ctx.Err())
			}
		})
	}
}

// Wherever a server gets stuck or hangs up, Notify ends with its context, and knows
// whether the mail can have been taken.
func TestStages(t *testing.T) {
	for _, st := range stages {
		t.Run("stuck/"+st.name, func(t *testing.T) {
			t.Parallel()
			ctx, end := within(t)
			defer end()
			m := newMail(t, play(t, st, func(c net.Conn) {
				end()
				_, _ = io.Copy(io.Discard, c)
			}), smtp.Options{})
			err := m.Notify(ctx, notifytest.Alert(1))
			if !errors.Is(err, errWhy) || !errors.Is(err, context.Canceled) {
				t.Errorf("error %v does not say why the context ended", err)
			}
			if e := notify.AsError(err); e.Untaken != st.untaken || e.Refused {
				t.Errorf("untaken %v, refused %v: %v", e.Untaken, e.Refused, err)
			}
		})
		t.Run("lost/"+st.name, func(t *testing.T) {
			t.Parallel()
			m := newMail(t, play(t, st, func(net.Conn) {}), smtp.Options{})
			err := m.Notify(t.Context(), notifytest.Alert(1))
			if e := notify.AsError(err); err == nil || e.Untaken != st.untaken || e.Refused {
				t.Errorf("untaken %v, refused %v: %v", e.Untaken, e.Refused, err)
			}
		})
	}
	t.Run("stuck/TLS", func(t *testing.T) {
		t.Parallel()
		ctx, end := within(t)
		defer end()
		raw := play(t, stage{replies: []string{"220 here", "250-here\r\n250 STARTTLS", "220 go"}}, func(c net.Conn) {
			end()
			_, _ = io.Copy(io.Discard, c)
		})
		err := newMail(t, strings.TrimSuffix(raw, "&starttls=off"), smtp.Options{}).Notify(ctx, notifytest.Alert(1))
		if !errors.Is(err, errWhy) || !notify.AsError(err).Untaken {
			t.Errorf("%v: want the reason, and untaken", err)
		}
	})
	t.Run("too much", func(t *testing.T) {
		t.Parallel()
		m := newMail(t, play(t, stages[0], func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, "220-here\r\n"); err != nil {
					return
				}
			}
		}), smtp.Options{})
		if err := m.Notify(t.Context(), notifytest.Alert(1)); err == nil || !strings.Contains(err.Error(), "response too large") {
			t.Errorf("a greeting without end: %v", err)
		}
	})
}

// Who tries a mail server signs in and sends nothing.
func TestTry(t *testing.T) {
	s := newServer(t, startTLS)
	s.auth = func(_, _, got string) error {
		if got != password {
			return answer(535, gosmtp.EnhancedCode{5, 7, 8})
		}
		return nil
	}
	s.mail = func(string) error { t.Error("a mail begins"); return nil }
	for secret, want := range map[string]string{password: "", "an0ther:password": "check user and password in NOTIFY_URLS"} {
		u := url.URL{Scheme: "smtp", User: url.UserPassword(user, secret), Host: host + ":" + s.port, RawQuery: "from=a@example.com&to=b@example.com"}
		err := newMail(t, u.String(), smtp.Options{TLS: s.client}).Try(t.Context())
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("error %v, want %q", err, want)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%v holds the password", err)
		}
	}
	nobody := newMail(t, play(t, stages[0], func(net.Conn) {}), smtp.Options{})
	if err := nobody.Try(t.Context()); err == nil {
		t.Error("a server that hangs up has taken the password")
	}
}

// Nothing is sent to a server without TLS, or with another's certificate, unless it was told to.
func TestRequiresTLS(t *testing.T) {
	for name, test := range map[string]struct {
		k    kind
		url  func(*server) string
		opts func(*server) smtp.Options
		says string
	}{
		"no STARTTLS":  {kind{signIn: true, mechanisms: []string{sasl.Plain}}, func(s *server) string { return s.url(startTLS) }, nil, "does not offer STARTTLS"},
		"not trusted":  {startTLS, func(s *server) string { return s.url(startTLS) }, func(*server) smtp.Options { return smtp.Options{} }, "certificate"},
		"another name": {startTLS, func(s *server) string { return strings.Replace(s.url(startTLS), host, "127.0.0.1", 1) }, nil, "certificate"},
		"smtps there":  {open, func(s *server) string { return s.url(implicit) }, nil, "should the URL start with smtp://?"},
		"no mechanism": {kind{starttls: true, signIn: true, mechanisms: []string{"XOAUTH2"}}, func(s *server) string { return s.url(startTLS) }, nil, "no way to sign in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, test.k)
			s.auth = func(string, string, string) error { t.Error("signed in"); return nil }
			opts := smtp.Options{TLS: s.client}
			if test.opts != nil {
				opts = test.opts(s)
			}
			m := newMail(t, test.url(s), opts)
			err := m.Notify(t.Context(), notifytest.Alert(1))
			if err == nil || !strings.Contains(err.Error(), test.says) || !notify.AsError(err).Untaken {
				t.Errorf("%v: want %q, and untaken", err, test.says)
			}
			notifytest.HoldsNoSecret(t, secrets, m, err)
			if n := len(s.mails()); n != 0 {
				t.Errorf("%d mails", n)
			}
		})
	}
}

// Each recipient is settled by himself: who has taken an alert does not get it again, who is refused for now is tried again
// alone, and who is refused for good is left for a dead letter.
func TestRecipients(t *testing.T) {
	s := newServer(t, startTLS)
	busy := map[string]bool{"busy@example.com": true, "boss@example.com": true}
	s.rcpt = func(to string) error {
		switch {
		case to == "gone@example.com":
			return answer(550, gosmtp.EnhancedCode{5, 1, 1})
		case busy[to]:
			return answer(450, gosmtp.EnhancedCode{4, 2, 0})
		}
		return nil
	}
	logged, logs := observer.New(zap.InfoLevel)
	m := newMail(t, s.url(startTLS)+"&to=gone@example.com%2C%20busy@example.com&to=Boss%20<boss@example.com>", smtp.Options{TLS: s.client, Log: zap.New(logged)})
	first, second := notifytest.Alert(1), notifytest.Alert(2)
	for _, step := range []struct {
		alerts  []notify.Alert
		free    string // a recipient whom the server accepts from now on
		to      string // of the mails that it takes
		left    string
		refused bool
	}{
		{[]notify.Alert{first}, "", "ops", "busy@example.com,boss@example.com", false},
		{[]notify.Alert{first}, "", "", "busy@example.com,boss@example.com", false},
		{[]notify.Alert{first}, "boss@example.com", "boss", "busy@example.com", false},
		{[]notify.Alert{first, second}, "", "ops+boss", "busy@example.com", false},
		{[]notify.Alert{first, second}, "busy@example.com", "busy", "gone@example.com", true},
		{[]notify.Alert{first, second}, "", "", "gone@example.com", true}, // the dead letter could not be written
		{[]notify.Alert{notifytest.Alert(3)}, "", "ops+busy+boss", "gone@example.com", true},
	} {
		delete(busy, step.free)
		before := len(s.mails())
		err := m.Notify(t.Context(), step.alerts...)
		e := notify.AsError(err)
		var to []string
		for _, mail := range s.mails()[before:] {
			to = append(to, strings.ReplaceAll(strings.Join(mail.to, "+"), "@example.com", ""))
			if all := parse(t, mail.raw).header.Get("To"); !strings.Contains(all, `"Boss" <boss@example.com>`) || !strings.Contains(all, "gone@example.com") {
				t.Errorf("to %q", all)
			}
		}
		if strings.Join(to, " ") != step.to || err == nil || e.Left != step.left || e.Refused != step.refused || e.Untaken || e.Limited {
			t.Errorf("%+v: mails to %q, left %q, refused %t: %v", step.free, to, e.Left, e.Refused, err)
		}
		notifytest.HoldsNoSecret(t, secrets, m, err)
	}
	if ids := s.mails(); parse(t, ids[0].raw).header.Get("Message-Id") != parse(t, ids[1].raw).header.Get("Message-Id") {
		t.Error("another recipient gets the alert under another Message-ID")
	}
	var said string
	for _, entry := range logs.All() {
		said += fmt.Sprintln(entry.Message, entry.ContextMap())
	}
	if logs.Len() != 2 || !strings.Contains(said, "busy@example.com: 450") || !strings.Contains(said, "boss@example.com: 450") {
		t.Errorf("logged %s", said)
	}
	for _, secret := range secrets {
		if strings.Contains(said, secret) {
			t.Errorf("the secret %q is in %s", secret, said)
		}
	}
}

// A dead letter for some recipients goes to them alone, and to nobody if they are no recipients any more.
func TestLetterForRecipients(t *testing.T) {
	s := newServer(t, startTLS)
	m := newMail(t, s.url(startTLS)+"&to=boss@example.com&to=busy@example.com", smtp.Options{TLS: s.client})
	a := notifytest.Alert(1)
	a.To = "boss@example.com,former@example.com"
	if err := m.Notify(t.Context(), a); err != nil || len(s.mails()) != 1 || !slices.Equal(s.mails()[0].to, []string{"boss@example.com"}) {
		t.Errorf("%v, %+v", err, s.mails())
	}
	a.To = "former@example.com"
	if err := m.Notify(t.Context(), a); err == nil || !notify.AsError(err).Refused || len(s.mails()) != 1 {
		t.Errorf("%v, %d mails", err, len(s.mails()))
	}
}

// Several alerts are one mail, which names every device; the same alerts are the same mail.
func TestMany(t *testing.T) {
	s := newServer(t, startTLS)
	m := newMail(t, s.url(startTLS), smtp.Options{TLS: s.client, Style: wording.Style{Page: "https://alerts.example.com/"}})
	alerts := notifytest.Many(40)
	for range 2 {
		if err := m.Notify(t.Context(), alerts...); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(alerts)
	}
	first, second := parse(t, s.mails()[0].raw), parse(t, s.mails()[1].raw)
	if first.subject != "Oven too hot, critical: 16 devices at or above 80 °C, and 24 more" || first.header.Get("Message-Id") != second.header.Get("Message-Id") || first.header.Get("Importance") != "high" {
		t.Errorf("subject %q, ids %q and %q, importance %q", first.subject, first.header.Get("Message-Id"), second.header.Get("Message-Id"), first.header.Get("Importance"))
	}
	for _, a := range alerts {
		if !strings.Contains(first.text, a.Device) || !strings.Contains(first.html, a.Device) {
			t.Errorf("%s is not there:\n%s", a.Device, first.text)
		}
	}
	for _, want := range []string{"Oven too hot, critical: 16 devices at or above 80 °C\n", "oven-037              128.5 °C, at or above 80, site berlin\n", "6 more: ", "Status page           https://alerts.example.com/\n"} {
		if !strings.Contains(first.text, want) {
			t.Errorf("the text lacks %q:\n%s", want, first.text)
		}
	}
}

// The worker's identity signs in with a token, which is in no error.
func TestOAuth2(t *testing.T) {
	k := kind{starttls: true, signIn: true, mechanisms: []string{"XOAUTH2"}}
	s := newServer(t, k)
	const token = "eyJ0.T0KEN"
	var refuse error
	s.auth = func(mechanism, name, password string) error {
		if mechanism != "XOAUTH2" || name != "alerts@example.com" || password != token {
			t.Errorf("%s signs in as %q with %q", mechanism, name, password)
		}
		return refuse
	}
	var tokenErr error
	raw := strings.Replace(s.url(k), url.UserPassword(user, password).String()+"@", "alerts%40example.com@", 1) + "&auth=oauth2"
	m := newMail(t, raw, smtp.Options{TLS: s.client, Token: func(context.Context) (string, error) { return token, tokenErr }})
	if err := m.Notify(t.Context(), notifytest.Alert(1)); err != nil || len(s.mails()) != 1 {
		t.Fatalf("%v, %d mails", err, len(s.mails()))
	}
	refuse = &gosmtp.SMTPError{Code: 535, EnhancedCode: gosmtp.EnhancedCode{5, 7, 3}, Message: "Authentication unsuccessful " + token}
	err := m.Notify(t.Context(), notifytest.Alert(2))
	if e := notify.AsError(err); err == nil || !e.Untaken || e.Refused || e.Limited || !strings.Contains(err.Error(), "SMTP.SendAsApp") || !strings.Contains(err.Error(), "535") {
		t.Errorf("refused: %+v", err)
	}
	notifytest.HoldsNoSecret(t, []string{token}, m, err)
	tokenErr = errors.New("no identity here")
	if err := m.Notify(t.Context(), notifytest.Alert(3)); !errors.Is(err, tokenErr) || !notify.AsError(err).Untaken {
		t.Errorf("without a token: %v", err)
	}

	plain := newServer(t, startTLS)
	raw = strings.Replace(plain.url(startTLS), url.UserPassword(user, password).String()+"@", "alerts%40example.com@", 1) + "&auth=oauth2"
	m = newMail(t, raw, smtp.Options{TLS: plain.client, Token: func(context.Context) (string, error) { return token, nil }})
	if err := m.Notify(t.Context(), notifytest.Alert(4)); err == nil || !strings.Contains(err.Error(), "AUTH XOAUTH2") {
		t.Errorf("where it is not offered: %v", err)
	}
}

// Too much mail is no fault of an alert: all wait. Words do not say so, which may be part of a name.
func TestLimited(t *testing.T) {
	s := newServer(t, open)
	m := s.notifier(t, open)
	for _, tt := range []struct {
		code     int
		enhanced gosmtp.EnhancedCode
		text     string
		want     bool
	}{
		{432, gosmtp.EnhancedCode{4, 3, 2}, "Concurrent connections limit exceeded. Visit https://aka.ms/concurrent_sending.", true},
		{432, gosmtp.NoEnhancedCode, "Submission rate exceeded", true},
		{421, gosmtp.EnhancedCode{4, 7, 0}, "mail.example.com Error: too many connections from 192.0.2.1", true},
		{421, gosmtp.EnhancedCode{4, 7, 28}, "Our system has detected an unusual rate of mail", true},
		{450, gosmtp.EnhancedCode{4, 7, 28}, "Slow down", true},
		{451, gosmtp.EnhancedCode{4, 7, 500}, "Server busy. Please try again later", true},
		{451, gosmtp.EnhancedCode{4, 7, 650}, "The mail server has been temporarily rate limited", true},
		{454, gosmtp.NoEnhancedCode, "Throttling failure: Maximum sending rate exceeded.", true},
		{550, gosmtp.EnhancedCode{5, 4, 5}, "Daily user sending limit exceeded", true},
		{450, gosmtp.EnhancedCode{4, 7, 1}, "Try again later, greylisted", false},
		{451, gosmtp.EnhancedCode{4, 7, 5}, "No trust", false},
		{452, gosmtp.EnhancedCode{4, 2, 2}, "The recipient's mailbox is over quota", false},
		{454, gosmtp.EnhancedCode{4, 7, 0}, "Temporary authentication failure", false},
		{550, gosmtp.EnhancedCode{5, 1, 1}, "<ops@corporate.example>: Recipient address rejected: User unknown in virtual mailbox table", false},
		{550, gosmtp.EnhancedCode{5, 7, 1}, "Client host rejected: cannot find your hostname, operator@mail.example", false},
		{535, gosmtp.EnhancedCode{5, 7, 8}, "Error: authentication failed: generated by mx1", false},
		{550, gosmtp.NoEnhancedCode, "Proper authentication required. See https://mail.example/separate-accounts", false},
	} {
		s.mail = func(string) error {
			return &gosmtp.SMTPError{Code: tt.code, EnhancedCode: tt.enhanced, Message: tt.text}
		}
		if e := notify.AsError(m.Notify(t.Context(), notifytest.Alert(1))); e.Limited != tt.want || !e.Untaken {
			t.Errorf("%d %v %s: %+v", tt.code, tt.enhanced, tt.text, e)
		}
	}
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"smtp://mail.example.com/?from=a@example.com&to=b@example.com":                        "mail by smtp://mail.example.com:587",
		"smtps://u:p@mail.example.com?from=Alerts%20<a@example.com>&to=b@example.com,c@x.org": "mail by smtps://mail.example.com:465",
		"smtp://u:p@[::1]:2525/?from=a@example.com&to=b%2Bops@example.com":                    "mail by smtp://[::1]:2525",
		"smtp://relay:25/?from=a@example.com&to=b@example.com&starttls=off":                   "mail by smtp://relay:25",
	} {
		if got := fmt.Sprint(newMail(t, raw, smtp.Options{})); got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
	const rest = "?from=sender@example.com&to=rcpt@example.com"
	for raw, want := range map[string]string{
		"smtp:us3r":                                                          "there is no host",
		"smtp:///" + rest:                                                    "there is no host",
		"smtp://us3r:1/2@host-x/" + rest:                                     "there is an @ after the host",
		"smtp://host-x/path" + rest:                                          "nothing may stand between",
		"smtp://host-x/" + rest + "#us3r":                                    "a fragment",
		"smtp://host-x:0/" + rest:                                            "the port",
		"smtp://host-x:465/" + rest:                                          "write smtps://",
		"smtp://us3r@host-x/" + rest:                                         "a user needs a password",
		"smtp://:pa55@host-x/" + rest:                                        "a user needs a password",
		"smtp://us3r:pa55@host-x/" + rest + "&starttls=off":                  "in clear text",
		"smtps://host-x/" + rest + "&starttls=off":                           "leave out starttls=off",
		"smtp://host-x/" + rest + "&starttls=no":                             "can only be off",
		"smtp://host-x/" + rest + "&cc=us3r":                                 "are allowed after the ?",
		"smtp://host-x/?to=rcpt@example.com":                                 "must have one sender",
		"smtp://host-x/?from=sender@example.com":                             "must have recipients",
		"smtp://host-x/" + rest + "&from=sender@example.com":                 "must have one sender",
		"smtp://host-x/?from=us3r&to=rcpt@example.com":                       "must have one sender",
		"smtp://host-x/?from=sender@example.com&to=a+b@example.com":          "written %2B",
		"smtp://host-x/" + rest + "&to=%0d%0aRCPT":                           "must have recipients",
		"smtp://host-x/" + rest + "&to=%22a%20b%22@example.com":              "printable ASCII",
		"smtp://host-x/" + rest + "&to=b%C3%BC@example.com":                  "printable ASCII",
		"smtp://host-x/" + rest + strings.Repeat("&to=rcpt@example.com", 50): "more than 50",
		"smtp://host-x/" + rest + ";us3r":                                    "write % as %25 and ; as %3B",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = smtp.New(u, smtp.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", raw, err, want)
			continue
		}
		for _, part := range []string{"us3r", "pa55", "host-x", "sender@", "rcpt@"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q repeats %q", raw, err, part)
			}
		}
	}
}

// Whatever devices are called, a mail has these fields and no other, and says what it should.
func TestNoDeviceWritesTheHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"a\r\nBcc: x@example.com", "a\nb", "\x00", "=?utf-8?q?a?=", "<script>", "&amp;", "a\u2028b", "\xff\xfe", ".", "\r\n.\r\n", "--", strings.Repeat("é", 500), strings.Repeat("a b ", 300),
		}))
		a := notifytest.Alert(rapid.Int().Draw(t, "n"))
		a.Device, a.Level, a.Rule, a.Source = text.Draw(t, "device"), text.Draw(t, "level"), text.Draw(t, "rule"), text.Draw(t, "source")
		a.ID = text.Draw(t, "id")
		a.Temperature = rapid.Float64().Draw(t, "temperature")
		a.Resolved, a.Test, a.Ambiguous = rapid.Bool().Draw(t, "resolved"), rapid.Bool().Draw(t, "test"), rapid.Bool().Draw(t, "ambiguous")
		checkMail(t, a)
	})
}

func FuzzMail(f *testing.F) {
	f.Add("device", "id", "critical")
	f.Add("a\r\nBcc: x@example.com\r\n\r\n.\r\n", "<>@\r\n", "=?utf-8?q?a?=")
	f.Fuzz(func(t *testing.T, device, id, level string) {
		a := notifytest.Alert(1)
		a.Device, a.ID, a.Level = device, id, level
		checkMail(t, a)
	})
}

var messageIDs = regexp.MustCompile(`^<[0-9a-f]{32}@example\.com>$`)

func checkMail(t interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}, a notify.Alert) {
	t.Helper()
	raw, err := smtp.Compose(a, "Alerts <alerts@example.com>", "ops@example.com", "boss@example.com")
	if err != nil {
		t.Fatalf("%v", err)
	}
	for line := range bytes.SplitSeq(raw, []byte("\r\n")) { // RFC 5322, 2.1.1; and no server has to know 8BITMIME
		odd := bytes.ContainsFunc(line, func(r rune) bool { return r > '~' || r < ' ' && r != '\t' })
		if len(line) > 998 || odd {
			t.Errorf("a line of %d bytes: %.100q", len(line), line)
		}
	}
	got := parse(t, raw)
	known := []string{"Auto-Submitted", "Content-Type", "Date", "From", "Importance", "Message-Id", "Mime-Version", "Priority", "References", "Subject", "To", "X-Auto-Response-Suppress", "X-Msmail-Priority", "X-Priority"}
	for name, values := range got.header {
		if !slices.Contains(known, name) || len(values) != 1 {
			t.Errorf("the header has %s: %q", name, values)
		}
	}
	if to, err := got.header.AddressList("To"); err != nil || len(to) != 2 || got.header.Get("From") != `"Alerts" <alerts@example.com>` {
		t.Errorf("from %q to %v, %v", got.header.Get("From"), to, err)
	}
	if want := strings.ReplaceAll(strings.Join(strings.Fields(wording.Subject(a)), " "), "=?", "= ?"); got.subject != want {
		t.Errorf("subject %q, want %q", got.subject, want)
	}
	if !messageIDs.MatchString(got.header.Get("Message-Id")) {
		t.Errorf("Message-ID %q", got.header.Get("Message-Id"))
	}
	for _, tag := range tags.FindAllString(got.html, -1) {
		if !slices.Contains(pageTags, tag) {
			t.Errorf("the page has a tag %s", tag)
		}
	}
	text := html.UnescapeString(tags.ReplaceAllString(got.html, "\n"))
	for _, f := range (wording.Style{}).Facts(a) {
		if !strings.Contains(text, "\n"+f.Name+"\n\n"+f.Value+"\n") {
			t.Errorf("the page does not say that %s is %q:\n%s", f.Name, f.Value, got.html)
		}
	}
}

var (
	tags     = regexp.MustCompile(`<[^>]*>?`)
	pageTags = []string{
		"<!DOCTYPE html>", `<html lang="en">`, "<head>", `<meta charset="utf-8">`, "<title>", "</title>", "</head>", `<body style="font-family: sans-serif; color: #222">`,
		`<p style="font-size: 1.2em">`, "<strong>", "</strong>", "</p>", `<table style="border-collapse: collapse">`,
		"<tr>", `<td style="padding: 0.1em 1.5em 0.1em 0; color: #666">`, "</td>", "<td>", "</tr>", "</table>", "</body>", "</html>",
	}
)

// An alert, its reminders and its resolved are one conversation, and no other alarm's.
func TestConversations(t *testing.T) {
	notifytest.RunAlarm(t, func(a notify.Alert) string {
		a.ID = "id"
		raw, err := smtp.Compose(a, "alerts@example.com", "ops@example.com")
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, raw).header.Get("References")
	})
}
