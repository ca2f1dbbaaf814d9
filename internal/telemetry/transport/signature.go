package transport

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Signature returns the shared access signature by which the holder of a key may use a resource, and all that is in it,
// until it expires.
func Signature(resource, keyName string, key []byte, expiry time.Time) string {
	resource = url.QueryEscape(resource)
	until := strconv.FormatInt(expiry.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(resource + "\n" + until))
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))

	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s",
		resource, signature, until, url.QueryEscape(keyName))
}
