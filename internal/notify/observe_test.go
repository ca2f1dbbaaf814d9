package notify_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"alertworker/internal/notify"
)

type key struct{}

// receiver is a Notifier, and with reports a Reporter, that fails.
type receiver struct{ saw *[]string }

var errDown = errors.New("down")

func (r receiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	*r.saw = append(*r.saw, "notify "+alerts[0].ID+" in "+ctx.Value(key{}).(string))
	return errDown
}

type reports struct{ receiver }

func (r reports) Report(ctx context.Context, s notify.Summary) error {
	*r.saw = append(*r.saw, "report "+s.ID+" in "+ctx.Value(key{}).(string))
	return errDown
}

// Observers see alerts and summaries, nested in their order, with the results.
func TestObserve(t *testing.T) {
	var saw []string
	observer := func(name string) notify.Observer {
		return func(ctx context.Context, a notify.Attempt) (context.Context, func(error)) {
			id := ""
			switch {
			case a.Alert != nil:
				id = a.Alert.ID
			case a.Summary != nil:
				id = a.Summary.ID
			}
			saw = append(saw, name+" begins "+id)
			return context.WithValue(ctx, key{}, name), func(err error) { saw = append(saw, name+" ends "+err.Error()) }
		}
	}
	silent := func(ctx context.Context, _ notify.Attempt) (context.Context, func(error)) { return ctx, nil }
	n := notify.Observe(reports{receiver{&saw}}, observer("a"), nil, silent, observer("b"))
	if err := n.Notify(t.Context(), notify.Alert{ID: "1"}); err != errDown {
		t.Errorf("Notify: %v, want the error as it is", err)
	}
	if err := n.(notify.Reporter).Report(t.Context(), notify.Summary{ID: "2"}); err != errDown {
		t.Errorf("Report: %v, want the error as it is", err)
	}
	want := []string{
		"a begins 1", "b begins 1", "notify 1 in b", "b ends down", "a ends down",
		"a begins 2", "b begins 2", "report 2 in b", "b ends down", "a ends down",
	}
	if !slices.Equal(saw, want) {
		t.Errorf("got %q, want %q", saw, want)
	}
}

// A receiver that takes no summaries takes none when observed, and one that nobody observes is itself.
func TestObserveNot(t *testing.T) {
	silent := func(ctx context.Context, _ notify.Attempt) (context.Context, func(error)) { return ctx, nil }
	if _, ok := notify.Observe(receiver{}, silent).(notify.Reporter); ok {
		t.Error("an observed Notifier has become a Reporter")
	}
	if got := notify.Observe(receiver{}, nil, nil); got != (receiver{}) {
		t.Errorf("got %v", got)
	}
}
