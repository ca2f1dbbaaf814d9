package devhub_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/frames"
)

const (
	keyName = "RootManageSharedAccessKey"
	address = "devhub/ConsumerGroups/$Default/Partitions/0"
)

func dial(t *testing.T, h *devhub.Hub, o amqp.ConnOptions) (*amqp.Conn, error) {
	t.Helper()
	scheme := "amqp"
	if o.TLSConfig != nil {
		scheme = "amqps"
	}
	c, err := amqp.Dial(t.Context(), scheme+"://"+h.Addr(), &o)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func session(t *testing.T, h *devhub.Hub, o amqp.ConnOptions) *amqp.Session {
	t.Helper()
	c, err := dial(t, h, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isCondition(err error, want amqp.ErrCond) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Condition == want
}

func TestSASL(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	for _, tt := range []struct {
		name   string
		sasl   amqp.SASLType
		signed bool // in
		trust  bool // without claims
	}{
		{"anonymous", amqp.SASLTypeAnonymous(), true, false},
		{"external", amqp.SASLTypeExternal(""), true, false},
		{"none", nil, true, false},
		{"plain", amqp.SASLTypePlain(keyName, "key"), true, true},
		{"plain, wrong key", amqp.SASLTypePlain(keyName, "kex"), false, false},
		{"plain, wrong name", amqp.SASLTypePlain("x", "key"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := dial(t, h, amqp.ConnOptions{SASLType: tt.sasl})
			if (err == nil) != tt.signed {
				t.Fatalf("signing in: %v", err)
			}
			if err != nil {
				return
			}
			s, err := c.NewSession(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for what, attach := range map[string]func() error{
				"receiver": func() error { _, err := s.NewReceiver(t.Context(), address, nil); return err },
				"sender":   func() error { _, err := s.NewSender(t.Context(), "devhub", nil); return err },
			} {
				if err := attach(); tt.trust && err != nil || !tt.trust && !isCondition(err, amqp.ErrCondUnauthorizedAccess) {
					t.Errorf("attaching a %s: %v", what, err)
				}
			}
		})
	}
}

// A claim is for one path and what is below it.
func TestClaims(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 2, Key: "key"})
	c, err := dial(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(audience, key string, expiry time.Time) int32 {
		t.Helper()
		to, err := s.NewSender(t.Context(), "$cbs", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close(t.Context())
		from, err := s.NewReceiver(t.Context(), "$cbs", &amqp.ReceiverOptions{TargetAddress: "me"})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close(t.Context())
		if err := to.Send(t.Context(), &amqp.Message{
			Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: ptr("me")},
			ApplicationProperties: map[string]any{"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience},
			Value:                 sas(audience, keyName, []byte(key), expiry),
		}, nil); err != nil {
			t.Fatal(err)
		}
		m, err := from.Receive(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Properties.CorrelationID != "1" {
			t.Errorf("correlation id %v", m.Properties.CorrelationID)
		}
		return m.ApplicationProperties["status-code"].(int32)
	}
	soon := time.Now().Add(time.Hour)
	audience := "amqp://127.0.0.1/DEVHUB/ConsumerGroups/$default/Partitions/0"
	if status := put(audience, "other", soon); status != 401 {
		t.Errorf("a token of another key: %d", status)
	}
	if status := put(audience, "key", time.Now().Add(-time.Minute)); status != 401 {
		t.Errorf("an expired token: %d", status)
	}
	if status := put("", "key", soon); status != 400 {
		t.Errorf("no audience: %d", status)
	}
	attach := func(address string) error {
		_, err := s.NewReceiver(t.Context(), address, nil)
		return err
	}
	if err := attach(address); !isCondition(err, amqp.ErrCondUnauthorizedAccess) {
		t.Errorf("before the claim: %v", err)
	}
	if status := put(audience, "key", soon); status != 202 {
		t.Errorf("a good token: %d", status)
	}
	if err := attach(address); err != nil {
		t.Errorf("after the claim: %v", err)
	}
	if err := attach(strings.TrimSuffix(address, "0") + "1"); !isCondition(err, amqp.ErrCondUnauthorizedAccess) {
		t.Errorf("another partition: %v", err)
	}
	if status := put("sb://127.0.0.1/devhub", "key", soon); status != 202 {
		t.Errorf("a token for all: %d", status)
	}
	if err := attach(strings.TrimSuffix(address, "0") + "1"); err != nil {
		t.Errorf("another partition, after a claim for all: %v", err)
	}
}

func sas(uri, keyName string, key []byte, expiry time.Time) string {
	sr, se := url.QueryEscape(uri), fmt.Sprint(expiry.Unix())
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, sr+"\n"+se)
	return "SharedAccessSignature sr=" + sr + "&sig=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))) + "&se=" + se + "&skn=" + keyName
}

func TestAddresses(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")})
	for address, want := range map[string]amqp.ErrCond{
		"devhub":                                 amqp.ErrCondNotFound,
		"":                                       amqp.ErrCondNotFound,
		"other":                                  amqp.ErrCondNotFound,
		"devhub/x/y/z/0":                         amqp.ErrCondNotFound,
		"$management/other":                      amqp.ErrCondNotFound,
		"devhub/ConsumerGroups/g/Partitions/4":   "com.microsoft:argument-out-of-range",
		"devhub/ConsumerGroups/g/Partitions/-1":  "com.microsoft:argument-out-of-range",
		strings.Repeat("x", 20_000):              amqp.ErrCondNotFound,
		"DEVHUB/consumergroups/g/PARTITIONS/3":   "",
		"/devhub/ConsumerGroups/g/Partitions/3/": "",
	} {
		_, err := s.NewReceiver(t.Context(), address, nil)
		if want == "" && err != nil || want != "" && !isCondition(err, want) {
			t.Errorf("%.40s: %v", address, err)
		}
	}
	for _, selector := range []string{"x", "amqp.annotation.x-opt-offset = '1'", "amqp.annotation.x-opt-offset > 'x'", "amqp.annotation.other > '1'", "amqp.annotation.x-opt-offset > '"} {
		_, err := s.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter(selector)}})
		if !isCondition(err, "com.microsoft:argument-error") {
			t.Errorf("%s: %v", selector, err)
		}
	}
}

// The client's frame size is kept to, also by a message of many frames.
func TestSmallFrames(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	body := strings.Repeat("0123456789", 10_000)
	publish(t, h, devhub.Message{Body: []byte(body)})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "small", MaxFrameSize: 600})
	handle := uint32(0)
	c.write(t, &frames.Attach{Name: "l", Role: frames.Receiver, Source: &frames.Source{Address: address}, Target: &frames.Target{}},
		&frames.Flow{NextIncomingID: ptr(uint32(1)), IncomingWindow: 100, Handle: &handle, LinkCredit: 1})
	c.read(t)
	var message []byte
	for n := uint32(1); ; n++ {
		f, err := frames.Read(c.r, 600)
		if err != nil {
			t.Fatal(err)
		}
		p, payload, err := frames.Decode(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		message = append(message, payload...)
		if !p.(*frames.Transfer).More {
			break
		}
		if n%100 == 0 { // the session's window is used up: nothing but the echo comes
			next := n + 1 // the hub's first transfer is number 1
			c.write(t, &frames.Flow{NextIncomingID: &next, Echo: true})
			if p, ok := c.read(t).(*frames.Flow); !ok {
				t.Fatalf("beyond the window came %+v", p)
			}
			c.write(t, &frames.Flow{NextIncomingID: &next, IncomingWindow: 100})
		}
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(message); err != nil || string(m.GetData()) != body {
		t.Errorf("%d bytes came, %v", len(message), err)
	}
}

// Of readers that attach with one epoch at one time exactly one stays, and
// no other is sent what is published afterwards.
func TestRacingEpochs(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	clients := make([]*rawClient, 8)
	for i := range clients {
		clients[i] = dialRaw(t, h, "key", &frames.Open{ContainerID: "racer"})
	}
	handle, none := uint32(0), uint32(0)
	for range 30 {
		start := publish(t, h, devhub.Message{Body: []byte("before")})
		filter := frames.Map{"apache.org:selector-filter:string": frames.Described{
			Descriptor: uint64(0x468C00000004), Value: fmt.Sprintf("amqp.annotation.x-opt-sequence-number > '%d'", start.Sequence)}}
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				c.write(t, &frames.Attach{Name: "l", Role: frames.Receiver, Source: &frames.Source{Address: address, Filter: filter}, Target: &frames.Target{},
					Properties: frames.Map{"com.microsoft:epoch": int64(1)}},
					&frames.Flow{NextIncomingID: &none, IncomingWindow: 1000, Handle: &handle, LinkCredit: 10})
				c.read(t)
			})
		}
		wg.Wait()
		eventually(t, "one reader is left", func() bool { return h.Readers("0") == 1 })
		publish(t, h, devhub.Message{Body: []byte("after")})
		got := 0
		for _, c := range clients {
			p := c.read(t)
			if _, ok := p.(*frames.Transfer); ok {
				got++
				c.write(t, &frames.Detach{Closed: true})
				c.read(t)
				continue
			}
			if d, ok := p.(*frames.Detach); !ok || d.Error == nil || d.Error.Condition != "amqp:link:stolen" {
				t.Fatalf("got %+v", p)
			}
			c.write(t, &frames.Detach{Closed: true})
		}
		if got != 1 {
			t.Fatalf("%d readers got the event", got)
		}
	}
}

func TestDrain(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	publishNumbers(t, h, 0, 3)
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")})
	r, err := s.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		m, err := r.Receive(t.Context(), nil)
		if err != nil || string(m.GetData()) != want {
			t.Fatalf("got %+v, %v, want %s", m, err, want)
		}
	}
	for range 2 {
		if err := r.DrainCredit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.IssueCredit(2); err != nil {
		t.Fatal(err)
	}
	next("0")
	next("1")
	if err := r.IssueCredit(5); err != nil {
		t.Fatal(err)
	}
	next("2")
	if err := r.DrainCredit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	publishNumbers(t, h, 3, 4)
	if err := r.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	next("3")
}

func TestTooLargeMessage(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "large"})
	c.write(t, &frames.Attach{Name: "l", Role: frames.Sender, Source: &frames.Source{}, Target: &frames.Target{Address: "devhub"}})
	if a := c.read(t).(*frames.Attach); a.MaxMessageSize != 1<<20 {
		t.Errorf("the largest message is %d", a.MaxMessageSize)
	}
	c.read(t)
	for range 40 {
		c.transfer(t, &frames.Transfer{DeliveryID: ptr(uint32(0)), DeliveryTag: []byte("t"), More: true}, make([]byte, 32<<10))
	}
	if d, ok := c.read(t).(*frames.Detach); !ok || d.Error == nil || d.Error.Condition != "amqp:link:message-size-exceeded" {
		t.Errorf("got %+v", d)
	}
}

func TestHeartbeats(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "quiet", IdleTimeout: 4 * time.Millisecond})
	for range 3 {
		if f, err := frames.Read(c.r, 512); err != nil || len(f.Body) != 0 {
			t.Fatalf("got %+v, %v", f, err)
		}
	}
}

func TestSilentClient(t *testing.T) { busytest.Run(t, silentClient) }

func silentClient(a *busytest.Attempt) {
	t, idle := a.T, a.Time(50*time.Millisecond)
	h := listen(t, devhub.Config{Key: "key", IdleTimeout: idle})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "silent"})
	if p, ok := c.read(t).(*frames.Close); !ok || p.Error == nil {
		t.Errorf("got %+v", p)
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after close: %v", err)
	}
	open, err := dial(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")}) // sends heartbeats
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-open.Done():
		a.Missed("a client with heartbeats was cut off: %v", open.Err())
	case <-time.After(5 * idle):
	}
}

// A client that asks and never reads the answers costs bounded memory: the
// hub stops reading.
func TestClientThatDoesNotRead(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "deaf"})
	echo := frames.Append(nil, frames.AMQP, 0, &frames.Flow{NextIncomingID: ptr(uint32(0)), Echo: true})
	for len(echo) < 1<<20 {
		echo = append(echo, echo...)
	}
	for range 64 {
		c.nc.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := c.nc.Write(echo); err != nil {
			return // TCP's buffers are full, in both directions
		}
	}
	t.Error("64 MiB of requests were read")
}

func TestProtocolErrors(t *testing.T) {
	h := listen(t, devhub.Config{Key: "key"})
	for name, p := range map[string]frames.Performative{
		"begin twice":  &frames.Begin{},
		"large handle": &frames.Attach{Name: "l", Handle: 1 << 20, Role: frames.Receiver},
		"open twice":   &frames.Open{},
	} {
		c := dialRaw(t, h, "key", &frames.Open{ContainerID: "rude"})
		c.write(t, p)
		if p, ok := c.read(t).(*frames.Close); !ok || p.Error == nil {
			t.Errorf("%s: answered with %+v", name, p)
		}
	}
}

// A frame on a handle that has no link costs its session, and no other.
func TestUnknownHandle(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	handle := uint32(7)
	for name, p := range map[string]frames.Performative{
		"flow":     &frames.Flow{Handle: &handle},
		"detach":   &frames.Detach{Handle: handle},
		"transfer": &frames.Transfer{Handle: handle},
	} {
		c := dialRaw(t, h, "key", &frames.Open{ContainerID: "rude"})
		c.write(t, p, p)
		if p, ok := c.read(t).(*frames.End); !ok || p.Error == nil || p.Error.Condition != "amqp:session:unattached-handle" {
			t.Errorf("%s: answered with %+v", name, p)
		}
		c.write(t, &frames.End{}, &frames.Begin{IncomingWindow: 9})
		if p, ok := c.read(t).(*frames.Begin); !ok {
			t.Errorf("%s: the next session is answered with %+v", name, p)
		}
	}
}

// What the service is seen to write, where other hubs write something else.
func TestWritesAsTheService(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key", EchoEvery: 50 * time.Millisecond})
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "c"})
	c.write(t, &frames.End{}, &frames.Begin{IncomingWindow: 77, HandleMax: 9})
	c.read(t)
	b := c.read(t).(*frames.Begin)
	if *b.RemoteChannel != 0 || b.NextOutgoingID != 1 || b.IncomingWindow != 5000 || b.OutgoingWindow != 77 || b.HandleMax != 255 || c.channel == 0 {
		t.Errorf("on channel %d: %+v", c.channel, b)
	}

	mixed, second, handle := uint8(2), uint8(1), uint32(5)
	c.write(t, &frames.Attach{Name: "l", Handle: handle, Role: frames.Receiver, SenderSettleMode: &mixed, ReceiverSettleMode: &second,
		Source: &frames.Source{Address: address}, Target: &frames.Target{}})
	a := c.read(t).(*frames.Attach)
	if a.Handle == handle || a.SenderSettleMode == nil || *a.SenderSettleMode != frames.SenderSettled || a.ReceiverSettleMode != nil {
		t.Errorf("%+v", a)
	}
	publishNumbers(t, h, 0, 2)
	var ofSession, ofLink bool
	for !ofSession || !ofLink {
		f := c.read(t).(*frames.Flow)
		if f.Handle == nil {
			ofSession = ofSession || f.Echo
		} else {
			ofLink = ofLink || f.Echo && f.LinkCredit == 0 && *f.Handle == a.Handle
		}
	}
	c.write(t, &frames.Flow{NextIncomingID: ptr(uint32(1)), IncomingWindow: 77, Handle: &handle, LinkCredit: 1})
	until := func(what string, is func(frames.Performative) bool) {
		t.Helper()
		for {
			p := c.read(t)
			if is(p) {
				return
			}
			if _, isFlow := p.(*frames.Flow); !isFlow {
				t.Fatalf("%s: %+v", what, p)
			}
		}
	}
	until("an event", func(p frames.Performative) bool {
		d, ok := p.(*frames.Transfer)
		return ok && d.Settled && len(d.DeliveryTag) == 0 && d.Handle == a.Handle
	})
	h.DetachWithoutError("0")
	until("a detach", func(p frames.Performative) bool {
		d, ok := p.(*frames.Detach)
		return ok && d.Error == nil && d.Closed
	})
}

// tlsConfigs returns those of a server and of a client that trusts it.
func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	client = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	client.ServerName = "example.com" // what the certificate is for
	return &tls.Config{Certificates: s.TLS.Certificates}, client
}

func TestTLS(t *testing.T) {
	server, client := tlsConfigs(t)
	h := listen(t, devhub.Config{Partitions: 1, TLS: server})
	publishNumbers(t, h, 0, 2)
	c, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", "$Default", &azeventhubs.ConsumerClientOptions{TLSConfig: client, RetryOptions: quickRetries})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	p := reader(t, c, "0", azeventhubs.PartitionClientOptions{StartPosition: earliest})
	expect(t, p, "0 1")
	h.Reset()
	publishNumbers(t, h, 2, 3)
	expect(t, p, "2")
}

func TestRedirect(t *testing.T) {
	server, client := tlsConfigs(t)
	key := []byte("a key of an IoT hub")
	h := listen(t, devhub.Config{TLS: server, Key: base64.StdEncoding.EncodeToString(key), KeyName: "service", RedirectTo: "amqps://ns.example:5671/devhub/"})
	token := sas("hub.example/messages/events", "service", key, time.Now().Add(time.Hour))
	s := session(t, h, amqp.ConnOptions{TLSConfig: client, SASLType: amqp.SASLTypePlain("service@sas.root.hub", token)})
	_, err := s.NewReceiver(t.Context(), "amqps://hub.example/messages/events/$management", nil)
	var e *amqp.Error
	if !errors.As(err, &e) || e.Condition != amqp.ErrCondLinkRedirect {
		t.Fatalf("got %v", err)
	}
	want := map[string]any{"hostname": "ns.example", "network-host": "ns.example", "port": int32(5671), "address": "amqps://ns.example:5671/devhub/"}
	if fmt.Sprint(e.Info) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", e.Info, want)
	}
	if _, err := dial(t, h, amqp.ConnOptions{TLSConfig: client, SASLType: amqp.SASLTypePlain("service@sas.root.hub", token+"0")}); err == nil {
		t.Error("a token with another signature was taken")
	}
	s = session(t, h, amqp.ConnOptions{TLSConfig: client, SASLType: amqp.SASLTypeAnonymous()})
	if _, err := s.NewReceiver(t.Context(), "/messages/events", nil); !isCondition(err, amqp.ErrCondUnauthorizedAccess) {
		t.Errorf("without signing in: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	for _, c := range []devhub.Config{{Partitions: -1}, {Partitions: 1025}, {RedirectTo: "x"}} {
		if h, err := devhub.Listen("127.0.0.1:0", c); err == nil {
			h.Close()
			t.Errorf("%+v was taken", c)
		}
	}
	if _, err := devhub.Listen("127.0.0.1:x", devhub.Config{}); err == nil {
		t.Error("an address that is none was taken")
	}
}

// Whatever a client sends, the hub goes on serving the others.
func FuzzConn(f *testing.F) {
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Key: "key", Partitions: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { h.Close() })
	handle := uint32(0)
	m, _ := (&amqp.Message{Annotations: amqp.Annotations{"x-opt-partition-key": "k"}, Data: [][]byte{[]byte("x")}}).MarshalBinary()
	transfer := frames.AppendDelivery(nil, 0, frames.Delivery{ID: 1, First: true}, m)
	f.Add(frames.Append(nil, frames.AMQP, 0, &frames.Attach{Name: "r", Role: frames.Receiver, Source: &frames.Source{Address: address}, Target: &frames.Target{}}))
	f.Add(append(frames.Append(nil, frames.AMQP, 0, &frames.Attach{Name: "s", Source: &frames.Source{}, Target: &frames.Target{Address: "devhub"}}), transfer...))
	f.Add(append(frames.Append(nil, frames.AMQP, 0, &frames.Attach{Name: "s", Source: &frames.Source{}, Target: &frames.Target{Address: "$management"}}), transfer...))
	f.Add(frames.Append(nil, frames.AMQP, 0, &frames.Flow{Handle: &handle, LinkCredit: 9, Drain: true, Echo: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dialRaw(t, h, "key", &frames.Open{ContainerID: "fuzz", MaxFrameSize: 512})
		defer c.nc.Close()
		if _, err := c.nc.Write(b); err != nil {
			return
		}
		c.nc.(*net.TCPConn).CloseWrite()
		c.nc.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the hub does not let go")
		}
	})
}

// A message of a client is stored or rejected, whatever it is.
func FuzzMessage(f *testing.F) {
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Key: "key", Partitions: 1, MaxEvents: 10})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { h.Close() })
	m, _ := (&amqp.Message{Annotations: amqp.Annotations{"x-opt-partition-key": "k"}, Data: [][]byte{[]byte("x")}}).MarshalBinary()
	batch, _ := (&amqp.Message{Data: [][]byte{m, m}}).MarshalBinary()
	request, _ := (&amqp.Message{Properties: &amqp.MessageProperties{MessageID: "1", ReplyTo: ptr("me")}, ApplicationProperties: map[string]any{"operation": "READ"}, Value: "v"}).MarshalBinary()
	f.Add(m, false)
	f.Add(batch, true)
	f.Add(request, false)
	f.Add([]byte("\x00\x53\x72\xc1\x03\x02\x45\x40"), false) // annotations keyed by a list make go-amqp panic
	f.Add([]byte(strings.Repeat("\x00", 50_000)), false)
	f.Fuzz(func(t *testing.T, message []byte, batch bool) {
		if len(message) > 60_000 {
			return
		}
		for _, address := range []string{"devhub", "$cbs", "$management"} {
			c := dialRaw(t, h, "key", &frames.Open{ContainerID: "fuzz"})
			c.write(t, &frames.Attach{Name: "l", Role: frames.Sender, Source: &frames.Source{}, Target: &frames.Target{Address: address}})
			c.read(t)
			c.read(t)
			transfer := &frames.Transfer{DeliveryID: ptr(uint32(0)), DeliveryTag: []byte("t")}
			if batch {
				transfer.MessageFormat = 0x80013700
			}
			c.transfer(t, transfer, message)
			if d, ok := c.read(t).(*frames.Disposition); !ok || !d.Settled {
				t.Errorf("%s: answered with %+v", address, d)
			}
			c.nc.Close()
		}
	})
}
