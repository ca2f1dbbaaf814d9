package letters_test

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/letters"
)

// What is shown of an event is one line, also if it has no body or one that is not text.
func TestBodies(t *testing.T) {
	for _, test := range []struct {
		size int
		body string
		want string
	}{
		{0, "", "0 bytes: empty"},
		{3, "", "3 bytes: not text"},
		{7, "one\ntwo", "7 bytes: one two"},
		{900, strings.Repeat("x", 900), "900 bytes: " + strings.Repeat("x", 79) + "…"},
	} {
		var out strings.Builder
		l := deadletter.Letter{ID: "id", Kind: deadletter.Undecodable, Reason: "malformed", Event: &deadletter.Event{
			Device: "oven", Partition: "0", Enqueued: time.Unix(0, 0), Size: test.size, Body: test.body,
		}}
		if err := letters.WriteTable(&out, []deadletter.Letter{l}, nil, false); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.HasSuffix(got, test.want+"\n") {
			t.Errorf("%d bytes, %q: %q", test.size, test.body, got)
		}
	}
}
