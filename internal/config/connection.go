package config

import (
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

// belongsTo returns what a connection string with these keys connects to and the
// variable that it belongs in; both are empty if that is not known.
func belongsTo(pairs map[string]string) (what, variable string) {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { _, ok := pairs[k]; return ok })
	}
	switch {
	case has("deviceid"):
		return "a device's connection string", ""
	case has("hostname"):
		return "an IoT Hub's connection string", "IOTHUB_CONNECTION_STRING"
	case has("accountendpoint"):
		return "a Cosmos DB connection string", "COSMOS_CONNECTION_STRING"
	case has("accountname", "accountkey", "defaultendpointsprotocol", "blobendpoint", "usedevelopmentstorage"):
		return "an Azure Storage connection string", "STORAGE_CONNECTION_STRING"
	case has("endpoint", "entitypath"):
		return "an Event Hubs connection string", "EVENTHUB_CONNECTION_STRING"
	}
	return "", ""
}

// parseFor splits the connection string in variable and rejects one that belongs
// elsewhere.
func parseFor(variable, s string) (map[string]string, error) {
	pairs, err := parsePairs(s)
	if err != nil {
		return nil, err
	}
	what, home := belongsTo(pairs)
	switch {
	case what != "" && home == "":
		return nil, fmt.Errorf("is %s, which can only send: use a connection string of the hub itself (portal: IoT Hub > Built-in endpoints)", what)
	case home != "" && home != variable:
		return nil, fmt.Errorf("is %s, which belongs in %s", what, home)
	}
	for _, value := range pairs {
		if strings.ContainsAny(value, "<>") || strings.Contains(value, "...") || strings.Contains(value, "…") {
			return nil, errors.New("still contains a placeholder (<...> or ...)")
		}
	}
	return pairs, nil
}

// missing returns an error that names those of keys that have no value.
func missing(pairs map[string]string, keys ...string) error {
	var names []string
	for _, key := range keys {
		if pairs[strings.ToLower(key)] == "" {
			names = append(names, key)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("has no %s: copy the whole string", strings.Join(names, " and no "))
}

func isBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil && s != ""
}

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
	if err := missing(pairs, "Endpoint"); err != nil {
		return HubAddress{}, err
	}
	if pairs["sharedaccesssignature"] == "" {
		if err := missing(pairs, "SharedAccessKeyName", "SharedAccessKey"); err != nil {
			return HubAddress{}, err
		}
	}
	endpoint, err := url.Parse(pairs["endpoint"])
	if err != nil || endpoint.Scheme != "sb" || !strings.HasPrefix(pairs["endpoint"], "sb://") || endpoint.Hostname() == "" {
		return HubAddress{}, errors.New("has an invalid Endpoint: must be sb://HOST/")
	}
	if emulator, ok := pairs["usedevelopmentemulator"]; ok {
		if _, err := strconv.ParseBool(emulator); err != nil {
			return HubAddress{}, errors.New("has an invalid UseDevelopmentEmulator: must be true or false")
		}
	}
	return HubAddress{Host: endpoint.Host, Name: pairs["entitypath"]}, nil
}

// parseIoTHub reads an IoT Hub's service connection string and returns its host.
func parseIoTHub(s string) (host string, err error) {
	pairs, err := parseFor("IOTHUB_CONNECTION_STRING", s)
	if err != nil {
		return "", err
	}
	switch policy := pairs["sharedaccesskeyname"]; policy {
	case "device", "registryRead", "registryReadWrite":
		return "", fmt.Errorf("is that of the policy %s, which cannot read telemetry: use that of the policy service (portal: IoT Hub > Shared access policies)", policy)
	}
	if err := iothub.Check(s); err != nil {
		return "", err
	}
	return pairs["hostname"], nil
}

// checkStorage checks an Azure Storage connection string. Its SDK is case-sensitive
// about keys, and refuses empty parts except at the end.
func checkStorage(s string) error {
	pairs, err := parseFor("STORAGE_CONNECTION_STRING", s)
	if err != nil {
		return err
	}
	exactly := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimRight(s, ";"), ";") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return errors.New("has a part that is not KEY=VALUE: copy the whole string (portal: storage account > Access keys)")
		}
		exactly[key] = value
	}
	has := func(key string) bool { return exactly[key] != "" }
	switch {
	case !has("AccountName") && !has("BlobEndpoint"):
		return errors.New("has no AccountName and no BlobEndpoint: copy the whole string (portal: storage account > Access keys)")
	case has("AccountName") && has("AccountKey"):
		if !isBase64(pairs["accountkey"]) {
			return errors.New("has an AccountKey that is not base64: copy the whole string")
		}
	case !has("SharedAccessSignature"):
		return errors.New("has no AccountKey and no SharedAccessSignature: copy the whole string (portal: storage account > Access keys)")
	}
	if has("BlobEndpoint") {
		if u, err := url.Parse(exactly["BlobEndpoint"]); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("has an invalid BlobEndpoint: must be a URL")
		}
	}
	return nil
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
