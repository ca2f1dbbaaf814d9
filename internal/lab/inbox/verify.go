package inbox

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/notify/webhook"
)

// tolerance is how far a signature's time may be from this machine's.
const tolerance = 5 * time.Minute

// Verify returns nil if one of the signatures in h was made with s for body
// less than five minutes from now. The zero Secret verifies everything.
func Verify(s webhook.Secret, h http.Header, body []byte) error {
	if s == (webhook.Secret{}) {
		return nil
	}

	id, timestamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	if id == "" {
		return errors.New("verify webhook: no webhook-id")
	}

	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("verify webhook: webhook-timestamp is not a number of seconds")
	}
	if time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("verify webhook: webhook-timestamp is more than %v from this machine's clock", tolerance)
	}

	want := []byte(s.Signature(id, timestamp, body))
	for got := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(got), want) {
			return nil
		}
	}

	return errors.New("verify webhook: no signature made with this secret")
}
