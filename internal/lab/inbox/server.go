package inbox

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"time"

	"alertworker/internal/notify/webhook"
)

// A Server serves an Inbox on loopback. Use Listen.
type Server struct {
	URL    string // where alerts go
	Secret string // that has to sign them: a NOTIFY_WEBHOOK_SECRET

	*Inbox
	server http.Server
	served chan error
}

// Listen starts an Inbox with a new secret. For record see New.
func Listen(record func(Delivery)) (*Server, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s := &Server{Secret: "whsec_" + base64.StdEncoding.EncodeToString(key), served: make(chan error, 1)}
	secret, err := webhook.ParseSecret(s.Secret)
	if err != nil {
		return nil, err
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for alerts: %w", err)
	}

	s.URL = "http://" + listener.Addr().String() + "/alerts"
	s.server.ReadHeaderTimeout = 10 * time.Second
	s.Inbox = New(secret, record)
	s.server.Handler = s.Inbox
	go func() { s.served <- s.server.Serve(listener) }()

	return s, nil
}

// Close ends the server and waits for it.
func (s *Server) Close() {
	_ = s.server.Close()
	<-s.served
}
