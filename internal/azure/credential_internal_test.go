package azure

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever an identity's error says becomes one line.
func FuzzSummarize(f *testing.F) {
	f.Add("DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n\tEnvironmentCredential: missing environment variable AZURE_TENANT_ID\n\tX authentication failed. \n\t\tRESPONSE 400: 400 Bad Request")
	f.Add("Attempted credentials:\n\t\t\n\n\tX: ü\t\tRESPONSE 400")
	f.Fuzz(func(t *testing.T, text string) {
		got := summarize(text)
		if strings.ContainsAny(got, "\n\r\t") || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
