// Package bicep_test checks what deploy/azure would deploy, as bicep evaluates it without Azure. It is
// skipped where bicep is not on PATH.
package bicep_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/config"
	"alertworker/internal/lab/emulators"
)

const (
	folder       = "../../../deploy/azure"
	subscription = "/subscriptions/00000000-0000-0000-0000-000000000001"
	registry     = subscription + "/resourceGroups/rg-images/providers/Microsoft.ContainerRegistry/registries/reg"
	vault        = subscription + "/resourceGroups/rg-vault/providers/Microsoft.KeyVault/vaults/kv"
)

// hostile has several lines and all that a shell, JSON, YAML or ARM might take for its own. It is valid as rules.
const hostile = `rules:
  - name: "hot" # 'single', "double", ''', $HOME, ${IMAGE}, $$, \, \n, \\, [parameters('x')], {0}
    field: temperature
    above: 80
`

// required is what azd's environment has to have.
var required = map[string]string{
	"AZURE_ENV_NAME": "ovens", "AZURE_LOCATION": "westeurope", "IMAGE": "reg-abc123.azurecr.io/alertworker:1", "NOTIFY_URLS": "https://example.com/hook",
	"TEMPERATURE_THRESHOLD": "80",
}

// A checkout is a copy of deploy/azure. (Go repeats a test whose files have changed only if it read them itself.)
type checkout string

func newCheckout(t *testing.T) checkout {
	t.Helper()
	if testing.Short() {
		t.Skip("bicep takes seconds for each deployment: make azure runs it")
	}
	if _, err := exec.LookPath("bicep"); err != nil {
		t.Skip("bicep is not on PATH")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return checkout(dir)
}

// bicep runs bicep with azd's environment env and returns what it prints on each stream.
func (c checkout) bicep(t *testing.T, env map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bicep", args...)
	cmd.Dir = string(c)
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	return string(out), complaints.String(), err
}

// with replaces lines of main.bicepparam for the same parameters, or adds them.
func (c checkout) with(t *testing.T, params map[string]string) {
	t.Helper()
	name := filepath.Join(string(c), "main.bicepparam")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for param, value := range params {
		text = regexp.MustCompile(`(?m)^param `+param+` = .*\n`).ReplaceAll(text, nil)
		if value != "" {
			text = fmt.Appendf(text, "param %s = %s\n", param, value)
		}
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A resource is what would be deployed. What depends on a secret, or on what another resource only has once it exists, is an
// expression of ARM: a text in brackets.
type resource struct {
	ID, Type, Name string
	Properties     json.RawMessage
}

type deployment []resource

// snapshot evaluates a deployment. The error is what bicep prints.
func (c checkout) snapshot(t *testing.T, env map[string]string) (deployment, error) {
	t.Helper()
	_, complaints, err := c.bicep(t, env, "snapshot", "main.bicepparam", "--mode", "overwrite",
		"--subscription-id", path.Base(subscription), "--location", "westeurope", "--tenant-id", path.Base(subscription))
	if err != nil || complaints != "" {
		return nil, fmt.Errorf("%w: %s", err, complaints)
	}
	text, err := os.ReadFile(filepath.Join(string(c), "main.snapshot.json"))
	if err != nil {
		return nil, err
	}
	var all struct {
		PredictedResources deployment
		Diagnostics        json.RawMessage
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	if d := string(all.Diagnostics); d != "" && d != "[]" {
		return nil, fmt.Errorf("diagnostics: %s", d)
	}
	return all.PredictedResources, nil
}

func (c checkout) predict(t *testing.T, env map[string]string) deployment {
	t.Helper()
	d, err := c.snapshot(t, env)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d deployment) of(kind string) (found deployment) {
	for _, r := range d {
		if r.Type == kind {
			found = append(found, r)
		}
	}
	return found
}

// one decodes the properties of the only resource of a kind.
func one[T any](t *testing.T, d deployment, kind string) (properties T) {
	t.Helper()
	found := d.of(kind)
	if len(found) != 1 {
		t.Fatalf("%d resources of type %s", len(found), kind)
	}
	decode(t, found[0], &properties)
	return properties
}

func decode(t *testing.T, r resource, into any) {
	t.Helper()
	if err := json.Unmarshal(r.Properties, into); err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}
}

type containerApp struct {
	Configuration struct {
		Ingress    *struct{ TargetPort int }
		Registries []struct{ Server, Identity string }
		Secrets    string // an expression
	}
	Template struct {
		TerminationGracePeriodSeconds int
		Containers                    []struct {
			Image  string
			Env    string // an expression
			Probes []struct{ HTTPGet struct{ Path string } }
		}
		Scale struct {
			MinReplicas, MaxReplicas int
			Rules                    []struct {
				Custom struct {
					Type, Identity string
					Metadata       map[string]string
				}
			}
		}
	}
}

// A pair is an element of a list of names and values in an expression: text if it is a literal, else code.
type pair struct{ key, text, code string }

var (
	element = regexp.MustCompile(`createObject\('name', '([\w-]+)', '(value|secretRef|keyVaultUrl)', (?:'((?:[^']|'')*)'|([^,]*))`)
	suffix  = regexp.MustCompile(`(?:string\()?format\('https://\{0\}(\.blob\.)?\{1\}(/secrets/)?\{?2?\}?', '(\w+)', environment\(\)\.suffixes\.(\w+)(?:, '([\w-]+)')?\)\)?`)
	hosts   = map[string]string{"storage": "core.windows.net", "keyvaultDns": ".vault.azure.net"}
)

// pairs returns the elements whose names match.
func pairs(expression, names string) map[string]pair {
	expression = suffix.ReplaceAllStringFunc(expression, func(s string) string {
		m := suffix.FindStringSubmatch(s)
		return "'https://" + m[3] + m[1] + hosts[m[4]] + m[2] + m[5] + "'"
	})
	found := map[string]pair{}
	for _, m := range element.FindAllStringSubmatch(expression, -1) {
		if regexp.MustCompile("^" + names + "$").MatchString(m[1]) {
			found[m[1]] = pair{m[2], strings.ReplaceAll(m[3], "''", "'"), m[4]}
		}
	}
	return found
}

const (
	settingNames = "[A-Z_]+"
	secretNames  = "[a-z-]+"
)

func TestLint(t *testing.T) {
	c := newCheckout(t)
	if stdout, stderr, err := c.bicep(t, required, "lint", "main.bicepparam"); err != nil || stdout+stderr != "" { // and all that it uses
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
}

// For every choice of source, store, rules and registry the worker accepts the settings of its container, and the identities
// have the roles that they need, where they need them, and no others.
func TestDeployment(t *testing.T) {
	queries := map[string]string{}
	for _, choice := range []struct {
		source, store   string
		rules, registry bool
	}{
		{"eventhubs", "blob", false, true},
		{"eventhubs", "blob-lease", true, false},
		{"eventhubs", "cosmos", true, true},
		{"iothub", "blob", true, true},
		{"iothub", "blob-lease", false, false},
		{"iothub", "cosmos", false, true},
	} {
		t.Run(fmt.Sprint(choice), func(t *testing.T) {
			c := newCheckout(t)
			env := maps.Clone(required)
			env["SOURCE"], env["THROTTLE_STORE"], env["ALERT_EMAIL"] = choice.source, choice.store, "ops@example.com"
			if choice.rules {
				env["RULES"] = hostile
				delete(env, "TEMPERATURE_THRESHOLD")
			}
			if choice.registry {
				env["REGISTRY_ID"] = registry
			}
			d := c.predict(t, env)
			app := one[containerApp](t, d, "Microsoft.App/containerApps")

			var servers []string
			for _, r := range app.Configuration.Registries {
				servers = append(servers, r.Server)
			}
			if want := map[bool]string{true: "[reg-abc123.azurecr.io]", false: "[]"}[choice.registry]; fmt.Sprint(servers) != want || app.Template.Containers[0].Image != env["IMAGE"] {
				t.Errorf("%s is pulled from %q, want %s", app.Template.Containers[0].Image, servers, want)
			}
			checkSettings(t, app, choice.rules)
			checkRoles(t, d, choice.source, choice.store, choice.registry)
			checkScaling(t, d, app, choice.source)
			checkStores(t, d, choice.store)
			for _, r := range d.of("Microsoft.Insights/scheduledQueryRules") {
				var rule struct {
					Criteria struct{ AllOf []struct{ Query string } }
				}
				decode(t, r, &rule)
				queries[strings.SplitN(r.Name, "-", 3)[2]] = rule.Criteria.AllOf[0].Query
			}
			logs := one[struct {
				Logs []struct {
					Category string
					Enabled  bool
				}
			}](t, d, "Microsoft.Insights/diagnosticSettings")
			if len(logs.Logs) == 0 || logs.Logs[0].Category != "ContainerAppConsoleLogs" || !logs.Logs[0].Enabled {
				t.Errorf("the log is %+v", logs)
			}
			for metric, want := range map[string]bool{"Replicas": true, "IncomingMessages": choice.source == "eventhubs"} {
				if has := slices.ContainsFunc(d.of("Microsoft.Insights/metricAlerts"), func(r resource) bool { return strings.Contains(string(r.Properties), metric) }); has != want {
					t.Errorf("a rule on %s: %t, want %t", metric, has, want)
				}
			}
		})
	}
	if len(queries) > 0 {
		checkQueries(t, queries)
	}
}

// checkSettings has the worker load what its container gets.
func checkSettings(t *testing.T, app containerApp, rules bool) {
	t.Helper()
	container := app.Template.Containers[0]
	env, secrets := pairs(container.Env, settingNames), pairs(app.Configuration.Secrets, secretNames)
	for _, v := range config.Variables() {
		t.Setenv(v.Name, "") // restores it
		os.Unsetenv(v.Name)
	}
	known := map[string]string{ // by the code of its value
		"IOTHUB_CONNECTION_STRING": "HostName=iot-x.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=",
		"NOTIFY_URLS":              "https://example.com/hook", "NOTIFY_WEBHOOK_SECRET": "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=",
	}
	for name, value := range env {
		i := slices.IndexFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name })
		switch {
		case name == "AZURE_CLIENT_ID" || name == "GOMEMLIMIT" || name == "SECRETS_HASH": // not the worker's
		case i < 0:
			t.Errorf("%s is not a setting", name)
		case config.Variables()[i].Secret != (value.key == "secretRef"):
			t.Errorf("%s is given as %s", name, value.key)
		case value.key == "secretRef":
			if _, ok := secrets[value.text]; !ok {
				t.Errorf("%s is in the secret %s, which is not there", name, value.text)
			}
			t.Setenv(name, known[name])
		case value.code != "":
			t.Errorf("%s is %s", name, value.code)
		default:
			t.Setenv(name, value.text)
		}
	}
	if !strings.Contains(env["AZURE_CLIENT_ID"].code, "reference('") {
		t.Errorf("the client id is %+v", env["AZURE_CLIENT_ID"])
	}
	if got := env["RULES"].text; rules && got != hostile {
		t.Errorf("the rules are\n%s\nwant\n%s", got, hostile)
	}
	c, warnings, err := config.Load()
	if err != nil || len(warnings) > 0 {
		t.Errorf("the worker says %v, warnings %v", err, warnings)
	}
	if grace := app.Template.TerminationGracePeriodSeconds; float64(grace) < c.DrainTimeout.Seconds()+20 {
		t.Errorf("it has %d s to stop, and DRAIN_TIMEOUT is %v", grace, c.DrainTimeout)
	}

	// Every secret makes a revision when it changes.
	hash := container.Env[strings.Index(container.Env, "'SECRETS_HASH'"):]
	for name := range secrets {
		if !strings.Contains(hash, "createObject('name', '"+name+"', 'value', ") {
			t.Errorf("a change of the secret %s makes no revision", name)
		}
	}
}

// roles are the built-in roles, by what Azure's documentation lists as their ids.
var roles = map[string]string{
	"7f951dda-4ed3-4680-a7ca-43fe172d538d": "AcrPull",
	"ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
	"a638d3c7-ab3a-418d-83e6-5f17a39d4fde": "Azure Event Hubs Data Receiver",
	"2b629674-e913-4c01-ae53-ef4638d8f975": "Azure Event Hubs Data Sender",
	"4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
	"00000000-0000-0000-0000-000000000002": "Cosmos DB Built-in Data Contributor",
}

var (
	scoped   = regexp.MustCompile(`^(?:\[extensionResourceId\(')?(/subscriptions/.*?)(?:', '|/providers/)Microsoft\.Authorization/roleAssignments`)
	identity = regexp.MustCompile(`/userAssignedIdentities/(id(?:-iot)?)-\w+'`)
)

// granted lists "who: role on what".
func granted(t *testing.T, d deployment) (list []string) {
	t.Helper()
	for _, r := range d {
		if !strings.HasSuffix(strings.ToLower(r.Type), "roleassignments") {
			continue
		}
		var p struct{ PrincipalID, RoleDefinitionID, Scope string }
		decode(t, r, &p)
		on := p.Scope // of Cosmos DB
		if m := scoped.FindStringSubmatch(r.ID); on == "" && m != nil {
			on = m[1]
		}
		_, on, _ = strings.Cut(on, "/providers/")
		on = regexp.MustCompile(`-[a-z0-9]{13}\b`).ReplaceAllString(strings.NewReplacer("/blobServices/default", "").Replace(on), "")
		on = regexp.MustCompile(`/st[a-z0-9]{13}/`).ReplaceAllString(on, "/st/")
		who := "?"
		if m := identity.FindStringSubmatch(p.PrincipalID); m != nil {
			who = m[1]
		}
		list = append(list, fmt.Sprintf("%s: %s on %s", who, roles[path.Base(p.RoleDefinitionID)], on))
	}
	slices.Sort(list)
	return list
}

func checkRoles(t *testing.T, d deployment, source, store string, registry bool) {
	t.Helper()
	var want []string
	for _, v := range []string{"CHECKPOINT_CONTAINER", "THROTTLE_CONTAINER", "DEAD_LETTER_CONTAINER"} {
		want = append(want, "id: Storage Blob Data Contributor on Microsoft.Storage/storageAccounts/st/containers/"+defaultOf(v))
	}
	if source == "eventhubs" {
		want = append(want, "id: Azure Event Hubs Data Receiver on Microsoft.EventHub/namespaces/evhns/eventhubs/telemetry",
			"id-iot: Azure Event Hubs Data Sender on Microsoft.EventHub/namespaces/evhns/eventhubs/telemetry")
	}
	if store == "cosmos" {
		want = append(want, "id: Cosmos DB Built-in Data Contributor on Microsoft.DocumentDB/databaseAccounts/cosmos/dbs/"+defaultOf("COSMOS_DATABASE")+"/colls/"+defaultOf("COSMOS_CONTAINER"))
	}
	if registry {
		want = append(want, "id: AcrPull on Microsoft.ContainerRegistry/registries/reg")
	}
	slices.Sort(want)
	if got := granted(t, d); !slices.Equal(got, want) {
		t.Errorf("the roles are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func defaultOf(variable string) string {
	all := config.Variables()
	return all[slices.IndexFunc(all, func(v config.Variable) bool { return v.Name == variable })].Default
}

// checkScaling: KEDA looks at the hub that the worker reads and at its checkpoints.
func checkScaling(t *testing.T, d deployment, app containerApp, source string) {
	t.Helper()
	scale := app.Template.Scale
	if scale.MinReplicas != 2 || scale.MaxReplicas != 4 || len(scale.Rules) != 1 {
		t.Fatalf("it scales by %+v", scale)
	}
	rule := scale.Rules[0].Custom
	if source == "iothub" {
		if rule.Type != "cpu" {
			t.Errorf("KEDA's trigger is %+v", rule)
		}
		return
	}
	env := pairs(app.Template.Containers[0].Env, settingNames)
	want := map[string]string{
		"eventHubNamespace": strings.TrimSuffix(env["EVENTHUB_NAMESPACE"].text, ".servicebus.windows.net"), "eventHubName": env["EVENTHUB_NAME"].text,
		"consumerGroup": env["EVENTHUB_CONSUMER_GROUP"].text, "blobContainer": defaultOf("CHECKPOINT_CONTAINER"), "checkpointStrategy": "blobMetadata",
		"storageAccountName": d.of("Microsoft.Storage/storageAccounts")[0].Name, "unprocessedEventThreshold": "10000", // 2 × 1,000 × CHECKPOINT_INTERVAL
	}
	if rule.Type != "azure-eventhub" || !maps.Equal(rule.Metadata, want) || rule.Identity != d.of("Microsoft.ManagedIdentity/userAssignedIdentities")[0].ID {
		t.Errorf("KEDA's trigger is %+v, want %v", rule, want)
	}
	if defaultOf("CHECKPOINT_INTERVAL") != "5s" {
		t.Error("CHECKPOINT_INTERVAL is no longer 5 s, as KEDA's threshold assumes")
	}
	for kind, name := range map[string]string{"namespaces": want["eventHubNamespace"], "namespaces/eventhubs": want["eventHubName"], "namespaces/eventhubs/consumergroups": want["consumerGroup"]} {
		if found := d.of("Microsoft.EventHub/" + kind); len(found) != 1 || path.Base(found[0].ID) != name {
			t.Errorf("there is no %s %s", kind, name)
		}
	}
}

// checkStores: what the stores refuse otherwise, or promise.
func checkStores(t *testing.T, d deployment, store string) {
	t.Helper()
	account := one[struct{ AllowSharedKeyAccess, IsHnsEnabled bool }](t, d, "Microsoft.Storage/storageAccounts")
	if account.AllowSharedKeyAccess || account.IsHnsEnabled {
		t.Errorf("the storage account is %+v", account)
	}
	policy := string(d.of("Microsoft.Storage/storageAccounts/managementPolicies")[0].Properties)
	for _, kind := range []string{"alerts/", "malformed/", "replayed/"} {
		if !strings.Contains(policy, defaultOf("DEAD_LETTER_CONTAINER")+"/"+kind) {
			t.Errorf("dead letters in %s are never removed", kind)
		}
	}
	if store != "cosmos" {
		return
	}
	container := one[struct {
		Resource struct {
			ID             string
			PartitionKey   struct{ Paths []string }
			DefaultTTL     int
			IndexingPolicy struct{ IndexingMode string }
		}
	}](t, d, "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers").Resource
	if fmt.Sprint(container) != fmt.Sprintf("{%s {[/id]} -1 {consistent}}", defaultOf("COSMOS_CONTAINER")) {
		t.Errorf("the container of Cosmos DB is %v", container)
	}
	of := one[struct {
		EnableMultipleWriteLocations, DisableLocalAuth bool
		Locations                                      []any
	}](t, d, "Microsoft.DocumentDB/databaseAccounts")
	if of.EnableMultipleWriteLocations || !of.DisableLocalAuth || len(of.Locations) != 1 {
		t.Errorf("the account of Cosmos DB is %+v", of)
	}
}

// checkQueries has Microsoft's type checker read the queries of the alert rules, and looks for their texts in the worker.
func checkQueries(t *testing.T, queries map[string]string) {
	t.Helper()
	text, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "queries.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := emulators.Node(t, regexp.MustCompile(`^errors: (.*)`), "internal/lab/bicep/kql.js", name); found != "[]" {
		t.Errorf("the queries have errors: %s", found)
	}

	said := func(file, what string) {
		source, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), what) {
			t.Errorf("%s has no %s, which a query looks for", file, what)
		}
	}
	said("cmd/alertworker/run.go", `log.Info("starting"`)
	said("cmd/alertworker/run.go", `log.Info("stopped"`)
	said("cmd/alertworker/main.go", `(os.Stderr, "alertworker:", err)`)
	said("internal/ops/status/monitor.go", `zap.String("effect", `)
	said("internal/ops/status/monitor.go", `"still: "`)

	// The beginning and the end of each problem are told apart, and are of the same thing.
	quoted := func(before string) *regexp.Regexp {
		m := regexp.MustCompile(regexp.QuoteMeta(before) + `"([^"]+)"`).FindStringSubmatch(queries["blocked"])
		if m == nil {
			t.Fatalf("no %s in\n%s", before, queries["blocked"])
		}
		return regexp.MustCompile(m[1])
	}
	over, what := quoted("matches regex "), quoted("extract(")
	source, err := os.ReadFile("../../ops/status/report.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`(?m)^\tBy\w+: +\{begin: "(.+?)", end: "(.+?)"`).FindAllStringSubmatch(string(source), -1)
	if len(words) < 5 {
		t.Fatalf("found only %d kinds of problems", len(words))
	}
	for _, w := range words {
		begin, end := what.FindStringSubmatch("still: "+w[1]), what.FindStringSubmatch(w[2])
		if begin == nil || end == nil || begin[1] != end[1] || over.MatchString(w[1]) || !over.MatchString(w[2]) {
			t.Errorf("a query cannot tell %q (%q) from %q (%q)", w[1], begin, w[2], end)
		}
	}
}

// What azd's environment has reaches the template as it is, and so do the defaults.
func TestParameters(t *testing.T) {
	c := newCheckout(t)
	params := func(env map[string]string) map[string]struct{ Value any } {
		t.Helper()
		out, complaints, err := c.bicep(t, env, "build-params", "main.bicepparam", "--stdout")
		if err != nil {
			t.Fatalf("%v: %s", err, complaints)
		}
		var built struct{ ParametersJSON string }
		var p struct {
			Parameters map[string]struct{ Value any }
		}
		if err := json.Unmarshal([]byte(out), &built); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(built.ParametersJSON), &p); err != nil {
			t.Fatal(err)
		}
		return p.Parameters
	}

	addresses := "name=a https://example.com/?q='\"$HOME\\n\n log:\r\n\thttps://user:p$$w@example.com/${X}"
	env := maps.Clone(required)
	env["NOTIFY_URLS"], env["RULES"] = addresses, hostile
	p := params(env)
	for name, want := range map[string]any{"notifyUrls": addresses, "rules": hostile, "temperatureThreshold": "80"} {
		if p[name].Value != want {
			t.Errorf("%s is %q, want %q", name, p[name].Value, want)
		}
	}

	if err := os.WriteFile(filepath.Join(string(c), "rules.yaml"), []byte(hostile), 0o600); err != nil {
		t.Fatal(err)
	}
	p = params(required)
	if p["rules"].Value != hostile {
		t.Errorf("the rules of the file are %q", p["rules"].Value)
	}
	for name, variable := range map[string]string{"temperatureField": "TEMPERATURE_FIELD", "throttleWindow": "THROTTLE_WINDOW", "throttleStore": "THROTTLE_STORE"} {
		if p[name].Value != defaultOf(variable) {
			t.Errorf("%s is %q by default, and %q here", variable, defaultOf(variable), p[name].Value)
		}
	}
}

// What is missing or contradicts itself is an error that names it.
func TestMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		env    map[string]string // empty values are missing, but for NOTIFY_URLS
		params map[string]string
		want   []string
	}{
		"missing":         {env: map[string]string{"AZURE_ENV_NAME": "", "IMAGE": ""}, want: []string{`"AZURE_ENV_NAME" does not exist`, `"IMAGE" does not exist`}},
		"empty":           {env: map[string]string{"NOTIFY_URLS": ""}, want: []string{"minimum allowable length is 1"}},
		"no threshold":    {env: map[string]string{"TEMPERATURE_THRESHOLD": ""}, want: []string{"Set TEMPERATURE_THRESHOLD, or RULES"}},
		"a setting twice": {params: map[string]string{"settings": "{ THROTTLE_WINDOW: '5s', LOG_LEVEL: 'debug' }"}, want: []string{"a parameter of its own: THROTTLE_WINDOW."}},
		"no vault":        {params: map[string]string{"fromKeyVault": "{ NOTIFY_URLS: 'urls' }"}, want: []string{"fromKeyVault needs keyVaultId"}},
		"no network":      {params: map[string]string{"ingress": "true"}, want: []string{"ingress needs subnetId"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			env := maps.Clone(required)
			for variable, value := range test.env {
				if env[variable] = value; variable != "NOTIFY_URLS" {
					delete(env, variable)
				}
			}
			c.with(t, test.params)
			_, err := c.snapshot(t, env)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
		})
	}
}

// With a key vault the app gets references in place of values, and may read those secrets alone. In a network of its own it
// can serve its page there.
func TestOptions(t *testing.T) {
	c := newCheckout(t)
	const subnet = subscription + "/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/net/subnets/apps"
	c.with(t, map[string]string{
		"notifyUrls": "", "keyVaultId": "'" + vault + "'", "fromKeyVault": "{ NOTIFY_URLS: 'urls', HTTP_ADMIN_TOKEN: 'admin-token' }",
		"subnetId": "'" + subnet + "'", "ingress": "true", "throughputUnits": "12",
	})
	d := c.predict(t, required)
	app := one[containerApp](t, d, "Microsoft.App/containerApps")
	secrets, env := pairs(app.Configuration.Secrets, secretNames), pairs(app.Template.Containers[0].Env, settingNames)
	for setting, secret := range map[string]string{"NOTIFY_URLS": "urls", "HTTP_ADMIN_TOKEN": "admin-token"} {
		if got := env[setting]; got.key != "secretRef" || got.text != secret {
			t.Errorf("%s is %+v", setting, got)
		}
		if got := secrets[secret]; got.key != "keyVaultUrl" || got.text != "https://kv.vault.azure.net/secrets/"+secret {
			t.Errorf("the secret %s is %+v", secret, got)
		}
		if grant := "id: Key Vault Secrets User on Microsoft.KeyVault/vaults/kv/secrets/" + secret; !slices.Contains(granted(t, d), grant) {
			t.Errorf("no %s in %q", grant, granted(t, d))
		}
	}
	if _, ok := secrets["notify-urls"]; ok {
		t.Error("it has NOTIFY_URLS twice")
	}
	network := one[struct {
		VnetConfiguration struct {
			InfrastructureSubnetID string
			Internal               bool
		}
	}](t, d, "Microsoft.App/managedEnvironments").VnetConfiguration
	if network.InfrastructureSubnetID != subnet || !network.Internal || app.Configuration.Ingress == nil || app.Configuration.Ingress.TargetPort != 8080 {
		t.Errorf("its network is %+v, its ingress %+v", network, app.Configuration.Ingress)
	}
	if hosts := env["HTTP_HOSTS"]; !strings.HasPrefix(hosts.code, "format('{0}.{1}'") {
		t.Errorf("the page knows the host %+v, not that of its ingress", hosts)
	}
}
