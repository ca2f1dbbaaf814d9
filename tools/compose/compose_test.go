// Package compose_test checks deploy/compose.yaml without running it.
package compose_test

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v2"

	"alertworker/internal/config"
)

const deploy = "../../deploy"

// load reads the file as docker compose does: schema, anchors, variables.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{deploy + "/compose.yaml"}, cli.WithEnv([]string{"ACCEPT_EULA=Y"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Whoever has not accepted the emulator's licence is told so.
func TestLicence(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{deploy + "/compose.yaml"}, cli.WithEnv(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := options.LoadProject(t.Context()); err == nil || !strings.Contains(err.Error(), "licence") {
		t.Errorf("without ACCEPT_EULA: %v", err)
	}
}

// The workers' settings exist, are valid together, and fit the other services.
func TestWorkers(t *testing.T) {
	project := load(t)
	var workers []string
	for name, service := range project.Services {
		if !strings.HasPrefix(name, "worker-") {
			continue
		}
		workers = append(workers, name)
		for _, v := range os.Environ() {
			if name, _, _ := strings.Cut(v, "="); isSetting(name) {
				t.Setenv(name, "")
			}
		}
		for setting, value := range service.Environment {
			if !isSetting(setting) {
				t.Errorf("%s has %s, which is no setting", name, setting)
			}
			t.Setenv(setting, *value)
		}
		c, warnings, err := config.Load()
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", name, err, warnings)
		}
		if grace := time.Duration(*service.StopGracePeriod); grace <= c.DrainTimeout {
			t.Errorf("%s is killed after %v, but drains for %v", name, grace, c.DrainTimeout)
		}
		if !service.ReadOnly || !slices.Contains(service.CapDrop, "ALL") || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") || service.Privileged {
			t.Errorf("%s is not restricted", name)
		}
		if c.ReplicaName != name {
			t.Errorf("%s is called %s", name, c.ReplicaName)
		}

		// What the settings connect to is there.
		for _, host := range []string{c.Hub().Host, hostOf(t, blobEndpoint(t, *service.Environment["STORAGE_CONNECTION_STRING"])), hostOf(t, *service.Environment["NOTIFY_URLS"])} {
			if _, ok := project.Services[host]; !ok {
				t.Errorf("%s connects to %s, which is no service", name, host)
			}
		}
		var emulator struct {
			UserConfig struct {
				NamespaceConfig []struct {
					Name     string
					Entities []struct {
						Name           string
						ConsumerGroups []struct{ Name string }
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(project.Configs["eventhubs"].Content), &emulator); err != nil {
			t.Fatalf("the emulator's configuration: %v", err)
		}
		namespace := emulator.UserConfig.NamespaceConfig[0]
		hub := namespace.Entities[0]
		if namespace.Name != "emulatorNs1" || hub.Name != c.Hub().Name || hub.ConsumerGroups[0].Name != c.EventHubConsumerGroup {
			t.Errorf("the emulator has hub %s with group %s in %s, but %s reads %s with %s", hub.Name, hub.ConsumerGroups[0].Name, namespace.Name, name, c.Hub().Name, c.EventHubConsumerGroup)
		}
	}
	if slices.Sort(workers); !slices.Equal(workers, []string{"worker-1", "worker-2", "worker-3"}) {
		t.Errorf("the workers are %v", workers)
	}

	// Prometheus scrapes all of them, as the job that the dashboard and the rules know.
	var prometheus struct {
		Global       map[string]string `yaml:"global"`
		RuleFiles    []string          `yaml:"rule_files"`
		ScrapeConfig []struct {
			Job    string `yaml:"job_name"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict([]byte(project.Configs["prometheus"].Content), &prometheus); err != nil {
		t.Fatal(err)
	}
	var scraped []string
	for _, target := range prometheus.ScrapeConfig[0].Static[0].Targets {
		host, port, err := net.SplitHostPort(target)
		if err != nil || port != "8080" {
			t.Errorf("Prometheus scrapes %s", target)
		}
		scraped = append(scraped, host)
	}
	if !slices.Equal(scraped, workers) || prometheus.ScrapeConfig[0].Job != "alertworker" {
		t.Errorf("Prometheus scrapes %v as job %s", scraped, prometheus.ScrapeConfig[0].Job)
	}
	if !mounted(project.Services["prometheus"], prometheus.RuleFiles[0]) {
		t.Errorf("%v is not mounted", prometheus.RuleFiles)
	}
}

// Images have a tag, nothing is reachable from other machines, and what is mounted exists.
func TestServices(t *testing.T) {
	project := load(t)
	for name, service := range project.Services {
		if _, tag, _ := strings.Cut(filepath.Base(service.Image), ":"); tag == "" || tag == "latest" {
			t.Errorf("%s: image %s has no version", name, service.Image)
		}
		for _, p := range service.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is open to the network", name, p.Target)
			}
		}
		for _, v := range service.Volumes {
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s: %s: %v, read-only %t", name, v.Source, err, v.ReadOnly)
			}
		}
		for _, c := range service.Configs {
			content := project.Configs[c.Source].Content
			var any yaml.MapSlice // JSON is YAML too
			if err := yaml.Unmarshal([]byte(content), &any); err != nil || len(any) == 0 {
				t.Errorf("%s: configuration %s: %v", name, c.Source, err)
			}
		}
	}
}

func mounted(s types.ServiceConfig, target string) bool {
	return slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == target })
}

func isSetting(name string) bool {
	return slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name || v.Secret && v.Name+"_FILE" == name })
}

func blobEndpoint(t *testing.T, connectionString string) string {
	t.Helper()
	_, endpoint, ok := strings.Cut(connectionString, "BlobEndpoint=")
	if !ok {
		t.Fatalf("%s has no BlobEndpoint", connectionString)
	}
	return strings.TrimSuffix(endpoint, ";")
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname()
}
