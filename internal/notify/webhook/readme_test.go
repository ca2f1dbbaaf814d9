package webhook_test

import (
	"os"
	"strings"
	"testing"
)

// The payload that the README shows is the one that is sent.
func TestREADMEShowsThePayload(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	payload, err := os.ReadFile("testdata/alert.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), strings.TrimSpace(string(payload))) {
		t.Error("README.md does not show testdata/alert.json")
	}
}
