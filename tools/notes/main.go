// Command notes prints what a changelog in the format of Keep a Changelog says about one version:
//
//	notes 1.2.3 < CHANGELOG.md
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: notes VERSION < CHANGELOG.md")
		os.Exit(2)
	}

	changelog, err := io.ReadAll(os.Stdin)
	if err == nil {
		var notes string
		if notes, err = section(string(changelog), os.Args[1]); err == nil {
			fmt.Print(notes)
			return
		}
	}

	fmt.Fprintln(os.Stderr, "notes:", err)
	os.Exit(1)
}

// section returns what stands under the heading "## [version]", which may have a date behind it,
// up to the next such heading or the list of links at the end.
func section(changelog, version string) (string, error) {
	var notes strings.Builder
	found := false
	for line := range strings.Lines(changelog) {
		if name, ok := strings.CutPrefix(line, "## ["); ok {
			name, _, _ = strings.Cut(name, "]")
			if found {
				break
			}

			found = name == version
			continue
		}

		if strings.HasPrefix(line, "[") && strings.Contains(line, "]: ") {
			break
		}

		if found {
			notes.WriteString(line)
		}
	}

	text := strings.TrimSpace(notes.String())
	switch {
	case !found:
		return "", fmt.Errorf("the changelog has no section %q", "## ["+version+"]")
	case text == "":
		return "", fmt.Errorf("the changelog says nothing about %s", version)
	}

	return text + "\n", nil
}
