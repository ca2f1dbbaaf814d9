// Package eventgrid publishes alerts and summaries to a topic of Azure Event Grid, as the
// CloudEvents that webhooks get.
package eventgrid

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

// New returns a channel for the endpoint of a topic, whose input schema must be CloudEvents 1.0. The password in u is
// the topic's access key; without one, token is asked. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, style wording.Style, token notify.TokenSource, opts httppost.Options) (*webhook.Webhook, error) {
	endpoint := *u
	endpoint.User = nil
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/api/events"
	}

	query := endpoint.Query()
	if !query.Has("api-version") {
		query.Set("api-version", "2018-01-01")
	}

	endpoint.RawQuery = query.Encode()

	opts.Settings = settings

	if key, _ := u.User.Password(); key != "" {
		opts.Secrets = []string{key}
		return webhook.NewSigned(&endpoint, style, opts, func(_ context.Context, h http.Header, _ time.Time, _ string, _ []byte) error {
			h.Set("aeg-sas-key", key)
			return nil
		})
	}

	if u.User != nil {
		return nil, errors.New(
			"must have the access key as a password, as in eventgrid+https://:KEY@TOPIC, or no user at all to use an Azure " +
				"identity",
		)
	}

	return webhook.NewSigned(&endpoint, style, opts, func(ctx context.Context, h http.Header, _ time.Time, _ string, _ []byte) error {
		bearer, err := token(ctx)
		h.Set("Authorization", "Bearer "+bearer)
		return err
	})
}

// HasKey reports whether u has an access key.
func HasKey(u *url.URL) bool {
	key, _ := u.User.Password()
	return key != ""
}

// settings is in the answer, a 400, of a topic that was made for another schema. It has several wordings:
// "configured to receive event in 'EventGridEvent' schema", and "configured for 'EventGridEvent' schema" to a batch
// (Azure/azure-sdk-for-python#16055, #15941).
var settings = regexp.MustCompile(`'([^C]|C[^l])\w*' schema`) // any but CloudEvent…
