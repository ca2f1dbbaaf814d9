package deadletter

import (
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

// Whatever is in a blob, there is an answer; and what is not broken can be kept again.
func FuzzDecode(f *testing.F) {
	f.Add(encodeAlert(notify.DeadLetter{Alert: notifytest.Alert(1), Receiver: "r", Reason: "x"}, time.Now()))
	f.Add(encodeAlert(notify.DeadLetter{Receiver: "r"}, time.Now()))
	f.Add([]byte(`{"alert":null}`))
	f.Add([]byte(`{"alert":{},"kept":"x"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		l := decode(content)
		if l.Broken != nil {
			return
		}
		again := decode(encodeAlert(notify.DeadLetter{Alert: l.Alert, Receiver: l.Receiver, Reason: l.Reason}, l.Kept))
		if again.Broken != nil || again.Alert != l.Alert || again.Receiver != l.Receiver || again.Reason != l.Reason {
			t.Fatalf("%+v became %+v", l, again)
		}
	})
}

func TestIDs(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_999_999, time.FixedZone("", 3600))
	idAt := func(receiver, alert string) string {
		return ID(notify.DeadLetter{Receiver: receiver, Alert: notify.Alert{ID: alert, Enqueued: at}})
	}
	id := idAt("receiver", "ns/hub/0/7")
	if got, want := id[:21], "20260301T110000.250Z-"; got != want {
		t.Errorf("the id begins with %s, want %s", got, want)
	}
	if got, ok := idOf(Undelivered, blobName(Undelivered, id)); !ok || got != id {
		t.Errorf("%s, %t", got, ok)
	}
	if idAt("receiver", "x") == idAt("receive", "rx") {
		t.Error("ids are not told apart")
	}
	for _, name := range []string{"", "alerts/", "alerts/" + id + ".json", "malformed/2026/03/01/" + id + ".json", "alerts/2026/03/02/" + id + ".json", "alerts/2026/03/01/" + id, "alerts/2026/03/01/x.json"} {
		if got, ok := idOf(Undelivered, name); ok {
			t.Errorf("%q is letter %q", name, got)
		}
	}
}
