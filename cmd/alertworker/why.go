package main

import (
	"context"
	"fmt"
	"io"

	"alertworker/internal/config"
	"alertworker/internal/muting"
	"alertworker/internal/ops/admin"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

const whyDoes = "explain why a device did or did not cause an alert: a line for each fact that all replicas share (alarms,\n" +
	"windows, silences, dead letters), and what to do. Nothing is sent, written or created\n" +
	"Usage: alertworker why DEVICE[/SENSOR] [--last 2h]"

// why is `alertworker why`. It has the configuration of the worker.
func why(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("why", whyDoes)
	var history historyFlags
	history.define(
		flags,
		"last",
		"also read from the hub what the device sent in the last `DURATION`, such as 2h; this reads all that the hub "+
			"received in that time",
	)
	devices, err := parseArgs(flags, args)
	if err != nil {
		return err
	}

	if len(devices) != 1 {
		return &usageError{fmt.Errorf("name one device; see %s --help", flags.Name())}
	}

	of := sensor.Parse(devices[0])
	of = sensor.ID{Device: sensor.Device(of.Device), Name: sensor.Name(of.Name)}
	ofAll := access{readOnly: true, has: func(config.Config) bool { return true }}
	return ofAll.use(ctx, func(s *session) error {
		a := s.admin()
		var readings admin.Readings
		if history.since > 0 {
			source, err := history.open(ctx, s.config, s.stores)
			if err != nil {
				return err
			}
			defer source.Close()
			if readings, err = a.Readings(ctx, of.Device, history.since, withProgress(source)); err != nil {
				return err
			}
		}

		if !isShared(s.config) {
			fmt.Fprintln(out, "THROTTLE_STORE or CHECKPOINT_STORE is memory: what only the worker knows is on its status page")
		}

		return a.WriteText(ctx, out, of, readings)
	})
}

// admin returns what looks devices up in the stores.
func (s *session) admin() *admin.Admin {
	o := admin.Options{
		Rules:    s.config.Rules(),
		Zone:     s.config.Zone(),
		Recorder: &admin.Recorder{},
		Shared:   sharedOf(s.config, s.stores, s.receivers),
		Silences: muting.NewCache(silences(s.config, s.stores.records), s.log),
		Log:      s.log,

		Incidents: incidents(s.config, s.stores.records),
	}
	windows := recent.NewWindows()
	s.eachGate(func(receiver int, rule *rules.Rule, level *rules.Level, gate throttle.Config) {
		o.Receivers = append(o.Receivers, admin.Receiver{
			Name:  s.receivers[receiver].Name,
			Rule:  rule.Name,
			Level: level.Name,
			Per:   rule.Per,
			Gate:  recent.New(gate, windows),
		})
	})
	return admin.New(o)
}
