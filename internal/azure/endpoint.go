package azure

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CheckEndpoint returns an error, which says what address must be, unless it is that of
// an account to be used with an identity: https, since tokens are not sent in the
// clear, and nothing but scheme, host and port. It does not repeat address, which could be a
// secret in the wrong place.
func CheckEndpoint(address, example string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("must be a URL such as %s", example)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("must be the account's address alone, %s: a key or signature belongs in a connection string", example)
	case u.Scheme != "https":
		return errors.New("must be https to sign in without a key; an emulator needs a connection string")
	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("must be the account's address without a path: %s", example)
	}
	return nil
}
