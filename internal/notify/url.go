package notify

import (
	"cmp"
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// CheckURL says what is wrong with the address of a receiver, whatever its scheme is. rest is what follows the host and has
// no @. The error holds no part of u.
func CheckURL(u *url.URL, rest string) error {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
	switch {
	case u.User == nil && strings.Contains(rest, "@"): // "https://user:1/2@host" is the host "user" to a parser
		return errors.New("there is an @ after the host: write it as %40, and / ? # in a user or password as %2F %3F %23")
	case u.Fragment != "":
		return errors.New("a fragment (#…) is never sent: leave it out, or write # as %23")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("there is no host")
	case err != nil || port == 0:
		return errors.New("the port is not one of 1 to 65535")
	}

	return nil
}
