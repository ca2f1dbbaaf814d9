package main

import (
	"strings"
	"testing"
)

// The help of a command writes its flags as people type them, and has no heading if there are none.
func TestHelpOfCommands(t *testing.T) {
	for _, with := range []bool{false, true} {
		var out strings.Builder
		f := newFlags("bake", "bake bread")
		want := "alertworker bake: bake bread\n"
		if with {
			f.String("at", "", "the `TEMPERATURE` of the oven, such as -1")
			want += "\nFlags\n  --at TEMPERATURE\n    \tthe TEMPERATURE of the oven, such as -1\n"
		}
		f.SetOutput(&out)
		f.Usage()
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}
