package eventhubs

import (
	"testing"
	"time"

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

// The time to attach a link may end while the link is being made, as in a process that is frozen just then. Run with -race.
func TestLinkExpiresWhileItIsMade(t *testing.T) {
	const nowhere = "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=hub;UseDevelopmentEmulator=true"
	client, err := azeventhubs.NewConsumerClientFromConnectionString(nowhere, "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{client: client, reading: map[string]*link{}}
	for range 100 {
		l, err := c.open("0", azeventhubs.PartitionClientOptions{}, func(bool) {}, 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		<-l.closing
		l.close()
	}
}
