package rules

import (
	"fmt"
	"slices"
	"testing"
)

// What a few answers of /metrics show goes on: gauges as they are, counters as they grow.
func TestFire(t *testing.T) {
	const well = "# TYPE alertworker_build_info gauge\nalertworker_build_info 1\n" +
		"# TYPE alertworker_blocked gauge\nalertworker_blocked{by=%q} %d\n" +
		"# TYPE alertworker_dead_letters_total counter\nalertworker_dead_letters_total %d\n"
	answers := func(by string, blocked, grows int) (all []string) {
		for n := range 5 {
			all = append(all, fmt.Sprintf(well, by, blocked, 7+n*grows))
		}
		return all
	}
	for _, test := range []struct {
		name    string
		answers []string
		want    []string
	}{
		{"well", answers("hub", 0, 0), nil},
		{"blocked", answers("hub", 1, 0), []string{"AlertworkerBlocked"}},
		{"a receiver", answers("receiver", 1, 0), nil},
		{"dead letters", answers("hub", 0, 1), []string{"AlertworkerDeadLetters"}},
	} {
		got, err := Fire(t.Context(), alerts(t), test.answers)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q fire, want %q", test.name, got, test.want)
		}
	}
}
