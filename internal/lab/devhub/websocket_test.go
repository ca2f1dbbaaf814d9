package devhub_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"alertworker/internal/lab/devhub"
)

// HTTP is answered, and a WebSocket opened only where the services have theirs, for AMQP.
func TestWebSocketHandshake(t *testing.T) {
	t.Parallel()
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for _, test := range []struct {
		path, subprotocol string
		opens             bool
	}{
		{"/$servicebus/websocket", "amqp", true},
		{"/$servicebus/websocket/", "amqp", true},
		{"/$iothub/websocket", "AMQPWSB10", true},
		{"/elsewhere", "amqp", false},
	} {
		ws, answer, err := websocket.Dial(t.Context(), "ws://"+h.Addr()+test.path, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{test.subprotocol}})
		if (err == nil) != test.opens {
			t.Errorf("%s: %v", test.path, err)
		}
		if err != nil {
			if answer == nil || answer.StatusCode != http.StatusNotFound {
				t.Errorf("%s: answer %v", test.path, answer)
			}
			continue
		}
		if ws.Subprotocol() != test.subprotocol {
			t.Errorf("%s: subprotocol %q", test.path, ws.Subprotocol())
		}
		_ = ws.CloseNow()
	}
	answer, err := client.Get("http://" + h.Addr() + "/$servicebus/websocket")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("a request that opens no WebSocket got %s", answer.Status)
	}
}
