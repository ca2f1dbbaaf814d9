// Package bicep_test reads deploy/azure. It is no compiler: it checks what would break
// unnoticed between the files, and between them and the worker.
package bicep_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/config"
)

const folder = "../../../deploy/azure"

// A file is what a Bicep file declares.
type file struct {
	name    string
	text    string          // without comments
	params  map[string]bool // whether it has a default
	outputs []string
	modules map[string]module // by symbol
}

type module struct {
	path   string
	params []string
}

var (
	paramLine    = regexp.MustCompile(`(?m)^param (\w+) \w+( = .*)?$`)
	varLine      = regexp.MustCompile(`(?m)^var (\w+) = `)
	outputLine   = regexp.MustCompile(`(?m)^output (\w+) \w+ = `)
	resourceLine = regexp.MustCompile(`(?m)^resource (\w+) '([\w./]+)@(\d{4}-\d\d-\d\d)'(?: existing)? = (?:\[for .*: |if \(.*\) )?\{$`)
	moduleLine   = regexp.MustCompile(`(?m)^module (\w+) '([\w.]+)' = (?:if \(.*\) )?\{$`)
	comment      = regexp.MustCompile(`(?m)(^|\s)//.*$`)
	quoted       = regexp.MustCompile(`'(?:\\'|[^'\n])*'`)
	word         = regexp.MustCompile(`[A-Za-z_]\w*`)
)

func files(t *testing.T) map[string]file {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*.bicep")
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %d Bicep files: %v", len(paths), err)
	}
	all := map[string]file{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := file{name: filepath.Base(path), text: comment.ReplaceAllString(string(raw), ""), params: map[string]bool{}, modules: map[string]module{}}
		for _, m := range paramLine.FindAllStringSubmatch(f.text, -1) {
			f.params[m[1]] = m[2] != ""
		}
		for _, m := range outputLine.FindAllStringSubmatch(f.text, -1) {
			f.outputs = append(f.outputs, m[1])
		}
		for _, m := range moduleLine.FindAllStringSubmatchIndex(f.text, -1) {
			body, _, _ := strings.Cut(f.text[m[1]:], "\n}")
			_, body, _ = strings.Cut(body, "\n  params: {\n")
			body, _, _ = strings.Cut(body, "\n  }")
			var passed []string
			for line := range strings.Lines(body + "\n") {
				name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
				if !ok || value == "" {
					t.Errorf("%s: cannot read %q among the parameters of a module", f.name, line)
				}
				passed = append(passed, name)
			}
			f.modules[f.text[m[2]:m[3]]] = module{f.text[m[4]:m[5]], passed}
		}
		all[f.name] = f
	}
	return all
}

// symbols are the names that f declares.
func (f file) symbols() []string {
	all := slices.Collect(maps.Keys(f.params))
	for _, line := range []*regexp.Regexp{varLine, resourceLine, moduleLine} {
		for _, m := range line.FindAllStringSubmatch(f.text, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// Every module gets the parameters that it has, and no others.
func TestModules(t *testing.T) {
	all := files(t)
	used := map[string]bool{"main.bicep": true}
	for _, f := range all {
		for symbol, m := range f.modules {
			to, ok := all[m.path]
			if !ok {
				t.Errorf("%s: there is no %s", f.name, m.path)
				continue
			}
			used[m.path] = true
			for _, name := range m.params {
				if _, ok := to.params[name]; !ok {
					t.Errorf("%s passes %s to %s, which has no such parameter", f.name, name, m.path)
				}
			}
			for name, optional := range to.params {
				if !optional && !slices.Contains(m.params, name) {
					t.Errorf("%s does not pass %s to %s", f.name, name, m.path)
				}
			}
			for _, ref := range regexp.MustCompile(`\b`+symbol+`\.outputs\.(\w+)`).FindAllStringSubmatch(f.text, -1) {
				if !slices.Contains(to.outputs, ref[1]) {
					t.Errorf("%s: %s has no output %s", f.name, m.path, ref[1])
				}
			}
		}
	}
	for name := range all {
		if !used[name] {
			t.Errorf("%s is not a module of any file", name)
		}
	}
}

var opening = map[rune]rune{'}': '{', ']': '[', ')': '('}

// What is declared is used, every declaration has a form that this test can read, and
// delimiters match.
func TestDeclarations(t *testing.T) {
	for _, f := range files(t) {
		declared := f.symbols()
		for i, name := range declared {
			if slices.Contains(declared[:i], name) {
				t.Errorf("%s declares %s twice", f.name, name)
			}
		}
		n := strings.Count("\n"+f.text, "\nparam ") + strings.Count(f.text, "\nvar ") + strings.Count(f.text, "\nresource ") + strings.Count(f.text, "\nmodule ")
		if n != len(declared) {
			t.Errorf("%s has %d declarations, of which this test can read %d", f.name, n, len(declared))
		}
		for _, name := range declared {
			_, isParam := f.params[name]
			isVar := strings.Contains(f.text, "\nvar "+name+" ")
			if n := len(regexp.MustCompile(`\b`+name+`\b`).FindAllString(f.text, -1)); (isParam || isVar) && n < 2 {
				t.Errorf("%s declares %s and does not use it", f.name, name)
			}
		}
		var open []rune
		code := quoted.ReplaceAllString(f.text, "")
		if strings.Contains(code, "'") {
			t.Errorf("%s has a quote without an end", f.name)
		}
		for _, r := range code {
			switch r {
			case '{', '[', '(':
				open = append(open, r)
			case '}', ']', ')':
				if len(open) == 0 || open[len(open)-1] != opening[r] {
					t.Fatalf("%s: an unexpected %q", f.name, r)
				}
				open = open[:len(open)-1]
			}
		}
		if len(open) > 0 {
			t.Errorf("%s: %q is not closed", f.name, string(open))
		}
	}
}

// functions of Bicep that are in use, besides decorators.
var functions = strings.Fields(`concat empty guid items json last listKeys resourceGroup resourceId split string
	subscription subscriptionResourceId uniqueString`)

// Names in expressions are declared, or functions.
func TestNames(t *testing.T) {
	interpolated := regexp.MustCompile(`\$\{([^{}]*)\}`)
	for _, f := range files(t) {
		known := append(f.symbols(), functions...)
		var expressions []string
		for _, s := range quoted.FindAllString(f.text, -1) {
			for _, m := range interpolated.FindAllStringSubmatch(s, -1) {
				expressions = append(expressions, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*[\w']+: (.+)$`).FindAllStringSubmatch(f.text, -1) {
			expressions = append(expressions, m[1])
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:var|output) .* = (.+)$`).FindAllStringSubmatch(f.text, -1) {
			expressions = append(expressions, m[1])
		}
		for _, e := range expressions {
			if strings.Contains(e, "${") {
				continue // its parts are in the list
			}
			var local []string // of a loop
			for _, m := range regexp.MustCompile(`\[for \(?(\w+)(?:, (\w+)\))? in`).FindAllStringSubmatch(f.text, -1) {
				local = append(local, m[1:]...)
			}
			e = regexp.MustCompile(`\.\w+`).ReplaceAllString(quoted.ReplaceAllString(e, " "), " ")
			for _, name := range word.FindAllString(e, -1) {
				if !slices.Contains(known, name) && !slices.Contains(local, name) && !slices.Contains([]string{"true", "false", "if", "for", "in"}, name) {
					t.Errorf("%s: %s in %q is not declared", f.name, name, e)
				}
			}
		}
	}
}

// azd fills in parameters that exist, and all that have no default.
func TestParameters(t *testing.T) {
	raw, err := os.ReadFile(folder + "/main.parameters.json")
	if err != nil {
		t.Fatal(err)
	}
	var given struct {
		Parameters map[string]struct{ Value string }
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		t.Fatal(err)
	}
	params := files(t)["main.bicep"].params
	for name, p := range given.Parameters {
		optional, ok := params[name]
		if !ok {
			t.Errorf("main.bicep has no parameter %s", name)
		}
		if hasDefault := strings.Contains(p.Value, "="); hasDefault != optional {
			t.Errorf("%s has a default in main.bicep: %t, in main.parameters.json: %t", name, optional, hasDefault)
		}
		// A variable that is a setting of the worker is named like it.
		variable := regexp.MustCompile(`^\$\{([A-Z_]+)(?:=(.*))?\}$`).FindStringSubmatch(p.Value)
		if variable == nil {
			t.Errorf("%s is %q", name, p.Value)
			continue
		}
		for _, v := range config.Variables() {
			if v.Name == variable[1] && v.Default != variable[2] && !v.Required {
				t.Errorf("%s is %q by default, and %q here", v.Name, v.Default, variable[2])
			}
		}
	}
	for name, optional := range params {
		if _, ok := given.Parameters[name]; !ok && !optional {
			t.Errorf("main.parameters.json does not give %s", name)
		}
	}
}

// What the container gets is a setting, azidentity's or the Go runtime's; secrets come as secrets.
func TestEnvironment(t *testing.T) {
	app := files(t)["app.bicep"].text
	var names []string
	for _, m := range regexp.MustCompile(`name: '([A-Z][A-Z_]+)'\n\s+(value|secretRef): (.*)`).FindAllStringSubmatch(app, -1) {
		names = append(names, m[1])
		if m[1] == "AZURE_CLIENT_ID" || m[1] == "GOMEMLIMIT" {
			continue
		}
		i := slices.IndexFunc(config.Variables(), func(v config.Variable) bool { return v.Name == m[1] })
		if i < 0 {
			t.Errorf("%s is not a setting", m[1])
			continue
		}
		if v := config.Variables()[i]; v.Secret != (m[2] == "secretRef") {
			t.Errorf("%s is given as %s", m[1], m[2])
		}
		if m[2] == "secretRef" && !strings.Contains(app, "    name: "+m[3]+"\n") {
			t.Errorf("there is no secret %s", m[3])
		}
	}

	// With any choice of parameters the worker accepts its settings.
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules: [{name: hot, field: temperature, above: 80}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"EVENTHUB_NAMESPACE": "evhns-x.servicebus.windows.net", "EVENTHUB_NAME": "telemetry", "EVENTHUB_CONSUMER_GROUP": "alertworker",
		"IOTHUB_CONNECTION_STRING": "HostName=iot-x.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=",
		"STORAGE_ACCOUNT_URL":      "https://stx.blob.core.windows.net", "COSMOS_ENDPOINT": "https://cosmos-x.documents.azure.com:443/",
		"THROTTLE_STORE": "blob", "THROTTLE_WINDOW": "60s", "TEMPERATURE_THRESHOLD": "80", "TEMPERATURE_FIELD": "temperature,temp",
		"NOTIFY_URLS": "https://example.com/hook", "NOTIFY_WEBHOOK_SECRET": "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=", "AZURE_CLIENT_ID": "x", "GOMEMLIMIT": "900MiB",
		"RULES_FILE": rules,
	}
	for _, name := range names {
		if _, ok := values[name]; !ok {
			t.Errorf("this test has no value of %s", name)
		}
	}
	for _, store := range []string{"blob", "blob-lease", "cosmos"} {
		for _, source := range []string{"eventhubs", "iothub", "eventhubs with rules"} {
			source, withRules := strings.CutSuffix(source, " with rules")
			for _, v := range config.Variables() {
				t.Setenv(v.Name, "")
				os.Unsetenv(v.Name)
			}
			for _, name := range names {
				switch {
				case name == "IOTHUB_CONNECTION_STRING" && source != "iothub", strings.HasPrefix(name, "EVENTHUB_NAM") && source != "eventhubs", name == "COSMOS_ENDPOINT" && store != "cosmos",
					name == "RULES_FILE" && !withRules, strings.HasPrefix(name, "TEMPERATURE_") && withRules:
					continue
				}
				t.Setenv(name, values[name])
			}
			t.Setenv("THROTTLE_STORE", store)
			_, warnings, err := config.Load()
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s, %s: %v, warnings %v", store, source, err, warnings)
			}
		}
	}
}

// Containers, the database and the partition key have the worker's default names, and the grace period is longer than
// DRAIN_TIMEOUT.
func TestDefaults(t *testing.T) {
	all := files(t)
	for variable, in := range map[string]string{
		"CHECKPOINT_CONTAINER": "storage.bicep", "THROTTLE_CONTAINER": "storage.bicep", "DEAD_LETTER_CONTAINER": "storage.bicep",
		"COSMOS_DATABASE": "cosmos.bicep", "COSMOS_CONTAINER": "cosmos.bicep",
	} {
		i := slices.IndexFunc(config.Variables(), func(v config.Variable) bool { return v.Name == variable })
		if want := "'" + config.Variables()[i].Default + "'\n"; !strings.Contains(all[in].text, want) {
			t.Errorf("%s has no %s, the default of %s", in, want, variable)
		}
	}
	for _, want := range []struct{ in, text, because string }{
		{"app.bicep", "blobContainer: 'alertworker-checkpoints'", "KEDA reads the worker's checkpoints"},
		{"app.bicep", "var checkpointSeconds = 5\n", "CHECKPOINT_INTERVAL is 5s by default"},
		{"app.bicep", "terminationGracePeriodSeconds: 60\n", "DRAIN_TIMEOUT is 20s by default"},
		{"app.bicep", "checkpointStrategy: 'blobMetadata'", "the worker's checkpoints are of this layout"},
		{"cosmos.bicep", "paths: [\n          '/id'\n        ]", "cosmoslease refuses another partition key"},
		{"cosmos.bicep", "defaultTtl: -1\n", "cosmoslease refuses a container without time to live"},
		{"cosmos.bicep", "indexingMode: 'consistent'\n", "without an index there is no time to live"},
		{"cosmos.bicep", "enableMultipleWriteLocations: false\n", "cosmoslease refuses several write regions"},
		{"cosmos.bicep", "disableLocalAuth: true\n", "nobody needs a key"},
		{"storage.bicep", "allowSharedKeyAccess: false\n", "nobody needs a key"},
		{"storage.bicep", "isVersioningEnabled: false\n", "checkpoints are written all the time"},
		{"storage.bicep", "isHnsEnabled: false\n", "blobs in directories cannot have the names of windows"},
	} {
		if !strings.Contains(all[want.in].text, want.text) {
			t.Errorf("%s lacks %q: %s", want.in, want.text, want.because)
		}
	}
}

// Log lines that alert rules look for are lines of the worker.
func TestLogLines(t *testing.T) {
	var source []byte
	for _, name := range []string{"ops/status/report.go"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	for _, m := range regexp.MustCompile(`startswith "([^"]+)"`).FindAllStringSubmatch(files(t)["alerts.bicep"].text, -1) {
		if !strings.Contains(string(source), `"`+m[1]) {
			t.Errorf("no line of the log begins with %q", m[1])
		}
	}
}

// roles are the built-in roles, by what Azure's documentation lists as their ids.
var roles = map[string]string{
	"acrPull":               "7f951dda-4ed3-4680-a7ca-43fe172d538d",
	"blobDataContributor":   "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
	"eventHubsDataReceiver": "a638d3c7-ab3a-418d-83e6-5f17a39d4fde",
	"eventHubsDataSender":   "2b629674-e913-4c01-ae53-ef4638d8f975",
	"dataContributor":       "00000000-0000-0000-0000-000000000002",
}

func TestRoles(t *testing.T) {
	found := 0
	for _, f := range files(t) {
		for _, m := range regexp.MustCompile(`var (\w+) = '([0-9a-f]{8}-[0-9a-f-]{27})'`).FindAllStringSubmatch(f.text, -1) {
			found++
			if roles[m[1]] != m[2] {
				t.Errorf("%s: the role %s has the id %q, not %s", f.name, m[1], roles[m[1]], m[2])
			}
		}
	}
	if found != len(roles) {
		t.Errorf("found %d roles, want %d", found, len(roles))
	}
}
