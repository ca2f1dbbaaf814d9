package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

const secretPrefix = "whsec_"

// A Secret signs webhooks, as Standard Webhooks
// says (HMAC-SHA256 over id, time and body). The zero Secret signs nothing. It never
// prints its value.
type Secret struct {
	key string
}

// ParseSecret reads "whsec_" and then 24 to 64 random bytes in base64, as Standard
// Webhooks has it. Empty is the zero Secret. Errors say what s must be and do not
// repeat it.
func ParseSecret(s string) (Secret, error) {
	if s == "" {
		return Secret{}, nil
	}

	encoded, ok := strings.CutPrefix(s, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return Secret{}, errors.New(
			"must be whsec_ followed by 24 to 64 bytes in base64, as from: echo whsec_$(openssl rand -base64 32)",
		)
	}

	return Secret{key: string(key)}, nil
}

// MaxSecrets is how many may sign: the one in force, and its successor.
const MaxSecrets = 2

// ParseSecrets reads at most two secrets, each followed by a space or the end of its line. Errors are ParseSecret's.
func ParseSecrets(text string) ([]Secret, error) {
	var secrets []Secret
	for field := range strings.FieldsSeq(text) {
		s, err := ParseSecret(field)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, s)
	}

	if len(secrets) > MaxSecrets {
		return nil, errors.New("must be one secret, or two while one is replaced, separated by a space or the end of a line")
	}

	return secrets, nil
}

// Format prints a place holder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, "whsec_[redacted]") }

// Signature signs a message, as Standard Webhooks writes it.
func (s Secret) Signature(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(s.key))
	io.WriteString(mac, id+"."+timestamp+".")
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
