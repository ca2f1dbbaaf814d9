package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
)

const testDoes = "send a reading over the limit all the way through the hub and a running worker to the receivers, " +
	"and then\n" +
	"a normal one, if recoveries are sent; and report how long each step took.\n" +
	"It needs the worker's settings, and the right to send to the hub: the key of a policy with Send, or the role\n" +
	"Azure Event Hubs Data Sender. An IoT Hub accepts messages only from its devices: test the rest of the way with --http"

// test is `alertworker test`.
func test(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("test", testDoes)
	device := flags.String(
		"device",
		"",
		"`NAME` of the device; alerts for names that begin with "+notify.TestDevice+" are marked as tests. "+
			"By default it is\na new name each time, because a device that has just caused an alert is quiet for the "+
			"rest of the window",
	)

	address := flags.String(
		"http",
		"",
		"send the reading to the HTTP trigger of the worker at this `URL`, with HTTP_INGEST_TOKEN; it has no recovery",
	)

	if err := parseFlags(flags, args); err != nil {
		return err
	}

	*device = cmp.Or(*device, notify.TestDevice+"-"+strings.ToLower(rand.Text()[:6]))
	s, err := openSession()
	if err != nil {
		return err
	}
	defer s.Close()
	c := s.config
	t := checkup.Test{Device: *device, Timeout: c.NotifyTimeout}
	if t.Rule, err = checkup.TestRule(c.Rules()); err != nil {
		return err
	}

	switch {
	case c.ThrottleStore == config.StoreMemory && *address == "":
		return &usageError{
			errors.New("with THROTTLE_STORE=memory only the worker knows what becomes of a reading: use --http"),
		}

	case *address != "":
		t.Rule.Resolved = false // a reading over HTTP ends no alarm
		if t.Send, err = sendHTTP(*address, *device, c); err != nil {
			return &usageError{err}
		}

	case c.IoTHubConnectionString.IsSet():
		return &usageError{
			errors.New("an IoT Hub accepts messages only from its devices: use --http, which tests the rest of the way"),
		}

	default:
		t.Send = func(ctx context.Context, body []byte) (string, error) {
			c, err := s.stores.findHub(ctx, s.config, zap.NewNop())
			if err == nil {
				err = eventhubs.Send(ctx, sourceConfig(c, s.stores, zap.NewNop()), *device, body)
			}
			if err != nil {
				return "", fmt.Errorf(
					"%w (sending needs a key with Send, or the role Azure Event Hubs Data Sender; an IoT Hub accepts messages only "+
						"from its devices: use --http)",
					err,
				)
			}

			return "the hub took the reading", nil
		}
	}

	if c.ThrottleStore != config.StoreMemory {
		if t.Gates, err = s.testGates(ctx, &t); err != nil {
			return err
		}
	}

	return failedIf(!t.Run(ctx, out))
}

// testGates returns the gates of those who get the alerts of t.
func (s *session) testGates(ctx context.Context, t *checkup.Test) (gates []checkup.Gate, err error) {
	if err := s.connect(ctx, status.ByStore); err != nil {
		return nil, err
	}

	level := &t.Rule.Levels[0]
	for _, r := range s.receivers {
		switch {
		case !r.Filters.Cover(t.Rule.Name, level.Name):

		case !r.Filters.Want(t.Rule.Name, level.Name, func(string) string { return "" }): // the test's messages have no property
			t.Skipped = append(t.Skipped, r.Name)

		default:
			gates = append(
				gates,
				checkup.Gate{Name: r.Name, Gate: throttle.New(gateConfig(s.config, s.stores.leases, r.ID, t.Rule.Alone(), level))},
			)
		}
	}

	if len(gates) == 0 {
		return nil, fmt.Errorf(
			"no receiver gets alerts of %s whose messages have no property for where=", config.RuleAndLevel(t.Rule.Name, level.Name),
		)
	}

	return gates, nil
}

// sendHTTP returns what sends a reading to a worker.
func sendHTTP(address, device string, c config.Config) (func(context.Context, []byte) (string, error), error) {
	if !c.HTTPIngestToken.IsSet() {
		return nil, errors.New("--http needs the worker's HTTP_INGEST_TOKEN")
	}

	at := strings.TrimSuffix(address, "/") + "/devices/" + url.PathEscape(device) + "/telemetry"

	return func(ctx context.Context, body []byte) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
		if err != nil {
			return "", err
		}

		req.Header.Set("Authorization", "Bearer "+c.HTTPIngestToken.Reveal())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what breaks off is no answer

		var answer struct{ Status string }
		if resp.StatusCode != http.StatusOK || json.Unmarshal(text, &answer) != nil || answer.Status != "ok" {
			return "", fmt.Errorf("the worker answered %s: %s", resp.Status, humanize.OneLine(string(text)))
		}

		return "the worker took the reading and alerted", nil
	}, nil
}
