package azure

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CheckEndpoint returns an error unless address is that of an account to be used with an
// identity: https, because tokens must be encrypted, and only scheme, host and port. The error
// does not contain address, which could be a misplaced secret.
func CheckEndpoint(address, example string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("must be a URL such as %s", example)
	case u.Scheme != "https":
		return errors.New("must be https for access without a key; an emulator requires a connection string")
	case strings.TrimRight(u.String(), "/") != "https://"+u.Host:
		return fmt.Errorf(
			"must be only the account's address without a path, %s: a key or signature belongs in a connection string",
			example,
		)
	}

	return nil
}
