// Package scalers is KEDA's package of that name with its Event Hubs scaler alone. The
// other 80 would take many minutes to build. The code is not copied: make bin/keda builds
// this directory with azure_eventhub_scaler.go and scaler.go of KEDA's module laid over it.
// Here is what they import, so that go.mod has it.
package scalers

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs"
	_ "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	_ "github.com/Azure/go-autorest/autorest/azure"
	_ "github.com/go-logr/logr"
	_ "github.com/rcrowley/go-metrics"
	_ "github.com/spf13/cast"
	_ "k8s.io/api/autoscaling/v2"
	_ "k8s.io/apimachinery/pkg/api/resource"
	_ "k8s.io/metrics/pkg/apis/external_metrics"
	_ "sigs.k8s.io/controller-runtime/pkg/log"

	_ "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	_ "github.com/kedacore/keda/v2/pkg/scalers/azure"
	_ "github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	_ "github.com/kedacore/keda/v2/pkg/util"
)
