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
	if err != nil {
		return fmt.Errorf("must be a URL such as %s", example)
	}

	switch {
	case u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("must be a URL such as %s", example)

	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf(
			"must be only the account's address, %s: a key or signature belongs in a connection string",
			example,
		)

	case u.Scheme != "https":
		return errors.New("must be https for access without a key; an emulator requires a connection string")

	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("must be the account's address without a path: %s", example)
	}

	return nil
}
