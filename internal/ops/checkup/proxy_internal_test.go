package checkup

import (
	"strings"
	"testing"
)

func TestMalformedProxy(t *testing.T) {
	for value, bad := range map[string]bool{
		"": false, "http://proxy:3128": false, "proxy:3128": false, "proxy": false, "https://me:hunter2@proxy": false, "socks5://proxy:1080": false,
		"http://proxy:hunter2": true, "http//proxy hunter2": true, "http://": true, "http://me:hun%ter2@proxy": true,
		"http://me:hunter2#@proxy:3128": true, "HTTP://proxy:3128": false, "http://proxy:3128/path": false,
	} {
		t.Setenv("HTTPS_PROXY", value)
		for _, other := range []string{"https_proxy", "HTTP_PROXY", "http_proxy"} {
			t.Setenv(other, "")
		}
		err := malformedProxy()
		if (err != nil) != bad || err != nil && (strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "HTTPS_PROXY is not")) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
