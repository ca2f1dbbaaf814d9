package config

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"
)

// What says when it ends is read, in each form that there is.
func TestEndings(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 0, 0, time.UTC)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"aud":"x","exp":%d}`, at.Unix()))
	token := "eyJhbGciOiJub25lIn0." + claims + ".c2ln"
	hub := fmt.Sprintf("Endpoint=sb://ns.servicebus.windows.net/;SharedAccessSignature=SharedAccessSignature sr=ns&sig=a%%3D&se=%d&skn=k;EntityPath=hub", at.Unix())
	const account = "BlobEndpoint=https://acc.blob.core.windows.net;SharedAccessSignature=sv=2022-11-02&ss=b&se="
	for _, test := range []struct {
		name, credential string
		c                Config
		at               time.Time // zero: nothing is known
	}{
		{"a key", "", Config{StorageConnectionString: NewSecret("AccountName=acc;AccountKey=a2V5se=")}, time.Time{}},
		{"storage", "STORAGE_CONNECTION_STRING", Config{StorageConnectionString: NewSecret(account + "2027-01-02T03%3A04%3A00Z&sig=x")}, at},
		{"storage, minutes", "STORAGE_CONNECTION_STRING", Config{StorageConnectionString: NewSecret(account + "2027-01-02T03:04Z&sig=x")}, at},
		{"storage, a day", "STORAGE_CONNECTION_STRING", Config{StorageConnectionString: NewSecret(account + "2027-01-02&sig=x")}, at.Truncate(24 * time.Hour)},
		{"storage, first", "STORAGE_CONNECTION_STRING", Config{StorageConnectionString: NewSecret("BlobEndpoint=https://acc;SharedAccessSignature=se=2027-01-02&sig=x")}, at.Truncate(24 * time.Hour)},
		{"hub", "EVENTHUB_CONNECTION_STRING", Config{EventHubConnectionString: NewSecret(hub)}, at},
		{"nonsense", "", Config{EventHubConnectionString: NewSecret("a;SharedAccessSignature=se=soon&x")}, time.Time{}},
		{"a webhook", "NOTIFY_URLS", Config{NotifyURLs: NewURLs(fmt.Sprintf("https://example.com/?sr=x&se=%d&sig=y", at.Unix()))}, at},
		{"the second of two", "NOTIFY_URLS, entry 2", Config{NotifyURLs: NewURLs("https://one.example.com/", "https://two.example.com/?se=2027-01-02T03:04:00Z&sig=y")}, at},
		{"Event Grid", "NOTIFY_URLS", Config{NotifyURLs: NewURLs("eventgrid+https://:r=https%3A%2F%2Ftopic%2F&e=1%2F2%2F2027%203%3A04%3A00%20AM&s=x@topic.westeurope-1.eventgrid.azure.net/")}, at},
		{"a token", "NOTIFY_URLS", Config{NotifyURLs: NewURLs("ntfy+https://:" + token + "@ntfy.example.com/topic")}, at},
		{"a heartbeat", "HEARTBEAT_URL", Config{HeartbeatURL: NewSecret("https://example.com/?token=" + token)}, at},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.c.Endings()
			if test.at.IsZero() && len(got) == 0 {
				return
			}
			if len(got) != 1 || got[0].Credential != test.credential || !got[0].At.Equal(test.at) {
				t.Errorf("got %+v, want %s to end at %v", got, test.credential, test.at)
			}
		})
	}
}
