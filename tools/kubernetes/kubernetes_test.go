// Package kubernetes_test renders deploy/kubernetes as kubectl does and checks what comes
// out: against the types of the API, and against the settings and ports of the worker.
package kubernetes_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"alertworker/internal/config"
)

var update = flag.Bool("update", false, "write prometheusrule.yaml again")

const (
	root     = "../../deploy/kubernetes/"
	rules    = "../../deploy/prometheus/alerts.yaml"
	ruleFile = root + "components/prometheus-operator/prometheusrule.yaml"
)

// overlays are the directories of overlays, each with the secrets that the Secret
// alertworker has to have there.
var overlays = map[string]map[string]string{
	"overlays/workload-identity": {"NOTIFY_URLS": "https://example.com/hook"},
	"example":                    {"NOTIFY_URLS": "slack+https://hooks.slack.com/services/T/B/X"},
	"overlays/keys": {
		"NOTIFY_URLS":                "https://example.com/hook",
		"EVENTHUB_CONNECTION_STRING": "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=service;SharedAccessKey=a2V5;EntityPath=telemetry",
		"STORAGE_CONNECTION_STRING":  "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=a2V5;EndpointSuffix=core.windows.net",
	},
}

// A deployment is what an overlay renders to.
type deployment struct {
	namespace  corev1.Namespace
	account    corev1.ServiceAccount
	settings   corev1.ConfigMap
	rules      *corev1.ConfigMap // nil unless the overlay has a file of rules
	priority   schedulingv1.PriorityClass
	cilium     *ciliumPolicy // nil without that component
	deployment appsv1.Deployment
	disruption policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
	monitor    monitoringv1.PodMonitor
	rule       monitoringv1.PrometheusRule
	scaled     scaledObject
	auth       triggerAuthentication
}

// These two are KEDA's types as far as we use them. That KEDA itself accepts them is
// tested with its own code: see tools/keda.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int            `json:"minReplicaCount"`
		MaxReplicaCount int            `json:"maxReplicaCount"`
		PollingInterval int            `json:"pollingInterval"`
		Advanced        map[string]any `json:"advanced"`
		Triggers        []struct {
			Type              string `json:"type"`
			AuthenticationRef struct {
				Name string `json:"name"`
			} `json:"authenticationRef"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

type triggerAuthentication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodIdentity struct {
			Provider string `json:"provider"`
		} `json:"podIdentity"`
		SecretTargetRef []struct {
			Parameter string `json:"parameter"`
			Name      string `json:"name"`
			Key       string `json:"key"`
		} `json:"secretTargetRef"`
	} `json:"spec"`
}

// A ciliumPolicy is Cilium's type as far as we use it. Cilium's own code has not seen it.
type ciliumPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		EndpointSelector metav1.LabelSelector `json:"endpointSelector"`
		Egress           []struct {
			ToFQDNs     []map[string]string    `json:"toFQDNs"`
			ToEndpoints []metav1.LabelSelector `json:"toEndpoints"`
			ToPorts     []struct {
				Ports []struct {
					Port     string `json:"port"`
					Protocol string `json:"protocol"`
				} `json:"ports"`
				Rules map[string][]map[string]string `json:"rules"`
			} `json:"toPorts"`
		} `json:"egress"`
	} `json:"spec"`
}

// render renders an overlay. Fields that the API does not have fail the test.
func render(t *testing.T, overlay string) deployment {
	t.Helper()
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+overlay)
	if err != nil {
		t.Fatal(err)
	}
	var d deployment
	kinds := map[string]any{
		"v1/Namespace": &d.namespace, "v1/ServiceAccount": &d.account, "v1/ConfigMap": &d.settings,
		"apps/v1/Deployment": &d.deployment, "policy/v1/PodDisruptionBudget": &d.disruption,
		"networking.k8s.io/v1/NetworkPolicy":  &d.network,
		"monitoring.coreos.com/v1/PodMonitor": &d.monitor, "monitoring.coreos.com/v1/PrometheusRule": &d.rule,
		"keda.sh/v1alpha1/ScaledObject": &d.scaled, "keda.sh/v1alpha1/TriggerAuthentication": &d.auth,
		"scheduling.k8s.io/v1/PriorityClass": &d.priority,
	}
	for _, r := range found.Resources() {
		kind := path.Join(r.GetApiVersion(), r.GetKind())
		switch {
		case r.GetKind() == "CiliumNetworkPolicy":
			d.cilium = &ciliumPolicy{}
			kinds[kind] = d.cilium
		case r.GetKind() == "ConfigMap" && strings.HasPrefix(r.GetName(), "alertworker-rules"):
			d.rules = &corev1.ConfigMap{}
			kind += " of rules"
			kinds[kind] = d.rules
		}
		into, ok := kinds[kind]
		if !ok {
			t.Fatalf("there is a %s that this test does not know, or a second one", kind)
		}
		delete(kinds, kind)
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		unknown, err := json.UnmarshalStrict(text, into) // as the API server does: case matters
		if err := errors.Join(append(unknown, err)...); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		ofCluster := r.GetKind() == "Namespace" || r.GetKind() == "PriorityClass"
		if !ofCluster && r.GetNamespace() != "alertworker" {
			t.Errorf("%s is in namespace %q", kind, r.GetNamespace())
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("not rendered: %v", slices.Sorted(maps.Keys(kinds)))
	}
	return d
}

// each calls check with every overlay.
func each(t *testing.T, check func(t *testing.T, d deployment, secrets map[string]string)) {
	for name, secrets := range overlays {
		t.Run(name, func(t *testing.T) { check(t, render(t, name), secrets) })
	}
}

// A worker with these settings starts: all are settings, all have valid values, and
// all files are where they are looked for.
func TestSettings(t *testing.T) {
	each(t, func(t *testing.T, d deployment, secrets map[string]string) {
		for _, v := range config.Variables() {
			t.Setenv(v.Name, "")
			t.Setenv(v.Name+"_FILE", "")
		}
		c := d.deployment.Spec.Template.Spec.Containers[0]
		if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != d.settings.Name {
			t.Errorf("the environment is %+v, want the ConfigMap %s", c.EnvFrom, d.settings.Name)
		}
		if d.settings.Name == "alertworker" {
			t.Error("the ConfigMap's name has no hash, so that a changed setting is no rollout")
		}
		volumes := d.deployment.Spec.Template.Spec.Volumes
		mounted := map[string]corev1.Volume{} // by path
		for _, m := range c.VolumeMounts {
			mounted[m.MountPath] = volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		}
		const secretsAt, rulesAt = "/etc/alertworker", "/etc/alertworker-rules"
		if volume := mounted[secretsAt]; volume.Secret == nil || volume.Secret.SecretName != "alertworker" {
			t.Fatalf("%+v is mounted at %s, want the Secret alertworker", volume, secretsAt)
		}
		if volume := mounted[rulesAt]; d.rules != nil && (volume.ConfigMap == nil || volume.ConfigMap.Name != d.rules.Name || d.rules.Name == "alertworker-rules") {
			t.Fatalf("%+v is mounted at %s, want the ConfigMap of rules with a hash in its name", volume, rulesAt)
		}

		secretsDir, unused := t.TempDir(), maps.Clone(secrets)
		for name, value := range d.settings.Data {
			known := slices.ContainsFunc(config.Variables(), func(v config.Variable) bool {
				return name == v.Name || v.Secret && name == v.Name+"_FILE"
			})
			if !known {
				t.Errorf("%s is no setting", name)
			}
			if dir, key := path.Split(value); strings.HasSuffix(name, "_FILE") {
				if path.Clean(dir) != secretsAt {
					t.Errorf("%s is %s, and the Secret is mounted at %s", name, value, secretsAt)
				}
				value = path.Join(secretsDir, key)
				delete(unused, key)
				if err := os.WriteFile(value, []byte(secrets[key]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv(name, value)
		}
		for _, e := range c.Env {
			if e.Name != "RULES_FILE" {
				t.Setenv(e.Name, e.Value)
				continue
			}
			if path.Dir(e.Value) != rulesAt {
				t.Errorf("%s is %s", e.Name, e.Value)
			}
			for name, text := range d.rules.Data {
				if err := os.WriteFile(path.Join(secretsDir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv(e.Name, path.Join(secretsDir, path.Base(e.Value)))
		}
		if len(unused) > 0 {
			t.Errorf("no setting names the files of %v", slices.Sorted(maps.Keys(unused)))
		}
		loaded, warnings, err := config.Load()
		if err != nil {
			t.Error(err)
		}
		if set := loaded.Rules(); d.rules != nil && (len(set.Rules) != 2 || set.Rules[1].Name != "offline") {
			t.Errorf("it alerts by %+v, not by the overlay's rules", set.Rules)
		}
		for _, w := range warnings {
			t.Error(w)
		}
	})
}

// With the component rules a worker alerts by the file that is mounted.
func TestRulesComponent(t *testing.T) {
	files := filesys.MakeFsInMemory()
	if err := files.WriteFile("overlays/rules/kustomization.yaml", []byte("resources: [../../base]\ncomponents: [../../components/rules]\n")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"base", "components/rules", "components/rules-mount"} {
		entries, err := os.ReadDir(root + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			content, err := os.ReadFile(path.Join(root, dir, e.Name()))
			if err == nil {
				err = files.WriteFile(path.Join(dir, e.Name()), content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "overlays/rules")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	maps := map[string]corev1.ConfigMap{}
	for _, r := range found.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		switch r.GetKind() {
		case "Deployment":
			_, err = json.UnmarshalStrict(text, &d)
		case "ConfigMap":
			var m corev1.ConfigMap
			_, err = json.UnmarshalStrict(text, &m)
			maps[m.Name] = m
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, v := range config.Variables() {
		t.Setenv(v.Name, "")
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	for name, value := range maps[c.EnvFrom[0].ConfigMapRef.Name].Data {
		t.Setenv(name, value)
	}
	t.Setenv("NOTIFY_URLS_FILE", "")
	t.Setenv("NOTIFY_URLS", "log:")
	t.Setenv("EVENTHUB_CONNECTION_STRING", overlays["overlays/keys"]["EVENTHUB_CONNECTION_STRING"])
	t.Setenv("STORAGE_CONNECTION_STRING", overlays["overlays/keys"]["STORAGE_CONNECTION_STRING"])
	for _, e := range c.Env {
		value := e.Value
		if e.Name == "RULES_FILE" {
			dir, file := path.Split(e.Value)
			mount := c.VolumeMounts[slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Clean(dir) })]
			volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })]
			value = path.Join(t.TempDir(), file)
			if err := os.WriteFile(value, []byte(maps[volume.ConfigMap.Name].Data[file]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(e.Name, value)
	}
	loaded, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	if set := loaded.Rules(); len(set.Rules) != 2 || set.Rules[0].Name != "hot" {
		t.Errorf("got the rules %+v", set)
	}
}

// handOver is what handing over may take besides DRAIN_TIMEOUT, as cmd/alertworker has it.
const handOver = time.Minute

func TestDeployment(t *testing.T) {
	const source = "../../cmd/alertworker/replica.go"
	if text, err := os.ReadFile(source); err != nil || !bytes.Contains(text, []byte("const handOverMargin = time.Minute\n")) {
		t.Errorf("%s has another limit for handing over (%v)", source, err)
	}
	each(t, func(t *testing.T, d deployment, _ map[string]string) {
		pod := d.deployment.Spec.Template
		drain, err := time.ParseDuration(d.settings.Data["DRAIN_TIMEOUT"])
		if err != nil {
			t.Fatal(err)
		}
		if grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace <= drain+handOver {
			t.Errorf("it is killed %v after SIGTERM, and DRAIN_TIMEOUT is %v and handing over takes %v at most", grace, drain, handOver)
		}
		if d.deployment.Spec.Replicas != nil {
			t.Error("replicas are set, so that applying it again undoes what the autoscaler has done")
		}
		if class := d.priority; pod.Spec.PriorityClassName != class.Name || class.Value <= 0 || class.GlobalDefault {
			t.Errorf("its priority is %q, and there is %+v", pod.Spec.PriorityClassName, class)
		}
		if pod.Spec.ServiceAccountName != d.account.Name {
			t.Errorf("its ServiceAccount is %q, want %q", pod.Spec.ServiceAccountName, d.account.Name)
		}
		for of, selector := range map[string]metav1.LabelSelector{
			"Deployment": *d.deployment.Spec.Selector, "PodDisruptionBudget": *d.disruption.Spec.Selector,
			"NetworkPolicy": d.network.Spec.PodSelector, "PodMonitor": d.monitor.Spec.Selector,
			"topologySpreadConstraints": *pod.Spec.TopologySpreadConstraints[0].LabelSelector,
		} {
			s, err := metav1.LabelSelectorAsSelector(&selector)
			if err != nil || s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
				t.Errorf("%s selects %v (%v), the pods' labels are %v", of, s, err, pod.Labels)
			}
		}
		if _, keyless := d.settings.Data["STORAGE_ACCOUNT_URL"]; keyless &&
			(pod.Labels["azure.workload.identity/use"] != "true" || d.account.Annotations["azure.workload.identity/client-id"] == "") {
			t.Error("the pod or its ServiceAccount is not set up for a workload identity")
		}

		c := pod.Spec.Containers[0]
		port := c.Ports[0]
		i := slices.IndexFunc(config.Variables(), func(v config.Variable) bool { return v.Name == "HTTP_ADDR" })
		if listens := config.Variables()[i].Default; listens != ":"+strconv.Itoa(int(port.ContainerPort)) {
			t.Errorf("HTTP_ADDR is %s by default, the container's port %d", listens, port.ContainerPort)
		}
		for probe, want := range map[*corev1.Probe]string{c.LivenessProbe: "/healthz", c.StartupProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
			if probe.HTTPGet.Path != want || probe.HTTPGet.Port.StrVal != port.Name {
				t.Errorf("a probe gets %s at port %v, want %s at %s", probe.HTTPGet.Path, &probe.HTTPGet.Port, want, port.Name)
			}
		}
		if d.network.Spec.Ingress[0].Ports[0].Port.StrVal != port.Name || *d.monitor.Spec.PodMetricsEndpoints[0].Port != port.Name {
			t.Error("the NetworkPolicy or the PodMonitor has another port")
		}
		memory := c.Resources.Limits.Memory().Value()
		limit := c.Env[slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })].Value
		goLimit, ok := strings.CutSuffix(limit, "MiB")
		if mib, err := strconv.ParseInt(goLimit, 10, 64); !ok || err != nil || mib<<20 > memory*9/10 || mib<<20 < memory*8/10 {
			t.Errorf("GOMEMLIMIT is %s, want 80 to 90 %% of the memory limit, %d bytes", limit, memory)
		}
	})
}

// The pod is what the image can be, and what the namespace's Pod Security Standard wants.
func TestSecurity(t *testing.T) {
	each(t, func(t *testing.T, d deployment, _ map[string]string) {
		if d.namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Error("the namespace does not enforce the standard restricted")
		}
		yes, no, user := true, false, int64(65532)
		wantPod := &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		wantContainer := &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		spec := d.deployment.Spec.Template.Spec
		if !reflect.DeepEqual(spec.SecurityContext, wantPod) || !reflect.DeepEqual(spec.Containers[0].SecurityContext, wantContainer) {
			t.Errorf("the pod has %+v, its container %+v", spec.SecurityContext, spec.Containers[0].SecurityContext)
		}
		if *spec.AutomountServiceAccountToken || *d.account.AutomountServiceAccountToken {
			t.Error("the pod gets a token for the Kubernetes API")
		}
		image, err := os.ReadFile("../../Dockerfile")
		if err != nil || !bytes.Contains(image, []byte("USER 65532")) {
			t.Errorf("the image has another user (%v)", err)
		}
	})
}

// KEDA looks for checkpoints where the worker writes them, and takes none for a backlog
// because of CHECKPOINT_INTERVAL.
func TestAutoscaler(t *testing.T) {
	each(t, func(t *testing.T, d deployment, secrets map[string]string) {
		trigger := d.scaled.Spec.Triggers[0]
		if d.scaled.Spec.ScaleTargetRef.Name != d.deployment.Name || trigger.AuthenticationRef.Name != d.auth.Name || trigger.Type != "azure-eventhub" {
			t.Errorf("the ScaledObject is %+v", d.scaled.Spec)
		}
		if d.scaled.Spec.MinReplicaCount < 2 {
			t.Error("while the only replica is replaced, nobody reads")
		}
		want := map[string]string{
			"checkpointStrategy": "blobMetadata",
			"blobContainer":      d.settings.Data["CHECKPOINT_CONTAINER"],
			"consumerGroup":      strings.ToLower(d.settings.Data["EVENTHUB_CONSUMER_GROUP"]),
		}
		if host, ok := d.settings.Data["EVENTHUB_NAMESPACE"]; ok {
			account, _, _ := strings.Cut(strings.TrimPrefix(d.settings.Data["STORAGE_ACCOUNT_URL"], "https://"), ".")
			want["eventHubNamespace"] = strings.ToLower(strings.TrimSuffix(host, ".servicebus.windows.net"))
			want["eventHubName"] = strings.ToLower(d.settings.Data["EVENTHUB_NAME"])
			want["storageAccountName"] = account
		}
		threshold, err := strconv.ParseFloat(trigger.Metadata["unprocessedEventThreshold"], 64)
		if err != nil {
			t.Fatal(err)
		}
		got := maps.Clone(trigger.Metadata)
		delete(got, "unprocessedEventThreshold")
		if !maps.Equal(got, want) {
			t.Errorf("the trigger has %v, want %v", got, want)
		}
		interval, err := time.ParseDuration(d.settings.Data["CHECKPOINT_INTERVAL"])
		if err != nil {
			t.Fatal(err)
		}
		const rate = 100 // events per second of a replica, as the comment on the threshold says
		if want := 2 * rate * interval.Seconds(); threshold < want {
			t.Errorf("the threshold is %v, want at least %v", threshold, want)
		}
		for _, ref := range d.auth.Spec.SecretTargetRef {
			if _, ok := secrets[ref.Key]; !ok || ref.Name != "alertworker" {
				t.Errorf("KEDA gets %s from %s of the Secret %s, which nobody makes", ref.Parameter, ref.Key, ref.Name)
			}
		}
	})
}

// What an overlay on top of another one sets is what KEDA, the policies and the links in alerts have, too.
func TestOnTop(t *testing.T) {
	d := render(t, "example")
	trigger := d.scaled.Spec.Triggers[0].Metadata
	for name, want := range map[string]string{
		"eventHubNamespace": "heat", "eventHubName": "boilers", "consumerGroup": "alerts", "storageAccountName": "heatalerts",
	} {
		if trigger[name] != want {
			t.Errorf("KEDA's %s is %q, want %q", name, trigger[name], want)
		}
	}
	for _, g := range d.rule.Spec.Groups {
		for _, r := range g.Rules {
			if want := "https://wiki.heat.example/alertworker#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("the runbook of %s is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
		}
	}
	if image := d.deployment.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "heat.azurecr.io/alertworker@sha256:") {
		t.Errorf("the image is %s", image)
	}

	// With Cilium the hosts alone are allowed, and no port to all of them by the other policy.
	hosts := map[string][]string{}
	for _, e := range d.cilium.Spec.Egress {
		for _, to := range e.ToFQDNs {
			hosts[e.ToPorts[0].Ports[0].Port] = append(hosts[e.ToPorts[0].Ports[0].Port], to["matchName"])
		}
	}
	want := map[string][]string{
		"5671": {d.settings.Data["EVENTHUB_NAMESPACE"]},
		"443":  {strings.TrimPrefix(d.settings.Data["STORAGE_ACCOUNT_URL"], "https://"), "login.microsoftonline.com", "hooks.slack.com"},
	}
	if !reflect.DeepEqual(hosts, want) {
		t.Errorf("Cilium allows %v, want %v", hosts, want)
	}
	for _, e := range d.network.Spec.Egress {
		if len(e.To) == 0 {
			t.Errorf("the NetworkPolicy allows %+v to all", e.Ports)
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(&d.cilium.Spec.EndpointSelector); err != nil || !s.Matches(labels.Set(d.deployment.Spec.Template.Labels)) {
		t.Errorf("Cilium's policy selects %v", d.cilium.Spec.EndpointSelector)
	}
}

// The NetworkPolicy has the ports of the first table of docs/network.md.
func TestNetwork(t *testing.T) {
	text, err := os.ReadFile("../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "\n\n| for | host | port |\n|---|---|---|\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "for" {
			continue
		}
		for _, port := range regexp.MustCompile(`\b\d+\b`).FindAllString(cells[3], -1) {
			documented[port] = true
		}
	}
	allowed := map[string]bool{}
	for _, e := range render(t, "overlays/keys").network.Spec.Egress {
		for _, p := range e.Ports {
			allowed[p.Port.String()] = true
		}
	}
	if !maps.Equal(documented, allowed) || len(allowed) < 3 {
		t.Errorf("documented are %v, allowed %v", documented, allowed)
	}
}

// The PrometheusRule has the alert rules of deploy/prometheus.
func TestPrometheusRule(t *testing.T) {
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := bytes.Cut(is, []byte("spec:\n"))
	if !ok {
		t.Fatalf("%s has no spec", ruleFile)
	}
	want := slices.Concat(head, []byte("spec:\n"))
	for line := range bytes.Lines(text) {
		switch {
		case bytes.HasPrefix(line, []byte("#")):
			continue
		case len(bytes.TrimSpace(line)) > 0:
			want = append(want, "  "...)
		}
		want = append(want, line...)
	}
	if *update {
		if err := os.WriteFile(ruleFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(is, want) {
		t.Errorf("%s does not have the rules of %s: go -C tools test ./kubernetes -update writes it", ruleFile, rules)
	}
}
