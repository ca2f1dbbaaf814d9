// Package arrows_test holds who may import whom.
package arrows_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "alertworker/internal/lab/seeded"
)

const module = "alertworker"

// Arrows point one way. A package may import, of this module, what the first
// row says that its path matches; * stands for one element of a path.
const arrows = `
	cmd/alertworker  internal/* internal/*/* internal/*/*/*

	internal/worker    internal/partition internal/delivery internal/telemetry
	internal/partition internal/backoff internal/humanize internal/incident internal/delivery internal/rules internal/ledger internal/roster internal/absence internal/telemetry internal/throttle internal/notify
	internal/delivery  internal/backoff internal/throttle internal/notify internal/notify/pace
	internal/rules     internal/telemetry internal/humanize
	internal/ledger    internal/records internal/telemetry
	internal/roster    internal/records internal/telemetry
	internal/absence   internal/roster internal/telemetry
	internal/throttle  internal/lease
	internal/throttle/recent  internal/throttle
	internal/throttle/throttletest  internal/throttle
	internal/telemetry internal/telemetry/amqpvalue
	internal/lease     internal/backoff
	internal/notify    internal/humanize
	internal/sensor

	internal/telemetry/ingest                    internal/telemetry internal/httpapi
	internal/telemetry/eventhubs                 internal/backoff internal/build internal/records internal/telemetry internal/telemetry/eventhubs/amqpfilter internal/telemetry/ownership internal/telemetry/transport internal/azure internal/humanize
	internal/telemetry/eventhubs/amqpfilter      internal/telemetry/amqpvalue
	internal/telemetry/iothub                    internal/telemetry/transport
	internal/telemetry/ownership                 internal/backoff internal/records
	internal/telemetry/transport                 internal/azure internal/humanize
	internal/telemetry/amqpvalue
	internal/telemetry/*                         internal/telemetry internal/azure
	internal/lease/caslease                      internal/lease
	internal/lease/observe                       internal/lease
	internal/lease/leasetest                     internal/lease internal/lab/busytest
	internal/lease/bloblease                     internal/backoff internal/lease internal/lease/caslease internal/records internal/azure
	internal/lease/*                             internal/lease internal/lease/caslease internal/azure
	internal/notify/receivers                    internal/notify internal/notify/* internal/humanize
	internal/notify/notifytest                   internal/notify internal/notify/webhook internal/lab/inbox internal/lab/seeded
	internal/notify/deadletter                   internal/telemetry internal/notify internal/notify/wording internal/notify/webhook internal/records internal/humanize
	internal/notify/eventgrid                    internal/notify internal/notify/wording internal/notify/httppost internal/notify/webhook
	internal/notify/lognotify                    internal/notify internal/notify/wording internal/notify/webhook
	internal/notify/heartbeat                    internal/notify internal/notify/httppost internal/humanize
	internal/notify/redact                       internal/humanize
	internal/notify/wording                      internal/notify internal/humanize
	internal/notify/pace                         internal/notify
	internal/notify/httppost                     internal/notify internal/notify/wording internal/notify/redact internal/humanize
	internal/notify/smtp                         internal/notify internal/notify/wording internal/notify/redact internal/humanize
	internal/notify/*                            internal/notify internal/notify/wording internal/notify/httppost

	internal/muting               internal/records internal/rules internal/humanize
	internal/turns                internal/records
	internal/incident             internal/records
	internal/records              internal/azure
	internal/records/recordstest  internal/records

	internal/backoff
	internal/build
	internal/azure   internal/backoff internal/humanize internal/lease
	internal/httpapi
	internal/humanize
	internal/peers   internal/backoff internal/records internal/rules
	internal/config  internal/rules internal/telemetry internal/telemetry/* internal/throttle internal/lease/* internal/notify internal/notify/* internal/azure internal/humanize

	internal/ops/admin    internal/backoff internal/muting internal/incident internal/notify/deadletter internal/notify/wording internal/ledger internal/roster internal/ops/status internal/records internal/rules internal/telemetry internal/throttle internal/notify internal/worker internal/partition internal/delivery internal/httpapi internal/humanize
	internal/ops/audit    internal/humanize internal/ledger internal/telemetry internal/throttle internal/partition
	internal/ops/backtesting internal/rules internal/telemetry internal/partition internal/humanize
	internal/ops/checkup  internal/ops/status internal/config internal/ledger internal/roster internal/records internal/rules internal/telemetry internal/telemetry/eventhubs internal/telemetry/ownership internal/telemetry/transport internal/lease internal/throttle internal/notify internal/notify/deadletter internal/notify/receivers internal/peers internal/azure internal/humanize
	internal/ops/leader   internal/backoff internal/incident internal/lease internal/throttle
	internal/ops/deadletters  internal/config internal/incident internal/delivery internal/rules internal/lease internal/throttle internal/throttle/recent internal/notify internal/notify/deadletter internal/notify/wording internal/notify/receivers internal/humanize
	internal/ops/metrics  internal/build internal/ops/status internal/rules internal/telemetry internal/lease/observe internal/throttle internal/notify internal/worker internal/partition internal/delivery
	internal/ops/metrics/metricstest  internal/ops/metrics internal/ops/status internal/rules internal/telemetry internal/lease internal/lease/observe internal/throttle internal/notify internal/worker internal/partition internal/delivery
	internal/ops/otlp
	internal/ops/status   internal/azure internal/backoff internal/telemetry internal/lease internal/lease/observe internal/notify internal/partition internal/delivery internal/humanize

	internal/lab/busytest
	internal/lab/cloud
	internal/lab/console    internal/lab/verify internal/notify internal/humanize
	internal/lab/devhub     internal/lab/devhub/frames internal/telemetry/amqpvalue internal/telemetry/transport
	internal/lab/devhub/*   internal/lab/devhub internal/lab/verify internal/backoff internal/telemetry/amqpvalue
	internal/lab/emulators  internal/azure internal/lab/process
	internal/lab/inbox      internal/notify internal/notify/webhook
	internal/lab/nettest
	internal/lab/process
	internal/lab/seeded
	internal/lab/simulation internal/backoff internal/config internal/lab/cloud internal/lab/devhub internal/lab/inbox internal/lab/verify internal/lease/caslease internal/notify internal/notify/webhook internal/records internal/roster internal/rules internal/telemetry internal/telemetry/eventhubs
	internal/lab/simulator  internal/lab/* internal/lab/devhub/devices internal/rules internal/sensor internal/telemetry
	internal/lab/verify

	tools/compose       internal/config
	tools/keda          tools/keda/scalers
	tools/keda/scalers
	tools/kubernetes    internal/config
	tools/notes
	tools/simulate
	tools/rules         internal/ops/metrics/metricstest internal/worker internal/partition internal/delivery
	tools/rules/fire    tools/rules
	tools/systemd       internal/config
`

// everywhere may be imported by every package: it has names for what readings are of, and nothing else.
const everywhere = "internal/sensor"

// A third party's package, or one below it, is imported by the packages of its
// row and no other. Tests are free, and so are third parties without a row.
const wraps = `
	github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2  internal/config internal/telemetry/eventhubs cmd/alertworker
	github.com/Azure/azure-sdk-for-go/sdk/storage/azblob            internal/config internal/records internal/lease/bloblease internal/lab/emulators cmd/alertworker
	github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos             internal/lease/cosmoslease internal/lab/emulators cmd/alertworker
	github.com/Azure/azure-sdk-for-go/sdk/azidentity                cmd/alertworker
	github.com/Azure/azure-sdk-for-go/sdk/azcore                    internal/azure internal/telemetry/eventhubs internal/records internal/lease/bloblease internal/lease/cosmoslease internal/ops/checkup internal/lab/emulators cmd/alertworker
	github.com/Azure/go-amqp                                        internal/lab/devhub internal/telemetry/iothub internal/telemetry/eventhubs internal/telemetry/telemetrytest
	github.com/coder/websocket                                      internal/telemetry/transport internal/lab/devhub
	github.com/wneessen/go-mail                                     internal/notify/smtp
	github.com/kelseyhightower/envconfig                            internal/config
	github.com/goccy/go-yaml                                        internal/config
	github.com/prometheus                                           internal/ops/metrics internal/ops/metrics/metricstest tools/rules
	go.opentelemetry.io                                             internal/ops/otlp internal/ops/metrics
	github.com/twmb/avro                                            internal/ops/backtesting
	github.com/tetratelabs/wazero                                   tools/simulate
	golang.org/x/term                                               internal/lab/console
`

// unshipped are packages that tests need and the binary must not have.
const unshipped = `
	testing testing/* net/http/httptest
	pgregory.net/rapid go.uber.org/goleak
	alertworker/internal/lab/emulators alertworker/internal/lab/busytest alertworker/internal/lab/seeded alertworker/internal/*/*test alertworker/internal/*/*/*test
`

func TestArrows(t *testing.T) {
	for _, v := range strays(table(arrows), table(wraps), imports(t)) {
		t.Error(v)
	}
}

func TestBinaryHasNoTestHelpers(t *testing.T) {
	for _, line := range list(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/alertworker") {
		if matchAny(strings.Fields(unshipped), line) {
			t.Errorf("the binary has %s", line)
		}
	}
}

// The image is made from scratch: what others find in files has to be in the binary.
func TestBinaryHasTimeZones(t *testing.T) {
	if !slices.Contains(list(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/alertworker"), "time/tzdata") {
		t.Error("the binary lacks time/tzdata")
	}
}

// deploy holds what deploys: nothing that has to be compiled.
func TestDeployHasNoGo(t *testing.T) {
	for file := range goFiles(t, "../../deploy") {
		t.Errorf("%s is Go", file)
	}
}

// No test draws other values each time: a change would be refused for what it did not break.
func TestDrawsAreSeeded(t *testing.T) {
	draws, seeded := map[string]bool{}, map[string]bool{}
	for _, root := range []string{"../../cmd", "../../internal"} {
		for file, imported := range goFiles(t, root) {
			dir := filepath.Dir(file)
			draws[dir] = draws[dir] || slices.Contains(imported, "pgregory.net/rapid")
			seeded[dir] = seeded[dir] || slices.Contains(imported, module+"/internal/lab/seeded")
		}
	}
	for dir, is := range draws {
		if is && !seeded[dir] && !strings.HasSuffix(dir, "lab/seeded") {
			t.Errorf("%s uses rapid, and does not import internal/lab/seeded", dir)
		}
	}
}

// CONTRIBUTING.md draws the arrows among the product's packages as the table has them.
func TestDrawing(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string][]string{"telemetry": nil, "notify": nil, "lease": nil, "records": nil}
	for _, m := range regexp.MustCompile(`(?m)^(\w+) +──▶ ([\w, ]+?)  `).FindAllStringSubmatch(string(text), -1) {
		drawn[m[1]] = strings.Split(m[2], ", ")
	}
	aside := []string{"config", "azure"} // azure knows of lease what its errors are
	for _, r := range table(arrows) {    // those of the product that use another are drawn
		name := strings.TrimPrefix(r.name, "internal/")
		uses := func(to string) bool { _, ok := drawn[strings.TrimPrefix(to, "internal/")]; return ok }
		if _, ok := drawn[name]; !ok && !slices.Contains(aside, name) && name == path.Base(r.name) && slices.ContainsFunc(r.may, uses) {
			t.Errorf("%s is not drawn", name)
		}
	}
	for name, want := range drawn {
		var got []string
		for line := range strings.Lines(arrows) {
			if w := strings.Fields(line); len(w) > 0 && w[0] == "internal/"+name {
				for _, to := range w[1:] {
					if _, ok := drawn[strings.TrimPrefix(to, "internal/")]; ok {
						got = append(got, strings.TrimPrefix(to, "internal/"))
					}
				}
			}
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s is drawn with arrows to %q, and the table has %q", name, want, got)
		}
	}
}

// What the tables forbid is seen.
func TestStraysAreSeen(t *testing.T) {
	imported := map[string][]string{
		"internal/lease":          {"time", "alertworker/internal/telemetry"},
		"internal/worker":         {"alertworker/internal/telemetry", "alertworker/internal/lease"},
		"internal/throttle":       {"alertworker/internal/lease", "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"},
		"internal/notify/webhook": {"alertworker/internal/notify", "alertworker/internal/lab/inbox"},
		"internal/unheard":        {"time"},
		"cmd/alertworker":         {"alertworker/internal/lease/memlease", "github.com/Azure/go-amqp", "go.uber.org/zap"},
	}
	want := []string{
		"cmd/alertworker imports github.com/Azure/go-amqp, which is internal/lab/devhub, internal/telemetry/iothub, internal/telemetry/eventhubs, internal/telemetry/telemetrytest's alone",
		"internal/lease imports internal/telemetry",
		"internal/notify/webhook imports internal/lab/inbox",
		"internal/throttle imports github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container, which is internal/config, internal/records, internal/lease/bloblease, internal/lab/emulators, cmd/alertworker's alone",
		"internal/unheard is in no row: say what it may import",
		"internal/worker imports internal/lease",
	}
	if got := strays(table(arrows), table(wraps), imported); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A row is a name and what stands beside it.
type row struct {
	name string
	may  []string
}

func table(text string) (rows []row) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			rows = append(rows, row{f[0], f[1:]})
		}
	}
	return rows
}

// strays returns what the tables do not allow of the imports of each package.
func strays(arrows, wraps []row, imports map[string][]string) (found []string) {
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		known := slices.IndexFunc(arrows, func(r row) bool { return match(r.name, from) })
		if known < 0 {
			found = append(found, from+" is in no row: say what it may import")
			continue
		}
		for _, to := range imports[from] {
			if inside, ok := strings.CutPrefix(to, module+"/"); ok {
				if inside != everywhere && !matchAny(arrows[known].may, inside) {
					found = append(found, fmt.Sprintf("%s imports %s", from, inside))
				}
				continue
			}
			for _, r := range wraps {
				if (to == r.name || strings.HasPrefix(to, r.name+"/")) && !matchAny(r.may, from) {
					found = append(found, fmt.Sprintf("%s imports %s, which is %s's alone", from, to, strings.Join(r.may, ", ")))
				}
			}
		}
	}
	return found
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// imports returns what every package imports, tests aside except in tools,
// a module that consists of tests. It does not run go list in that module: it would need Prometheus.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, line := range list(t, "-f", `{{if .GoFiles}}{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{end}}`, "./cmd/...", "./internal/...") {
		f := strings.Fields(line)
		all[strings.TrimPrefix(f[0], module+"/")] = f[1:]
	}
	for file, imported := range goFiles(t, "../../tools") {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")
		all[dir] = append(all[dir], imported...)
	}
	return all
}

// goFiles returns what every Go file below dir imports, by its path.
func goFiles(t *testing.T, dir string) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[name] = []string{}
		for _, i := range f.Imports {
			files[name] = append(files[name], strings.Trim(i.Path.Value, `"`))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// list runs go list at the root of the repository and returns its lines.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	// go test repeats a result from its cache unless something changed that the
	// test itself has looked at.
	for _, dir := range []string{"../../cmd", "../../internal"} {
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-buildvcs=false"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%s: %v\n%s", cmd, err, exit.Stderr)
		}
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
