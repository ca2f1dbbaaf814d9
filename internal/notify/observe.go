package notify

import (
	"context"
	"slices"
)

// An Attempt is about to be made to deliver an alert or a summary; the other is nil.
type Attempt struct {
	Alert   *Alert
	Summary *Summary
}

// An Observer is called before each attempt, concurrently. It returns the context for
// the attempt and a function that is called with its result, or nil.
type Observer func(context.Context, Attempt) (context.Context, func(error))

// Observe returns next, with its attempts observed by those observers that are not nil: the first
// starts first and ends last. The result is a Reporter if next is.
func Observe(next Notifier, observers ...Observer) Notifier {
	observers = slices.DeleteFunc(slices.Clone(observers), func(o Observer) bool { return o == nil })
	if len(observers) == 0 {
		return next
	}
	o := observed{next, observers}
	if reporter, ok := next.(Reporter); ok {
		return observedReporter{o, reporter}
	}
	return o
}

type observed struct {
	next      Notifier
	observers []Observer
}

// Notify is an attempt at each of alerts.
func (o observed) Notify(ctx context.Context, alerts ...Alert) error {
	do := func(ctx context.Context) error { return o.next.Notify(ctx, alerts...) }
	for i := range alerts {
		next := do
		do = func(ctx context.Context) error { return attempt(ctx, Attempt{Alert: &alerts[i]}, o.observers, next) }
	}
	return do(ctx)
}

type observedReporter struct {
	observed
	reporter Reporter
}

func (o observedReporter) Report(ctx context.Context, s Summary) error {
	return attempt(ctx, Attempt{Summary: &s}, o.observers, func(ctx context.Context) error { return o.reporter.Report(ctx, s) })
}

// attempt calls do, seen by the observers.
func attempt(ctx context.Context, a Attempt, observers []Observer, do func(context.Context) error) error {
	ends := make([]func(error), 0, len(observers))
	for _, observe := range observers {
		var end func(error)
		if ctx, end = observe(ctx, a); end != nil {
			ends = append(ends, end)
		}
	}
	err := do(ctx)
	for _, end := range slices.Backward(ends) {
		end(err)
	}
	return err
}
