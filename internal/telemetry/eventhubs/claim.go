package eventhubs

import (
	"context"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/azure"
	"alertworker/internal/telemetry/transport"
)

const (
	claimEvery   = 15 * time.Minute // a claim by key is made again
	signedFor    = time.Hour        // a claim by key
	renewBefore  = 4 * time.Minute  // the end of a token; azure.Credential fetches the next one 5 minutes before it
	renewAtLeast = 5 * time.Second  // apart
)

// A token is what a hub knows a client by.
type token struct {
	kind, text string
	ends       time.Time // zero if nobody knows
	next       time.Time // when there should be another one
}

// token returns one for an audience: the URL of a hub, and of all that is in it.
func (c *Config) token(ctx context.Context, audience string) (token, error) {
	now := time.Now()

	if c.ConnectionString == "" {
		t, err := c.Credential.GetToken(ctx, azure.EventHubsScope)
		left := t.ExpiresOn.Sub(now)
		return token{"jwt", t.Token, t.ExpiresOn, now.Add(max(left-renewBefore, left/2, renewAtLeast))}, err
	}

	const signature = "servicebus.windows.net:sastoken"
	properties, err := azeventhubs.ParseConnectionString(c.ConnectionString)
	if err != nil {
		return token{}, err
	}
	if given := properties.SharedAccessSignature; given != nil {
		return token{kind: signature, text: *given, next: now.Add(claimEvery)}, nil
	}

	ends := now.Add(signedFor)
	text := transport.Signature(audience, *properties.SharedAccessKeyName, []byte(*properties.SharedAccessKey), ends)

	return token{signature, text, ends, now.Add(claimEvery)}, nil
}

// claim makes the claim by which the links of the connection are allowed, and returns when to renew it. A connection
// allows one at a time.
func (c *connection) claim() (next time.Time, err error) {
	t, err := c.config.token(c.ctx, c.audience)
	if err != nil {
		return time.Time{}, err
	}

	properties := map[string]any{"operation": "put-token", "type": t.kind, "name": c.audience}
	if !t.ends.IsZero() {
		properties["expiration"] = strconv.FormatInt(t.ends.Unix(), 10)
	}

	_, err = c.once(c.ctx, "$cbs", properties, t.text)

	return t.next, err
}
