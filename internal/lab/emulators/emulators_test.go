package emulators_test

import (
	"net"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAzuriteEndsWithItsTest(t *testing.T) {
	var address string
	t.Run("running", func(t *testing.T) {
		azurite := emulators.StartAzurite(t)
		if _, err := azurite.Container(t, azurite.NewContainer(), nil).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(azurite.URL)
		if err != nil {
			t.Fatal(err)
		}
		address = u.Host
	})
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// Without Node the tests are skipped only if somebody asks for it.
func TestWithoutNode(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(emulators.SkipEnv, "1")
	skipped := false
	t.Run("skipped", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		emulators.StartAzurite(t)
	})
	if !skipped {
		t.Error("the test was not skipped")
	}
}
