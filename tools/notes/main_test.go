package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

## [1.10.0] - 2026-11-22

### Added
- A list, with [a link](https://example.com).

## [1.1.0]
### Fixed
- Another.

[1.10.0]: https://example.com/1.10.0
`

func TestSection(t *testing.T) {
	for version, want := range map[string]string{
		"1.10.0":     "### Added\n- A list, with [a link](https://example.com).\n",
		"1.1.0":      "### Fixed\n- Another.\n",
		"Unreleased": "",
		"1.1":        "",
		"":           "",
	} {
		if got, err := section(changelog, version); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", version, got, err, want)
		}
	}
}

// Our own changelog is in the format.
func TestChangelog(t *testing.T) {
	text := read(t, "../../CHANGELOG.md")
	headings := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1)
	for _, h := range headings {
		name := regexp.MustCompile(`^\[(Unreleased|\d+\.\d+\.\d+)\](?: - \d{4}-\d\d-\d\d)?$`).FindStringSubmatch(h[1])
		if name == nil {
			t.Errorf("the heading %q is no version", h[1])
			continue
		}
		if notes, err := section(text, name[1]); err != nil && name[1] != "Unreleased" || strings.Contains(notes, "\n## ") {
			t.Errorf("%s: %v", name[1], err)
		}
	}
	if len(headings) == 0 {
		t.Error("CHANGELOG.md has no versions")
	}
}

// Everything is built with one version of Go: else builds of one commit differ.
func TestOneGo(t *testing.T) {
	base := regexp.MustCompile(`golang:(\S+) AS build`).FindStringSubmatch(read(t, "../../Dockerfile"))
	files, err := filepath.Glob("../../.github/workflows/*.yaml")
	if err != nil || len(files) == 0 || base == nil {
		t.Fatalf("the Dockerfile's base is %v, the workflows are %v, %v", base, files, err)
	}
	for _, file := range files {
		for _, m := range regexp.MustCompile(`go-version: "?([^"\s]*)`).FindAllStringSubmatch(read(t, file), -1) {
			if m[1] != base[1] {
				t.Errorf("%s builds with Go %s, the Dockerfile with %s", file, m[1], base[1])
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
