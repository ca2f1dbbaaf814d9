package inbox_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/inbox"
	"alertworker/internal/notify/webhook"
)

// The example of the Standard Webhooks specification's reference libraries.
func TestVerifyKnownSignature(t *testing.T) {
	const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	const body = `{"test": 2432232314}`
	header := func(id, timestamp, signature string) http.Header {
		h := make(http.Header)
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", timestamp)
		h.Set("webhook-signature", signature)
		return h
	}
	const (
		id        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		timestamp = "1614265330"
		signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	)
	for _, tt := range []struct {
		name   string
		at     int64
		header http.Header
		body   string
		secret string
		ok     bool
	}{
		{"known", 1614265330, header(id, timestamp, signature), body, testSecret, true},
		{"one of several", 1614265330, header(id, timestamp, "v1,AAAA v2,x "+signature), body, testSecret, true},
		{"in time", 1614265330 + 300, header(id, timestamp, signature), body, testSecret, true},
		{"too late", 1614265330 + 301, header(id, timestamp, signature), body, testSecret, false},
		{"too early", 1614265330 - 301, header(id, timestamp, signature), body, testSecret, false},
		{"other body", 1614265330, header(id, timestamp, signature), body + " ", testSecret, false},
		{"other id", 1614265330, header(id+"x", timestamp, signature), body, testSecret, false},
		{"other time", 1614265330, header(id, "1614265331", signature), body, testSecret, false},
		{"other secret", 1614265330, header(id, timestamp, signature), body, "whsec_" + strings.Repeat("YWJj", 8), false},
		{"no headers", 1614265330, nil, body, testSecret, false},
		{"no signature", 1614265330, header(id, timestamp, ""), body, testSecret, false},
		{"no number", 1614265330, header(id, "now", signature), body, testSecret, false},
		{"no secret", 1614265330, nil, body, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Unix(tt.at, 0))) // the bubble starts in 2000
				secret, err := webhook.ParseSecret(tt.secret)
				if err != nil {
					t.Fatal(err)
				}
				err = inbox.Verify(secret, tt.header, []byte(tt.body))
				if (err == nil) != tt.ok {
					t.Errorf("Verify: %v, want ok %v", err, tt.ok)
				}
			})
		})
	}
}
