package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// Whatever is in a blob, there is an answer; and what is not broken can be kept again.
func FuzzDecode(f *testing.F) {
	f.Add(encodeAlert(notify.DeadLetter{Alert: notifytest.Alert(1), Receiver: "r", Reason: "x"}, time.Now()))
	f.Add(encodeAlert(notify.DeadLetter{Receiver: "r"}, time.Now()))
	f.Add([]byte(`{"alert":null}`))
	f.Add([]byte(`{"alert":{},"kept":"x"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if l := decode(Undecodable, content); (l.Event == nil) != (l.Broken != nil) {
			t.Fatalf("an event is neither shown nor broken: %+v", l)
		}
		l := decode(Undelivered, content)
		if l.Broken != nil {
			return
		}
		again := decode(Undelivered, encodeAlert(notify.DeadLetter{Alert: l.Alert, Receiver: l.Receiver, Reason: l.Reason}, l.Kept))
		if again.Broken != nil || again.Alert != l.Alert || again.Receiver != l.Receiver || again.Reason != l.Reason {
			t.Fatalf("%+v became %+v", l, again)
		}
	})
}

// Whatever an event holds, its blob is JSON of bounded size with the beginning of its body.
func FuzzMalformed(f *testing.F) {
	f.Add("d", []byte("text"), "name", "value", int64(0))
	f.Add(strings.Repeat("é", 300), []byte(strings.Repeat("€", maxBody)), "\xff", strings.Repeat("v", maxProperties), int64(1)<<62)
	f.Add("", append([]byte(strings.Repeat("x", maxBody-1)), "é"...), "", "", int64(-1)<<62)
	f.Fuzz(func(t *testing.T, device string, body []byte, name, value string, seconds int64) {
		content := encodeMalformed(telemetry.MalformedEvent{Event: telemetry.Event{
			Device: device, Body: body, Enqueued: time.Unix(seconds, 0), Properties: telemetrytest.Properties(map[string]any{name: value}),
		}}, time.Unix(seconds, 0))
		var m malformed
		if err := json.Unmarshal(content, &m); err != nil {
			t.Fatal(err)
		}
		if len(content) > 7*(maxBody+maxProperties+6*maxLabel) {
			t.Fatalf("%d bytes", len(content))
		}
		if l := decode(Undecodable, content); l.Broken != nil || l.Event == nil || l.Event.Size != len(body) || l.Event.Body != m.Body {
			t.Fatalf("%q became %+v", content, l)
		}
		kept := m.Body
		if m.BodyBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(m.BodyBase64)
			if err != nil || utf8.Valid(body) {
				t.Fatalf("base64 of a body that is text, or none: %v", err)
			}
			kept = string(raw)
		}
		if !strings.HasPrefix(string(body), kept) || len(kept) < min(len(body), maxBody-utf8.UTFMax) || !m.Truncated && kept != string(body) {
			t.Fatalf("kept %d bytes of %d, truncated %t", len(kept), len(body), m.Truncated)
		}
	})
}

func TestIDs(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_999_999, time.FixedZone("", 3600))
	id := newID(at, "receiver", "ns/hub/0/7")
	if got, want := id[:21], "20260301T110000.250Z-"; got != want {
		t.Errorf("the id begins with %s, want %s", got, want)
	}
	if got, ok := idOf(Undelivered, blobName(Undelivered, id)); !ok || got != id {
		t.Errorf("%s, %t", got, ok)
	}
	if newID(at, "receiver", "x") == newID(at, "receive", "rx") {
		t.Error("ids are not told apart")
	}
	for _, name := range []string{"", "alerts/", "alerts/" + id + ".json", "malformed/2026/03/01/" + id + ".json", "alerts/2026/03/02/" + id + ".json", "alerts/2026/03/01/" + id, "alerts/2026/03/01/x.json"} {
		if got, ok := idOf(Undelivered, name); ok {
			t.Errorf("%q is letter %q", name, got)
		}
	}
}
