package simulator

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lab/emulators"
)

// Storage that is killed from outside comes back at its address, with what it had saved.
func TestStorageComesBack(t *testing.T) {
	emulators.NeedNode(t)
	p, err := newProcesses(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	p.back = 0
	c, err := container.NewClientFromConnectionString(p.azurite.ConnectionString, "kept", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it to be saved", func() bool {
		saved, _ := os.ReadFile(filepath.Join(p.data, "__azurite_db_blob__.json"))
		return bytes.Contains(saved, []byte(`"kept"`))
	})

	if err := p.azurite.OS().Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its end", p.azurite.Ended)
	var log strings.Builder
	for _, want := range []string{"Azurite was killed: there is no storage; it is started again in 0s\n", "Azurite is back\n", ""} {
		log.Reset()
		outage, err := p.tend(t.Context(), &log)
		if err != nil || log.String() != want || (outage > 0) != strings.HasSuffix(want, "back\n") {
			t.Errorf("it says %q, %v, %v, want %q", log.String(), outage, err, want)
		}
	}
	if _, err := c.GetProperties(t.Context(), nil); err != nil {
		t.Errorf("the container is gone: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()

	data := p.data
	p.kill()
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", data, err)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
