package deadletters

import (
	"testing"

	"alertworker/internal/notify/receivers"
)

// A letter has its receiver's id, which another receiver may be called.
func TestReceiverByID(t *testing.T) {
	rs := []receivers.Receiver{{ID: "x", Name: "office"}, {ID: "office", Name: "b.example"}}
	for name, want := range map[string]int{"office": 1, "x": 0, "b.example": 1} {
		if i, err := receiver(rs, name); i != want || err != nil {
			t.Errorf("%s is receiver %d, %v; want %d", name, i, err, want)
		}
	}
	if _, err := receiver(rs, "y"); err == nil || err.Error() != "NOTIFY_URLS has no receiver of this name, only office, b.example" {
		t.Error(err)
	}
}
