package checkup

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"alertworker/internal/config"
)

// A cloud of Azure has domains and a place to sign in of its own
// (learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure,
// learn.microsoft.com/azure/china/resources-developer-guide).
type cloud struct {
	name      string
	domains   []string
	authority string   // hosts where identities sign in
	others    []string // likewise
}

var allClouds = []cloud{
	{
		"Azure", []string{".servicebus.windows.net", ".core.windows.net", ".documents.azure.com", ".azure-devices.net"},
		"login.microsoftonline.com", []string{"login.windows.net", "login.microsoft.com", "sts.windows.net"},
	},
	{"Azure for US government", []string{".usgovcloudapi.net", ".azure.us", ".azure-devices.us"}, "login.microsoftonline.us", nil},
	{"Azure in China", []string{".chinacloudapi.cn", ".azure.cn", ".azure-devices.cn"}, "login.partner.microsoftonline.cn", []string{"login.chinacloudapi.cn"}},
}

// clouds says in which cloud what c names is, if that is not the usual one. It is an error if that is several, or if an
// identity signs in at another one: authority is AZURE_AUTHORITY_HOST.
func clouds(c config.Config, authority string) (string, error) {
	hosts := []struct{ what, host string }{
		{"the hub", c.Hub().Host}, {"the IoT Hub", c.IoTHub()}, {"storage", c.StorageHost()}, {"Cosmos DB", hostOf(c.CosmosEndpoint)},
	}
	var in *cloud
	var first string
	for _, h := range hosts {
		found := cloudOf(h.host)
		if in == nil {
			in, first = found, h.what
		}

		if found != nil && found != in {
			return "", fmt.Errorf("%s is in %s, and %s in %s: one of the addresses has the wrong ending", first, in.name, h.what, found.name)
		}
	}

	switch {
	case in == nil:
		return "", nil
	case c.Keyless() && !in.signsIn(authority):
		return "", fmt.Errorf("%s, but identities sign in at %s: set AZURE_AUTHORITY_HOST=https://%s/", in.name,
			orUsual(hostOf(authority)), in.authority)
	case in == &allClouds[0]:
		return "", nil
	}

	return "", statement(in.name)
}

// cloudOf returns the cloud that a host is in; nil if its name does not say.
func cloudOf(host string) *cloud {
	host = strings.ToLower(host)
	for i := range allClouds {
		if slices.ContainsFunc(allClouds[i].domains, func(d string) bool { return strings.HasSuffix(host, d) }) {
			return &allClouds[i]
		}
	}

	return nil
}

// signsIn reports whether AZURE_AUTHORITY_HOST is of c.
func (c *cloud) signsIn(authority string) bool {
	host := orUsual(hostOf(authority))
	return host == c.authority || slices.Contains(c.others, host)
}

// orUsual returns where identities sign in if nothing says otherwise.
func orUsual(host string) string { return cmp.Or(host, allClouds[0].authority) }

// hostOf returns the host of a URL in lower case; empty if there is none.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
