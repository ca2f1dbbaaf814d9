// Command notes prints what a changelog in the format of Keep a Changelog says about one version:
//
//	notes 1.2.3 < CHANGELOG.md
package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
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
	heading := `^## \[` + regexp.QuoteMeta(version) + `\][^\n]*\n`
	found := regexp.MustCompile(`(?ms)` + heading + `(.*?)(^## \[|^\[[^]\n]+\]: |\z)`).FindStringSubmatch(changelog)
	if found == nil {
		return "", fmt.Errorf("the changelog has no section %q", "## ["+version+"]")
	}

	text := strings.TrimSpace(found[1])
	if text == "" {
		return "", fmt.Errorf("the changelog says nothing about %s", version)
	}

	return text + "\n", nil
}
