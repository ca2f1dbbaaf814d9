package notify_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"alertworker/internal/notify"
)

// receiver is a Notifier that fails.
type receiver struct{ saw *[]string }

var errDown = errors.New("down")

func (r receiver) Notify(_ context.Context, alerts ...notify.Alert) error {
	*r.saw = append(*r.saw, "notify "+alerts[0].ID)
	return errDown
}

// Observers see attempts, nested in their order, with the results.
func TestObserve(t *testing.T) {
	var saw []string
	observer := func(name string) notify.Observer {
		return func(_ context.Context, a *notify.Alert) func(error) {
			saw = append(saw, name+" begins "+a.ID)
			return func(err error) { saw = append(saw, name+" ends "+err.Error()) }
		}
	}
	n := notify.Observe(receiver{&saw}, observer("a"), observer("b"))
	if err := n.Notify(t.Context(), notify.Alert{ID: "1"}); err != errDown {
		t.Errorf("Notify: %v, want the error as it is", err)
	}
	want := []string{
		"a begins 1", "b begins 1", "notify 1", "b ends down", "a ends down",
	}
	if !slices.Equal(saw, want) {
		t.Errorf("got %q, want %q", saw, want)
	}
}
