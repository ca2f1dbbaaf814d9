package simulation

import (
	"slices"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

const (
	throttleContainer   = "throttle"
	checkpointContainer = "checkpoints"
	letterContainer     = "deadletters"
	key                 = "c2ltdWxhdGlvbg=="

	sendTimeout = 5 * time.Second
	claimFor    = sendTimeout + 10*time.Second

	restarts = time.Second      // until a replica that has ended by itself is started again
	standsBy = 45 * time.Second // a replica whose settings conflict, after the last of the others has ended
	halfOpen = 2 * time.Minute  // until a connection is found to be half open
	never    = 24 * time.Hour
	underWay = latest + 2*sendTimeout // the most that a message takes once its sender has last asked whether it is due

	silence = "offline"
	bySite  = "site"
	added   = "added"

	proves = 40 * time.Second  // until silence is proven
	slack  = 60 * time.Second  // a window, with a claim after it
	heals  = 150 * time.Second // until what comes is in time again, after a fault
	prompt = 60 * time.Second  // until what comes has come, mostly
	looks  = 15 * time.Second  // between two looks whether it has
)

// rules returns what the plan's replicas alert by. A rollout adds a rule, the next one changes its window, so that
// replicas before and after it must not alert side by side, and the third one removes it.
func (p Plan) rules(rollouts int) rules.Set {
	levels := []rules.Level{{Limit: limit, Clear: p.Clear, For: p.For, LimitAt: rules.Reference{Name: ownLimit}}}
	if p.Levels > 1 {
		levels[0].Name = "warning"
		levels = append(levels, rules.Level{Name: "critical", Limit: limit + higherBy, Clear: limit + higherBy})
	}

	set := rules.Set{
		Rules: []rules.Rule{p.limits(levels)},
		Mutes: rules.Mutes{{Property: quiet, Value: "true"}},
	}
	if p.Clocks {
		set.Time = takenAt
		if p.Sensors != "" { // that of a measurement can only be in the body
			set.Time = "body:" + takenAt
		}
	}

	if p.Silent > 0 {
		r := rules.Rule{
			Name:     silence,
			Window:   p.Window,
			Resolved: p.Resolved,
			Silent:   p.Silent,
			Forget:   rules.DefaultForget,
			Levels:   []rules.Level{{}},
		}

		if p.Expects {
			r.Only = isFrozen()
		}

		set.Rules = append(set.Rules, r)
	}

	if p.PerSite {
		r := rules.Rule{
			Name:   bySite,
			Field:  telemetry.DefaultFields,
			Window: p.Window,
			Per:    site,
			Levels: []rules.Level{{Limit: limit + 2, Clear: limit + 2}},
		}

		r.Resolved = p.Incidents
		p.tellApart(&r)
		set.Rules = append(set.Rules, r)
	}

	ofDay := func(n int) int {
		at := p.minute(n)
		return at.Hour()*60 + at.Minute()
	}
	for _, m := range p.Mutes { // every day
		set.Mutes = append(set.Mutes, rules.Mute{
			Device: m.Device,
			Rule:   m.Rule,
			Times:  &rules.Times{Days: rules.EveryDay, From: ofDay(m.From), To: ofDay(m.To), Zone: time.UTC},
		})
	}

	if n := rollouts % 3; n > 0 {
		set.Rules = append(set.Rules, p.adds(time.Duration(n)*p.Window))
	}

	return set
}

// began is when a bubble's clock begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// minute returns a minute by the services' clock.
func (p Plan) minute(n int) time.Time {
	return began.Add(p.Ahead).Truncate(time.Minute).Add(time.Duration(n) * time.Minute)
}

// mutes tells the judge what is muted.
func (p Plan) mutes(judge *verify.Log) {
	for _, m := range p.Mutes {
		from, until := p.minute(m.From), p.minute(m.To)
		judge.Muted(verify.Mute{
			Device: m.Device,
			Rule:   m.Rule,
			From:   from,
			Known:  from,
			Ending: until,
			Until:  until,
		})
	}
}

// limits returns the rule about limits.
func (p Plan) limits(levels []rules.Level) rules.Rule {
	r := rules.Rule{
		Name:       rules.DefaultName,
		Field:      telemetry.DefaultFields,
		Window:     p.Window,
		Resolved:   p.Resolved,
		Levels:     levels,
		ClearedFor: p.ClearFor,
		Repeat:     p.Repeat,
	}

	p.tellApart(&r)

	if p.Kinds {
		r.Only = isFrozen()
	}

	if !p.Counts {
		return r
	}

	for i := range levels {
		levels[i].LimitAt = rules.Reference{Name: setpoint, Plus: true}
		levels[i].Limit -= usual
		levels[i].Clear -= usual
	}

	return r
}

func isFrozen() []rules.Condition { return []rules.Condition{{Name: kind, Values: []string{frozen}}} }

// adds returns the rule that rollouts add, change and remove.
func (p Plan) adds(window time.Duration) rules.Rule {
	r := rules.Rule{
		Name:     added,
		Field:    telemetry.DefaultFields,
		Window:   window,
		Resolved: true,
		Levels:   []rules.Level{{Limit: limit + 1, Clear: limit - 1}},
	}

	switch p.Adds {
	case Shares:
		r.Per = site
		r.Resolved = false

	case Misses:
		r.Field = ""
		r.Levels = []rules.Level{{}}
		r.Silent = 30 * time.Second
		r.Forget = rules.DefaultForget
	}

	return r
}

// judged returns the rules that no rollout changes, for the judge.
func (p Plan) judged() (all []verify.Rule) {
	for _, r := range p.rules(0).Rules {
		if r.Grouped() { // see sites
			continue
		}

		judged := verify.Rule{
			Name:     r.Name,
			Sensor:   len(r.Sensor) > 0,
			Window:   r.Window,
			Resolved: r.Resolved,
			Per:      r.Per,
			Quiet:    quiet,
			Silent:   r.Silent,
			Base:     r.Base(),
			ClearFor: r.ClearedFor,
			Repeat:   r.Repeat,
		}

		for _, c := range r.Only {
			judged.Only = append(judged.Only, verify.Condition{Name: c.Name, Values: c.Values})
		}

		for _, l := range r.Levels {
			own := l.LimitAt.Name
			if l.LimitAt.Plus {
				own = ""
			}

			judged.Levels = append(judged.Levels, verify.Level{
				Name:     l.Name,
				Limit:    l.Limit,
				Clear:    l.Clear,
				For:      l.For,
				Override: own,
			})
		}

		all = append(all, judged)
	}
	return all
}

// config returns the settings of the replica called name, but for the storage account's connection string.
func (p Plan) config(name, hub string, rollouts int) config.Config {
	var urls []string
	for i := range p.Receivers {
		urls = append(urls, "name="+inboxName(i)+" http://"+inboxAddress(i)+"/alerts")
	}

	if p.Forgets {
		// It gets what is about rules that no rollout changes, and that have recoveries.
		about := " rule=" + rules.DefaultName + "|" + silence
		urls = append(urls, "name="+forgetter+about+" alertmanager+http://"+inboxAddress(forgetterPlace))
	}

	set := p.rules(rollouts)
	c := config.Config{
		EventHubConsumerGroup:  "$Default",
		EventHubStart:          eventhubs.Start{Earliest: true},
		EventHubPrefetch:       eventhubs.DefaultPrefetch,
		RulesFile:              config.RulesOf(set),
		TimeProperty:           set.Time,
		ThrottleWindow:         p.Window,
		ThrottleStore:          p.Store,
		ThrottleContainer:      throttleContainer,
		CheckpointStore:        config.StoreBlob,
		CheckpointContainer:    checkpointContainer,
		CheckpointInterval:     p.Checkpoint,
		DeadLetterContainer:    letterContainer,
		CosmosConnectionString: config.NewSecret("AccountEndpoint=http://" + itemsAddress + "/;AccountKey=" + key + ";"),
		CosmosDatabase:         "sim",
		CosmosContainer:        "leases",
		LeaseRetention:         720 * time.Hour,
		NotifyURLs:             config.NewURLs(urls...),
		NotifyResolved:         p.Resolved,
		NotifyTimeout:          sendTimeout,
		NotifyConcurrency:      64,
		NotifyGiveUp:           time.Hour,
		OwnershipExpiry:        p.Balance * 8 / 3,
		BalanceInterval:        p.Balance,
		DrainTimeout:           10 * time.Second,
		ReplicaName:            name,
	}

	if p.IoT {
		iot := "HostName=" + iotHub + ";SharedAccessKeyName=" + policy + ";SharedAccessKey=" + key
		c.IoTHubConnectionString = config.NewSecret(iot)
	} else {
		c.EventHubConnectionString = config.NewSecret(hub)
	}

	return c
}

// settles is how long after its Length everything in a plan has come to rest at the latest.
func (p Plan) settles() time.Duration {
	longest := time.Duration(0)
	asks := time.Duration(0) // to wait, of receivers
	for _, f := range p.Faults {
		longest = max(longest, f.For+p.after(f))
		asks = max(asks, f.Asks)
	}

	if len(p.Outages) > 0 {
		longest += p.Silent // deadlines begin anew
	}

	if p.Forgets {
		longest += heals + 2*knowsAgain
	}

	return longest + asks + p.crawls() + heals + proves + slack + p.Window + p.Silent + p.ClearFor
}

// crawls is how much later everything may be because stores are slow: an alert takes some ten requests, one after the
// other, with those that the start takes.
func (p Plan) crawls() time.Duration { return 24 * p.CrawlsBy }

// rules are what the judge allows. While faults last an alert may be late, and nothing else.
func (w *World) rules(until time.Time) verify.Rules {
	// a roster that is new begins by the later of the store's clock and the replica's: no silence is early
	ahead := max(0, -w.plan.Ahead)

	r := verify.Rules{
		Window:  w.plan.Window,
		Bound:   heals + w.plan.crawls() + w.storm(),
		Proof:   proves + ahead,
		Slack:   slack,
		Keeping: w.storm(),
		Until:   until,
		Unknown: []string{notify.Hub},
		InDoubt: w.inDoubt,

		UnderWay: underWay + max(0, w.plan.Ahead), // events seem to be younger by the clock of replicas
		Distinct: true,
		Calm:     w.isCalm,
	}

	if w.isReplaced() {
		r.UnderWay += notices
	}

	for i := range w.plan.Receivers {
		r.Receivers = append(r.Receivers, inboxName(i))
	}

	for _, d := range w.plan.Devices {
		r.Unknown = append(r.Unknown, d.Name)
		if d.Site != "" {
			r.Unknown = append(r.Unknown, d.Site)
		}
	}

	return r
}

// inDoubt reports whether a fault may have kept a replica from recording an alert that came at a time.
func (w *World) inDoubt(at time.Time) bool {
	at = at.Add(-w.plan.Ahead)
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.plan.CrawlsBy > 0 || slices.ContainsFunc(w.spans, func(s span) bool {
		return !s.from.After(at.Add(claimFor)) && !s.to.Before(at)
	})
}

// settlesIn is how long a fault may keep replicas from reading events after it, as long as partitions move.
const settlesIn = time.Minute

// isCalm reports whether from one time to another no fault kept replicas from reading events, or from sending what they
// had a claim for.
func (w *World) isCalm(from, to time.Time) bool {
	from = from.Add(-w.plan.Ahead - settlesIn)
	to = to.Add(-w.plan.Ahead)
	if w.plan.CrawlsBy > 0 || from.Before(w.began) { // replicas share the partitions first
		return false
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	return !slices.ContainsFunc(w.spans, func(s span) bool {
		return !s.delaysClaims && s.from.Before(to) && s.to.After(from)
	})
}

// storm returns the longest time without a calm in which everything could heal.
func (w *World) storm() (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()

	spans := slices.SortedFunc(slices.Values(w.spans), func(a, b span) int { return a.from.Compare(b.from) })
	var of span

	for _, s := range spans {
		if s.from.Sub(of.to) > heals {
			of = s
		}

		if s.to.After(of.to) {
			of.to = s.to
		}

		longest = max(longest, of.to.Sub(of.from))
	}

	return longest
}
