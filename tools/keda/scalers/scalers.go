// Package scalers is KEDA's package of that name with its Event Hubs scaler alone. The
// other 70 would take many minutes to build. The code is not copied: make keda builds
// this directory with azure_eventhub_scaler.go and scaler.go of KEDA's module laid over it.
package scalers

// What these two import from modules that nothing else here needs, so that go.mod has them.
import (
	_ "github.com/kedacore/keda/v2/pkg/scalers/azure"
	_ "github.com/rcrowley/go-metrics"
	_ "github.com/spf13/cast"
	_ "k8s.io/metrics/pkg/apis/external_metrics"
)
