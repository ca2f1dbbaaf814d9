package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"alertworker/internal/rules"
)

// A file of devices has one on each line; what is wrong in it is said at the place of the rule that names it, with its
// line.
func TestExpect(t *testing.T) {
	many := strings.Builder{}
	for i := range rules.MaxExpected + 1 {
		fmt.Fprintln(&many, "truck-", i)
	}
	for name, tt := range map[string]struct {
		content string
		devices []string
		wrong   string
	}{
		"devices":       {"\uFEFF# the fleet\n truck-7 \r\n\ntruck#8,a=b\n", []string{"truck-7", "truck#8,a=b"}, ""},
		"a duplicate":   {"a\nb\na\n", nil, `expect: line 3 of "devices.txt" is the same as line 1: remove one of them`},
		"two in a line": {"a\nb c\n", nil, `expect: line 2 of "devices.txt" must be the ID of one device, without spaces and of at most 256 bytes`},
		"too long":      {strings.Repeat("x", 257), nil, `expect: line 1 of "devices.txt" must be the ID of one device, without spaces and of at most 256 bytes`},
		"empty":         {"", nil, `expect: the file "devices.txt" has no devices: must have the ID of one on each line`},
		"comments":      {"# none\n", nil, `expect: the file "devices.txt" has no devices: must have the ID of one on each line`},
		"not text":      {"a\xff", nil, `expect: the file "devices.txt" is not UTF-8 text`},
		"too large":     {strings.Repeat("x\n", 1<<19+1), nil, `expect: the file "devices.txt" is larger than 1 MiB`},
		"too many":      {strings.ReplaceAll(many.String(), " ", ""), nil, `expect: the file "devices.txt" has 20001 devices; must be at most 20000`},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "devices.txt"), []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		text := []byte("rules:\n- {name: offline, silent: 15m, expect: devices.txt}\n")
		set, err := parseRules(text, ruleDefaults{time.Minute, 0, false, time.UTC}, beside(filepath.Join(folder, "rules.yaml")))
		if tt.wrong != "" {
			if want := "line 2, column 40: " + tt.wrong; err == nil || err.Error() != want {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(set.Rules[0].Expect, tt.devices) {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
}

func TestExpectErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, silent: 15m, expect: [x]}":        "column 34: expect must be the path of a file with the IDs of devices, one on each line, such as devices.txt",
		"{name: a, silent: 15m, expect: x.txt}":      `column 34: expect: the file "x.txt" cannot be read: file does not exist`,
		"{name: a, field: t, above: 1, expect: b.t}": "column 41: expect is set without silent",
	} {
		read := func(name string) ([]byte, error) {
			if name == "b.t" {
				return []byte("oven"), nil
			}
			return nil, &fs.PathError{Op: "open", Path: "/secret", Err: fs.ErrNotExist}
		}
		_, err := parseRules([]byte("rules:\n- "+text+"\n"), ruleDefaults{time.Minute, 0, false, time.UTC}, read)
		if err == nil || !strings.HasPrefix(err.Error(), "line 2, "+want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}
