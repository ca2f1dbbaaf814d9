package checkup

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// malformedProxy returns an error for a variable that should name a proxy and does not: connections go past the
// proxy, or to another. The error does not hold the value, which may have a password.
func malformedProxy() error {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if !strings.Contains(value, "//") {
			value = "http://" + value
		}

		u, err := url.Parse(value)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
			return fmt.Errorf("%s is not the URL of a proxy: write http://HOST:PORT", name)
		}
	}

	return nil
}
