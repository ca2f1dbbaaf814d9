// Package docs_test checks what the documentation says against the code, as far as that can
// be done by looking for names.
package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
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

// Every alert rule has a runbook that says what to do, and there are no others. What an alert means, and where to look, it
// says itself.
func TestRunbooks(t *testing.T) {
	alerts := read(t, "deploy/prometheus/alerts.yaml")
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(alerts, -1) {
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
		if strings.TrimSpace(text) == "" {
			t.Errorf("%s does not say what to do", name)
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
	advice := runbooks + strings.Join(regexp.MustCompile(`action: >-\n(?: {12}.*\n)+`).FindAllString(alerts, -1), "")
	for _, quote := range regexp.MustCompile(`"[^"\n]+"`).FindAllString(advice, -1) {
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

// foreign are variables that are not ours, and words written like one.
var foreign = strings.Fields(`
	ACCEPT_EULA GOMEMLIMIT HTTPS_PROXY NO_PROXY SSL_CERT_FILE AZURE_CLIENT_ID AZURE_TENANT_ID AZURE_FEDERATED_TOKEN_FILE
	ALERTWORKER_ALERTMANAGER ALERTWORKER_PYTHON_CLIENT ALERTWORKER_JAVA_CLIENT ALERTWORKER_SKIP_NODE
	OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_PROTOCOL
	OTEL_EXPORTER_OTLP_METRICS_ENDPOINT OTEL_METRICS_EXPORTER OTEL_METRIC_EXPORT_INTERVAL
	OTEL_RESOURCE_ATTRIBUTES OTEL_SDK_DISABLED OTEL_SERVICE_NAME OTEL_TRACES_SAMPLER
	IMAGE REGISTRY REGISTRY_ID ALERT_EMAIL SOURCE IOT_HUB RESOURCE_GROUP CONTAINER_APP
	ROUTING_KEY SAS_KEY_VALUE`)

// Variables that the pages name exist.
func TestVariables(t *testing.T) {
	names := slices.Clone(foreign)
	for _, v := range config.Variables() {
		names = append(names, v.Name)
	}
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "docs/dev/decisions/") || page == "docs/dev/upstream.md" {
			continue // they tell of other times and programs
		}
		for _, name := range regexp.MustCompile(`\b[A-Z]+(?:_[A-Z]+)+\b`).FindAllString(read(t, page), -1) {
			if !slices.Contains(names, strings.TrimSuffix(name, "_FILE")) && !slices.Contains(names, name) {
				t.Errorf("%s names %s, which is not a setting", page, name)
			}
		}
	}
}

// What only those need who change alertworker is linked from CONTRIBUTING and from its like alone.
func TestPagesOfContributors(t *testing.T) {
	theirs := regexp.MustCompile(`\]\([^)\s]*(decisions/|upstream\.md|performance\.md|adding-a-store\.md)[^)]*\)`)
	linked := map[string]bool{}
	for _, page := range pages(t) {
		found := theirs.FindAllStringSubmatch(read(t, page), -1)
		if page == "CONTRIBUTING.md" {
			for _, m := range found {
				linked[m[1]] = true
			}
			continue
		}
		if len(found) > 0 && !theirs.MatchString("]("+page+")") {
			t.Errorf("%s leads to %s", page, found[0][0])
		}
	}
	if len(linked) != 4 {
		t.Errorf("CONTRIBUTING.md leads to %v alone", linked)
	}
}

// Files that the pages name exist, and so do the targets of make.
func TestFiles(t *testing.T) {
	file := regexp.MustCompile("`(?:\\./)?((?:cmd|deploy|docs|internal|tools)/[\\w./-]+)`")
	target := regexp.MustCompile("(?:`|(?m:^[$ ]*))make ([a-z]+)")
	makefile := read(t, "Makefile")
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/dev/decisions/") || page == "docs/dev/upstream.md" {
			continue // they tell of other times and programs
		}
		text := read(t, page)
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which does not exist", page, m[1])
			}
		}
	}
}

// Tests and benchmarks that the pages tell to run exist.
func TestCommands(t *testing.T) {
	command := regexp.MustCompile("go (?:-C (tools) )?test ([^`\n]*)`")
	folder := regexp.MustCompile(`(?:^| )\./(\S+)`)
	pick := regexp.MustCompile(`-(run|bench) '?([\w|]+)`)
	kinds := map[string]string{"run": "Test", "bench": "Benchmark"}
	found := 0
	for _, page := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(read(t, page), -1) {
			var functions strings.Builder
			for _, f := range folder.FindAllStringSubmatch(m[2], -1) {
				dir, below := strings.CutSuffix(path.Join(m[1], f[1]), "/...")
				err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
					switch {
					case err != nil:
						return err
					case d.IsDir() && !below && name != filepath.Join(root, dir):
						return fs.SkipDir
					case strings.HasSuffix(name, "_test.go"):
						text, err := os.ReadFile(name)
						functions.Write(text)
						return err
					}
					return nil
				})
				if err != nil {
					t.Errorf("%s: %s: %v", page, m[0], err)
				}
			}
			for _, p := range pick.FindAllStringSubmatch(m[2], -1) {
				found++
				for _, name := range strings.Split(p[2], "|") {
					name = strings.TrimPrefix(name, kinds[p[1]])
					if name != "xxx" && !regexp.MustCompile(`func `+kinds[p[1]]+`\w*`+name).MatchString(functions.String()) {
						t.Errorf("%s: %s: there is no such %s%s", page, m[0], kinds[p[1]], name)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no page tells to run a test")
	}
}

// The map of the code has every package, down to those within a group.
func TestMap(t *testing.T) {
	house := section(t, read(t, "CONTRIBUTING.md"), "The house")
	for _, pattern := range []string{"cmd/*", "internal/*", "internal/ops/*", "internal/lab/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range found {
			name := filepath.Base(folder)
			if name != "ops" && name != "lab" && !regexp.MustCompile("[`/]"+name+"`").MatchString(house) {
				t.Errorf("CONTRIBUTING.md lacks %s", folder)
			}
		}
	}
}

// Whoever looks for channels finds them all.
func TestChannels(t *testing.T) {
	examples := regexp.MustCompile(`example: "([^"]+:)`).FindAllStringSubmatch(read(t, "internal/notify/receivers/channels.go"), -1)
	if len(examples) == 0 {
		t.Fatal("there are no channels")
	}
	for where, text := range map[string]string{"README.md": read(t, "README.md"), "docs/receivers.md": read(t, "docs/receivers.md"), "the help": config.Help()} {
		for _, m := range examples {
			if scheme, _, _ := strings.Cut(m[1], ":"); !regexp.MustCompile("[`( ]" + regexp.QuoteMeta(scheme) + ":").MatchString(text) {
				t.Errorf("%s lacks %s:", where, scheme)
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
	program := regexp.MustCompile("(?s)```console\n\\$ (awk .*?cost.awk\n)(.*?)```").FindStringSubmatch(cost)
	if program == nil {
		t.Fatal("there is no program with what it prints")
	}
	cmd := exec.Command("sh", "-c", program[1])
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != program[2] {
		t.Errorf("%v: the program prints\n%swhich is not what the page says", err, out)
	}
}

// pages are the project's pages, relative to its root.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "deploy/*.md", "deploy/*/*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			page, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(page))
		}
	}
	return all
}

// Links to files and headings of the repository lead somewhere, and every page and picture
// can be reached from the README.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := make(map[string][]string)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			links[page] = append(links[page], target, path.Join(target, "README.md"))
			content, err := os.Stat(filepath.Join(root, target))
			if err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
				continue
			}
			if anchor != "" && !content.IsDir() && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}

	reached := map[string]bool{"README.md": true}
	for next := []string{"README.md"}; len(next) > 0; next = next[1:] {
		for _, target := range links[next[0]] {
			if !reached[target] {
				reached[target] = true
				next = append(next, target)
			}
		}
	}
	pictures, err := filepath.Glob(root + "/docs/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	all := pages(t)
	for _, picture := range pictures {
		all = append(all, "docs/"+filepath.Base(picture))
	}
	for _, page := range all {
		if !reached[page] {
			t.Errorf("nobody who begins at README.md finds %s", page)
		}
	}
}

// A figure has one page, and others quote it in a link to its section: the numbers in a link's
// text stand there too.
func TestFigures(t *testing.T) {
	link := regexp.MustCompile(`\[([^\]]*)\]\(([^)\s:]*)#([^)\s]+)\)`)
	number := regexp.MustCompile(`\d[\d,.]*\d|\d`)
	quoted := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[2] != "" {
				target = path.Join(path.Dir(page), m[2])
			}
			if path.Ext(target) != ".md" {
				continue
			}
			there := number.FindAllString(under(read(t, target), m[3]), -1)
			for _, n := range number.FindAllString(m[1], -1) {
				if quoted++; !slices.Contains(there, n) {
					t.Errorf("%s quotes %s, which %s#%s does not have", page, n, target, m[3])
				}
			}
		}
	}
	if quoted == 0 {
		t.Error("no page quotes a figure")
	}
}

// under returns what stands under the heading with an anchor, down to the next heading of its level.
func under(text, anchor string) string {
	var found strings.Builder
	level := 0
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if n := strings.IndexByte(line, ' '); !fenced && n > 0 && line[:n] == strings.Repeat("#", n) {
			switch {
			case level == 0 && slices.Contains(anchors(line), anchor):
				level = n
			case level >= n:
				return found.String()
			}
		}
		if level > 0 {
			found.WriteString(line)
		}
	}
	return found.String()
}

var (
	headings    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors are those of a page's headings, made as GitHub makes them.
func anchors(text string) (all []string) {
	for i, part := range strings.Split("\n"+text, "\n```") {
		if i%2 == 1 {
			continue // a program, or what it prints
		}
		for _, m := range headings.FindAllStringSubmatch(part, -1) {
			heading := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
			all = append(all, strings.ReplaceAll(heading, " ", "-"))
		}
	}
	return all
}
