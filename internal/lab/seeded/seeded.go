// Package seeded has rapid draw the same in every run of a test, so that a change is refused only for what it breaks.
// What other draws find is looked for by make properties, every night. Every package whose tests use rapid imports it.
package seeded

import (
	"flag"

	_ "pgregory.net/rapid" // which has the flag
)

// A flag that is given on the command line is read later, and counts: 0 stands for any draws.
func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}
