package eventhubs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/transport"
)

// busy reports whether a reader without an owner level was refused or disconnected
// because another has one. While attaching, azeventhubs takes this for a broken
// connection and keeps the condition only in its text.
func busy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "amqp:link:stolen")
}

// explain adds to an error of azeventhubs what it means and what to do about it.
func (s *Source) explain(ctx context.Context, err error) error {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		network     net.Error
		service     *azeventhubs.Error
		answer      interface{ RPCCode() int }
		credential  interface{ NonRetriable() }
		proxy       *transport.ProxyError
		code        int
	)
	if errors.As(err, &answer) {
		code = answer.RPCCode()
	}
	text := err.Error()
	switch {
	case code == http.StatusUnauthorized, errors.As(err, &service) && service.Code == azeventhubs.ErrorCodeUnauthorizedAccess:
		return fmt.Errorf("%s refused the key or identity: check the key's name and the key, which needs Listen (an identity: the role Azure Event Hubs Data Receiver): %w", s.namespace, err)
	case code == http.StatusForbidden:
		return fmt.Errorf("%s denied access: check the network rules of the namespace: %w", s.namespace, err)
	case strings.Contains(text, "amqp:not-found"):
		return fmt.Errorf("event hub %s has no consumer group %s: create it, or check EVENTHUB_CONSUMER_GROUP: %w", s.config.Hub, s.config.ConsumerGroup, err)
	case code == http.StatusNotFound:
		return fmt.Errorf("there is no event hub %s at %s: check EntityPath or EVENTHUB_NAME: %w", s.config.Hub, s.namespace, err)
	case strings.Contains(text, "amqp:resource-limit-exceeded"):
		return fmt.Errorf("consumer group %s has too many readers: stop some, or give this one a consumer group of its own: %w", s.config.ConsumerGroup, err)
	case errors.As(err, &proxy):
		return fmt.Errorf("cannot connect to %s: %w", s.namespace, proxy)
	case errors.As(err, &dns) && ctx.Err() != context.Canceled:
		return fmt.Errorf("cannot find the host %s: check its name in Endpoint or EVENTHUB_NAMESPACE, and that this machine can resolve names: %w", s.namespace, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: check its name and port in Endpoint or EVENTHUB_NAMESPACE: %w", s.namespace, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of %s is not trusted: does a proxy intercept TLS? Are the system's certificates up to date? %w", s.namespace, err)
	case ctx.Err() == context.Canceled:
		return ctx.Err()
	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("no answer from %s in time: is outgoing TCP to port %s allowed here? %w", s.namespace, s.port(), err)
	case errors.As(err, &credential):
		return fmt.Errorf("no token for %s: %w", s.namespace, err)
	}
	return fmt.Errorf("%s: %w", s.namespace, err)
}

// port is the one that clients connect to.
func (s *Source) port() string {
	d := s.dialer()
	_, port := d.address.HostPort(d.transport)
	return port
}
