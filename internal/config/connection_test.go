package config

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"alertworker/internal/lease/cosmoslease"
)

// What we let pass the SDKs must take, else it fails only later; and no error
// may hold a value.
func FuzzConnectionStrings(f *testing.F) {
	for _, seed := range []string{
		"", ";", "=", "a=b", hubString, iotString, storeString, cosmoString, developmentStorage, "UseDevelopmentStorage=true",
		hubString + ";UseDevelopmentEmulator=true",
		"Endpoint=SB://h;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true",
		"Endpoint=sb://[::1]:5672;SharedAccessKeyName=a;SharedAccessKey=b;useDevelopmentEmulator=1",
		"Endpoint=sb://h/;SharedAccessSignature=sr=x&sig=y",
		"BlobEndpoint=http://h/a;SharedAccessSignature=sv=1",
		"AccountEndpoint=https://h;AccountKey=YQ==;;",
		";AccountEndpoint=https://h;AccountKey=YQ==",
		"HostName=h.x;DeviceId=d;SharedAccessKey=YQ==",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(err error, sdk func() error) {
			if err == nil {
				if err := sdk(); err != nil {
					t.Errorf("passed, but the SDK says %v", err)
				}
				return
			}
			for part := range strings.SplitSeq(s, ";") {
				_, value, _ := strings.Cut(part, "=")
				if len(value) > 24 && strings.Contains(err.Error(), value) && !strings.Contains("https://ACCOUNT.documents.azure.com:443/", value) { // an example in the error itself
					t.Errorf("the error holds a value: %v", err)
				}
			}
		}
		address, err := parseEventHub(s)
		if err == nil && address.Host == "" {
			t.Error("no host and no error")
		}
		check(err, func() error {
			properties, err := azeventhubs.ParseConnectionString(s)
			if err == nil && properties.FullyQualifiedNamespace != address.Host {
				t.Errorf("host is %q, to the SDK %q", address.Host, properties.FullyQualifiedNamespace)
			}
			return err
		})
		check(checkStorage(s), func() error {
			_, err := azblob.NewClientFromConnectionString(s, nil)
			return err
		})
		check(checkCosmos(s), func() error {
			_, err := cosmoslease.WithKey(s)
			return err
		})
		host, err := parseIoTHub(s)
		check(err, func() error { return nil })
		if err == nil && !hostName.MatchString(host) {
			t.Errorf("host is %q", host)
		}
	})
}
