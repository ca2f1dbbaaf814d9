package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/nettest"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
)

// In a network where only a proxy gets out, and with a certificate authority of its own,
// check says what to set, and with that an alert is sent.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	const host = "ns.invalid" // nobody can resolve it but the proxy
	certificates := nettest.NewCertificates(t, host)
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: hubName, Partitions: 2, TLS: certificates.Server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	proxy := nettest.NewProxy(t, map[string]string{host + ":443": hub.Addr()})
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, certificates.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	receiver := notifytest.NewReceiver(t, webhook.Secret{})
	env := []string{
		"EVENTHUB_CONNECTION_STRING=" + strings.Replace(hub.ConnectionString(), hub.Addr(), host, 1),
		"EVENTHUB_START=earliest",
		fmt.Sprint("TEMPERATURE_THRESHOLD=", threshold),
		"THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory",
		"NOTIFY_URLS=" + receiver.URL,
		"HTTP_ADDR=",
		"HTTPS_PROXY=" + proxy.URL.String(),
		"SSL_CERT_FILE=" + authority,
	}
	overWebSocket := append(slices.Clone(env), "EVENTHUB_TRANSPORT=websocket")

	blocked := alertworker(t, "check over AMQP", env, "check")
	blocked.wait(exitWithin, 1)
	if got := blocked.stdout.String(); !strings.Contains(got, "port 5671 is not open from here, but port 443 is: set EVENTHUB_TRANSPORT=websocket") {
		t.Errorf("check does not say what to do:\n%s", got)
	}
	well := alertworker(t, "check over WebSockets", overWebSocket, "check")
	well.wait(exitWithin, 0)
	if got := well.stdout.String(); !strings.Contains(got, hubName+" at "+host+": 2 partitions") {
		t.Errorf("check over WebSockets:\n%s", got)
	}

	if _, err := hub.Publish(devhub.Message{Device: "boiler", Body: body(threshold + 1)}); err != nil {
		t.Fatal(err)
	}
	worker := alertworker(t, "worker", overWebSocket)
	within(t, time.Minute, "the alert has arrived", func() bool { return len(receiver.Taken()) == 1 })
	worker.signal(syscall.SIGTERM)
	worker.wait(exitWithin, 0)
	for _, p := range []*process{blocked, well, worker} {
		if printed := p.stdout.String() + p.stderr.String(); strings.Contains(printed, nettest.Password) {
			t.Errorf("%s prints the proxy's password:\n%s", p.name, printed)
		}
	}
	if asked := proxy.Asked(); !slices.Contains(asked, host+":443") {
		t.Errorf("the proxy was asked for %q", asked)
	}
}
