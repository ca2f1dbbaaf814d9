package deadletters

import (
	"testing"

	"alertworker/internal/notify"
)

// A kept alert's alarm may have ended before it is sent again: then no recovery follows.
func TestReplayPromisesNoRecovery(t *testing.T) {
	if a := resent(notify.Alert{ID: "1", WillResolve: true}); a.WillResolve || a.ID != "1" {
		t.Errorf("%+v", a)
	}
}
