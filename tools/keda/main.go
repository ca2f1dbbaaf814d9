// Command keda says what KEDA would count for a ScaledObject and its
// TriggerAuthentication, without a cluster: it reads both, gives them to KEDA's own scaler,
// and prints the value of its metric. Secrets come from environment variables that are
// named as the keys of the Secret. Fields that KEDA does not have are errors.
//
//	keda scaledobject.yaml triggerauthentication.yaml [METADATA=VALUE …]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"alertworker/tools/keda/scalers"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "keda:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: keda scaledobject.yaml triggerauthentication.yaml [METADATA=VALUE …]")
	}

	log.SetLogger(logr.Discard())
	var object v1alpha1.ScaledObject
	var auth v1alpha1.TriggerAuthentication
	if err := read(args[0], &object); err != nil {
		return err
	}
	if err := read(args[1], &auth); err != nil {
		return err
	}
	if len(object.Spec.Triggers) != 1 || object.Spec.Triggers[0].Type != "azure-eventhub" {
		return errors.New("the ScaledObject does not have one trigger, azure-eventhub")
	}

	config := &scalersconfig.ScalerConfig{
		TriggerMetadata:   object.Spec.Triggers[0].Metadata,
		AuthParams:        map[string]string{},
		MetricType:        object.Spec.Triggers[0].MetricType,
		GlobalHTTPTimeout: 30 * time.Second,
	}
	for _, ref := range auth.Spec.SecretTargetRef {
		config.AuthParams[ref.Parameter] = os.Getenv(ref.Key)
	}

	if auth.Spec.PodIdentity != nil {
		config.PodIdentity = *auth.Spec.PodIdentity
	}

	for _, arg := range args[2:] {
		name, value, _ := strings.Cut(arg, "=")
		config.TriggerMetadata[name] = value
	}

	scaler, err := scalers.NewAzureEventHubScaler(config)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer func() { _ = scaler.Close(ctx) }()
	values, active, err := scaler.GetMetricsAndActivity(ctx, "lag")
	if err != nil {
		return err
	}

	for _, v := range values {
		fmt.Println(v.Value.Value(), "active:", active)
	}

	return nil
}

// read decodes a file, strictly.
func read(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}

	text, err = yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	unknown, err := json.UnmarshalStrict(text, into) // as the API server does: case matters
	if err := errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	return nil
}
