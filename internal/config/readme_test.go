package config

import (
	"os"
	"regexp"
	"testing"
)

// The settings that the README names exist and have the defaults it says.
func TestREADMESettings(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (?:`([^`]*)`|required)? *\\|").FindAllStringSubmatch(string(readme), -1)
	if len(rows) < 5 {
		t.Fatalf("found %d settings in README.md", len(rows))
	}
	for _, row := range rows {
		if i := position(row[1]); i == len(Variables()) {
			t.Errorf("README.md names %s, which does not exist", row[1])
		} else if v := Variables()[i]; v.Default != row[2] {
			t.Errorf("README.md says the default of %s is %q, it is %q", row[1], row[2], v.Default)
		}
	}
}
