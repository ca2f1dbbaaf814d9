// Package docs_test checks what the documentation says against the code, as far as that can
// be done by looking for names.
package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/config"
)

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns what follows a heading of level 2, up to the next.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, after, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("there is no section %q", heading)
	}
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// Every alert rule has a runbook, with what to look at and what to do, and there are no others.
func TestRunbooks(t *testing.T) {
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, "deploy/prometheus/alerts.yaml"), -1) {
		rules = append(rules, m[1])
	}
	if len(rules) == 0 {
		t.Fatal("there are no alert rules")
	}
	runbooks := section(t, read(t, "docs/operations.md"), "Runbooks")
	parts := strings.Split(runbooks, "\n### ")[1:]
	var described []string
	for _, part := range parts {
		name, text, _ := strings.Cut(part, "\n")
		described = append(described, name)
		if !strings.Contains(text, "\n- **Look**") || !strings.Contains(text, "\n- **Do") || strings.HasPrefix(text, "-") {
			t.Errorf("%s lacks what it means, what to look at or what to do", name)
		}
	}
	if !slices.Equal(rules, described) {
		t.Errorf("the rules are %q, the runbooks %q", rules, described)
	}

	var sources strings.Builder
	for _, folder := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			sources.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, quote := range regexp.MustCompile(`"[^"\n]+"`).FindAllString(runbooks, -1) {
		if !strings.Contains(sources.String(), strings.Trim(quote, `"`)) {
			t.Errorf("the log never says %s", quote)
		}
	}
	metrics := read(t, "docs/metrics.md")
	for _, m := range regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`").FindAllStringSubmatch(runbooks, -1) {
		if !strings.Contains(metrics, "`alertworker_"+m[1]+"`") && !strings.Contains(metrics, "`"+m[1]+"`") {
			t.Errorf("there is no metric or label value %s", m[1])
		}
	}
}

// foreign are variables that are not ours.
var foreign = strings.Fields(`ACCEPT_EULA AZURE_CLIENT_ID GOMEMLIMIT HTTPS_PROXY NO_PROXY SSL_CERT_FILE IMAGE REGISTRY REGISTRY_ID ALERT_EMAIL SOURCE IOT_HUB RESOURCE_GROUP CONTAINER_APP`)

// Variables that setup and operations name exist.
func TestVariables(t *testing.T) {
	names := slices.Clone(foreign)
	for _, v := range config.Variables() {
		names = append(names, v.Name)
	}
	for _, page := range []string{"docs/setup.md", "docs/operations.md", "deploy/README.md"} {
		for _, name := range regexp.MustCompile(`\b[A-Z]+(?:_[A-Z]+)+\b`).FindAllString(read(t, page), -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s names %s, which is not a setting", page, name)
			}
		}
	}
}

// The figures of operations.md are what its own program prints.
func TestCost(t *testing.T) {
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("awk is not installed")
	}
	cost := section(t, read(t, "docs/operations.md"), "Cost")
	program := regexp.MustCompile("(?s)```sh\n(.*?)```\n```console\n(.*?)```").FindStringSubmatch(cost)
	if program == nil {
		t.Fatal("there is no program with what it prints")
	}
	cmd := exec.Command("sh", "-c", program[1])
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != program[2] {
		t.Errorf("%v: the program prints\n%swhich is not what the page says", err, out)
	}
}

// Links to files and headings of the repository lead somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"/*.md", "/deploy/*.md", "/docs/decisions/*.md"} {
		found, _ := filepath.Glob(root + more)
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			content, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
				continue
			}
			if anchor == "" || content.IsDir() {
				continue
			}
			text, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// anchors are those of a page's headings, made as GitHub makes them.
func anchors(text string) (all []string) {
	fences := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fences, -1) {
		heading := regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(heading, " ", "-"))
	}
	return all
}
