package eventhubs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"alertworker/internal/azure"

	"alertworker/internal/telemetry/transport"
)

// busy reports whether a reader without an owner level was refused or disconnected
// because another has one. While attaching, azeventhubs takes this for a broken
// connection and keeps the condition only in its text.
func busy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "amqp:link:stolen")
}

// receiver finds who took a link, or has one, in what the hub says.
var receiver = regexp.MustCompile(`[Rr]eceiver '([^']*)'`)

// taker returns the name of the receiver that took a link, nil if the hub does not say.
func taker(err error) *string {
	found := receiver.FindStringSubmatch(err.Error())
	if found == nil {
		return nil
	}
	return &found[1]
}

// noGroup reports whether the hub has no such consumer group.
func noGroup(err error) bool { return err != nil && strings.Contains(err.Error(), "amqp:not-found") }

// refused reports whether the hub refused the credentials, or there are none.
func refused(err error) bool {
	var credential interface{ NonRetriable() }
	return unauthorized(err) || errors.As(err, &credential) || noToken(err)
}

// unauthorized reports whether the hub refused the credentials.
func unauthorized(err error) bool {
	var service *azeventhubs.Error
	var peer *amqp.Error
	return status(err) == http.StatusUnauthorized ||
		errors.As(err, &service) && service.Code == azeventhubs.ErrorCodeUnauthorizedAccess ||
		errors.As(err, &peer) && peer.Condition == amqp.ErrCondUnauthorizedAccess
}

// noToken reports whether the identity has none.
func noToken(err error) bool {
	var identity *azure.IdentityError
	return errors.As(err, &identity)
}

// status returns the status that the hub answered a request with; 0 if it did not.
func status(err error) int {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer.code
	}
	return 0
}

// explain adds to an error of azeventhubs, about the hub at an endpoint, what it means and
// what to do about it.
func (s *Source) explain(ctx context.Context, at endpoint, err error) error {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		network     net.Error
		credential  interface{ NonRetriable() }
		proxy       *transport.ProxyError
	)

	code, text := status(err), err.Error()
	switch {
	case unauthorized(err):
		return fmt.Errorf(
			"%s rejected the key or identity: check the key's name and the key, which needs Listen (an identity: the role "+
				"Azure Event Hubs Data Receiver): %w",
			at.namespace,
			err,
		)

	case code == http.StatusForbidden:
		return fmt.Errorf("%s denied access: check the network rules of the namespace: %w", at.namespace, err)

	case noGroup(err):
		return fmt.Errorf(
			"event hub %s has no consumer group %s: create it, or check EVENTHUB_CONSUMER_GROUP: %w",
			at.hub,
			s.config.ConsumerGroup,
			err,
		)

	case code == http.StatusNotFound:
		return fmt.Errorf("there is no event hub %s at %s: check EntityPath or EVENTHUB_NAME: %w", at.hub, at.namespace, err)

	case noToken(err):
		return fmt.Errorf("%s: %w", at.namespace, err)

	case strings.Contains(text, "amqp:resource-limit-exceeded"):
		return fmt.Errorf(
			"consumer group %s has too many readers: stop some, or give this one a consumer group of its own: %w",
			s.config.ConsumerGroup,
			err,
		)

	case errors.As(err, &proxy):
		return fmt.Errorf("cannot connect to %s: %w", at.namespace, proxy)

	case errors.As(err, &dns) && ctx.Err() != context.Canceled:
		return fmt.Errorf(
			"cannot find the host %s: check its name in Endpoint or EVENTHUB_NAMESPACE, and that this machine can resolve "+
				"names: %w",
			at.namespace,
			err,
		)

	case strings.Contains(text, syscall.ECONNREFUSED.Error()): // azeventhubs may keep no more than the text
		return fmt.Errorf(
			"nothing listens at %s: check its name and port in Endpoint or EVENTHUB_NAMESPACE: %w",
			at.namespace,
			err,
		)

	case errors.As(err, &certificate):
		return fmt.Errorf(
			"the certificate of %s is not trusted: does a proxy intercept TLS? Are the system's certificates up to date? %w",
			at.namespace,
			err,
		)

	case ctx.Err() == context.Canceled:
		return ctx.Err()

	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		return fmt.Errorf(
			"no answer from %s in time: is outgoing TCP to port %s allowed here? %w",
			at.namespace,
			s.port(),
			err,
		)

	case errors.As(err, &credential):
		return fmt.Errorf("no token for %s: %w", at.namespace, err)
	}

	return fmt.Errorf("%s: %w", at.namespace, err)
}

// port is the one that clients connect to.
func (s *Source) port() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, port := s.address().HostPort(s.config.Transport)
	return port
}
