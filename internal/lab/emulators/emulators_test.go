package emulators_test

import (
	"net"
	"net/url"
	"os"
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

// Tests that need Node are skipped if somebody asks for it, with Node or without.
func TestWithoutNode(t *testing.T) {
	for _, path := range []string{t.TempDir(), os.Getenv("PATH")} {
		t.Setenv("PATH", path)
		t.Setenv(emulators.SkipEnv, "1")
		for name, start := range map[string]func(t *testing.T){
			"Azurite":   func(t *testing.T) { emulators.StartAzurite(t) },
			"Cosmos DB": func(t *testing.T) { emulators.StartCosmos(t) },
		} {
			skipped := false
			t.Run(name, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				start(t)
			})
			if !skipped {
				t.Errorf("%s: the test was not skipped", name)
			}
		}
	}
}
