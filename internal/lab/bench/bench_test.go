//go:build linux

// Package bench_test measures a worker as a process of its own, beside the programs that one would write
// instead of it, over hubs and receivers on this machine:
//
//	go test ./internal/lab/bench -run '^$' -bench Throughput -benchtime 5x   # events per second of CPU time
//	go test ./internal/lab/bench -run '^$' -bench Latency -benchtime 300x    # from a reading to its receiver
//	go test ./internal/lab/bench -run '^$' -bench Storm -benchtime 1x        # every device hot at once
//
// Figures of different runs, and of different machines, do not compare: ratios of one run do.
// It needs Linux, which says what a process used.
package bench_test

import (
	"bufio"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/process"
)

// runLimit is how long one run may take, if it is no storm.
const runLimit = 2 * time.Minute

func TestMain(m *testing.M) {
	if program := os.Getenv(readEnv); program != "" { // a process that a benchmark has started
		if err := read(program); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// build builds the worker, as its image has it.
func build(b *testing.B) (path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "alertworker")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "alertworker/cmd/alertworker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the worker: %v\n%s", err, out)
	}
	return path
}

// readings is what a hub is filled with.
type readings struct {
	events, partitions, devices int
	hot                         int // percent of the events
	tls                         bool
	fields                      int // bytes of fields that nobody reads, behind the others
	array                       int // how many readings a message has, in an array; 0: it is one
}

// serve serves readings as an IoT Hub delivers them, and returns what its clients need in their environment.
func serve(b *testing.B, r readings) (*devhub.Hub, map[string]string) {
	b.Helper()
	settings := map[string]string{}
	c := devhub.Config{Hub: "telemetry", Partitions: r.partitions, MaxEvents: max(1<<17, r.events), MaxBytes: 2 << 30}
	if r.tls {
		site := httptest.NewTLSServer(nil) // for its certificate
		defer site.Close()
		c.TLS = site.TLS.Clone()
		c.TLS.NextProtos = nil
		settings["SSL_CERT_FILE"] = filepath.Join(b.TempDir(), "hub.pem")
		if err := os.WriteFile(settings["SSL_CERT_FILE"], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	hub, err := devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = hub.Close() })
	settings["EVENTHUB_CONNECTION_STRING"] = hub.ConnectionString()
	for i := range r.events {
		publish(b, hub, i, r)
	}
	return hub, settings
}

// body returns that of the ith message: 200 bytes of JSON, unless r says more.
func (r readings) body(i, device int, temperature float64) []byte {
	one := fmt.Appendf(nil, `{"messageId":%7d,"deviceId":"oven-%07d","location":{"building":"north","floor":3,"line":"a"},"humidity":54.25,"pressure":1013.2,"temperature":%.2f,"unit":"C","firmware":"2.11.7","status":"ok"}`,
		i, device, temperature)
	if r.array > 0 {
		element := fmt.Appendf(nil, `{"ts":1795833600,"name":"oven-%07d","temperature":%.2f,"ok":true}`, device, temperature)
		return fmt.Appendf(nil, "[%s]", bytes.Join(slices.Repeat([][]byte{element}, r.array), []byte(",")))
	}

	for n := 0; len(one) < r.fields; n++ {
		one = fmt.Appendf(one[:len(one)-1], `,"register%d":%d.25,"state%d":"ok"}`, n, n*7, n)
	}

	return one
}

// publish publishes the ith message, of a device that takes its turn.
func publish(b *testing.B, hub *devhub.Hub, i int, r readings) (device string) {
	temperature := 21.5
	if i%100 < r.hot {
		temperature = 91.5
	}
	n := i % r.devices // of the same partition every time if devices is a multiple of partitions
	device = fmt.Sprintf("oven-%07d", n)
	_, err := hub.Publish(devhub.Message{
		Device:    device,
		Partition: fmt.Sprint(i % r.partitions),
		Body:      r.body(i, n, temperature),
		MessageID: fmt.Sprint(i), ContentType: "application/json", ContentEncoding: "utf-8",
		Properties: map[string]any{"kind": "reading"},
	})
	if err != nil {
		b.Error(err)
	}
	return device
}

// A program is a process that is measured.
type program struct {
	*process.Process
	b    *testing.B
	addr string // where a worker serves HTTP
}

// start starts a program with settings besides the environment that all have. It is killed at the end at the latest.
func start(b *testing.B, cores int, path string, settings map[string]string) *program {
	b.Helper()
	cmd := exec.Command(path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), fmt.Sprint("GOMAXPROCS=", cores)}
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p, err := process.Start(filepath.Base(path), cmd, func(string) {}) // warnings about stores in memory, say
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Kill)
	return &program{Process: p, b: b}
}

// startWorker starts a worker with stores in memory, unless settings say otherwise.
func startWorker(b *testing.B, cores int, path string, settings map[string]string) *program {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a free address
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	all := map[string]string{
		"TEMPERATURE_THRESHOLD": "80", "NOTIFY_URLS": "log:", "EVENTHUB_START": "earliest", "LOG_LEVEL": "error",
		"THROTTLE_STORE": "memory", "CHECKPOINT_STORE": "memory", "HTTP_ADDR": addr,
	}
	maps.Copy(all, settings)
	p := start(b, cores, path, all)
	p.addr = addr
	return p
}

// stop ends a worker.
func (p *program) stop() {
	if err := p.Stop(); err != nil {
		p.b.Error(err)
	}
}

// peak returns the most memory that a running process has had, in bytes. What wait4 says of a child's memory
// includes ours before the exec.
func (p *program) peak() float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.OS().Pid))
	if err != nil {
		p.b.Error(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kB, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, _ := strconv.ParseFloat(kB, 64)
	return n * 1024
}

// counter returns the sum of a counter's series, 0 while the worker starts.
func (p *program) counter(name string) (sum float64) {
	resp, err := http.Get("http://" + p.addr + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if ok && (series == name || strings.HasPrefix(series, name+"{")) {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		}
	}
	return sum
}

// wait asks every interval until done, at most for limit.
func wait(b *testing.B, interval, limit time.Duration, what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(interval) {
		if time.Now().After(end) {
			b.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// A receiver answers each request after a while, and refuses what comes too soon after the last one.
type receiver struct {
	*httptest.Server
	after time.Duration
	every time.Duration // at most one request is taken in it

	mu             sync.Mutex
	last           time.Time            // when a request was taken
	at             map[string]time.Time // when each device's first alert came
	taken, refused int
}

func newReceiver(b *testing.B, after, every time.Duration) *receiver {
	r := &receiver{after: after, every: every, at: map[string]time.Time{}}
	r.Server = httptest.NewServer(r)
	b.Cleanup(r.Close)
	return r
}

var deviceName = regexp.MustCompile(`oven-[0-9]{7}`)

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	came := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if !r.take(came, deviceName.FindAllString(string(body), -1)) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(r.after)
	_, _ = io.WriteString(w, "ok")
}

// take reports whether a request about devices is taken.
func (r *receiver) take(came time.Time, devices []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.every > 0 && came.Sub(r.last) < r.every { // requests may be taken in another order than they came
		r.refused++
		return false
	}
	r.last = came
	r.taken++
	for _, name := range devices {
		if _, ok := r.at[name]; !ok {
			r.at[name] = came
		}
	}
	return true
}

// alerted returns how many devices have alerted, and when one of them did.
func (r *receiver) alerted(device string) (n int, at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok = r.at[device]
	return len(r.at), at, ok
}

// report reports a percentile of values, which it sorts.
func report(b *testing.B, values []float64, percent int, unit string) float64 {
	slices.Sort(values)
	value := values[len(values)*percent/100]
	b.ReportMetric(value, unit)
	b.ReportMetric(0, "ns/op") // says nothing here
	return value
}
