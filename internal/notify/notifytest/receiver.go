package notifytest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/inbox"
	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
)

// A Behaviour answers one request. take answers it normally; stop is closed when the
// receiver shuts down.
type Behaviour func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{})

// Take answers normally.
func Take(w http.ResponseWriter, r *http.Request, take http.Handler, _ <-chan struct{}) {
	take.ServeHTTP(w, r)
}

// Status answers with a status, header fields given as name, value, … and a
// body that repeats the request's line and header, as debugging servers do. It takes nothing.
func Status(code int, header ...string) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ <-chan struct{}) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}

		w.WriteHeader(code)
		io.WriteString(w, "no\x00\r\n"+r.RequestURI+" ")
		r.Header.Write(w)
	}
}

// Delay waits for d before it goes on with next.
func Delay(d time.Duration, next Behaviour) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
		select {
		case <-time.After(d):
			next(w, r, take, stop)
		case <-stop:
		}
	}
}

// Hang reads the request and does not answer until the client has gone.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler, stop <-chan struct{}) {
	io.Copy(io.Discard, r.Body) // until then the server does not notice that the client goes
	select {
	case <-r.Context().Done():
	case <-stop:
	}
}

// Reset resets the connection, as a crash does.
func Reset(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ <-chan struct{}) {
	conn := hijack(w)
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// Close closes the connection without an answer.
func Close(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ <-chan struct{}) {
	hijack(w).Close()
}

// TakeThen takes the alert and then behaves like then: the answer is lost.
func TakeThen(then Behaviour) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
		take.ServeHTTP(httptest.NewRecorder(), r)
		then(w, r, take, stop)
	}
}

func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err) // only HTTP/2 cannot
	}
	return conn
}

// A Server behaves as its script says.
type Server struct {
	// URL is where it listens: http://127.0.0.1:port.
	URL string

	// Arrived receives when a request arrives, unless it is full. It has room for one.
	Arrived chan struct{}

	mu     sync.Mutex
	script []Behaviour
	always Behaviour
}

// Behave sets how the next requests are answered, one each; those after them are
// answered normally.
func (s *Server) Behave(next ...Behaviour) { s.set(next, Take) }

// BehaveAlways sets how all requests are answered from now on.
func (s *Server) BehaveAlways(b Behaviour) { s.set(nil, b) }

func (s *Server) set(script []Behaviour, always Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.always = script, always
}

func (s *Server) next() Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 {
		return s.always
	}

	b := s.script[0]
	s.script = s.script[1:]

	return b
}

// Start starts s, which is new and ends with the test. take answers normally.
func (s *Server) Start(t testing.TB, take http.Handler) {
	s.Arrived = make(chan struct{}, 1)
	s.always = Take
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.Arrived <- struct{}{}:
		default:
		}
		s.next()(w, r, take, stop)
	}))
	s.URL = srv.URL
	t.Cleanup(func() {
		close(stop)
		srv.Close()
	})
}

// A Receiver is an [inbox.Inbox] on loopback that records deliveries and misbehaves on
// demand. It is safe for concurrent use and ends with the test.
type Receiver struct {
	Server

	mu         sync.Mutex
	deliveries []inbox.Delivery
}

// NewReceiver starts a well-behaved Receiver for alerts signed with secret.
func NewReceiver(t testing.TB, secret webhook.Secret) *Receiver {
	r := &Receiver{}
	r.Start(t, inbox.New(secret, func(d inbox.Delivery) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deliveries = append(r.deliveries, d)
	}))
	return r
}

// Deliveries returns what has arrived, taken or dropped, in its order.
func (r *Receiver) Deliveries() []inbox.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]inbox.Delivery(nil), r.deliveries...)
}

// Taken returns the alerts that were taken, in their order.
func (r *Receiver) Taken() []notify.Alert {
	var taken []notify.Alert
	for _, d := range r.Deliveries() {
		if !d.Dropped {
			taken = append(taken, d.Alert)
		}
	}

	return taken
}
