package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
	"alertworker/internal/ops/admin"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/turns"
)

// openReceivers connects to nothing. identity is nil unless a receiver needs it. Receivers are reached via an HTTP
// transport; nil is this machine's.
func openReceivers(
	c config.Config, identity *azure.Credential, via http.RoundTripper, log *zap.Logger,
) ([]receivers.Receiver, error) {
	secrets, err := webhook.ParseSecrets(c.NotifyWebhookSecret.Reveal())
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_WEBHOOK_SECRET %w", err)
	}

	tokens := func(scope policy.TokenRequestOptions) notify.TokenSource {
		return func(ctx context.Context) (string, error) {
			token, err := identity.GetToken(ctx, scope)
			return token.Token, err
		}
	}
	rs, err := receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{
		Log:            log,
		WebhookSecrets: secrets,
		Style:          wording.Style{Zone: c.Zone(), Page: c.PublicURL},
		Concurrency:    c.NotifyConcurrency,
		EventGridToken: tokens(azure.EventGridScope),
		MailToken:      tokens(azure.MailScope),
		Transport:      via,
	})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_URLS %w", err)
	}

	return rs, nil
}

func closeAll(rs []receivers.Receiver) {
	for _, r := range rs {
		r.Close()
	}
}

// deliverTo returns r's receivers of alerts by set.
func (r *replica) deliverTo(set rules.Set) (all []partition.Receiver) {
	c := r.config
	windows := recent.NewWindows()
	for _, to := range r.receivers {
		var taken delivery.Turns // nil if people do not read what it gets
		if to.Limits.People {
			name := groupName(c) + "/turns/" + to.ID
			taken = &turns.Turns{Store: r.stores.records, Name: name, Nearest: pace.Nearest, Farthest: pace.Farthest}
		}

		type key struct {
			level  *rules.Level
			shared bool
		}
		gates := map[key]*recent.Gate{}
		eachGate(set, func(rule *rules.Rule, level *rules.Level) {
			gate := recent.New(gateConfig(c, r.leases, to.ID, rule, level), windows)
			gates[key{level, rule.Per != ""}] = gate
			r.gates = append(r.gates, admin.Receiver{ // for the page
				Name: to.Name, Rule: rule.Name, Level: level.Name, Per: rule.Per, Gate: gate,
			})
		})

		observed := notify.Observe(
			to.Notifier, r.ops.recorder.Receiver(to.Name), r.ops.metrics.Receiver(to.Name),
		)
		all = append(all, partition.Receiver{
			To: delivery.Receiver{
				ID: to.ID, Name: to.Name, Limits: to.Limits, Notifier: observed, Turns: taken,
			},
			Filters: to.Filters,
			Gate: func(rule *rules.Rule, level *rules.Level) delivery.Gate {
				if gate := gates[key{level, rule.Per != ""}]; gate != nil {
					return gate
				}
				// of an alarm whose rule was removed
				return recent.New(gateConfig(c, r.leases, to.ID, rule, level), windows)
			},
		})
	}

	return all
}

// eachGate calls do for each gate that a receiver has by set: for each level of each rule, and if the rule has Per once
// more, for devices without that property, with the rule without Per.
func eachGate(set rules.Set, do func(*rules.Rule, *rules.Level)) {
	for i := range set.Rules {
		rule := &set.Rules[i]
		for j := range rule.Levels {
			do(rule, &rule.Levels[j])
			if rule.Per != "" {
				do(rule.Alone(), &rule.Levels[j])
			}
		}
	}
}

// gateConfig returns what the gate of a receiver is for, of a level of a rule.
func gateConfig(
	c config.Config,
	store lease.Store,
	receiver string,
	rule *rules.Rule,
	level *rules.Level,
) throttle.Config {
	//planted:receivers-share-windows receiver = "all"
	//planted:levels-share-windows level = &rules.Level{}
	return throttle.Config{
		Store:       store,
		Scope:       c.Scope(),
		Receiver:    receiver,
		Rule:        rule.Name,
		Level:       level.Name,
		Per:         rule.Per,
		Silence:     rule.Silence(),
		Replica:     c.ReplicaName,
		Window:      rule.Window,
		SendTimeout: c.NotifyTimeout,
	}
}

// deadLetterLog writes dead letters to the log in full: the event is what a webhook would have got.
type deadLetterLog struct{ log *zap.Logger }

func (d deadLetterLog) Keep(_ context.Context, l notify.DeadLetter) error {
	event, err := webhook.Encode(l.Alert, wording.Style{})
	d.log.Error("alert not delivered, recorded only here",
		zap.String("receiver", l.Name),
		zap.String("reason", l.Reason),
		zap.String("id", l.Alert.ID),
		zap.String("device", l.Alert.Device),
		zap.Reflect("event", json.RawMessage(event)),
		zap.Error(err), // what cannot be encoded has at least the rest
	)
	return nil
}
