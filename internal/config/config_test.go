package config

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (go test -update writes it anew); got:\n%s", path, got)
	}
}

// environment sets the given variables and unsets all others that matter.
func environment(t *testing.T, env map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		ours := slices.ContainsFunc(Variables(), func(v Variable) bool { return name == v.Name || name == v.Name+"_FILE" })
		if ours || name == "KUBERNETES_SERVICE_HOST" || name == "CONTAINER_APP_NAME" || len(misspelled([]string{entry})) > 0 {
			t.Setenv(name, "") // restores it
			os.Unsetenv(name)
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

const (
	key64       = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
	hubString   = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=service;SharedAccessKey=" + key64 + ";EntityPath=telemetry"
	iotString   = "HostName=hub.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=" + key64
	storeString = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=" + key64 + ";EndpointSuffix=core.windows.net"
	cosmoString = "AccountEndpoint=https://acc.documents.azure.com:443/;AccountKey=" + key64 + ";"
)

// valid is an environment that works; with replaces variables in it, an empty
// value removes one.
func valid(with ...string) map[string]string {
	env := map[string]string{
		"EVENTHUB_CONNECTION_STRING": hubString,
		"TEMPERATURE_THRESHOLD":      "80",
		"STORAGE_CONNECTION_STRING":  storeString,
		"NOTIFY_URLS":                "https://example.com/hook",
	}
	for _, assignment := range with {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	return env
}

func TestDefaults(t *testing.T) {
	environment(t, valid("REPLICA_NAME=r1"))
	got, warnings, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 0 {
		t.Errorf("warnings about the defaults: %v", warnings)
	}
	want := map[string]string{
		"EVENTHUB_CONNECTION_STRING": "[redacted]",
		"EVENTHUB_CONSUMER_GROUP":    "$Default",
		"EVENTHUB_START":             "latest",
		"EVENTHUB_PREFETCH":          "1000",
		"EVENTHUB_TRANSPORT":         "amqp",
		"TEMPERATURE_THRESHOLD":      "80",
		"TEMPERATURE_FIELD":          "temperature,temp",
		"THROTTLE_WINDOW":            "1m0s",
		"THROTTLE_STORE":             "blob",
		"STORAGE_CONNECTION_STRING":  "[redacted]",
		"CHECKPOINT_STORE":           "blob",
		"CHECKPOINT_CONTAINER":       "alertworker-checkpoints",
		"THROTTLE_CONTAINER":         "alertworker-throttle",
		"DEAD_LETTER_CONTAINER":      "alertworker-deadletters",
		"CHECKPOINT_INTERVAL":        "5s",
		"COSMOS_DATABASE":            "alertworker",
		"COSMOS_CONTAINER":           "leases",
		"NOTIFY_URLS":                "https://example.com",
		"TIME_ZONE":                  "UTC",
		"NOTIFY_RESOLVED":            "false",
		"NOTIFY_TIMEOUT":             "10s",
		"NOTIFY_CONCURRENCY":         "64",
		"NOTIFY_GIVE_UP":             "12h0m0s",
		"OWNERSHIP_EXPIRY":           "8s",
		"BALANCE_INTERVAL":           "3s",
		"DRAIN_TIMEOUT":              "20s",
		"REPLICA_NAME":               "r1",
		"LEASE_RETENTION":            "720h0m0s",
		"HTTP_ADDR":                  ":8080",
		"LOG_LEVEL":                  "info",
		"LOG_FORMAT":                 "json",
	}
	for i, v := range Variables() {
		if text := got.shown(i); text != want[v.Name] {
			t.Errorf("%s is %q, want %q", v.Name, text, want[v.Name])
		}
	}
	if got.EventHubConnectionString.Reveal() != hubString || !slices.Equal(got.NotifyURLs.Reveal(), []string{"https://example.com/hook"}) {
		t.Error("a secret does not reveal what was set")
	}
}

// The log says only what is not the default, and the threshold, also one of 0.
func TestLogSaysWhatIsSet(t *testing.T) {
	environment(t, valid("TEMPERATURE_THRESHOLD=0", "LOG_FORMAT=console", "THROTTLE_WINDOW=1m", "DRAIN_TIMEOUT=30s", "REPLICA_NAME=r"))
	c, _, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"DRAIN_TIMEOUT", "EVENTHUB_CONNECTION_STRING", "LOG_FORMAT", "NOTIFY_URLS", "REPLICA_NAME", "STORAGE_CONNECTION_STRING", "TEMPERATURE_THRESHOLD"}
	if got := slices.Sorted(maps.Keys(logged(t, c))); !slices.Equal(got, want) {
		t.Errorf("it shows %q, want %q", got, want)
	}
}

// logged returns what the log says of c.
func logged(t *testing.T, c Config) map[string]any {
	t.Helper()
	enc := zapcore.NewMapObjectEncoder()
	if err := c.MarshalLogObject(enc); err != nil {
		t.Fatal(err)
	}
	return enc.Fields
}

func TestNothingSet(t *testing.T) {
	environment(t, nil)
	_, warnings, err := Load()
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) || coded.ExitCode() != ExitInvalid || ExitInvalid == 2 {
		t.Fatalf("got %v, want an error with its exit code, which is not 2: that is what Go ends a process with that crashes", err)
	}
	if len(warnings) != 0 {
		t.Errorf("warnings: %v", warnings)
	}
	golden(t, "nothing-set.golden", err.Error()+"\n")
}

func TestEverythingWrong(t *testing.T) {
	environment(t, map[string]string{
		"EVENTHUB_CONNECTION_STRING": iotString,
		"EVENTHUB_START":             "yesterday",
		"EVENTHUB_PREFETCH":          "many",
		"TEMPERATURE_THRESHOLD":      "80,5",
		"TEMPERATURE_FIELD":          "machine..temperature",
		"THROTTLE_WINDOW":            "60",
		"THROTTLE_STORE":             "redis",
		"STORAGE_CONNECTION_STRING":  hubString,
		"THROTTLE_CONTAINER":         "alertworker-checkpoints",
		"NOTIFY_URLS":                "example.com/hook",
		"NOTIFY_TIMEOUT":             "0s",
		"OWNERSHIP_EXPIRY":           "5s",
		"HTTP_ADDR":                  "8080",
		"HTTP_INGEST_TOKEN":          "short",
		"LOG_LEVEL":                  "loud",
	})
	_, _, err := Load()
	if err == nil {
		t.Fatal("no error")
	}
	golden(t, "everything-wrong.golden", err.Error()+"\n")
}

// problems returns the message's lines about variables.
func problemLines(err error) []string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "  ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		name     string
		env      map[string]string
		variable string
		says     string
	}{
		{"iot hub string as event hub", valid("EVENTHUB_CONNECTION_STRING=" + iotString), "EVENTHUB_CONNECTION_STRING", "belongs in IOTHUB_CONNECTION_STRING"},
		{"device string", valid("EVENTHUB_CONNECTION_STRING=HostName=h.azure-devices.net;DeviceId=d1;SharedAccessKey=" + key64), "EVENTHUB_CONNECTION_STRING", "is a device's connection string"},
		{"device string as iot hub", valid("EVENTHUB_CONNECTION_STRING=", "IOTHUB_CONNECTION_STRING=HostName=h.azure-devices.net;DeviceId=d1;SharedAccessKey="+key64), "IOTHUB_CONNECTION_STRING", "is a device's connection string"},
		{"event hub string as iot hub", valid("EVENTHUB_CONNECTION_STRING=", "IOTHUB_CONNECTION_STRING="+hubString), "IOTHUB_CONNECTION_STRING", "belongs in EVENTHUB_CONNECTION_STRING"},
		{"storage string as event hub", valid("EVENTHUB_CONNECTION_STRING=" + storeString), "EVENTHUB_CONNECTION_STRING", "belongs in STORAGE_CONNECTION_STRING"},
		{"cosmos string as storage", valid("STORAGE_CONNECTION_STRING=" + cosmoString), "STORAGE_CONNECTION_STRING", "belongs in COSMOS_CONNECTION_STRING"},
		{"no entity path", valid("EVENTHUB_CONNECTION_STRING=" + strings.TrimSuffix(hubString, ";EntityPath=telemetry")), "EVENTHUB_NAME", "has no EntityPath"},
		{"other entity path", valid("EVENTHUB_NAME=other"), "EVENTHUB_NAME", "a different hub"},
		{"no key", valid("EVENTHUB_CONNECTION_STRING=Endpoint=sb://ns.servicebus.windows.net/;EntityPath=x"), "EVENTHUB_CONNECTION_STRING", "must be Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY"},
		{"endpoint https", valid("EVENTHUB_CONNECTION_STRING=" + strings.Replace(hubString, "sb://", "https://", 1)), "EVENTHUB_CONNECTION_STRING", "sb://HOST/"},
		{"placeholder", valid("EVENTHUB_CONNECTION_STRING=" + strings.Replace(hubString, key64, "<your key>", 1)), "EVENTHUB_CONNECTION_STRING", "placeholder"},
		{"bad emulator", valid("EVENTHUB_CONNECTION_STRING=" + hubString + ";UseDevelopmentEmulator=maybe"), "EVENTHUB_CONNECTION_STRING", "UseDevelopmentEmulator"},
		{"not pairs", valid("EVENTHUB_CONNECTION_STRING=ns.servicebus.windows.net"), "EVENTHUB_CONNECTION_STRING", "is not a connection string"},
		{"rules in quotes", valid("TEMPERATURE_THRESHOLD=", `RULES_FILE="/rules.yaml"`), "RULES_FILE", "is in quotes"},
		{"in quotes", valid(`EVENTHUB_CONNECTION_STRING="` + hubString + `"`), "EVENTHUB_CONNECTION_STRING", "is in quotes"},
		{"two hubs", valid("EVENTHUB_NAMESPACE=ns.servicebus.windows.net", "EVENTHUB_NAME=telemetry"), "EVENTHUB_CONNECTION_STRING", "and EVENTHUB_NAMESPACE are set"},
		{"two hubs, iot", valid("IOTHUB_CONNECTION_STRING=" + iotString), "EVENTHUB_CONNECTION_STRING", "and IOTHUB_CONNECTION_STRING are set"},
		{"iot key", valid("EVENTHUB_CONNECTION_STRING=", "IOTHUB_CONNECTION_STRING="+iotString+"!"), "IOTHUB_CONNECTION_STRING", "not base64"},
		{"namespace url", valid("EVENTHUB_CONNECTION_STRING=", "EVENTHUB_NAME=t", "EVENTHUB_NAMESPACE=https://ns.servicebus.windows.net/"), "EVENTHUB_NAMESPACE", "only the full host name"},
		{"namespace short", valid("EVENTHUB_CONNECTION_STRING=", "EVENTHUB_NAME=t", "EVENTHUB_NAMESPACE=ns"), "EVENTHUB_NAMESPACE", "NAME.servicebus.windows.net"},
		{"namespace without hub", valid("EVENTHUB_CONNECTION_STRING=", "EVENTHUB_NAMESPACE=ns.servicebus.windows.net"), "EVENTHUB_NAME", "requires the name"},
		{"hub name", valid("EVENTHUB_CONNECTION_STRING=", "EVENTHUB_NAMESPACE=ns.servicebus.windows.net", "EVENTHUB_NAME=a b"), "EVENTHUB_NAME", `"a b"`},
		{"consumer group", valid("EVENTHUB_CONSUMER_GROUP=a/b"), "EVENTHUB_CONSUMER_GROUP", `"a/b"`},
		{"start", valid("EVENTHUB_START=2026-01-31"), "EVENTHUB_START", "2026-01-31T12:00:00Z"},
		{"prefetch 0", valid("EVENTHUB_PREFETCH=0"), "EVENTHUB_PREFETCH", "1 to 5000"},
		{"prefetch 5001", valid("EVENTHUB_PREFETCH=5001"), "EVENTHUB_PREFETCH", "1 to 5000"},
		{"transport", valid("EVENTHUB_TRANSPORT=mqtt"), "EVENTHUB_TRANSPORT", "amqp or websocket"},

		{"no threshold", valid("TEMPERATURE_THRESHOLD="), "TEMPERATURE_THRESHOLD", "is missing"},
		{"threshold NaN", valid("TEMPERATURE_THRESHOLD=NaN"), "TEMPERATURE_THRESHOLD", "finite"},
		{"threshold Inf", valid("TEMPERATURE_THRESHOLD=-Inf"), "TEMPERATURE_THRESHOLD", "finite"},
		{"threshold with a comma", valid("TEMPERATURE_THRESHOLD=8,5"), "TEMPERATURE_THRESHOLD", `is "8,5"; must be a number with a decimal point, 8.5`},
		{"threshold out of range", valid("TEMPERATURE_THRESHOLD=1e999"), "TEMPERATURE_THRESHOLD", "must be a number"},
		{"field empty", valid("TEMPERATURE_FIELD=a,,b"), "TEMPERATURE_FIELD", "field 2 of 3"},
		{"field twice", valid("TEMPERATURE_FIELD=a,b,a"), "TEMPERATURE_FIELD", "remove one"},

		{"window without unit", valid("THROTTLE_WINDOW=60"), "THROTTLE_WINDOW", "such as 30s, 5m or 1h30m"},
		{"window 0", valid("THROTTLE_WINDOW=0s"), "THROTTLE_WINDOW", "1s to 24h"},
		{"window negative", valid("THROTTLE_WINDOW=-60s"), "THROTTLE_WINDOW", "1s to 24h"},
		{"window 25h", valid("THROTTLE_WINDOW=25h", "NOTIFY_GIVE_UP=26h"), "THROTTLE_WINDOW", "1s to 24h"},
		{"store", valid("THROTTLE_STORE=table"), "THROTTLE_STORE", "memory, blob, blob-lease"},
		{"blob-lease window long", valid("THROTTLE_STORE=blob-lease", "THROTTLE_WINDOW=61s"), "THROTTLE_WINDOW", "have no such limit"},
		{"blob-lease window short", valid("THROTTLE_STORE=blob-lease", "THROTTLE_WINDOW=14s"), "THROTTLE_WINDOW", "(THROTTLE_STORE=blob"},
		{"blob-lease claim long", valid("THROTTLE_STORE=blob-lease", "NOTIFY_TIMEOUT=51s"), "NOTIFY_TIMEOUT", "5s to 50s"},
		{"blob-lease claim short", valid("THROTTLE_STORE=blob-lease", "NOTIFY_TIMEOUT=4s"), "NOTIFY_TIMEOUT", "5s to 50s"},
		{"scope long", valid("THROTTLE_SCOPE=" + strings.Repeat("x", 257)), "THROTTLE_SCOPE", "256"},

		{"no storage", valid("STORAGE_CONNECTION_STRING="), "STORAGE_CONNECTION_STRING", "CHECKPOINT_STORE=blob and THROTTLE_STORE=blob"},
		{"no storage for checkpoints", valid("STORAGE_CONNECTION_STRING=", "THROTTLE_STORE=memory"), "STORAGE_CONNECTION_STRING", "required by CHECKPOINT_STORE=blob ("},
		{"no storage for windows", valid("STORAGE_CONNECTION_STRING=", "THROTTLE_STORE=blob-lease", "CHECKPOINT_STORE=memory"), "STORAGE_CONNECTION_STRING", "required by THROTTLE_STORE=blob-lease ("},
		{"storage twice", valid("STORAGE_ACCOUNT_URL=https://acc.blob.core.windows.net"), "STORAGE_CONNECTION_STRING", "and STORAGE_ACCOUNT_URL are both set"},
		{"storage key", valid("STORAGE_CONNECTION_STRING=AccountName=acc;AccountKey=???"), "STORAGE_CONNECTION_STRING", "in base64"},
		{"storage no key", valid("STORAGE_CONNECTION_STRING=AccountName=acc"), "STORAGE_CONNECTION_STRING", "must be AccountName=NAME;AccountKey=KEY"},
		{"storage key in lower case", valid("STORAGE_CONNECTION_STRING=AccountName=acc;accountkey=" + key64), "STORAGE_CONNECTION_STRING", "must be AccountName=NAME;AccountKey=KEY"},
		{"storage no account", valid("STORAGE_CONNECTION_STRING=AccountKey=" + key64), "STORAGE_CONNECTION_STRING", "must be AccountName=NAME;AccountKey=KEY"},
		{"storage url with signature", valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=https://acc.blob.core.windows.net/?sv=1&sig=abc"), "STORAGE_ACCOUNT_URL", "connection string"},
		{"storage url http", valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=http://127.0.0.1:10000"), "STORAGE_ACCOUNT_URL", "must be https"},
		{"storage url bare", valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=acc.blob.core.windows.net"), "STORAGE_ACCOUNT_URL", "must be a URL"},
		{"storage url dfs", valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=https://acc.dfs.core.windows.net"), "STORAGE_ACCOUNT_URL", "blob service"},
		{"storage url container", valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=https://acc.blob.core.windows.net/c"), "STORAGE_ACCOUNT_URL", "without a path"},
		{"checkpoint store", valid("CHECKPOINT_STORE=cosmos"), "CHECKPOINT_STORE", "blob or memory"},
		{"container upper case", valid("CHECKPOINT_CONTAINER=Checkpoints"), "CHECKPOINT_CONTAINER", "lower-case"},
		{"container short", valid("THROTTLE_CONTAINER=ab"), "THROTTLE_CONTAINER", "3 to 63"},
		{"container dashes", valid("DEAD_LETTER_CONTAINER=a--b"), "DEAD_LETTER_CONTAINER", "single hyphens"},
		{"container shared", valid("THROTTLE_CONTAINER=alertworker-checkpoints"), "THROTTLE_CONTAINER", "same as CHECKPOINT_CONTAINER"},
		{"checkpoint interval", valid("CHECKPOINT_INTERVAL=0s"), "CHECKPOINT_INTERVAL", "100ms to 10m"},

		{"no cosmos", valid("THROTTLE_STORE=cosmos"), "COSMOS_CONNECTION_STRING", "is missing"},
		{"cosmos twice", valid("COSMOS_CONNECTION_STRING="+cosmoString, "COSMOS_ENDPOINT=https://acc.documents.azure.com"), "COSMOS_CONNECTION_STRING", "and COSMOS_ENDPOINT are both set"},
		{"cosmos database", valid("COSMOS_CONNECTION_STRING=" + cosmoString + "Database=x"), "COSMOS_CONNECTION_STRING", "setting of its own"},
		{"cosmos key", valid("COSMOS_CONNECTION_STRING=AccountEndpoint=https://a/;AccountKey=??"), "COSMOS_CONNECTION_STRING", "with a key in base64"},
		{"cosmos endpoint", valid("THROTTLE_STORE=cosmos", "COSMOS_ENDPOINT=acc"), "COSMOS_ENDPOINT", "documents.azure.com"},
		{"cosmos name", valid("COSMOS_DATABASE=a/b"), "COSMOS_DATABASE", `"a/b"`},

		{"a setting that is gone", valid("DEAD_LETTER_MALFORMED=true"), "DEAD_LETTER_MALFORMED", "is gone: alertworker check"},
		{"one that is a rule's key", valid("TEMPERATURE_FOR=2m"), "TEMPERATURE_FOR", "is gone: write a rule in RULES or RULES_FILE, with for: 2m"},
		{"no receiver", valid("NOTIFY_URLS="), "NOTIFY_URLS", "is missing"},
		{"only commas", valid("NOTIFY_URLS= , ,"), "NOTIFY_URLS", "names no receiver"},
		{"no scheme", valid("NOTIFY_URLS=log:,example.com/hook"), "NOTIFY_URLS", "entry 2"},
		{"no host", valid("NOTIFY_URLS=https:///hook"), "NOTIFY_URLS", "there is no host"},
		{"receiver twice", valid("NOTIFY_URLS=log:,https://a/,log:"), "NOTIFY_URLS", "entry 3 is the same receiver as entry 1"},
		{"receivers", valid("NOTIFY_URLS=" + manyURLs(33)), "NOTIFY_URLS", "at most 32"},
		{"two of one name", valid("NOTIFY_URLS=name=a log:\nname=a https://a/"), "NOTIFY_URLS", "entry 2 is the same receiver as entry 1, by its URL, name or id"},
		{"status page without a scheme", valid("PUBLIC_URL=alerts.example.com"), "PUBLIC_URL", "such as https://www.example.com/alerts"},
		{"status page with a password", valid("PUBLIC_URL=https://me:hunter2@alerts.example.com/"), "PUBLIC_URL", "not shown"},
		{"status page of great length", valid("PUBLIC_URL=https://alerts.example.com/" + strings.Repeat("x", 1024)), "PUBLIC_URL", "at most 1024 bytes"},
		{"webhook secret", valid("NOTIFY_WEBHOOK_SECRET=hunter2"), "NOTIFY_WEBHOOK_SECRET", "openssl rand"},
		{"webhook secret short", valid("NOTIFY_WEBHOOK_SECRET=whsec_aGVsbG8="), "NOTIFY_WEBHOOK_SECRET", "24 to 64"},
		{"timeout", valid("NOTIFY_TIMEOUT=6m"), "NOTIFY_TIMEOUT", "1s to 5m"},
		{"concurrency", valid("NOTIFY_CONCURRENCY=0"), "NOTIFY_CONCURRENCY", "1 to 4096"},
		{"concurrency text", valid("NOTIFY_CONCURRENCY=64.5"), "NOTIFY_CONCURRENCY", "a whole number"},
		{"give up before the second attempt", valid("NOTIFY_GIVE_UP=60s", "NOTIFY_TIMEOUT=5m"), "NOTIFY_GIVE_UP", "must be at least 10m20s"},
		{"start in the future", valid("EVENTHUB_START=2999-01-31T12:00:00Z"), "EVENTHUB_START", "in the future"},
		{"give up", valid("THROTTLE_WINDOW=1h", "NOTIFY_GIVE_UP=59m"), "NOTIFY_GIVE_UP", "at least THROTTLE_WINDOW"},

		{"expiry", valid("BALANCE_INTERVAL=5s"), "OWNERSHIP_EXPIRY", "twice BALANCE_INTERVAL"},
		{"balance", valid("BALANCE_INTERVAL=0s"), "BALANCE_INTERVAL", "1s to 5m"},
		{"drain", valid("DRAIN_TIMEOUT=0s"), "DRAIN_TIMEOUT", "1s to 10m"},

		{"retention", valid("LEASE_RETENTION=1h"), "LEASE_RETENTION", "24h to 87600h"},
		{"retention below give up", valid("LEASE_RETENTION=48h", "NOTIFY_GIVE_UP=48h"), "LEASE_RETENTION", "more than the sum of THROTTLE_WINDOW and NOTIFY_GIVE_UP"},
		{"heartbeat", valid("HEARTBEAT_URL=hc-ping.com/hunter2"), "HEARTBEAT_URL", "begins with https://"},
		{"heartbeat's interval", valid("HEARTBEAT_URL=interval=2h https://hc-ping.com/hunter2"), "HEARTBEAT_URL", "1s to 1h"},

		{"port alone", valid("HTTP_ADDR=8080"), "HTTP_ADDR", "such as :8080"},
		{"address", valid("HTTP_ADDR=localhost"), "HTTP_ADDR", "host:port"},
		{"port", valid("HTTP_ADDR=:99999"), "HTTP_ADDR", "host:port"},
		{"token short", valid("HTTP_INGEST_TOKEN=123456789012345"), "HTTP_INGEST_TOKEN", "16 characters"},
		{"token spaces", valid("HTTP_INGEST_TOKEN=12345678 12345678"), "HTTP_INGEST_TOKEN", "printable"},
		{"token without http", valid("HTTP_ADDR=", "HTTP_INGEST_TOKEN=1234567890123456"), "HTTP_INGEST_TOKEN", "HTTP_ADDR is empty"},
		{"admin token short", valid("HTTP_ADMIN_TOKEN=123456789012345"), "HTTP_ADMIN_TOKEN", "16 characters"},
		{"admin token spaces", valid("HTTP_ADMIN_TOKEN=12345678 12345678"), "HTTP_ADMIN_TOKEN", "printable"},
		{"admin token without http", valid("HTTP_ADDR=", "HTTP_ADMIN_TOKEN=1234567890123456"), "HTTP_ADMIN_TOKEN", "HTTP_ADDR is empty"},
		{"host name with a port", valid("HTTP_HOSTS=alerts.example.com:8080"), "HTTP_HOSTS", "host names"},
		{"host name with a pattern", valid("HTTP_HOSTS=a.example.com, *.example.com"), "HTTP_HOSTS", `"*.example.com"`},
		{"one token for both", valid("HTTP_INGEST_TOKEN=1234567890123456", "HTTP_ADMIN_TOKEN=1234567890123456"), "HTTP_ADMIN_TOKEN", "must differ from HTTP_INGEST_TOKEN"},
		{"level", valid("LOG_LEVEL=fatal"), "LOG_LEVEL", "debug, info, warn or error"},
		{"format", valid("LOG_FORMAT=text"), "LOG_FORMAT", "json or console"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			_, _, err := Load()
			if err == nil {
				t.Fatal("no error")
			}
			lines := problemLines(err)
			if len(lines) != 1 {
				t.Errorf("got %d problems, want one: %q", len(lines), lines)
			}
			if !strings.HasPrefix(lines[0], test.variable+"  ") || !strings.Contains(lines[0], test.says) {
				t.Errorf("got %q, want %s … %s", lines[0], test.variable, test.says)
			}
			if strings.Contains(err.Error(), key64) {
				t.Error("the message holds the key")
			}
		})
	}
}

func manyURLs(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("https://example.com/%d", i))
	}
	return strings.Join(list, ",")
}

func TestValid(t *testing.T) {
	const keyless = "EVENTHUB_CONNECTION_STRING="
	for name, env := range map[string]map[string]string{
		"keyless":            valid(keyless, "EVENTHUB_NAMESPACE=ns.servicebus.windows.net", "EVENTHUB_NAME=t", "STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL=https://acc.blob.core.windows.net/"),
		"iot hub":            valid(keyless, "IOTHUB_CONNECTION_STRING="+iotString),
		"emulator":           valid("EVENTHUB_CONNECTION_STRING=Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=k;SharedAccessKey=anything;UseDevelopmentEmulator=true;EntityPath=t", "STORAGE_CONNECTION_STRING=UseDevelopmentStorage=true"),
		"key in any case":    valid("EVENTHUB_CONNECTION_STRING=endpoint=sb://ns.servicebus.windows.net;SHAREDACCESSKEYNAME=a;sharedaccesskey=b;entitypath=t"),
		"signature":          valid("EVENTHUB_CONNECTION_STRING=Endpoint=sb://ns.servicebus.windows.net;SharedAccessSignature=SharedAccessSignature sr=x&sig=y%3d&se=1&skn=z;EntityPath=t"),
		"name beside string": valid("EVENTHUB_CONNECTION_STRING="+strings.TrimSuffix(hubString, ";EntityPath=telemetry"), "EVENTHUB_NAME=t"),
		"same name twice":    valid("EVENTHUB_NAME=telemetry"),
		"storage signature":  valid("STORAGE_CONNECTION_STRING=BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=sv=2024&sig=abc%3D"),
		"memory":             valid("STORAGE_CONNECTION_STRING=", "THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory"),
		"cosmos":             valid("THROTTLE_STORE=cosmos", "COSMOS_CONNECTION_STRING="+cosmoString),
		"cosmos emulator":    valid("THROTTLE_STORE=cosmos", "COSMOS_CONNECTION_STRING="+cosmoString+"DisableServerCertificateValidation=True;"),
		"cosmos keyless":     valid("THROTTLE_STORE=COSMOS", "COSMOS_ENDPOINT=https://acc.documents.azure.com:443/"),
		"blob-lease edges":   valid("THROTTLE_STORE=blob-lease", "THROTTLE_WINDOW=15s", "NOTIFY_TIMEOUT=50s"),
		"freezer":            valid("TEMPERATURE_THRESHOLD=0"),
		"below zero":         valid("TEMPERATURE_THRESHOLD=-18.5"),
		"channels":           valid("NOTIFY_URLS=teams+https://example.com/?sig=x,name=ops pagerduty://R0UT1NGK3Y\r\nalertmanager+http://am:9093", "PUBLIC_URL=https://alerts.example.com"),
		"signed webhooks":    valid("NOTIFY_WEBHOOK_SECRET=whsec_" + key64),
		"ingest":             valid("HTTP_INGEST_TOKEN=1234567890123456"),
		"no http":            valid("HTTP_ADDR="),
		"empty means unset":  valid("THROTTLE_WINDOW=", "EVENTHUB_CONSUMER_GROUP=", "NOTIFY_CONCURRENCY=", "LOG_LEVEL="),
		"trailing newline":   valid("EVENTHUB_CONNECTION_STRING=" + hubString + "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, env)
			c, _, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "no http":
				if c.HTTPAddr != "" {
					t.Errorf("HTTP_ADDR is %q, want it off", c.HTTPAddr)
				}
			case "empty means unset":
				if c.ThrottleWindow != time.Minute || c.EventHubConsumerGroup != "$Default" || c.NotifyConcurrency != 64 || c.LogLevel != "info" {
					t.Errorf("got %v, %q, %d, %q, want the defaults", c.ThrottleWindow, c.EventHubConsumerGroup, c.NotifyConcurrency, c.LogLevel)
				}
			case "trailing newline":
				if c.EventHubConnectionString.Reveal() != hubString {
					t.Error("the newline is still there")
				}
			case "emulator":
				if !strings.Contains(c.StorageConnectionString.Reveal(), "AccountName=devstoreaccount1;") {
					t.Error("UseDevelopmentStorage=true is not spelled out")
				}
			case "below zero":
				if c.TemperatureThreshold != -18.5 {
					t.Errorf("TEMPERATURE_THRESHOLD is %v", c.TemperatureThreshold)
				}
			}
		})
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("all", func(t *testing.T) {
		contents := map[string]string{
			"EVENTHUB_CONNECTION_STRING": hubString,
			"STORAGE_CONNECTION_STRING":  storeString,
			"COSMOS_CONNECTION_STRING":   cosmoString,
			"NOTIFY_URLS":                "https://example.com/a,\nhttps://example.com/b",
			"NOTIFY_WEBHOOK_SECRET":      "whsec_" + key64,
			"HTTP_INGEST_TOKEN":          "1234567890123456",
			"HTTP_ADMIN_TOKEN":           "abcdefghijklmnop",
			"IOTHUB_CONNECTION_STRING":   iotString,
			"HEARTBEAT_URL":              "interval=5m https://hc-ping.com/0000",
		}
		for _, v := range Variables() {
			if v.Secret && contents[v.Name] == "" {
				t.Errorf("%s is not covered", v.Name)
			}
		}
		for _, hub := range []string{"EVENTHUB_CONNECTION_STRING", "IOTHUB_CONNECTION_STRING"} {
			env := map[string]string{"TEMPERATURE_THRESHOLD": "80"}
			for name, content := range contents {
				if name == hub || !strings.Contains(name, "HUB_") {
					env[name+"_FILE"] = write(name, content+"\r\n")
				}
			}
			environment(t, env)
			c, warnings, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				if strings.HasSuffix(w.Variable, "_FILE") {
					t.Errorf("warning: %v", w)
				}
			}
			if got := c.EventHubConnectionString.Reveal() + c.IoTHubConnectionString.Reveal(); got != contents[hub] {
				t.Errorf("%s: got %q", hub, got)
			}
			if got := c.NotifyURLs.Reveal(); !slices.Equal(got, []string{"https://example.com/a", "https://example.com/b"}) {
				t.Errorf("NOTIFY_URLS: got %q", got)
			}
			if c.HTTPIngestToken.Reveal() != contents["HTTP_INGEST_TOKEN"] || c.HTTPAdminToken.Reveal() != contents["HTTP_ADMIN_TOKEN"] || c.NotifyWebhookSecret.Reveal() != contents["NOTIFY_WEBHOOK_SECRET"] ||
				c.StorageConnectionString.Reveal() != storeString || c.CosmosConnectionString.Reveal() != cosmoString {
				t.Error("a secret is not what its file holds")
			}
		}
	})

	for _, test := range []struct{ name, path, also, says string }{
		{"both", write("both", hubString), hubString, "and EVENTHUB_CONNECTION_STRING_FILE are both set"},
		{"absent", filepath.Join(dir, "absent"), "", "no such file"},
		{"folder", dir, "", "not a regular file"},
		{"empty", write("empty", " \n"), "", "is empty"},
		{"large", write("large", strings.Repeat("x", 64<<10+1)), "", "larger than 64 KiB"},
		{"binary", write("binary", "\xff\xfe"), "", "UTF-8"},
		{"the secret itself", hubString, "", "not shown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, valid("EVENTHUB_CONNECTION_STRING="+test.also, "EVENTHUB_CONNECTION_STRING_FILE="+test.path))
			_, _, err := Load()
			if err == nil {
				t.Fatal("no error")
			}
			lines := problemLines(err)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "EVENTHUB_CONNECTION_STRING ") || !strings.Contains(lines[0], test.says) {
				t.Errorf("got %q, want … %s", lines, test.says)
			}
			if strings.Contains(err.Error(), key64) {
				t.Error("the message holds the key")
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	memory := valid("THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=")
	inKubernetes := valid("THROTTLE_STORE=memory", "KUBERNETES_SERVICE_HOST=10.0.0.1")
	for _, test := range []struct {
		name string
		env  map[string]string
		want []string // variable and a part of the text, by turns
	}{
		{"memory", memory, []string{"CHECKPOINT_STORE", "EVENTHUB_START=latest", "DEAD_LETTER_CONTAINER", "only written to the log"}},
		{"memory windows", valid("THROTTLE_STORE=memory"), []string{"THROTTLE_STORE", "replicas share the hub"}},
		{"memory windows in Kubernetes", inKubernetes, []string{"THROTTLE_STORE", "Kubernetes"}},
		{"takeover", valid("THROTTLE_WINDOW=10s"), []string{"OWNERSHIP_EXPIRY", "up to 11s"}},
		{"takeover in time", valid("THROTTLE_WINDOW=11s"), nil},
		{"drain", valid("DRAIN_TIMEOUT=25s"), []string{"DRAIN_TIMEOUT", "at least 35s"}},
		{"drain short", valid("DRAIN_TIMEOUT=9s"), []string{"DRAIN_TIMEOUT", "NOTIFY_TIMEOUT"}},
		{"give up", valid("NOTIFY_GIVE_UP=24h"), []string{"NOTIFY_GIVE_UP", "1 day"}},
		{"name beside iot hub", valid("EVENTHUB_CONNECTION_STRING=", "IOTHUB_CONNECTION_STRING="+iotString, "EVENTHUB_NAME=t"), []string{"EVENTHUB_NAME", "ignored"}},
		{"unused cosmos", valid("COSMOS_ENDPOINT=https://acc.documents.azure.com"), []string{"THROTTLE_STORE", "ignored"}},
		{"alarms in memory", valid("CHECKPOINT_STORE=memory", "THROTTLE_STORE=memory", "STORAGE_CONNECTION_STRING=", "NOTIFY_RESOLVED=true"),
			[]string{"CHECKPOINT_STORE", "repeats or skips", "DEAD_LETTER_CONTAINER", "only written", "CHECKPOINT_STORE", "alarms are forgotten"}},
		{"unused secret", valid("NOTIFY_URLS=log:", "NOTIFY_WEBHOOK_SECRET=whsec_"+key64), []string{"NOTIFY_WEBHOOK_SECRET", "no webhook"}},
		{"misspelled", valid("THROTLE_WINDOW=5m"), []string{"THROTLE_WINDOW", "did you mean THROTTLE_WINDOW?"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			_, got, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(test.want)/2 {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i, w := range got {
				if w.Variable != test.want[2*i] || !strings.Contains(w.String(), test.want[2*i+1]) {
					t.Errorf("got %q, want %s … %s", w, test.want[2*i], test.want[2*i+1])
				}
			}
		})
	}
}

func TestMisspelledComesWithError(t *testing.T) {
	environment(t, valid("TEMPERATURE_THRESHOLD=", "TEMPERATURE_TRESHOLD=80"))
	_, warnings, err := Load()
	if err == nil || len(warnings) != 1 || warnings[0].Variable != "TEMPERATURE_TRESHOLD" {
		t.Errorf("got %v and %v, want the error and a hint at the misspelled name", warnings, err)
	}
}

func TestScope(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"string":    {valid("EVENTHUB_CONSUMER_GROUP=Alerts"), "ns.servicebus.windows.net/telemetry/alerts"},
		"namespace": {valid("EVENTHUB_CONNECTION_STRING=", "EVENTHUB_NAMESPACE=NS.servicebus.windows.net", "EVENTHUB_NAME=Telemetry"), "ns.servicebus.windows.net/telemetry/$default"},
		"name":      {valid("EVENTHUB_CONNECTION_STRING="+strings.TrimSuffix(hubString, ";EntityPath=telemetry"), "EVENTHUB_NAME=Other"), "ns.servicebus.windows.net/other/$default"},
		"iot hub":   {valid("EVENTHUB_CONNECTION_STRING=", "IOTHUB_CONNECTION_STRING="+iotString), "hub.azure-devices.net/$default"},
		"given":     {valid("THROTTLE_SCOPE=Plant A"), "Plant A"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, test.env)
			c, _, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			if c.IoTHubConnectionString.IsSet() {
				if c, err = c.WithHub(hubString); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.Scope(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The names are what users hold on to, and the tags are written by hand.
func TestVariables(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Variables() {
		if !regexp.MustCompile(`^[A-Z][A-Z_]+$`).MatchString(v.Name) || v.Description == "" || v.Group == "" || seen[v.Name] {
			t.Errorf("%+v is not described well", v)
		}
		seen[v.Name] = true
	}
	for name := range descriptions {
		if !seen[name] {
			t.Errorf("%s is described, and is no variable", name)
		}
	}
	for _, name := range common {
		if !seen[name] {
			t.Errorf("help names %s, which is no variable", name)
		}
	}
	for _, v := range Variables() {
		family := slices.ContainsFunc(families, func(prefix string) bool { return strings.HasPrefix(v.Name, prefix) })
		if family && len(misspelled([]string{v.Name + "_X=1"})) == 0 {
			t.Errorf("%s_X gets no hint", v.Name)
		}
	}
	for _, prefix := range families {
		if !slices.ContainsFunc(Variables(), func(v Variable) bool { return strings.HasPrefix(v.Name, prefix) }) {
			t.Errorf("no variable begins with %s", prefix)
		}
	}
}

func TestHelp(t *testing.T) {
	text := Help()
	for line := range strings.Lines(text) {
		if len(line) > helpWidth+1 {
			t.Errorf("longer than %d: %s", helpWidth, line)
		}
	}
	for _, v := range Variables() {
		if !strings.Contains(text, "  "+v.Name) {
			t.Errorf("%s is not in the help", v.Name)
		}
	}
}

// What is used with an identity needs one.
func TestKeyless(t *testing.T) {
	for _, tt := range []struct {
		name    string
		c       Config
		want    bool
		forGrid bool
	}{
		{"keys", Config{NotifyURLs: NewURLs("eventgrid+https://:key@topic.example.com", "https://a/")}, false, false},
		{"Event Grid", Config{NotifyURLs: NewURLs("log:", "name=grid eventgrid+https://topic.example.com")}, true, true},
		{"storage", Config{StorageAccountURL: "https://a.blob.core.windows.net"}, true, false},
	} {
		if tt.c.Keyless() != tt.want || tt.c.EventGridKeyless() != tt.forGrid {
			t.Errorf("%s: Keyless is %v, EventGridKeyless %v", tt.name, tt.c.Keyless(), tt.c.EventGridKeyless())
		}
	}
}
