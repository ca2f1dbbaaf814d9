package simulator

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"alertworker/internal/lab/console"
	"alertworker/internal/lab/process"
)

// Settings of the workers. Partitions change hands as fast as the configuration
// allows.
const (
	notifyTimeout   = 5 * time.Second
	claim           = notifyTimeout + 10*time.Second // how long a claim lasts
	ownershipExpiry = 3 * time.Second
	balanceInterval = time.Second
	takeover        = ownershipExpiry + 2*balanceInterval
	minWindow       = takeover

	// alertBound is how long after its reading an alert may come: a killed worker's
	// partition is taken over, and then the claim that it left has to end.
	alertBound = takeover + claim + 5*time.Second
)

// The workers' HTTP tokens are not secret: the workers listen on loopback.
const (
	ingestToken = "readings-on-this-machine"
	adminToken  = "devices-on-this-machine"
)

// processes runs each worker as a process of this same program, on Azurite.
type processes struct {
	binary  string
	azurite *process.Azurite
	env     []string
	pages   []string // addresses of the status pages
}

// newProcesses starts Azurite, which the caller kills.
func newProcesses(ctx context.Context, o Options) (*processes, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	pages, err := addresses(o.port, o.replicas)
	if err != nil {
		return nil, err
	}
	azurite, err := process.StartAzurite(ctx)
	if err != nil {
		return nil, err
	}
	return &processes{binary: binary, azurite: azurite, pages: pages, env: []string{
		"EVENTHUB_START=earliest",
		fmt.Sprint("TEMPERATURE_THRESHOLD=", o.Threshold),
		fmt.Sprint("THROTTLE_WINDOW=", o.Window),
		"THROTTLE_STORE=" + o.store,
		"CHECKPOINT_INTERVAL=1s",
		"STORAGE_CONNECTION_STRING=" + azurite.ConnectionString,
		fmt.Sprint("NOTIFY_TIMEOUT=", notifyTimeout),
		fmt.Sprint("OWNERSHIP_EXPIRY=", ownershipExpiry),
		fmt.Sprint("BALANCE_INTERVAL=", balanceInterval),
		"DRAIN_TIMEOUT=10s",
		"HTTP_INGEST_TOKEN=" + ingestToken,
		"HTTP_ADMIN_TOKEN=" + adminToken,
		"LOG_LEVEL=error",
		"LOG_FORMAT=console",
	}}, nil
}

// addresses returns n free addresses on loopback: from port on, or any if it is 0.
func addresses(port, n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("%w: choose another --http, or 0 for any port", err)
		}
		defer l.Close() // when all are found, or one would be found twice
		all = append(all, l.Addr().String())
		if port > 0 {
			port++
		}
	}
	return all, nil
}

// ended returns why Azurite has ended, nil while it runs.
func (p *processes) ended() error {
	if p.azurite.Ended() {
		return p.azurite.Unexpected()
	}
	return nil
}

// start is a Start.
func (p *processes) start(w World, name string, i int) (Worker, error) {
	cmd := exec.Command(p.binary)
	cmd.Env = append([]string{
		"EVENTHUB_CONNECTION_STRING=" + w.Hub,
		"NOTIFY_URLS=" + w.NotifyURL,
		"NOTIFY_WEBHOOK_SECRET=" + w.Secret,
		"REPLICA_NAME=" + name,
		"HTTP_ADDR=" + p.pages[i],
	}, p.env...)
	running, err := process.Start("worker "+name, cmd, func(line string) { _, _ = fmt.Fprintf(w.Log, "%s: %s\n", name, console.Clean(line)) })
	if err != nil {
		return nil, err
	}
	return workerProcess{running, p.pages[i]}, nil
}

// A workerProcess is a Worker in a process of its own.
type workerProcess struct {
	*process.Process
	page string
}

func (w workerProcess) Page() string { return w.page }

// Settled is false: nobody outside knows.
func (workerProcess) Settled(string, int64) bool { return false }
