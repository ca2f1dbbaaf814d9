package config

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
)

// everyWay prints v in every way that a program could by mistake.
func everyWay(v any) string {
	var b strings.Builder
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%t", "%p"} {
		fmt.Fprintf(&b, format, v)
		fmt.Fprintf(&b, format, []any{v})
		fmt.Fprintf(&b, format, struct{ hidden any }{v})
	}
	fmt.Fprintln(&b, v)
	for _, marshal := range []func(any) ([]byte, error){
		stdjson.Marshal, func(v any) ([]byte, error) { return json.Marshal(v) },
	} {
		text, err := marshal(v) // config has durations, which the second refuses
		fmt.Fprint(&b, string(text), err)
	}
	var out bytes.Buffer
	for _, encoder := range []zapcore.Encoder{zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.NewConsoleEncoder(zapcore.EncoderConfig{})} {
		log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zapcore.DebugLevel))
		log.Info("x", zap.Any("any", v), zap.Reflect("reflect", v))
		log.Sugar().Infow("x", "v", v)
		log.Sugar().Infof("%v %+v", v, v)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	b.Write(out.Bytes())
	return b.String()
}

func TestSecretShowsNowhere(t *testing.T) {
	const text = "Endpoint=sb://h;SharedAccessKey=hunter2hunter2"
	s := NewSecret(text)
	urls := NewURLs("https://user:hunter2@example.com/hunter2?token=hunter2", "slack://hunter2/x", "log:", "hunter2", "http://h:8080/",
		"pagerduty://hunter2", "name=ops  level=critical slack+https://hooks.slack.com/services/hunter2")
	// Unexported fields are what fmt reads by reflection, past all methods.
	nested := struct {
		s Secret
		u URLs
		c struct{ inner Config }
	}{s: s, u: urls}
	nested.c.inner = Config{StorageConnectionString: s, NotifyURLs: urls}

	for _, v := range []any{s, &s, urls, &urls, []Secret{s}, map[string]Secret{"k": s}, nested, &nested, nested.c.inner} {
		if out := everyWay(v); strings.Contains(strings.ToLower(out), "hunter2") || strings.Contains(out, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("%T shows the secret: %s", v, out)
		}
	}

	for _, got := range []string{s.String(), fmt.Sprint(s), fmt.Sprintf("%q", s), fmt.Sprintf("%#v", s), fmt.Sprintf("%x", s)} {
		if got != redacted {
			t.Errorf("shows as %q, want %q", got, redacted)
		}
	}
	if got, err := json.Marshal(s); err != nil || string(got) != `"[redacted]"` {
		t.Errorf("JSON is %s, %v", got, err)
	}
	fields := zapcore.NewMapObjectEncoder()
	zap.Any("s", s).AddTo(fields)
	if fields.Fields["s"] != redacted {
		t.Errorf("zap logs %v", fields.Fields["s"])
	}
	if want := "https://example.com,[redacted],log:,[redacted],http://h:8080,pagerduty:[redacted],name=ops level=critical slack+https://hooks.slack.com"; urls.String() != want {
		t.Errorf("URLs show as %q, want %q", urls, want)
	}
	if s.Reveal() != text || NewSecret("").String() != "" || (Secret{}).Reveal() != "" || (Secret{}).IsSet() || len((URLs{}).Reveal()) != 0 {
		t.Error("reveals the wrong text, or an unset secret is not empty")
	}
}

// shapes are what a secret comes in: right and wrong values of our variables.
var shapes = []string{
	"%s", " %s\n", `"%s"`, "x=%s", "%s;", "%s=1", "https://%s@example.com/", "https://example.com/%s", "https://example.com:%s/", "https://%s/", "%%%s", "sb://%s/", "%s,%s", "%s:80", "a,%s..b",
	"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=%s;EntityPath=t",
	"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=%s",
	"Endpoint=%s;SharedAccessKeyName=a;SharedAccessKey=b",
	"HostName=h.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=%s",
	"HostName=h.azure-devices.net;SharedAccessKeyName=%s;SharedAccessKey=YQ==",
	"HostName=h.azure-devices.net;DeviceId=d;SharedAccessKey=%s",
	"AccountName=a;AccountKey=%s", "BlobEndpoint=https://a/;SharedAccessSignature=%s", "AccountEndpoint=https://a/;AccountKey=%s",
	"pagerduty://%s", "name=ops pagerduty://%s@events.eu.pagerduty.com", "slack+https://hooks.slack.com/services/%s", "teams+https://example.com/?sig=%s", "eventgrid+https://:%s@example.com", "ntfy+https://ntfy.sh/%s", "alertmanager+https://me:%s@example.com", "smtp://me:%s@example.com/?from=a@b.c&to=d@e.f",
	"whsec_%s", "log:,https://example.com/%s,https://example.com/%s",
}

func inShape(shape, marker string) string { return strings.ReplaceAll(shape, "%s", marker) }

// shownOf loads env and returns all that a person or a log gets to see of it. A
// configuration is shown only where no marker is in a variable for plain text,
// such as THROTTLE_SCOPE: what is valid there is no secret.
func shownOf(env map[string]string, marker string) (shown string, err error) {
	restore := replaceEnvironment(env)
	defer restore()
	c, warnings, err := Load()
	shown = fmt.Sprint(warnings)
	if err != nil {
		return shown + err.Error() + fmt.Sprintf("%+v %#v", err, err), err
	}
	for _, v := range Variables() {
		if !v.Secret && strings.Contains(env[v.Name], marker) {
			return shown, nil
		}
	}
	logged := zapcore.NewMapObjectEncoder()
	err = c.MarshalLogObject(logged)
	return shown + fmt.Sprintf("%+v %v", c, logged.Fields), err
}

// A secret in every shape in every variable, and in every variable that should
// name its file; with -short in some of the shapes, others in each.
func TestSecretsNeverPrinted(t *testing.T) {
	for i, v := range Variables() {
		names, marker := []string{v.Name}, "1234567890123456789012345" // which a number or a port takes longest to refuse
		if v.Secret {
			names, marker = append(names, v.Name+"_FILE"), "Hunter2Hunter2Hunter2Hunter2"
		}
		for _, name := range names {
			for j, shape := range shapes {
				if testing.Short() && i%12 != j%12 {
					continue
				}
				env := valid()
				if name != v.Name {
					delete(env, v.Name)
				}
				env[name] = inShape(shape, marker)
				if shown, _ := shownOf(env, marker); strings.Contains(strings.ToLower(shown), strings.ToLower(marker)) {
					t.Errorf("%s=%s is shown: %s", name, env[name], shown)
				}
			}
		}
	}
}

// Any secrets, several at a time, from files too.
func TestRandomSecretsNeverPrinted(t *testing.T) {
	var secrets, names []string
	for _, v := range Variables() {
		names = append(names, v.Name)
		if v.Secret {
			secrets = append(secrets, v.Name)
		}
	}
	path := filepath.Join(t.TempDir(), "secret")
	outcomes := map[bool]int{}
	rapid.Check(t, func(r *rapid.T) {
		// A key is a long run of letters and digits.
		marker := rapid.StringMatching(`[A-Za-z0-9]{24,40}[0-9]`).Draw(r, "secret")
		env := valid()
		for range rapid.IntRange(1, 4).Draw(r, "variables") {
			from := secrets
			if rapid.IntRange(0, 2).Draw(r, "misplaced") == 0 {
				from = names
			}
			name := rapid.SampledFrom(from).Draw(r, "variable")
			value := inShape(rapid.SampledFrom(shapes).Draw(r, "shape"), marker)
			if rapid.Bool().Draw(r, "in a file") {
				if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
					r.Fatal(err)
				}
				delete(env, name)
				name, value = name+"_FILE", path
			}
			env[name] = value
		}
		shown, err := shownOf(env, marker)
		outcomes[err == nil]++
		if strings.Contains(strings.ToLower(shown), strings.ToLower(marker)) {
			r.Fatalf("shows %s: %s", marker, shown)
		}
	})
	// Few tries may all be refused.
	if !testing.Short() && (outcomes[true] == 0 || outcomes[false] == 0) {
		t.Errorf("outcomes are one-sided: %v", outcomes)
	}
}

// replaceEnvironment sets env and unsets all our other variables, for rapid,
// whose T has no Setenv.
func replaceEnvironment(env map[string]string) (restore func()) {
	before := map[string]string{}
	names := slices.Collect(maps.Keys(env))
	for _, v := range Variables() {
		names = append(names, v.Name, v.Name+"_FILE")
	}
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			before[name] = value
		}
		os.Unsetenv(name)
	}
	for name, value := range env {
		os.Setenv(name, value)
	}
	return func() {
		for _, name := range names {
			os.Unsetenv(name)
		}
		for name, value := range before {
			os.Setenv(name, value)
		}
	}
}

func TestShow(t *testing.T) {
	for value, shown := range map[string]bool{
		"60":                                   true,
		"https://ns.servicebus.windows.net/":   true,
		"alertworker-checkpoints-of-the-plant": true,
		"Endpoint=sb://h":                      false,
		"https://a/?sig=x":                     false,
		"user@host":                            false,
		key64[:30]:                             false,
		strings.Repeat("a ", 41):               false,
	} {
		if got := strings.Contains(show(value), value); got != shown {
			t.Errorf("%q: shown is %v, want %v", value, got, shown)
		}
	}
}

// Secrets are read again one by one: what is invalid stays as it was, and so do all other settings, whatever has become of
// the file of rules.
func TestReload(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const rule = "rules:\n- name: hot\n  field: temperature\n  above: 80\n"
	const storage = "AccountName=acc;AccountKey=a2V5"
	env := valid(
		"NOTIFY_URLS=", "NOTIFY_URLS_FILE="+file("urls", "https://first.example.com/"), "TEMPERATURE_THRESHOLD=",
		"STORAGE_CONNECTION_STRING=", "STORAGE_CONNECTION_STRING_FILE="+file("storage", storage), "RULES_FILE="+file("rules.yaml", rule),
	)
	environment(t, env)
	used, _, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	file("rules.yaml", "no rules any more")
	for _, test := range []struct {
		urls, storage, wrong string
		changed              []string
	}{
		{"https://first.example.com/", storage, "", nil},
		{"https://second.example.com/", storage, "", []string{"NOTIFY_URLS"}},
		{"https://second.example.com/", storage + ";EndpointSuffix=core.example", "", []string{"STORAGE_CONNECTION_STRING", "NOTIFY_URLS"}},
		{"ftp://second.example.com/", storage + ";EndpointSuffix=core.example", "NOTIFY_URLS entry 1", []string{"STORAGE_CONNECTION_STRING"}},
		{"https://second.example.com/", "AccountName=acc", "STORAGE_CONNECTION_STRING is incomplete", []string{"NOTIFY_URLS"}},
		{"", "", "STORAGE_CONNECTION_STRING cannot be read", nil},
		{"rule=cold https://first.example.com/", storage, "NOTIFY_URLS entry 1 has rule=cold", nil},
	} {
		file("urls", test.urls)
		file("storage", test.storage)
		next, err := Reload(used)
		if (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q, %q: error %v, want %q", test.urls, test.storage, err, test.wrong)
		}
		if got := next.ChangedSecrets(used); !slices.Equal(got, test.changed) {
			t.Errorf("%q, %q: %q have changed, want %q", test.urls, test.storage, got, test.changed)
		}
		if next.Rules().Rules[0].Name != "hot" {
			t.Errorf("the rules are %+v", next.Rules())
		}
	}
}
