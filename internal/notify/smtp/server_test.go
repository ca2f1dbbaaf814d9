package smtp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	gosmtp "github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"alertworker/internal/lab/nettest"
	"alertworker/internal/notify/smtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	host     = "localhost" // as in the certificate
	user     = "alerts-us3r"
	password = "pa55:w0rd/secret"

	waitLimit = 30 * time.Second // for what should be there at once
)

// A server is a mail server that takes mails, unless its functions say otherwise.
type server struct {
	port   string
	client *tls.Config // for those who trust it

	// What it does; set before it is used. Nil takes everything.
	auth func(mechanism, user, password string) error
	mail func(from string) error
	rcpt func(to string) error
	data func(c *gosmtp.Conn) error // after the mail has come

	mu       sync.Mutex
	taken    []received
	sessions int
}

// A received mail is one that was taken.
type received struct {
	from string
	to   []string
	raw  []byte
}

// A kind of server says how connections to it are encrypted, and whether clients sign in.
type kind struct {
	implicit, starttls, signIn bool
	mechanisms                 []string
}

var (
	startTLS = kind{starttls: true, signIn: true, mechanisms: []string{sasl.Plain, sasl.Login}}
	implicit = kind{implicit: true, signIn: true, mechanisms: []string{sasl.Plain}}
	open     = kind{}
)

func newServer(t *testing.T, k kind) *server {
	t.Helper()
	certificates := nettest.NewCertificates(t, host)
	s := &server{client: certificates.Client}
	real := gosmtp.NewServer(gosmtp.BackendFunc(func(c *gosmtp.Conn) (gosmtp.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions++
		session := session{server: s, conn: c}
		if k.signIn {
			return &signingIn{session, k.mechanisms, false}, nil
		}
		return &session, nil
	}))
	real.Domain = host
	real.ErrorLog = discard{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	if k.starttls {
		real.TLSConfig = certificates.Server
	}
	if k.implicit {
		l = tls.NewListener(l, certificates.Server)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = real.Serve(l)
	}()
	t.Cleanup(func() {
		_ = l.Close() // if it is not served yet
		_ = real.Close()
		<-done
		eventually(t, "all sessions to end", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.sessions == 0
		})
	})
	return s
}

type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}

// url returns what stands in NOTIFY_URLS for the server.
func (s *server) url(k kind) string {
	raw := "smtp://"
	if k.implicit {
		raw = "smtps://"
	}
	if k.signIn {
		raw += url.UserPassword(user, password).String() + "@"
	}
	raw += host + ":" + s.port + "/?from=alerts@example.com&to=ops@example.com"
	if !k.implicit && !k.starttls {
		raw += "&starttls=off"
	}
	return raw
}

// secrets is what must not be seen of it, in every spelling.
var secrets = []string{
	user, password, "pa55%3Aw0rd%2Fsecret",
	"YWxlcnRzLXVzM3I=",                         // user
	"cGE1NTp3MHJkL3NlY3JldA==",                 // password
	"AGFsZXJ0cy11czNyAHBhNTU6dzByZC9zZWNyZXQ=", // both, as PLAIN sends them
}

func newMail(t *testing.T, raw string, opts smtp.Options) *smtp.Mail {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	m, err := smtp.New(u, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// notifier returns a Mail for the server.
func (s *server) notifier(t *testing.T, k kind) *smtp.Mail {
	return newMail(t, s.url(k), smtp.Options{TLS: s.client})
}

// mails returns what was taken.
func (s *server) mails() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.taken...)
}

type session struct {
	server *server
	conn   *gosmtp.Conn
	mail   received
}

func (s *session) Reset() { s.mail = received{} }

func (s *session) Logout() error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.sessions--
	return nil
}

func (s *session) Mail(from string, _ *gosmtp.MailOptions) error {
	s.mail.from = from
	if s.server.mail != nil {
		return s.server.mail(from)
	}
	return nil
}

func (s *session) Rcpt(to string, _ *gosmtp.RcptOptions) error {
	if s.server.rcpt != nil {
		if err := s.server.rcpt(to); err != nil {
			return err
		}
	}
	s.mail.to = append(s.mail.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	var err error
	if s.mail.raw, err = io.ReadAll(r); err != nil {
		return err
	}
	if s.server.data != nil {
		if err := s.server.data(s.conn); err != nil {
			return err
		}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.taken = append(s.server.taken, s.mail)
	return nil
}

// A signingIn session requires user and password.
type signingIn struct {
	session
	mechanisms []string
	known      bool
}

func (s *signingIn) AuthMechanisms() []string { return s.mechanisms }

func (s *signingIn) Auth(mechanism string) (sasl.Server, error) {
	check := func(u, p string) error {
		if s.server.auth != nil {
			err := s.server.auth(mechanism, u, p)
			s.known = err == nil
			return err
		}
		if u != user || p != password {
			return gosmtp.ErrAuthFailed
		}
		s.known = true
		return nil
	}
	if mechanism == "XOAUTH2" {
		return &xoauth2{check: check}, nil
	}
	if mechanism == sasl.Login {
		return &login{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, u, p string) error { return check(u, p) }), nil
}

func (s *signingIn) Mail(from string, opts *gosmtp.MailOptions) error {
	if !s.known {
		return gosmtp.ErrAuthRequired
	}
	return s.session.Mail(from, opts)
}

// xoauth2 is the server's side of XOAUTH2, which answers a refusal with an error in a challenge first.
type xoauth2 struct {
	check   func(user, password string) error
	refused error
}

func (x *xoauth2) Next(response []byte) (challenge []byte, done bool, err error) {
	if x.refused != nil {
		return nil, true, x.refused
	}
	user, rest, _ := strings.Cut(strings.TrimPrefix(string(response), "user="), "\x01auth=Bearer ")
	if x.refused = x.check(user, strings.TrimRight(rest, "\x01")); x.refused != nil {
		return []byte(`{"status":"401"}`), false, nil
	}
	return nil, true, nil
}

// login is the server's side of LOGIN, which go-sasl has no more.
type login struct {
	check func(user, password string) error
	step  int
	user  string
}

func (l *login) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

// A parsed mail is a received one as its reader sees it.
type parsed struct {
	header     mail.Header
	subject    string
	text, html string
}

// parse reads a mail the way mail programs do.
func parse(t interface {
	Helper()
	Fatalf(string, ...any)
}, raw []byte) parsed {
	t.Helper()
	for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("a line of %d bytes, or with half a line break: %q", len(line), line)
		}
		for _, c := range line {
			if c < ' ' && c != '\t' || c > '~' {
				t.Fatalf("not only printable ASCII: %q", line)
			}
		}
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	p := parsed{header: m.Header}
	if p.subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		t.Fatalf("subject %q: %v", m.Header.Get("Subject"), err)
	}
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || media != "multipart/alternative" {
		t.Fatalf("it is %q, %v", media, err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			if n != 2 {
				t.Fatalf("%d parts", n)
			}
			return p
		}
		if err != nil {
			t.Fatalf("part %d: %v\n%s", n, err, raw)
		}
		content, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			t.Fatalf("part %d: %v\n%s", n, err, raw)
		}
		body := strings.ReplaceAll(string(content), "\r\n", "\n")
		switch media := part.Header.Get("Content-Type"); media {
		case "text/plain; charset=UTF-8":
			p.text = body
		case "text/html; charset=UTF-8":
			p.html = body
		default:
			t.Fatalf("a part is %q", media)
		}
	}
}

// A stage is how far a script goes before it does what it is for.
type stage struct {
	name    string
	replies []string // the greeting, and the answers to commands
	content bool     // the last one begins the content, which is read to its end
	untaken bool
}

var stages = []stage{
	{"greeting", nil, false, true},
	{"EHLO", []string{"220 here"}, false, true},
	{"MAIL", []string{"220 here", "250 here"}, false, true},
	{"RCPT", []string{"220 here", "250 here", "250 ok"}, false, true},
	{"DATA", []string{"220 here", "250 here", "250 ok", "250 ok"}, false, true},
	{"end", []string{"220 here", "250 here", "250 ok", "250 ok", "354 go"}, true, false},
}

// play answers one connection as far as a stage, calls reached, and then waits until
// the client is gone or stop is closed. No real server gets stuck at will.
func play(t *testing.T, st stage, then func(net.Conn)) (raw string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for i, reply := range st.replies {
			if i > 0 {
				if _, err := in.ReadString('\n'); err != nil {
					return
				}
			}
			_, _ = io.WriteString(c, reply+"\r\n")
		}
		for st.content {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line == ".\r\n" {
				break
			}
		}
		if !st.content && len(st.replies) > 0 {
			_, _ = in.ReadString('\n')
		}
		then(c)
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "smtp://" + l.Addr().String() + "/?from=alerts@example.com&to=ops@example.com&starttls=off"
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("still waiting for %s", what)
			return
		}
	}
}

var errWhy = errors.New("the reason")

// within returns a context that a test ends by itself, for errWhy.
func within(t *testing.T) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(t.Context())
	return ctx, func() { cancel(errWhy) }
}
