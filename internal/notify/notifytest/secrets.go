package notifytest

import (
	"testing"

	"alertworker/internal/notify"
)

// HoldsNoSecret checks what people print of an error and of its notifier.
func HoldsNoSecret(t *testing.T, secrets []string, n notify.Notifier, err error) {
	t.Helper()
	holdsNoSecret(t, secrets, n, err)
}
