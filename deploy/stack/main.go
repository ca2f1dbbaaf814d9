// Command stack runs what a cloud would, on this machine: Azurite, a hub,
// devices that publish to it over AMQP, a receiver, and several workers, each
// a process of its own. Their alerts stand side by side, and workers can be
// killed to see the others take over. At the end it says whether the promise
// held. See --help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"alertworker/internal/audit"
	"alertworker/internal/console"
	"alertworker/internal/devhub/devices"
	"alertworker/internal/notify/inbox"
)

// Exit codes, those of alertworker.
const (
	exitStopped = 0
	exitFailed  = 1
	exitUsage   = 2
)

func main() {
	// A broken pipe on standard output is an error like any other: children
	// are stopped and files removed.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	code := command(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// stopSignals ask to stop; a second one skips the waiting.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

func command(ctx context.Context, args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitStopped
	case err != nil:
		fmt.Fprintln(os.Stderr, "stack:", err)
		return exitUsage
	}
	report, err := run(ctx, o, os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, context.Canceled): // while it was starting
		fmt.Println("stopped")
		return exitStopped
	case err != nil:
		fmt.Fprintln(os.Stderr, "stack:", err)
		return exitFailed
	case !report.OK():
		return exitFailed
	}
	return exitStopped
}

type options struct {
	duration  time.Duration
	workers   int
	devices   int
	rate      float64
	threshold float64
	window    time.Duration
	store     string
	kill      time.Duration
	http      int // port of the first worker
	fleet     *devices.Fleet
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("stack", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.DurationVar(&o.duration, "for", 0, "stop by itself after this `DURATION`, such as 30s; 0: on Ctrl-C")
	flags.IntVar(&o.workers, "workers", 3, "`NUMBER` of workers, 1 to 9")
	flags.IntVar(&o.devices, "devices", 40, "`NUMBER` of simulated devices")
	flags.Float64Var(&o.rate, "rate", 80, "`READINGS` per second, of all devices together")
	flags.Float64Var(&o.threshold, "threshold", 30, "alert at or above this `TEMPERATURE`")
	flags.DurationVar(&o.window, "window", 15*time.Second, "`DURATION` without a second alert of one device, at least 5s")
	flags.StringVar(&o.store, "store", "blob", "`STORE` that remembers windows: blob or blob-lease")
	flags.DurationVar(&o.kill, "kill", 0, "kill -9 a worker every `DURATION`, but never the last one; 0: only by hand")
	flags.IntVar(&o.http, "http", 8081, "`PORT` of the first worker's status page; the others have the next ones; 0: any")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print("stack: Azurite, a hub, devices, a receiver and workers as processes on this machine\n\n" +
			"Keys: 1 to 9 kill -9 a worker, or bring it back; q stops\n\nFlags\n")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return o, err
	}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected %q", flags.Arg(0))
	case o.workers < 1 || o.workers > len(workerNames):
		err = fmt.Errorf("--workers %d: want 1 to %d", o.workers, len(workerNames))
	case o.store != "blob" && o.store != "blob-lease":
		err = fmt.Errorf("--store %q: want blob or blob-lease", o.store)
	case o.store == "blob-lease" && (o.window < 15*time.Second || o.window > time.Minute):
		err = fmt.Errorf("--window %v: a blob-lease lasts 15s to 1m", o.window)
	case o.window < 5*time.Second || o.window > 24*time.Hour:
		err = fmt.Errorf("--window %v: want 5s to 24h, more than a takeover takes", o.window)
	case o.duration < 0:
		err = fmt.Errorf("--for %v: want 0 or more", o.duration)
	case o.kill < 0:
		err = fmt.Errorf("--kill %v: want 0 or more", o.kill)
	case o.http < 0 || o.http > 65535-len(workerNames):
		err = fmt.Errorf("--http %d: want 1 to %d, or 0", o.http, 65535-len(workerNames))
	}
	if err == nil {
		o.fleet, err = devices.New(devices.Config{Devices: o.devices, Rate: o.rate, Threshold: o.threshold, Seed: rand.Uint64()})
	}
	if err != nil {
		return o, fmt.Errorf("%w; see --help", err)
	}
	return o, nil
}

// receiverName is what the audit calls the receiver.
const receiverName = "inbox"

// alertBound is how long after its reading an alert may come: a dead worker's
// partition is taken over, and then the claim that it left has to end.
const alertBound = takeover + claim + 5*time.Second

// run starts everything, shows it until ctx ends or it is told to stop, and
// stops everything. Nothing of it is left when it returns. The report says
// whether the promise held, judged by what was published and what the receiver got.
func run(ctx context.Context, o options, in io.Reader, out *os.File) (audit.Report, error) {
	// To the kernel a child's parent is a thread, and children are to end with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	root, err := repository()
	if err != nil {
		return audit.Report{}, err
	}
	dir, err := os.MkdirTemp("", "alertworker-stack-")
	if err != nil {
		return audit.Report{}, err
	}
	defer os.RemoveAll(dir)

	fmt.Fprint(out, "building alertworker … ")
	binary, err := build(ctx, root, dir)
	if err != nil {
		return audit.Report{}, err
	}
	fmt.Fprint(out, "starting Azurite … ")
	storage, err := startAzurite(ctx, root)
	if err != nil {
		return audit.Report{}, err
	}
	defer storage.kill()
	fmt.Fprint(out, "hub … ")
	hub, err := startHub(ctx, binary, 2*o.workers)
	if err != nil {
		return audit.Report{}, err
	}
	defer hub.kill()
	pages, err := addresses(o.http, o.workers)
	if err != nil {
		return audit.Report{}, err
	}
	fmt.Fprintf(out, "%d workers\n%d devices, %v readings a second; alerts from %v°, one per device in %v; windows in %s\n"+
		"status pages: http://%s\nHTTP_INGEST_TOKEN=%s HTTP_ADMIN_TOKEN=%s\n\n",
		o.workers, o.devices, o.rate, o.threshold, o.window, o.store, strings.Join(pages, " http://"), token, adminToken)

	look := console.Detect(out, os.Getenv)
	verdict := console.New(out, console.Options{Color: look.Color, Threshold: o.threshold})
	_ = verdict.Close() // it only prints the summary
	report, err := perform(ctx, o, binary, pages, storage, hub, in, out, look)
	if report.Readings > 0 { // it ran to its end
		verdict.Summary(report)
	}
	return report, err
}

// perform runs workers on what has been started, with the terminal to itself.
func perform(ctx context.Context, o options, binary string, pages []string, storage, hub *service, in io.Reader, out *os.File, look console.Options) (audit.Report, error) {
	restore, err := takeKeys(in, look.Live)
	if err != nil {
		return audit.Report{}, err
	}
	defer restore()
	screen := newView(out, look, o)
	defer screen.Close()
	judge := &audit.Log{}
	simulated := o.fleet.Devices()
	slices.Sort(simulated)
	receiver, err := inbox.Listen(func(d inbox.Delivery) {
		tell(judge, simulated, d)
		screen.Alert(d)
	})
	if err != nil {
		return audit.Report{}, err
	}
	defer receiver.Close()
	to, err := newPublisher(hub.address)
	if err != nil {
		return audit.Report{}, err
	}
	defer to.Close()
	owners, err := newOwners(storage.address, hub.address)
	if err != nil {
		return audit.Report{}, err
	}
	defer owners.Close()

	team := newTeam(o, binary, pages, storage, hub, receiver, screen)
	defer team.kill()
	if err := team.start(); err != nil {
		return audit.Report{}, err
	}

	// Beside the show: publishing, and looking who owns which partition.
	var beside sync.WaitGroup
	defer beside.Wait()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	beside.Go(func() { owners.watch(background, screen.Owners) })
	publishing, stopPublishing := context.WithCancel(background)
	published := make(chan error, 1)
	beside.Go(func() { published <- publish(publishing, o.fleet, to, o.threshold, judge, screen) })

	s := &show{
		options:        o,
		team:           team,
		services:       []*service{storage, hub},
		screen:         screen,
		judge:          judge,
		rules:          audit.Rules{Window: o.window, Bound: alertBound, Slack: claim + 2*time.Second, Receivers: []string{receiverName}},
		keys:           readKeys(background, in),
		stopPublishing: stopPublishing,
		published:      published,
	}
	if err := s.run(ctx); err != nil {
		return audit.Report{}, err // what was cut short proves nothing
	}
	err = team.stop()
	s.rules.Until = time.Now()
	return judge.Check(s.rules), err
}

// tell has judge hear of d if it is about one of these devices, which are in
// order. Others are of people who try the HTTP trigger, and open windows perhaps.
func tell(judge *audit.Log, simulated []string, d inbox.Delivery) {
	if _, ok := slices.BinarySearch(simulated, d.Alert.Device); ok {
		judge.Delivered(audit.Delivery{Device: d.Alert.Device, ID: d.Alert.ID, Token: d.Alert.Token, At: d.At, Receiver: receiverName})
	}
}
