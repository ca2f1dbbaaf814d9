package webhook_test

import (
	"os"
	"strings"
	"testing"
)

// The payload that the docs show is the one that is sent.
func TestDocsShowThePayload(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/receivers.md")
	if err != nil {
		t.Fatal(err)
	}
	payload, err := os.ReadFile("testdata/alert.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), strings.TrimSpace(string(payload))) {
		t.Error("docs/receivers.md does not show testdata/alert.json")
	}
}
