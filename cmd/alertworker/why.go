package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/rules"
)

const whyDoes = "say why a device was or was not alerted: its alarms, windows and dead letters, as all replicas share\n" +
	"them. Nothing is sent, taken over or changed\n" +
	"Usage: alertworker why DEVICE [--last 2h] [--json]"

// why is `alertworker why`. It has the configuration of the worker.
func why(ctx context.Context, args []string) error { return whyTo(ctx, os.Stdout, args) }

func whyTo(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("why", whyDoes)
	var history historyFlags
	flags.DurationVar(&history.since, "last", 0, "also read what the device sent in the last `DURATION` from the hub, such as 2h: all that the hub received then is read")
	flags.StringVar(&history.group, "group", "", "with --last, read in this consumer `GROUP`, which the worker must not use (default $Default, if it does not)")
	flags.Float64Var(&history.rate, "rate", maxRate, "with --last, read at most this `NUMBER` of events a second, because the worker shares the hub's egress; 0: any")
	asJSON := flags.Bool("json", false, "print what GET /devices/{id} answers")
	devices, err := parseArgs(flags, args)
	if err != nil {
		return err
	}
	if err = history.check(); err == nil && len(devices) != 1 {
		err = errors.New("name one device")
	}
	if err != nil {
		return &usageError{fmt.Errorf("%w; see %s --help", err, flags.Name())}
	}
	device := devices[0]
	c, _, err := configure()
	if err != nil {
		return err
	}
	a, set, done, err := openAdmin(ctx, c)
	defer done()
	if err != nil {
		return err
	}
	if *asJSON {
		return a.WriteJSON(ctx, out, device)
	}
	if err := a.WriteText(ctx, out, device); err != nil {
		return err
	}
	for i := range set.Rules {
		fmt.Fprintf(out, "rule %s: %s\n", set.Rules[i].Name, checkup.Explain(&set.Rules[i]))
	}
	if c.ThrottleStore == config.StoreMemory || c.CheckpointStore == config.StoreMemory {
		fmt.Fprintln(out, "THROTTLE_STORE or CHECKPOINT_STORE is memory: what only the worker knows is on its status page")
	}
	if history.since == 0 {
		return nil
	}
	source, closeSource, err := history.open(ctx, c)
	defer closeSource()
	if err != nil {
		return err
	}
	return a.WriteReadings(ctx, out, device, config.Plain(history.since), source)
}

// openAdmin opens the stores that c names, and returns what looks devices up in them, and what closes them, also after an error.
func openAdmin(ctx context.Context, c config.Config) (_ *admin.Admin, set rules.Set, done func(), err error) {
	set, done = c.Rules(), func() {}
	s, err := newReadStores(c)
	if err != nil {
		return nil, set, done, err
	}
	done = s.Close
	log := zap.NewNop()
	if c, err = resolveHub(ctx, c, log); err != nil {
		return nil, set, done, err
	}
	if s, err = s.open(ctx, c, log); err != nil {
		return nil, set, done, err
	}
	rs, err := openReceivers(c, s.identity, log)
	if err != nil {
		return nil, set, done, err
	}
	done = func() {
		for _, r := range rs {
			r.Close()
		}
		s.Close()
	}
	o := admin.Options{Rules: set, Recorder: &admin.Recorder{}, Shared: sharedOf(c, s, rs), Log: log}
	for _, to := range rs {
		for i := range set.Rules {
			rule := &set.Rules[i]
			for j := range rule.Levels {
				level := &rule.Levels[j]
				o.Receivers = append(o.Receivers, admin.Receiver{Name: to.Name, Rule: rule.Name, Level: level.Name, Gate: newGate(c, s.leases, to.ID, rule, level, nil)})
			}
		}
	}
	return admin.New(o), set, done, nil
}
