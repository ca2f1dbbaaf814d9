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
		return nil, fmt.Errorf(
			"is %s, which can only send: use a connection string of the hub itself (portal: IoT Hub > Built-in endpoints)",
			what,
		)

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
	_, notBool := strconv.ParseBool(cmp.Or(pairs["usedevelopmentemulator"], "false"))
	keyed := pairs["sharedaccesssignature"] != "" || pairs["sharedaccesskeyname"] != "" && pairs["sharedaccesskey"] != ""
	if err != nil || !strings.HasPrefix(pairs["endpoint"], "sb://") || endpoint.Hostname() == "" || !keyed ||
		notBool != nil {
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

	switch policy := pairs["sharedaccesskeyname"]; policy {
	case "device", "registryRead", "registryReadWrite":
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

// checkStorage checks an Azure Storage connection string. Its SDK is case-sensitive
// about keys, and refuses empty parts except at the end.
func checkStorage(s string) error {
	if _, err := parseFor("STORAGE_CONNECTION_STRING", s); err != nil {
		return err
	}

	pairs, paired := map[string]string{}, true
	for part := range strings.SplitSeq(strings.TrimRight(s, ";"), ";") {
		key, value, ok := strings.Cut(part, "=")
		pairs[key], paired = value, paired && ok
	}

	endpoint, err := url.Parse(cmp.Or(pairs["BlobEndpoint"], "https://"+pairs["AccountName"]))
	_, notBase64 := base64.StdEncoding.DecodeString(pairs["AccountKey"])
	keyed := pairs["AccountName"] != "" && pairs["AccountKey"] != ""
	switch {
	case !paired, err != nil, endpoint.Host == "", endpoint.Scheme != "http" && endpoint.Scheme != "https",
		keyed && notBase64 != nil, !keyed && pairs["SharedAccessSignature"] == "":
		return errors.New(
			"is incomplete or malformed: must be AccountName=NAME;AccountKey=KEY, with a key in base64, or " +
				"BlobEndpoint=URL;SharedAccessSignature=SIGNATURE: copy the whole string (portal: storage account > Access keys)",
		)
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
