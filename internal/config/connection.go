package config

import (
	"cmp"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/telemetry/iothub"
)

// Connection strings are "Key=value;Key=value". The SDKs read them; errors here say what they must be, and never hold a value.

// services are told apart by their keys, in lower case: a connection string of one has one of them, and the first counts.
var services = []struct {
	variable string // where it belongs; "" if nowhere
	what     string // it is, for people
	keys     []string
}{
	{
		"",
		"a device's connection string, which can only send: use a connection string of the hub itself (portal: IoT Hub > " +
			"Built-in endpoints)",
		[]string{"deviceid"},
	},
	{"IOTHUB_CONNECTION_STRING", "an IoT Hub's connection string, which belongs in IOTHUB_CONNECTION_STRING", []string{"hostname"}},
	{
		"COSMOS_CONNECTION_STRING",
		"a Cosmos DB connection string, which belongs in COSMOS_CONNECTION_STRING",
		[]string{"accountendpoint"},
	},
	{
		"STORAGE_CONNECTION_STRING",
		"an Azure Storage connection string, which belongs in STORAGE_CONNECTION_STRING",
		[]string{"accountname", "accountkey", "defaultendpointsprotocol", "blobendpoint", "usedevelopmentstorage"},
	},
	{
		"EVENTHUB_CONNECTION_STRING",
		"an Event Hubs connection string, which belongs in EVENTHUB_CONNECTION_STRING",
		[]string{"endpoint", "entitypath"},
	},
}

// parseFor splits the connection string in variable, and rejects one that belongs elsewhere. Its keys are in lower case:
// most SDKs take any.
func parseFor(variable, s string) (map[string]string, error) {
	pairs := map[string]string{}
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' }) {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, errors.New("is not a connection string: must be Key=value pairs separated by ;")
		}
		pairs[strings.ToLower(key)] = value
	}

	for _, service := range services {
		if slices.ContainsFunc(service.keys, func(key string) bool { return pairs[key] != "" }) {
			if service.variable != variable {
				return nil, errors.New("is " + service.what)
			}
			break
		}
	}

	if placeholder.MatchString(s) {
		return nil, errors.New("still contains a placeholder (<...> or ...)")
	}

	return pairs, nil
}

// placeholder is what examples have instead of a value.
var placeholder = regexp.MustCompile(`[<>…]|\.\.\.`)

// A HubAddress names an event hub: the host of its namespace, with the port if
// the string has one, and the hub in it.
type HubAddress struct {
	Host string
	Name string // empty if the connection string has no EntityPath
}

// parseEventHub reads an Event Hubs connection string.
func parseEventHub(s string) (HubAddress, error) {
	if _, err := parseFor("EVENTHUB_CONNECTION_STRING", s); err != nil {
		return HubAddress{}, err
	}

	properties, err := azeventhubs.ParseConnectionString(s)
	if err != nil || !strings.HasPrefix(properties.Endpoint, "sb://") {
		return HubAddress{}, errors.New(
			"is incomplete or malformed: must be Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY, perhaps " +
				"with UseDevelopmentEmulator=true: copy the whole string (portal: IoT Hub > Built-in endpoints)",
		)
	}

	return HubAddress{Host: properties.FullyQualifiedNamespace, Name: *cmp.Or(properties.EntityPath, new(string))}, nil
}

// parseIoTHub reads an IoT Hub's service connection string and returns its host.
func parseIoTHub(s string) (host string, err error) {
	pairs, err := parseFor("IOTHUB_CONNECTION_STRING", s)
	if err != nil {
		return "", err
	}

	if err := iothub.Check(s); err != nil {
		return "", err
	}

	return pairs["hostname"], nil
}

// checkStorage checks an Azure Storage connection string.
func checkStorage(s string) error {
	if _, err := parseFor("STORAGE_CONNECTION_STRING", s); err != nil {
		return err
	}

	client, err := azblob.NewClientFromConnectionString(s, nil)
	if err != nil || hostOf(client.URL()) == "" {
		return errors.New(
			"is incomplete or malformed: must be AccountName=NAME;AccountKey=KEY, with a key in base64, or " +
				"BlobEndpoint=URL;SharedAccessSignature=SIGNATURE: copy the whole string (portal: storage account > Access keys)",
		)
	}

	return nil
}

// hostOf returns the host name of a URL, empty if it is none.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// checkCosmos checks a Cosmos DB connection string.
func checkCosmos(s string) error {
	if _, err := parseFor("COSMOS_CONNECTION_STRING", s); err != nil {
		return err
	}
	_, err := cosmoslease.WithKey(s)
	return err
}

// hostName is a host name with a dot in it, except for its length.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})+$`)
