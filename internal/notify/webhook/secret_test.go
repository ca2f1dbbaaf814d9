package webhook_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify/webhook"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func secret(t testing.TB, s string) webhook.Secret {
	t.Helper()
	secret, err := webhook.ParseSecret(s)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestParseSecret(t *testing.T) {
	for _, bad := range []string{
		"whsec_", "whsec_c2VjcmV0", "whsec_" + strings.Repeat("YWJj", 22), "whsec_not base64!", "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
	} {
		_, err := webhook.ParseSecret(bad)
		if err == nil || !strings.Contains(err.Error(), "must be whsec_") {
			t.Errorf("%q: got error %v, want one that says what it must be", bad, err)
		} else if len(bad) > 10 && strings.Contains(err.Error(), bad[6:]) {
			t.Errorf("error repeats the secret: %v", err)
		}
	}
	if !secret(t, "").IsZero() || secret(t, testSecret).IsZero() {
		t.Error("only the empty text is the zero Secret")
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	s := secret(t, testSecret)
	key, _ := base64.StdEncoding.DecodeString(testSecret[6:])
	printed := fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, &s)
	for _, part := range []string{testSecret[6:], string(key), fmt.Sprintf("%x", key)} {
		if strings.Contains(printed, part) {
			t.Errorf("%q is in %q", part, printed)
		}
	}
}

// The example of the Standard Webhooks specification's reference libraries.
func TestVerifyKnownSignature(t *testing.T) {
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
				err := secret(t, tt.secret).Verify(tt.header, []byte(tt.body))
				if (err == nil) != tt.ok {
					t.Errorf("Verify: %v, want ok %v", err, tt.ok)
				}
			})
		})
	}
}
