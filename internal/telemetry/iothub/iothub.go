// Package iothub finds the Event Hubs endpoint of an IoT Hub. People have the
// hub's service connection string at hand; telemetry is read from an Event Hubs
// namespace that only the hub itself can name.
package iothub

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/transport"
)

const (
	port           = "5671" // of AMQP, in redirects
	resolveTimeout = 15 * time.Second
	writeTimeout   = 2 * time.Second // of the farewell to a hub that does not read
	tokenTTL       = time.Hour       // more than clocks differ by
)

// Resolve asks the IoT Hub of a service connection string, HostName=…;
// SharedAccessKeyName=…;SharedAccessKey=…, for its Event Hubs endpoint, and
// returns that endpoint's connection string, Endpoint=sb://…;…;EntityPath=…. The
// key is the same.
//
// It opens one connection by way of t and network, and returns within 15 s or when ctx ends. An
// error says what to do about it and never holds the key.
func Resolve(
	ctx context.Context, t transport.Transport, network transport.Network, connectionString string,
) (string, error) {
	hub, err := parse(connectionString)
	if err != nil {
		return "", fmt.Errorf("the IoT Hub connection string %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()

	address := transport.IoTHub(hub.host)
	address.Network = network
	endpoint, entity, err := ask(ctx, t, address, hub)
	if err != nil {
		return "", fmt.Errorf("resolve IoT Hub %s: %w", hub.host, explain(ctx, t, address, err))
	}

	const found = "Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s;EntityPath=%s"
	return fmt.Sprintf(found, endpoint, hub.keyName, hub.keyText, entity), nil
}

// Check says what is wrong with a service connection string, in words that follow its
// name and hold no part of it. It connects to nothing.
func Check(connectionString string) error {
	_, err := parse(connectionString)
	return err
}

// ask wants to read where the hub has nothing to read, and returns where it redirects to.
func ask(
	ctx context.Context, t transport.Transport, at transport.Address, hub identity,
) (endpoint, entity string, err error) {
	socket, err := t.Dial(ctx, at)
	if err != nil {
		return "", "", err
	}

	label, _, _ := strings.Cut(hub.host, ".")
	user := hub.keyName + "@sas.root." + label // as whom SASL knows the key's policy
	token := transport.Signature(hub.host+"/messages/events", hub.keyName, hub.key, time.Now().Add(tokenTTL))
	conn, err := amqp.NewConn(ctx, socket, &amqp.ConnOptions{
		HostName:     hub.host,
		SASLType:     amqp.SASLTypePlain(user, token),
		WriteTimeout: writeTimeout,
	})
	if err != nil {
		_ = socket.Close()
		return "", "", err
	}
	defer conn.Close()

	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return "", "", err
	}

	receiver, err := session.NewReceiver(ctx, "amqps://"+hub.host+"/messages/events/$management", nil)
	if err == nil { // then the link is closed once it is there
		_, err = receiver.Receive(ctx, nil)
	}

	var moved *amqp.Error
	if errors.As(err, &moved) && moved.Condition == amqp.ErrCondLinkRedirect {
		return destination(moved.Info)
	}

	return "", "", cmp.Or(err, errNoHub)
}

// destination reads a redirect: the namespace, with its port unless that is the
// usual one, and the hub in it.
func destination(info map[string]any) (endpoint, entity string, err error) {
	address, _ := info["address"].(string)
	u, err := url.Parse(address)
	if err != nil {
		return "", "", errors.New("the hub redirects to an invalid address")
	}

	host, _ := info["hostname"].(string)
	if host == "" {
		host = u.Hostname()
	}

	entity, _, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")

	// What stands in a connection string must not add to it.
	if !name.MatchString(host) || !name.MatchString(entity) {
		return "", "", fmt.Errorf("the hub redirects to host %q and event hub %q, which are invalid names", host, entity)
	}

	if p := u.Port(); p != "" && p != port {
		host = net.JoinHostPort(host, p)
	}

	return host, entity, nil
}

var (
	name     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})+$`)
)

// An identity is what a service connection string says.
type identity struct {
	host, keyName, keyText string
	key                    []byte
}

// parse reads a connection string; its errors hold no value.
func parse(s string) (identity, error) {
	values := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		key, value, _ := strings.Cut(part, "=")
		values[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
	}

	for _, name := range []string{"HostName", "SharedAccessKeyName", "SharedAccessKey"} {
		if values[strings.ToLower(name)] == "" {
			const text = "has no %s: copy the whole string (portal: IoT Hub > Shared access policies > service)"
			return identity{}, fmt.Errorf(text, name)
		}
	}

	hub := identity{host: values["hostname"], keyName: values["sharedaccesskeyname"], keyText: values["sharedaccesskey"]}
	if len(hub.host) > 253 || !hostName.MatchString(hub.host) {
		return identity{}, errors.New("has a HostName that is not a host name such as NAME.azure-devices.net")
	}

	var err error
	if hub.key, err = base64.StdEncoding.DecodeString(hub.keyText); err != nil {
		return identity{}, errors.New("has a SharedAccessKey that is not base64: copy the whole string")
	}

	return hub, nil
}
