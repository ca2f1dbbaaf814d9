package eventhubs

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A link that was closed just before azeventhubs began to open it ends with its connection, and not with the process.
// The instant cannot be met, so that a client that is not connected panics in place of azeventhubs' own.
func TestLinkClosedBeforeItOpens(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	l := &link{client: &azeventhubs.PartitionClient{}, connection: &connection{}, closing: closed}
	if events, err := l.receive(1); events != nil || err == nil || !l.connection.isKilled() {
		t.Errorf("got %v, %v, and the connection goes on", events, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic of a link that is open was hidden")
		}
	}()
	l = &link{client: &azeventhubs.PartitionClient{}, connection: &connection{}, closing: make(chan struct{})}
	_, _ = l.receive(1)
}
