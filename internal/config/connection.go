package config

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/telemetry/iothub"
)

// Connection strings are "Key=value;Key=value". They are checked here for what the
// SDKs would reject or misread later; errors never hold a value.

// parsePairs splits a connection string the way the Azure SDKs do: keys in any
// case (lower-cased here), values with any number of "=", the last of several wins.
func parsePairs(s string) (map[string]string, error) {
	pairs := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		if part == "" {
			continue
		}

		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, errors.New("is not a connection string: must be Key=value pairs separated by ;")
		}

		pairs[strings.ToLower(key)] = value
	}

	return pairs, nil
}

// A service is something that connection strings connect to.
type service struct {
	what     string   // its connection string, for people
	variable string   // where that belongs; "" if nowhere
	keys     []string // in lower case: a connection string of this service has one of them
}

// services are told apart by their keys: the first counts.
var services = []service{
	{"a device's connection string", "", []string{"deviceid"}},
	{"an IoT Hub's connection string", "IOTHUB_CONNECTION_STRING", []string{"hostname"}},
	{"a Cosmos DB connection string", "COSMOS_CONNECTION_STRING", []string{"accountendpoint"}},
	{
		"an Azure Storage connection string",
		"STORAGE_CONNECTION_STRING",
		[]string{"accountname", "accountkey", "defaultendpointsprotocol", "blobendpoint", "usedevelopmentstorage"},
	},
	{"an Event Hubs connection string", "EVENTHUB_CONNECTION_STRING", []string{"endpoint", "entitypath"}},
}

// parseFor splits the connection string in variable and rejects one that belongs
// elsewhere.
func parseFor(variable, s string) (map[string]string, error) {
	pairs, err := parsePairs(s)
	if err != nil {
		return nil, err
	}

	has := func(key string) bool { _, ok := pairs[key]; return ok }
	i := slices.IndexFunc(services, func(s service) bool { return slices.ContainsFunc(s.keys, has) })

	switch {
	case i < 0 || services[i].variable == variable:

	case services[i].variable == "":
		return nil, fmt.Errorf(
			"is %s, which can only send: use a connection string of the hub itself (portal: IoT Hub > Built-in endpoints)",
			services[i].what,
		)

	default:
		return nil, fmt.Errorf("is %s, which belongs in %s", services[i].what, services[i].variable)
	}

	for _, value := range pairs {
		if placeholder.MatchString(value) {
			return nil, errors.New("still contains a placeholder (<...> or ...)")
		}
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
	pairs, err := parseFor("EVENTHUB_CONNECTION_STRING", s)
	if err != nil {
		return HubAddress{}, err
	}

	endpoint, err := url.Parse(pairs["endpoint"])
	isEndpoint := err == nil && strings.HasPrefix(pairs["endpoint"], "sb://") && endpoint.Hostname() != ""
	_, notBool := strconv.ParseBool(cmp.Or(pairs["usedevelopmentemulator"], "false"))
	hasKey := pairs["sharedaccesskeyname"] != "" && pairs["sharedaccesskey"] != "" || pairs["sharedaccesssignature"] != ""
	if !isEndpoint || !hasKey || notBool != nil {
		return HubAddress{}, errors.New(
			"is incomplete or malformed: must be Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY, perhaps " +
				"with UseDevelopmentEmulator=true: copy the whole string (portal: IoT Hub > Built-in endpoints)",
		)
	}

	return HubAddress{Host: endpoint.Host, Name: pairs["entitypath"]}, nil
}

// parseIoTHub reads an IoT Hub's service connection string and returns its host.
func parseIoTHub(s string) (host string, err error) {
	pairs, err := parseFor("IOTHUB_CONNECTION_STRING", s)
	if err != nil {
		return "", err
	}

	policy := pairs["sharedaccesskeyname"]
	if slices.Contains([]string{"device", "registryRead", "registryReadWrite"}, policy) {
		return "", fmt.Errorf(
			"is that of the policy %s, which cannot read telemetry: use that of the policy service (portal: IoT Hub > Shared "+
				"access policies)",
			policy,
		)
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

	pairs, ok := parseStoragePairs(s)
	_, notBase64 := base64.StdEncoding.DecodeString(pairs["AccountKey"])
	hasKey := pairs["AccountName"] != "" && pairs["AccountKey"] != ""
	isSigned := hasKey && notBase64 == nil || !hasKey && pairs["SharedAccessSignature"] != ""

	endpoint, err := url.Parse(cmp.Or(pairs["BlobEndpoint"], "https://"+pairs["AccountName"]))
	hasEndpoint := err == nil && endpoint.Host != "" && slices.Contains([]string{"http", "https"}, endpoint.Scheme)
	if !ok || !isSigned || !hasEndpoint {
		return errors.New(
			"is incomplete or malformed: must be AccountName=NAME;AccountKey=KEY, with a key in base64, or " +
				"BlobEndpoint=URL;SharedAccessSignature=SIGNATURE: copy the whole string (portal: storage account > Access keys)",
		)
	}

	return nil
}

// parseStoragePairs splits a connection string as the SDK of Azure Storage does, which is case-sensitive about keys,
// and refuses empty parts except at the end.
func parseStoragePairs(s string) (pairs map[string]string, ok bool) {
	pairs = map[string]string{}
	for part := range strings.SplitSeq(strings.TrimRight(s, ";"), ";") {
		key, value, isPair := strings.Cut(part, "=")
		if !isPair {
			return nil, false
		}
		pairs[key] = value
	}

	return pairs, true
}

// StorageHost returns the host name of the storage account's blobs; empty if there is none.
func (c Config) StorageHost() string {
	endpoint := c.StorageAccountURL
	if pairs, ok := parseStoragePairs(c.StorageConnectionString.Reveal()); ok {
		account := "https://" + pairs["AccountName"] + ".blob." + cmp.Or(pairs["EndpointSuffix"], "core.windows.net")
		endpoint = cmp.Or(pairs["BlobEndpoint"], account)
	}

	u, err := url.Parse(endpoint)
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
