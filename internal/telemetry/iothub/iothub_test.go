package iothub_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/nettest"
	"alertworker/internal/telemetry/iothub"
	"alertworker/internal/telemetry/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	host      = "factory.example"
	waitLimit = time.Minute // for what should be there at once
)

var (
	key   = base64.StdEncoding.EncodeToString([]byte("the key of an IoT Hub's policy"))
	other = base64.StdEncoding.EncodeToString([]byte("the key of some other policy.."))
)

func connectionString(key string) string {
	return "HostName=" + host + ";SharedAccessKeyName=service;SharedAccessKey=" + key
}

// certificates returns what a hub called host and its clients have.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	c := nettest.NewCertificates(t, host)
	return c.Server, c.Client
}

func listen(t *testing.T, c devhub.Config) *devhub.Hub {
	t.Helper()
	hub, err := devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	return hub
}

func iotHub(t *testing.T, redirect string) (*devhub.Hub, *tls.Config) {
	t.Helper()
	server, client := certificates(t)
	return listen(t, devhub.Config{TLS: server, KeyName: "service", Key: key, RedirectTo: redirect}), client
}

func TestResolve(t *testing.T) {
	for redirect, want := range map[string]string{
		"amqps://ihsuprod.servicebus.windows.net:5671/iothub-ehub-factory-1/": "Endpoint=sb://ihsuprod.servicebus.windows.net/;SharedAccessKeyName=service;SharedAccessKey=" + key + ";EntityPath=iothub-ehub-factory-1",
		"amqps://ns.example:5673/hub/$management":                             "Endpoint=sb://ns.example:5673/;SharedAccessKeyName=service;SharedAccessKey=" + key + ";EntityPath=hub",
	} {
		hub, client := iotHub(t, redirect)
		for _, over := range []transport.Transport{transport.AMQP, transport.WebSocket} {
			got, err := iothub.ResolveAt(t.Context(), over, hub.Addr(), client, waitLimit, connectionString(key))
			if err != nil || got != want {
				t.Errorf("%s over %s: got %q, %v; want %q", redirect, over, got, err, want)
			}
		}
	}
}

// What can be wrong is told apart, with what to do.
func TestErrors(t *testing.T) {
	hub, client := iotHub(t, "amqps://ns.example:5671/hub/")
	server, namespaceClient := certificates(t)
	namespace := listen(t, devhub.Config{TLS: server, KeyName: "service", Key: key}) // redirects nobody
	plain := listen(t, devhub.Config{Key: "unused"})
	mute := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	rude := serve(t, func(c net.Conn) { _ = c.Close() })
	stalled, stalledClient := iotHub(t, "amqps://ns.example:5671/hub/")
	stalled.Stall()
	closed := serve(t, nil)

	const short = 300 * time.Millisecond
	for name, test := range map[string]struct {
		address string
		client  *tls.Config
		timeout time.Duration
		key     string
		want    string
	}{
		"wrong key":        {hub.Addr(), client, waitLimit, other, "check SharedAccessKeyName and SharedAccessKey"},
		"no IoT Hub":       {namespace.Addr(), namespaceClient, waitLimit, key, "not as an IoT Hub does"},
		"not TLS":          {plain.Addr(), client, short, key, "not as an IoT Hub does"},
		"hangs up":         {rude, client, waitLimit, key, "not as an IoT Hub does"},
		"nothing listens":  {closed, client, waitLimit, key, "nothing listens at factory.example:5671: check HostName"},
		"unknown host":     {"hub.invalid:5671", client, time.Second, key, "cannot find the host factory.example: check HostName"},
		"not trusted":      {hub.Addr(), nil, waitLimit, key, "the certificate of factory.example is not trusted"},
		"mute":             {mute, client, short, key, "no answer from factory.example in time: is outgoing TCP to port 5671 allowed"},
		"stalled":          {stalled.Addr(), stalledClient, short, key, "no answer from factory.example in time"},
		"another hub's":    {hub.Addr(), namespaceClient, waitLimit, key, "the certificate of factory.example is not trusted"},
		"key of no base64": {hub.Addr(), client, waitLimit, "s3cr3t!", "SharedAccessKey that is not base64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := iothub.ResolveAt(t.Context(), transport.AMQP, test.address, test.client, test.timeout, connectionString(test.key))
			if err == nil {
				t.Fatalf("resolved to %q", got)
			}
			t.Log(err)
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q; want %q", err, test.want)
			}
			if strings.Contains(err.Error(), test.key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q holds the key or a line feed", err)
			}
		})
	}
}

// The port that may be blocked is that of the transport.
func TestErrorsOverWebSockets(t *testing.T) {
	hub, client := iotHub(t, "amqps://ns.example:5671/hub/")
	mute := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for name, test := range map[string]struct {
		address string
		timeout time.Duration
		key     string
		want    string
	}{
		"wrong key":       {hub.Addr(), waitLimit, other, "check SharedAccessKeyName and SharedAccessKey"},
		"nothing listens": {serve(t, nil), waitLimit, key, "nothing listens at factory.example:443"},
		"mute":            {mute, 300 * time.Millisecond, key, "no answer from factory.example in time: is outgoing TCP to port 443 allowed"},
	} {
		_, err := iothub.ResolveAt(t.Context(), transport.WebSocket, test.address, client, test.timeout, connectionString(test.key))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), test.key) {
			t.Errorf("%s: error %v; want %q, no key", name, err, test.want)
		}
	}
}

// serve handles connections to the address that it returns; nobody listens
// there if handle is nil.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if handle == nil {
		_ = l.Close()
		return l.Addr().String()
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestEndsWithContext(t *testing.T) {
	hub, client := iotHub(t, "amqps://ns.example:5671/hub/")
	hub.Stall()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := iothub.ResolveAt(ctx, transport.AMQP, hub.Addr(), client, time.Hour, connectionString(key)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestConnectionString(t *testing.T) {
	for s, want := range map[string]string{
		"": "has no HostName",
		"HostName=h.example;SharedAccessKey=" + key:                               "has no SharedAccessKeyName",
		"HostName=h.example;SharedAccessKeyName=service":                          "has no SharedAccessKey",
		"HostName=h.example/x;SharedAccessKeyName=service;SharedAccessKey=" + key: "not a host name",
		"nonsense": "has no HostName",
	} {
		got, err := iothub.Resolve(t.Context(), transport.AMQP, transport.Network{}, s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%q: got %q, %v; want %q", s, got, err, want)
		}
	}
}

func TestDestination(t *testing.T) {
	for name, test := range map[string]struct {
		info         map[string]any
		host, entity string // none if that is an error
	}{
		"complete":         {map[string]any{"hostname": "ns.example", "address": "amqps://other.example:5671/hub/"}, "ns.example", "hub"},
		"address alone":    {map[string]any{"address": "amqps://ns.example:5671/hub/$management"}, "ns.example", "hub"},
		"nothing":          {nil, "", ""},
		"no hub":           {map[string]any{"hostname": "ns.example", "address": "amqps://ns.example:5671/"}, "", ""},
		"no address":       {map[string]any{"hostname": "ns.example"}, "", ""},
		"more of a string": {map[string]any{"hostname": "ns.example/;EntityPath=x", "address": "amqps://ns.example/hub"}, "", ""},
		"more of a path":   {map[string]any{"hostname": "ns.example", "address": "amqps://ns.example/hub;Endpoint=x"}, "", ""},
		"not text":         {map[string]any{"hostname": 1, "address": 2}, "", ""},
		"no URL":           {map[string]any{"hostname": "ns.example", "address": "amqps://[/"}, "", ""},
	} {
		host, entity, err := iothub.Destination(test.info)
		if host != test.host || entity != test.entity || (err == nil) != (test.host != "") {
			t.Errorf("%s: got %q, %q, %v", name, host, entity, err)
		}
	}
}
