package webhook_test

import (
	"os"
	"strings"
	"testing"
)

// The payloads that the docs show are those that are sent.
func TestDocsShowThePayload(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/receivers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alert", "resolved"} {
		payload, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(docs), strings.TrimSpace(string(payload))) {
			t.Errorf("docs/receivers.md does not show testdata/%s.json", name)
		}
	}
}
