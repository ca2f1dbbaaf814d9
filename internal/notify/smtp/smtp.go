// Package smtp mails alerts and summaries by way of a mail server.
//
// # What an alert's fate is
//
// A mail has one Message-ID in every attempt, so that a mailbox can drop the second copy.
// The server takes it with a 2xx answer to its end. Until that end is sent, nothing can have
// been taken; what happens between then and the answer is not known.
//
// Only an answer to the whole mail can refuse it for good. Refused credentials, senders
// and recipients are settings that somebody will mend, and no reason to throw alerts
// away.
package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/redact"
	"alertworker/internal/notify/wording"
)

const (
	// Connections is how many calls, each on one connection, a server takes at a time: as many as Exchange
	// Online allows. The caller sees to it.
	Connections = 3

	maxRecipients = 50        // of a mail
	maxAnswers    = 256 << 10 // bytes that are read of a connection, all answers together
	quitTimeout   = time.Second
)

// Options are what a Mail has besides its URL. The zero value is usable.
type Options struct {
	Style wording.Style
	Log   *zap.Logger        // for recipients who are refused for now while others are not; nil for none
	Token notify.TokenSource // for URLs with auth=oauth2; required if there are any
	TLS   *tls.Config        // instead of the system's certificates, for tests
}

// A Mail is a [notify.Notifier] that sends mails from one address to
// one or more. Each mail has a connection of its own.
//
// A mail goes to all recipients at once, and each is settled by himself: who has taken an alert does not get it again
// while this Mail lasts, whom the server refuses for now is tried again alone, and whom it refuses for good, or for
// longer than [patience], is in the error as [notify.Error.Left], for a dead letter.
//
// Errors and the Mail itself print as scheme, host and port. User and password are left
// out, even if the server repeats them.
type Mail struct {
	site     string // smtp://host:port
	host     string
	address  string // host:port
	user     *url.Userinfo
	from     *mail.Address
	to       []*mail.Address
	tls      *tls.Config
	implicit bool // TLS from the beginning
	starttls bool
	redact   *strings.Replacer
	style    wording.Style
	token    notify.TokenSource // nil unless it is used to sign in
	who      recipients
	log      *zap.Logger
}

// New returns a Mail for a URL:
//
//	smtp://USER:PASSWORD@HOST:PORT/?from=ADDRESS&to=ADDRESS&to=ADDRESS
//	smtps://…
//
// The first begins without TLS and requires STARTTLS, unless the query has
// starttls=off; the second begins with TLS. The usual ports are 587 and 465. Without a
// user nobody signs in. New connects to nothing. Its errors hold no part of u but the
// names in its query.
func New(u *url.URL, opts Options) (*Mail, error) {
	if err := notify.CheckURL(u, u.EscapedPath()+u.Fragment); err != nil {
		return nil, err
	}

	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("what follows the ? cannot be read: write % as %25 and ; as %3B")
	}

	from, noFrom := mail.ParseAddress(strings.Join(query["from"], ", "))
	to, noTo := mail.ParseAddressList(strings.Join(query["to"], ", ")) // each value has one or several
	starttls, auth := query.Get("starttls"), query.Get("auth")
	for _, name := range []string{"from", "to", "starttls", "auth"} {
		delete(query, name)
	}

	implicit, oauth2 := u.Scheme == "smtps", auth == "oauth2"
	password, _ := u.User.Password()
	name := u.User.Username()
	hasName, hasPassword := name != "", password != ""
	isUnusual := func(a *mail.Address) bool { return a != nil && !usual.MatchString(a.Address) }
	for _, mistake := range []struct {
		is   bool
		what string
	}{
		{strings.Trim(u.Path, "/") != "", "nothing may stand between host and ?from=…&to=…"},
		{!implicit && u.Port() == "465", "port 465 uses implicit TLS: write smtps://"},
		{len(query) > 0, "only from=, to=, starttls=off and auth=oauth2 are allowed after the ?"},
		{starttls != "" && starttls != "off", "starttls can only be off; without it STARTTLS is required"},
		{implicit && starttls != "", "smtps:// uses implicit TLS: leave out starttls=off, or write smtp://"},
		{auth != "" && !oauth2, "auth can only be oauth2; without it user and password sign in"},
		{noFrom != nil, "must have one sender, such as ?from=alerts@example.com; a + in it is written %2B"},
		{noTo != nil, "must have recipients, such as &to=ops@example.com; a + in it is written %2B, and further ones are added with &to=…"},
		{len(to) > maxRecipients, fmt.Sprintf("there are more than %d recipients: use a mailing list", maxRecipients)},
		{slices.ContainsFunc(append(to, from), isUnusual), "an address may hold only printable ASCII characters, and no spaces"},
		{oauth2 && (!hasName || hasPassword), "auth=oauth2 signs in with the worker's Azure identity: must have the mailbox as a user, " +
			"without a password, as in smtp://alerts%40example.com@smtp.office365.com/?auth=oauth2&…"},
		{!oauth2 && hasName != hasPassword, "a user needs a password, and a password a user"},
		{u.User != nil && starttls == "off", "with starttls=off the password would be sent in clear text: leave out one of them"},
	} {
		if mistake.is {
			return nil, errors.New(mistake.what)
		}
	}

	encode := base64.StdEncoding.EncodeToString
	// user and password, as SMTP sends them
	signIn := []string{encode([]byte(name)), encode([]byte(password)), encode([]byte("\x00" + name + "\x00" + password))}

	port := map[bool]string{false: "587", true: "465"}[implicit]
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	m := &Mail{
		host:     u.Hostname(),
		address:  address,
		site:     u.Scheme + "://" + address,
		user:     u.User,
		from:     from,
		to:       to,
		implicit: implicit,
		starttls: !implicit && starttls == "",
		tls:      cmp.Or(opts.TLS, &tls.Config{}).Clone(),
		redact:   redact.New(&url.URL{User: u.User}, signIn),
		style:    opts.Style,
		log:      cmp.Or(opts.Log, zap.NewNop()),
		who:      recipients{taken: map[string]*taking{}, failing: map[string]time.Time{}},
	}

	m.tls.ServerName = m.host
	if oauth2 {
		m.token = opts.Token
	}

	return m, nil
}

// UsesToken reports whether the mail server at u is signed in to with an Azure identity.
func UsesToken(u *url.URL) bool { return u.Query().Get("auth") == "oauth2" }

// usual is an address that every mail server takes: printable ASCII characters, and no < and >.
var usual = regexp.MustCompile(`^[!-;=?-~]*$`)

// Format prints scheme, host and port, whatever the verb.
func (m *Mail) Format(f fmt.State, _ rune) { io.WriteString(f, "mail by "+m.site) }

// Notify mails all of alerts in one, as far as its recipients have not taken them before.
func (m *Mail) Notify(ctx context.Context, alerts ...notify.Alert) error {
	for _, a := range alerts {
		if !slices.ContainsFunc(m.to, func(one *mail.Address) bool { return isFor(a, one) }) {
			err := fmt.Errorf("it is for %s, who is not a recipient any more", a.To)
			return m.explain(ctx, "mail alert by", &notify.Error{Refused: true, Untaken: true, Err: err})
		}
	}

	var left []refusal
	var all []string // addresses of those who are left
	var errs []error
	for _, p := range m.who.parts(m.to, alerts) {
		refused, e := m.send(ctx, p)
		if e != nil {
			return m.explain(ctx, "mail alert by", e)
		}

		for _, one := range refused {
			left = append(left, one)
			all = append(all, one.to.Address)
			errs = append(errs, fmt.Errorf("%s: %w", one.to.Address, one.err))
		}
	}

	if len(left) == 0 {
		m.who.settled(alerts)
		return nil
	}

	why := errors.Join(errs...)
	if !m.who.some(alerts) {
		if i := slices.IndexFunc(left, func(one refusal) bool { return one.whole != nil }); i >= 0 {
			return m.explain(ctx, "mail alert by", left[i].whole)
		}
		err := fmt.Errorf("all recipients were rejected: check to= in NOTIFY_URLS: %w", why)
		return m.explain(ctx, "mail alert by", &notify.Error{Untaken: true, Limited: limits(err), Err: err})
	}

	var waiting []string // addresses of those who are to be tried again
	for _, one := range left {
		if one.now && m.waits(one) {
			waiting = append(waiting, one.to.Address)
		}
	}

	e := &notify.Error{Left: strings.Join(waiting, ",")}
	if len(waiting) == 0 { // all who are left are refused for good, which settles them
		e.Refused, e.Left = true, strings.Join(all, ",")
	}

	e.Err = fmt.Errorf("not accepted for %d of its recipients: check to= in NOTIFY_URLS: %w", len(left), why)

	return m.explain(ctx, "mail alert by", e)
}

// A refusal is an answer about the mail of one recipient.
type refusal struct {
	to  *mail.Address
	err error
	now bool // he is to be tried again
	// what the answer means if it is about the content, and nobody has the alerts; nil if it is about the recipient
	whole *notify.Error
}

// waits reports whether a recipient whom the server refuses for now is still waited for.
func (m *Mail) waits(r refusal) bool {
	first, waits := m.who.waits(r.to.Address)
	if first {
		m.log.Warn(
			"mail server rejects a recipient for now: the others have the mail, and this one is tried again",
			zap.String("server", m.site),
			zap.String("reason", m.clean(fmt.Errorf("%s: %w", r.to.Address, r.err))),
		)
	}

	return waits
}

// send makes one attempt at a part. It returns the recipients for whom the server does not take it, and an error if it says
// nothing of them. RFC 5321, 4.2.1 has 4yz for what may succeed later.
func (m *Mail) send(ctx context.Context, p part) (refused []refusal, e *notify.Error) {
	message, err := compose(m.style, m.from, m.to, p.alerts...)
	if err != nil {
		return nil, &notify.Error{Refused: true, Untaken: true, Err: err}
	}

	var accepted []*mail.Address
	err = m.session(ctx, func(client *smtp.Client) error {
		if err := client.Mail(path(m.from)); err != nil {
			return fmt.Errorf("the sender was rejected: check from= in NOTIFY_URLS: %w", err)
		}

		for _, one := range p.to {
			err := client.Rcpt(path(one))
			answer, isAnswer := errors.AsType[*textproto.Error](err)

			switch {
			case err == nil:
				accepted = append(accepted, one)
			case isAnswer:
				refused = append(refused, refusal{one, err, answer.Code/100 == 4, nil})
			default:
				return err
			}
		}

		if len(accepted) == 0 {
			return nil
		}

		content, err := client.Data()
		if err != nil {
			return fmt.Errorf("it rejected the mail's content: %w", err)
		}

		if _, err := content.Write(message); err != nil {
			return err
		}

		e = judge(content.Close())

		return nil
	})

	switch {
	case err != nil: // the end of the mail was not sent
		return nil, &notify.Error{Untaken: true, Limited: limits(err), Err: err}
	case len(accepted) == 0:
		return refused, nil
	case e == nil:
		m.who.took(p.alerts, accepted)
		return refused, nil
	case e.Limited || !answered(e.Err):
		return nil, e
	}

	for _, one := range accepted { // it is an answer to the mail of those whom the server had accepted
		refused = append(refused, refusal{one, e.Err, !e.Refused, e})
	}

	return refused, nil
}

// explain completes an error of what was attempted.
func (m *Mail) explain(ctx context.Context, what string, e *notify.Error) error {
	over := ctx.Err() != nil && !answered(e.Err)
	if text := m.clean(e.Err); text != e.Err.Error() {
		e.Err = errors.New(text)
	}

	if over {
		e.Err = fmt.Errorf("%w (%w)", notify.Ended(ctx, "not finished in time"), e.Err)
	}

	e.Err = fmt.Errorf("%s %s: %w", what, m.site, e.Err)

	return e
}

// Try is a [notify.Tryable]: it signs in, and sends no mail.
func (m *Mail) Try(ctx context.Context) error {
	if err := m.session(ctx, func(*smtp.Client) error { return nil }); err != nil {
		return m.explain(ctx, "sign in at", &notify.Error{Err: err})
	}
	return nil
}

// session connects, and calls use with a client that may send mail. It takes leave of the server then, for a second at
// most, because nothing depends on it.
func (m *Mail) session(ctx context.Context, use func(client *smtp.Client) error) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer abortAfter(ctx, conn)()

	client, err := m.connect(ctx, &bounded{conn, maxAnswers})
	if err != nil {
		return err
	}

	err = use(client)

	leaving, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	defer abortAfter(leaving, conn)()
	_ = client.Quit()

	return err
}

// connect returns a client that may send mail.
func (m *Mail) connect(ctx context.Context, conn net.Conn) (*smtp.Client, error) {
	if m.implicit {
		conn = tls.Client(conn, m.tls)
	}

	client, err := smtp.NewClient(conn, m.host)
	if errors.As(err, new(tls.RecordHeaderError)) {
		return nil, fmt.Errorf("it does not use implicit TLS: should the URL start with smtp://? %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("greeting: %w", err)
	}

	client.SkipSMTPUTF8(true) // there is nothing that needs it
	ip := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr().Unmap()
	name := "[" + ip.String() + "]" // this end of the connection may have no other
	if ip.Is6() {
		name = "[IPv6:" + ip.WithZone("").String() + "]"
	}
	if err := client.Hello(name); err != nil {
		return nil, err
	}

	if m.starttls {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return nil, errors.New(
				"it does not offer STARTTLS: for implicit TLS, write smtps://; to send alerts unencrypted, without a password, " +
					"add starttls=off",
			)
		}
		if err := client.StartTLS(m.tls); err != nil {
			return nil, fmt.Errorf("STARTTLS: %w", err)
		}
	}

	if m.user == nil {
		return client, nil
	}

	return client, m.signIn(ctx, client)
}

// signIn uses PLAIN, or LOGIN where a server offers nothing better, or XOAUTH2 with a token. The connection is
// encrypted.
func (m *Mail) signIn(ctx context.Context, client *smtp.Client) error {
	password, _ := m.user.Password()
	ways := []string{"PLAIN", "LOGIN"}
	hint, otherwise := "check user and password in NOTIFY_URLS", "with user and password (AUTH PLAIN or LOGIN)"
	token := ""
	if m.token != nil {
		var err error
		if token, err = m.token(ctx); err != nil {
			return fmt.Errorf("signing in: %w", err)
		}
		ways = []string{"XOAUTH2"}
		hint = "check that the mailbox in NOTIFY_URLS allows the worker's identity to send (SMTP.SendAsApp)"
		otherwise = "with a token (AUTH XOAUTH2): leave out auth=oauth2"
	}

	_, offered := client.Extension("AUTH")
	i := slices.IndexFunc(ways, func(way string) bool { return slices.Contains(strings.Fields(offered), way) })
	if i < 0 {
		return errors.New("it offers no way to sign in " + otherwise)
	}

	err := client.Auth(map[string]smtp.Auth{
		"PLAIN":   smtp.PlainAuth("", m.user.Username(), password, m.host, false),
		"LOGIN":   smtp.LoginAuth(m.user.Username(), password, m.host, false),
		"XOAUTH2": smtp.XOAuth2Auth(m.user.Username(), token),
	}[ways[i]])
	switch {
	case err == nil:
		return nil
	case token != "" && strings.Contains(err.Error(), token):
		err = errors.New(strings.ReplaceAll(err.Error(), token, "[redacted]"))
	}

	return fmt.Errorf("signing in: %s: %w", hint, err)
}

// path returns an address as SMTP's commands have it.
func path(a *mail.Address) string { return (&mail.Address{Address: a.Address}).String() }

// answered reports whether err is an answer of the server.
func answered(err error) bool { return errors.As(err, new(*textproto.Error)) }

// judge returns what the answer to a whole mail means, nil that it was taken.
func judge(err error) *notify.Error {
	answer, isAnswer := errors.AsType[*textproto.Error](err)
	switch {
	case err == nil, isAnswer && answer.Code/100 == 2: // the library wants 250
		return nil
	case !isAnswer:
		return &notify.Error{Err: fmt.Errorf("no answer to the mail: %w", err)}
	case answer.Code/100 == 4:
		return &notify.Error{Untaken: true, Limited: limits(err), Err: err}
	case answer.Code/100 != 5:
		return &notify.Error{Err: err}
	case aboutContent.MatchString(detail(answer)):
		return &notify.Error{Untaken: true, Refused: true, Err: fmt.Errorf("the server rejects it for good: %w", err)}
	}

	const text = "the server rejected it for reasons unrelated to its content: check NOTIFY_URLS and the server: %w"
	return &notify.Error{Untaken: true, Limited: limits(err), Err: fmt.Errorf(text, err)}
}

// limits reports whether an answer says that there is too much mail, or that there are too many connections. It goes by
// codes alone: the words are the servers' own, and have addresses in them.
func limits(err error) bool {
	answer, isAnswer := errors.AsType[*textproto.Error](err)
	return isAnswer && aboutLimits.MatchString(fmt.Sprint(answer.Code, " ", detail(answer)))
}

// aboutLimits are codes of answers, and details of any code. A server closes the connection (421); Exchange's limits (432), and
// those of Amazon SES, unless an enhanced code says that it is about signing in (454); it takes no mail at present, congestion
// (Gmail's daily limit too), a flood of mail; Exchange Online is busy, or distrusts the sender's address.
var aboutLimits = regexp.MustCompile(`^(421|432) |^454 $| (3\.2|4\.5|7\.28|7\.[56]..)$`)

// aboutContent are details of a 5yz that is about the mail, and not about sender, recipients, quotas or the server: none,
// unspecified, too large, too large, media, unwanted content.
var aboutContent = regexp.MustCompile(`^(|0\.0|2\.3|3\.4|6\..*|7\.1)$`)

// detail returns the last two numbers of an answer's enhanced status code (RFC 3463), "7.1" of 5.7.1. Most servers
// have them.
func detail(answer *textproto.Error) string {
	status, _, _ := strings.Cut(answer.Msg, " ")
	if class, detail, ok := strings.Cut(status, "."); ok && class == strconv.Itoa(answer.Code/100) {
		return detail
	}
	return ""
}

// abortAfter makes every call on conn fail once ctx ends: the library knows no context.
func abortAfter(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// clean returns the text of err as a short line without secrets, whatever the server said.
func (m *Mail) clean(err error) string { return redact.Excerpt(m.redact.Replace(err.Error())) }

// A bounded connection reads no more than left bytes.
type bounded struct {
	net.Conn
	left int
}

// Read fails once that much has been read.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("server response too large")
	}

	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n

	return n, err
}
