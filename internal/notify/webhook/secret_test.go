package webhook_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

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
	if secret(t, "") != (webhook.Secret{}) || secret(t, testSecret) == (webhook.Secret{}) {
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
