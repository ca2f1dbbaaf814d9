package devhub

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"alertworker/internal/telemetry/transport"
)

// Where the services have their WebSockets, and what they call AMQP there.
var (
	webSocketPaths = []string{"/$servicebus/websocket", "/$iothub/websocket"}
	subprotocols   = []string{"amqp", "AMQPWSB10"}
)

// maxRequest is far more than the request of a handshake takes, in bytes.
const maxRequest = 16 << 10

// upgrade answers the HTTP request that opens a WebSocket, and continues the connection
// in that.
func (c *conn) upgrade() error {
	// a client sends nothing more until it has the answer
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c.in, maxRequest)))
	if err != nil {
		return err
	}

	w := &response{conn: c.net, in: c.in, header: http.Header{}}

	if !slices.Contains(webSocketPaths, strings.TrimSuffix(r.URL.Path, "/")) {
		http.Error(w, "here is AMQP, also over WebSockets at "+strings.Join(webSocketPaths, " and "), http.StatusNotFound)
		return fmt.Errorf("path %q", r.URL.Path)
	}

	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: subprotocols})
	if err != nil {
		return err
	}

	if ws.Subprotocol() == "" {
		_ = ws.CloseNow()
		return errors.New("no subprotocol")
	}

	c.net.SetDeadline(time.Time{})
	stream := transport.NewConn(ws)
	stream.SetDeadline(time.Now().Add(handshakeTimeout))

	c.mu.Lock()
	defer c.mu.Unlock()

	c.net, c.in = stream, bufio.NewReaderSize(stream, c.in.Size())

	return nil
}

// A response is an [http.ResponseWriter] for the only answer on a connection.
type response struct {
	conn   net.Conn
	in     *bufio.Reader
	header http.Header
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	_, _ = fmt.Fprintf(w.conn, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = w.header.Write(w.conn)
	_, _ = w.conn.Write([]byte("\r\n"))
}

func (w *response) Write(b []byte) (int, error) { return w.conn.Write(b) }

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(w.in, bufio.NewWriter(w.conn)), nil
}
