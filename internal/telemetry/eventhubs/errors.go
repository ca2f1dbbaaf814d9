package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"alertworker/internal/azure"
	"alertworker/internal/humanize"
)

// busy reports whether a reader without an owner level was refused or disconnected
// because another has one.
func busy(err error) bool { return condition(err) == "amqp:link:stolen" }

// receiver finds who took a link, or has one, in what the hub says.
var receiver = regexp.MustCompile(`[Rr]eceiver '([^']+)'`)

// noGroup reports whether the hub has no such consumer group.
func noGroup(err error) bool { return strings.Contains(err.Error(), "amqp:not-found") }

// unauthorized reports whether the hub refused the credentials.
func unauthorized(err error) bool {
	return status(err) == http.StatusUnauthorized || condition(err) == string(amqp.ErrCondUnauthorizedAccess)
}

// condition returns the one with which the hub refused something; empty if there is none.
func condition(err error) string {
	var peer *amqp.Error
	if errors.As(err, &peer) {
		return string(peer.Condition)
	}

	return ""
}

// status returns the status that the hub answered a request with; 0 if it did not.
func status(err error) int {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer.code
	}
	return 0
}

// toldAt is the hub's time in its texts of refusals, which end like "TrackingId:…, SystemTracker:…,
// Timestamp:2018-12-11T00:37:51" (Azure/azure-event-hubs-node#174).
var toldAt = regexp.MustCompile(`Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)

const toldLike = "Timestamp:2006-01-02T15:04:05"

// explain adds to an error of the hub at an endpoint what it means and what to do about it.
func (s *Source) explain(ctx context.Context, at endpoint, err error) error {
	group := s.config.ConsumerGroup
	meaning := at.namespace
	switch code := status(err); {
	case unauthorized(err):
		at, unknown := time.Parse(toldLike, toldAt.FindString(err.Error()))
		if off := humanize.ClockOff(time.Until(at)); unknown == nil && off != "" {
			err = fmt.Errorf("%w; %s", err, off)
		}
		meaning += " " + azure.Advice(azure.EventHubs, http.StatusUnauthorized, "")

	case noGroup(err):
		const text = "event hub %s has no consumer group %s: create it, or check EVENTHUB_CONSUMER_GROUP"
		meaning = fmt.Sprintf(text, at.hub, group)

	case code == http.StatusNotFound:
		meaning = fmt.Sprintf("there is no event hub %s at %s: check EntityPath or EVENTHUB_NAME", at.hub, at.namespace)

	case condition(err) == "amqp:resource-limit-exceeded":
		const text = "consumer group %s has too many readers: stop some, or give this one a consumer group of its own"
		meaning = fmt.Sprintf(text, group)

	case azure.Advice(azure.EventHubs, code, condition(err)) != "":
		meaning += " " + azure.Advice(azure.EventHubs, code, condition(err))

	case !errors.Is(err, azure.ErrNoToken):
		const named = "its name in Endpoint or EVENTHUB_NAMESPACE"
		if why := s.config.Transport.Explain(ctx, s.address(at.namespace), named, err); why != nil {
			return why
		}
	}

	return fmt.Errorf("%s: %w", meaning, err)
}
