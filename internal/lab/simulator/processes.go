package simulator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/lab/devhub/devices"
	"alertworker/internal/lab/process"
	"alertworker/internal/notify"
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
	askTimeout      = time.Second // to ask a worker whether it leads

	// storageBack is when storage that was killed is started again: later than most windows end, because it may have
	// forgotten those of its last seconds.
	storageBack = 20 * time.Second

	// alertBound is how long after its reading an alert may come: a killed worker's
	// partition is taken over, and then the claim that it left has to end.
	alertBound = takeover + claim + 5*time.Second
)

// The workers' HTTP tokens are not secret: the workers listen on loopback.
const (
	IngestToken = "readings-on-this-machine"
	adminToken  = "devices-on-this-machine"
)

// processes runs each worker as a process of this same program, on emulators of Azure.
type processes struct {
	binary string
	env    []string
	pages  []string // addresses of the status pages

	azurite *process.Azurite
	data    string    // the directory of azurite
	down    time.Time // since when azurite is not there; zero if it is
	back    time.Duration
	cosmos  *process.Cosmos // may be nil
}

// newProcesses starts the emulators, which the caller kills.
func newProcesses(ctx context.Context, o Options) (*processes, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}

	pages, err := addresses(o.port, o.replicas)
	if err != nil {
		return nil, err
	}

	data, err := os.MkdirTemp("", "alertworker")
	if err != nil {
		return nil, err
	}

	azurite, err := process.StartAzurite(ctx, "0", data)
	if err != nil {
		_ = os.RemoveAll(data)
		return nil, err
	}

	p := &processes{
		binary:  binary,
		azurite: azurite,
		data:    data,
		back:    storageBack,
		pages:   pages,
		env: []string{
			"EVENTHUB_START=earliest",
			fmt.Sprint("THROTTLE_WINDOW=", o.Window),
			"THROTTLE_STORE=" + o.store,
			"CHECKPOINT_INTERVAL=1s",
			"STORAGE_CONNECTION_STRING=" + azurite.ConnectionString,
			fmt.Sprint("NOTIFY_TIMEOUT=", notifyTimeout),
			fmt.Sprint("OWNERSHIP_EXPIRY=", ownershipExpiry),
			fmt.Sprint("BALANCE_INTERVAL=", balanceInterval),
			"DRAIN_TIMEOUT=10s",
			"HTTP_INGEST_TOKEN=" + IngestToken,
			"HTTP_ADMIN_TOKEN=" + adminToken,
			"LOG_LEVEL=error",
			"LOG_FORMAT=console",
		},
	}

	p.env = append(p.env, "RULES="+rulesText(o))
	if o.store == "cosmos" {
		if p.cosmos, err = process.StartCosmos(ctx); err != nil {
			p.kill()
			return nil, err
		}
		p.env = append(p.env, "COSMOS_CONNECTION_STRING="+p.cosmos.ConnectionString)
	}

	return p, nil
}

// rulesText returns what the workers decide by, as a file of rules.
func rulesText(o Options) string {
	text := fmt.Sprintf("mute: [{where: %s=true}]\nrules:\n- {name: %s, field: %q, above: %s or %v, clear: %v, resolved: true}\n",
		devices.Quiet, notify.DefaultRule, "temperature, temp", devices.MaxTemp, o.Threshold, o.Clear())
	if o.Silent > 0 {
		text += fmt.Sprintf("- {name: %s, silent: %v, resolved: true}\n", Offline, o.Silent)
	}

	return text
}

// kill ends the emulators.
func (p *processes) kill() {
	p.azurite.Kill()
	if p.cosmos != nil {
		p.cosmos.Kill()
	}

	_ = os.RemoveAll(p.data)
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

// tend starts storage again that somebody has killed, with what it had saved, after a pause in which to see what
// workers do without. It reports to log, and returns how long storage was away when it is back.
func (p *processes) tend(ctx context.Context, log io.Writer) (outage time.Duration, err error) {
	switch {
	case p.cosmos != nil && p.cosmos.Ended():
		return 0, p.cosmos.Unexpected()

	case !p.azurite.Ended():
		return 0, nil

	case p.down.IsZero():
		p.down = time.Now()
		fmt.Fprintf(log, "Azurite was killed: there is no storage; it is started again in %v\n", p.back)
		return 0, nil

	case time.Since(p.down) < p.back:
		return 0, nil
	}

	at, err := url.Parse(p.azurite.URL)
	if err != nil {
		return 0, err
	}

	if p.azurite, err = process.StartAzurite(ctx, at.Port(), p.data); err != nil {
		return 0, err
	}

	outage, p.down = time.Since(p.down), time.Time{}
	fmt.Fprintln(log, "Azurite is back")

	return outage, nil
}

// leader returns the name of the worker whose metrics say that it leads, empty if none
// says so.
func (p *processes) leader(ctx context.Context) string {
	for i, page := range p.pages {
		if leads(ctx, "http://"+page+"/metrics") {
			return workerName(i)
		}
	}

	return ""
}

func leads(ctx context.Context, metrics string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, nil)
	if err != nil {
		return false
	}

	req.Close = true // the worker may be killed before the next question
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false // it is killed, or not started yet
	}
	defer resp.Body.Close()

	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if lines.Text() == "alertworker_duty_leader 1" {
			return true
		}
	}

	return false
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

	running, err := process.Start(
		"worker "+name,
		cmd,
		func(line string) { _, _ = fmt.Fprintf(w.Log, "%s: %s\n", name, humanize.Clean(line)) },
	)
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
