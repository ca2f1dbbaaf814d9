package bloblease_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lease/bloblease"
)

// Names are for ever: other versions look for them.
func TestName(t *testing.T) {
	for key, want := range map[string]string{
		"ns/hub/group/r/device-7": "b6/ns~2Fhub~2Fgroup~2Fr~2Fdevice-7",
		"":                        "e3/",
	} {
		if got := bloblease.Name(key); got != want {
			t.Errorf("Name(%q) is %q, want %q", key, got, want)
		}
	}
	perShard := map[string]int{}
	for i := range 25_600 {
		perShard[bloblease.Name(fmt.Sprintf("ns/hub/group/r/device-%06d", i))[:3]]++
	}
	for shard, n := range perShard {
		if n > 200 {
			t.Errorf("of 25,600 keys that are alike %d are in %q, want about 100", n, shard)
		}
	}
	if len(perShard) != 256 {
		t.Errorf("%d shards", len(perShard))
	}
}

var stores = map[string]func(context.Context, *container.Client) (*bloblease.Store, error){
	"etag": func(ctx context.Context, c *container.Client) (*bloblease.Store, error) {
		return bloblease.OpenETag(ctx, c, nil)
	},
	"native": func(ctx context.Context, c *container.Client) (*bloblease.Store, error) {
		return bloblease.OpenNative(ctx, c, nil)
	},
}
