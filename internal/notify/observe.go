package notify

import (
	"context"
	"slices"
)

// An Observer is called before each attempt to deliver an alert, concurrently, but not for one that is a Refresh. It returns
// a function that is called with the result.
type Observer func(context.Context, *Alert) func(error)

// Observe returns next, with its attempts observed: the first observer starts first and ends last.
func Observe(next Notifier, observers ...Observer) Notifier { return observed{next, observers} }

type observed struct {
	next      Notifier
	observers []Observer
}

// Notify is an attempt at each of alerts.
func (o observed) Notify(ctx context.Context, alerts ...Alert) error {
	var ends []func(error)
	for i := range alerts {
		if alerts[i].Refresh {
			continue
		}

		for _, observe := range o.observers {
			ends = append(ends, observe(ctx, &alerts[i]))
		}
	}

	err := o.next.Notify(ctx, alerts...)
	for _, end := range slices.Backward(ends) {
		end(err)
	}

	return err
}
