package checkup

import (
	"fmt"
	"os"
	"regexp"
)

// proxyURL matches what may be the URL of a proxy, with a user or without.
var proxyURL = regexp.MustCompile(`^((https?|socks5h?)://)?(([^@/%]|%[0-9A-Fa-f]{2})*@)?(\[[^]/]+\]|[^][@:/\s]+)(:\d*)?/?$`)

// malformedProxy returns an error for a variable that should name a proxy and does not: connections go past the
// proxy, or to another. The error does not hold the value, which may have a password.
func malformedProxy() error {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if value := os.Getenv(name); value != "" && !proxyURL.MatchString(value) {
			return fmt.Errorf("%s is not the URL of a proxy: write http://HOST:PORT", name)
		}
	}

	return nil
}
