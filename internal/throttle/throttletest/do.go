// Package throttletest is for tests of what a gate decides.
package throttletest

import (
	"context"

	"alertworker/internal/throttle"
)

// A Gate is a throttle.Gate, or one that remembers windows.
type Gate interface {
	Claim(context.Context, throttle.Request) (*throttle.Claim, throttle.Result, error)
	Settle(context.Context, *throttle.Claim, throttle.Answer) (throttle.Result, error)
}

// Do makes one attempt: it claims the device's key, calls send under the claim if there is one, and settles it.
func Do(
	ctx context.Context,
	g Gate,
	r throttle.Request,
	send func(context.Context, throttle.Grant) throttle.Answer,
) (throttle.Result, error) {
	c, result, err := g.Claim(ctx, r)
	if c == nil {
		return result, err
	}

	sending, cancel := c.Grant.Sending(ctx)
	answer := send(sending, c.Grant)
	cancel()

	return g.Settle(ctx, c, answer)
}
