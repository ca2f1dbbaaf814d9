package smtp

import (
	"net/mail"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

// Compose returns an alert's mail.
func Compose(a notify.Alert, from string, to ...string) ([]byte, error) {
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return nil, err
	}
	var recipients []*mail.Address
	for _, address := range to {
		recipients = append(recipients, &mail.Address{Address: address})
	}
	return compose(wording.Style{}, sender, recipients, a)
}
