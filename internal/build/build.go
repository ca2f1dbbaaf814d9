// Package build says what this program was built from.
package build

import (
	"cmp"
	"runtime/debug"
	"sync"
)

// What make build stamps: -ldflags "-X alertworker/internal/build.version=1.2.3 -X …".
var version, commit string

// Version returns the number of the release, or else the module's: that of go install, or "(devel)".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(version, info.Main.Version)
	}
	return cmp.Or(version, "(devel)")
}

// Commit returns the commit, with "+changes" if the checkout had any; "" if it is not known.
var Commit = sync.OnceValue(func() string {
	if commit != "" {
		return commit
	}

	revision, changes := "", ""

	if info, ok := debug.ReadBuildInfo(); ok { // go build stamps it by itself in a checkout
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changes = "+changes"
			}
		}
	}

	return revision + changes
})
