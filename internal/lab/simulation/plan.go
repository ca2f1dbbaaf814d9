package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"alertworker/internal/config"
)

// A Plan is a world and what happens in it. It can be written down as JSON, changed, and run again.
type Plan struct {
	Seed       uint64
	Length     time.Duration // of what happens; then everything has time to settle
	Partitions int
	IoT        bool // an IoT Hub says where events are, and may fail over
	Replicas   int
	Store      config.Choice // THROTTLE_STORE
	Ahead      time.Duration // the services' clocks are before those of all replicas by so much
	Skew       time.Duration // between two machines of a service
	Window     time.Duration // of limits
	Clear      float64       // limits are Limit, and for the higher level Limit+higherBy
	For        time.Duration
	Levels     int
	Resolved   bool
	Silent     time.Duration // 0: no rule is about silence
	PerSite    bool          // a second rule, whose alerts the devices of a site share
	Incidents  bool          // they are incidents, which end
	Receivers  int
	Adds       RuleKind      // what rollouts add
	Checkpoint time.Duration // CHECKPOINT_INTERVAL
	Balance    time.Duration // BALANCE_INTERVAL
	Devices    []Device
	Cools      bool // no device is hot after Length: no later alert makes good for one that is missing
	Faults     []Fault
	ClearFor   time.Duration // of the rule about limits
	Repeat     time.Duration // likewise; 0: none
	Counts     bool          // its limits are counted from a number in each message, not the device's own
	Kinds      bool          // it looks at devices of one kind only, and some change theirs
	Expects    bool          // the rule about silence too: it expects to hear from no others
	InBody     bool          // that and the number are in the body; else properties
	Clocks     bool          // messages have the time of their device, and some devices send late what they have stored
	Forgets    bool          // a receiver is an Alertmanager, which does
	Outages    []Outage
	Mutes      []MuteTime
	Damages    bool          // some messages are not quite JSON
	Sensors    SensorKind    // devices have two sensors, and rules about limits tell them apart; empty: they have none
	Parts      bool          // owners of partitions cannot be told that they are replaced, and go on delivering
	Crawls     []Service     // they take CrawlsBy for each request, from the beginning to the end
	CrawlsBy   time.Duration // half of it passes before the request is done
}

// An Outage is that the way to the hub is away for some devices: what they say meanwhile is lost.
type Outage struct {
	At, For time.Duration
	Of      int           // one device in so many goes on; 0: none
	Spread  time.Duration // devices come back one after the other, within this time after it
}

// A MuteTime is that nobody wants to know about some devices from one minute to another, by the services' clock.
type MuteTime struct {
	From, To int    // of the minutes since it began, or a little before
	Device   string // as rules have it
	Rule     string
}

// A RuleKind is what a rule is about.
type RuleKind string

const (
	Reads  RuleKind = "reads"
	Shares RuleKind = "shares" // devices of a site share alerts
	Misses RuleKind = "misses" // devices fall silent
)

// A Device sends readings.
type Device struct {
	Name   string
	Period time.Duration // about so long between two readings
	Kind   DeviceKind
	Step   float64       // of its temperature, between two readings
	Limit  float64       // of its own; 0: it has none
	Site   string        // empty: it has none
	Calls  bool          // it is quiet at times
	Mute   bool          // it says nothing at times, for minutes
	Stores bool          // it is offline at times, and sends what it has stored then beside what it measures
	Drifts time.Duration // its clock is ahead of the hub's
	Seed   uint64        // of its readings
}

// A DeviceKind is how a device's temperature moves.
type DeviceKind string

const (
	Walks  DeviceKind = "walks"  // up and down, at random
	Flaps  DeviceKind = "flaps"  // about its limit
	Spikes DeviceKind = "spikes" // is hot for one reading now and then
	Tells  DeviceKind = "tells"  // is hot once, and says nothing for minutes
	// is hot, cool, and hot again within the window, and says nothing for minutes
	Returns  DeviceKind = "returns"
	Relapses DeviceKind = "relapses" // the same, but it is cool only at the very end of the window
	Opens    DeviceKind = "opens"    // is hot in its first reading, for its site, and never again
)

// A Fault is what goes wrong, at a time or at a step.
type Fault struct {
	At       time.Duration // from the beginning
	Step     Step          // it begins at the first such step from At on; empty: at At
	After    bool          // of a step: when it is done and not answered; else before it is done
	Replica  int           // by its place, or Any
	Do       Action
	For      time.Duration // how long it lasts, or how late something comes
	Services []Service     // which of the replica's; nil: all
	Status   int           // of answers that refuse
	Asks     time.Duration // for how long a receiver that refuses asks to wait; 0: a second, or not at all
}

// Any is for faults that befall whoever comes first.
const Any = -1

// An Action is what a Fault does.
type Action string

const (
	Kill   Action = "kill"   // the replica dies; another one starts in its place after For
	Stop   Action = "stop"   // the same, but it hands over first
	Away   Action = "away"   // nothing gets through between the replica and services
	Refuse Action = "refuse" // services answer the replica with Status
	Cut    Action = "cut"    // the replica's connections to services are reset
	Half   Action = "half"   // nothing arrives any more on the replica's connections to services, and nobody is told
	Freeze Action = "freeze" // nothing leaves the replica or arrives at it, and then everything does
	Lossy  Action = "lossy"  // one in four requests of the replica, or its answer, is lost
	Lose   Action = "lose"   // the request of a step, or its answer, is lost
	Late   Action = "late"   // the request of a step, or its answer, comes so much later
	Twice  Action = "twice"  // the request of a step comes again, so much later
	Orphan Action = "orphan" // the replica dies at a step, and its request comes so much later
	Slow   Action = "slow"   // requests of the replica, and answers, take seconds

	Rollout Action = "rollout" // one replica after the other is replaced, and their rules change

	Rotate   Action = "rotate"   // the storage account gets a new signature, for all replicas
	Spoil    Action = "spoil"    // the same, but it does not work for a time
	Activate Action = "activate" // then it does
	Swap     Action = "swap"     // then it does, and not the one before any more

	Down   Action = "down"   // a receiver answers everybody with Status
	Choke  Action = "choke"  // a receiver takes what is about one device, and answers with Status
	Replay Action = "replay" // an operator has all dead letters sent again
	Detach Action = "detach" // the hub closes the links to a partition
	Links  Action = "links"  // the hub refuses some links
	Claims Action = "claims" // the hub refuses some tokens
	Asked  Action = "asked"  // the hub refuses to answer some questions
	Mute   Action = "mute"   // the hub sends nothing more on the links of a partition

	Recreate Action = "recreate" // another hub, which is empty, is in place of the hub
	FailOver Action = "failover" // the same, in another namespace
	Expire   Action = "expire"   // the hub drops what is settled of a partition, and what nobody has read
)

// A Service is one that a replica uses.
type Service string

const (
	Hub       Service = "hub"
	Blobs     Service = "blobs"   // but for windows
	Windows   Service = "windows" // in blobs
	Items     Service = "items"   // windows in Cosmos DB
	Receivers Service = "receivers"
)

var services = []Service{Hub, Blobs, Windows, Items, Receivers}

// A Step is what a request does. A question has a question mark.
type Step string

// Steps of a delivery, and of a partition.
const (
	Ask        Step = "window?"
	Claim      Step = "claim"
	Record     Step = "record"
	GiveBack   Step = "give-back"
	Lock       Step = "lock"
	Send       Step = "send"
	Ledger     Step = "ledger"
	AskLedger  Step = "ledger?"
	Checkpoint Step = "checkpoint"
	Ownership  Step = "ownership"
	Roster     Step = "roster"
	AskRoster  Step = "roster?"
	Letter     Step = "letter"
	Settings   Step = "settings"
	Connect    Step = "connect" // to the hub
	Other      Step = "other"
)

// Known are steps of every world.
var Known = []Step{Ask, Claim, Record, Send, Ledger, AskLedger, Checkpoint, Ownership, Settings, Connect}

// steps are where faults begin, those more often that more depends on.
var steps = []Step{
	Ask, Claim, Claim, Record, Record, GiveBack, Lock, Send, Send, Ledger, Ledger, AskLedger, Checkpoint, Checkpoint,
	Ownership, Ownership, Roster, AskRoster, Letter, Settings, Connect,
}

const minWindow = 10 * time.Second

const (
	limit    = 30.0
	higherBy = 6.0
	ownBy    = 4.0
)

// NewPlan returns the plan of a seed: a world of its own, in which what is common in another is rare.
func NewPlan(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := Plan{
		Seed:       seed,
		Length:     time.Duration(2+rng.IntN(5)) * time.Minute,
		Partitions: one(rng, 1, 1, 2, 2, 4, 8),
		IoT:        rng.IntN(4) == 0,
		Replicas:   one(rng, 2, 2, 3),
		Store:      one(rng, config.StoreBlob, config.StoreBlob, config.StoreBlobLease, config.StoreCosmos),
		Ahead:      one(rng, 0, 0, -time.Hour, 7*time.Minute, 30*time.Second),
		Skew:       one(rng, 0, 900*time.Millisecond),
		Window:     one(rng, minWindow, 20*time.Second, time.Minute),
		Clear:      one(rng, limit, limit-2, limit-5),
		For:        one(rng, 0, 0, 5*time.Second, 20*time.Second),
		Levels:     1 + rng.IntN(2),
		Resolved:   rng.IntN(4) > 0,
		Silent:     one(rng, 0, 45*time.Second, 90*time.Second),
		PerSite:    rng.IntN(3) == 0,
		Receivers:  1 + rng.IntN(5)/4,
		Adds:       one(rng, Reads, Reads, Shares, Misses),
		Checkpoint: one(rng, time.Second, 5*time.Second, 5*time.Second),
		Cools:      rng.IntN(3) > 0,
		Balance:    one(rng, 3*time.Second, 6*time.Second),
	}

	if rng.IntN(4) == 0 { // rules without state need no ledger, which would hold back a wrong checkpoint
		p.Clear = limit
		p.For = 0
		p.Resolved = false
		p.Silent = 0
	}

	p.Window = max(p.Window, p.shortestWindow())
	p.Devices = devices(rng, p)
	p.extend(rand.New(rand.NewPCG(seed, 4)))
	p.Damages = !p.Parts && rand.New(rand.NewPCG(seed, 8)).IntN(5) == 0
	p.sense()
	p.Faults = faults(rng, p)
	if p.Parts {
		p.Faults = append(p.Faults, partings(rand.New(rand.NewPCG(seed, 5)), p)...)
	}

	p.try(rand.New(rand.NewPCG(seed, 6)))
	switch { // no other world is another one for that
	case seed%40 == 35:
		p.crawl(rand.New(rand.NewPCG(seed, 7)))
	case seed%80 == 25:
		p.withhold(rand.New(rand.NewPCG(seed, 7)))
	case seed%20 == 15:
		p.rotateSecrets(rand.New(rand.NewPCG(seed, 7)))
	}

	if slices.ContainsFunc(p.Faults, Fault.replacesHub) { // which knows of no alert and no gap
		p.Repeat = 0
		p.Outages = nil
	} else if seed%20 == 17 { // no other world is another one for that
		p.forget(rand.New(rand.NewPCG(seed, 8)))
	}

	// what ends an incident would be lost, late, unreadable or of another sensor
	lost := slices.ContainsFunc(p.Faults, Fault.replacesHub) || len(p.Outages)+len(p.Mutes) > 0
	if p.PerSite && !lost && !p.Clocks && !p.Damages && p.Sensors == "" && seed%3 > 0 {
		p.Incidents, p.Cools = true, true
	}

	return p
}

// shortestWindow returns the shortest window that the store can have.
func (p Plan) shortestWindow() time.Duration {
	if p.Store == config.StoreBlobLease { // such a lease lasts 15 s at least
		return 20 * time.Second
	}

	return minWindow
}

// one returns any of some values.
func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// devices have in common how often they speak and how far their temperature moves.
func devices(rng *rand.Rand, p Plan) []Device {
	kinds := []DeviceKind{Walks, Flaps, Spikes, Tells}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+rng.IntN(len(kinds))]
	step := one(rng, 0.5, 2, 8)
	often := one(rng, time.Second, 4*time.Second, 15*time.Second)
	own := rng.IntN(2) == 0
	sites := 1 + rng.IntN(4)
	calls := rng.IntN(2) == 0
	all := make([]Device, 3+rng.IntN(22))
	for i := range all {
		d := Device{
			Name:   fmt.Sprintf("device-%02d", i),
			Period: often << rng.IntN(4) / 2,
			Kind:   one(rng, kinds...),
			Step:   step,
			Mute:   p.Silent > 0 && rng.IntN(3) > 0,
			Calls:  calls && rng.IntN(3) == 0,
			Seed:   rng.Uint64(),
		}

		if own && rng.IntN(2) == 0 {
			d.Limit = limit + ownBy
		}

		if p.PerSite && rng.IntN(4) > 0 {
			d.Site = fmt.Sprintf("site-%d", rng.IntN(sites))
		}

		all[i] = d
	}

	return all
}

// onlyAtSteps are the actions that befall the request of a step.
var onlyAtSteps = []Action{Lose, Late, Twice, Orphan}

// faults come in storms, between which there is calm. Each world has faults of a few kinds, and storms of one density.
func faults(rng *rand.Rand, p Plan) []Fault {
	kinds := []Action{
		Kill, Kill, Stop, Away, Refuse, Cut, Half, Freeze, Lossy, Slow, Lose, Lose, Late, Twice, Orphan, Down, Choke, Detach,
		Links, Claims, Asked, Mute, Rollout, one(rng, Recreate, FailOver), Expire,
	}

	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+rng.IntN(10)]
	favourite := kinds[0]
	dies := rng.IntN(2) == 0
	atSteps := rng.IntN(4)              // of so many in four
	only := steps[rng.IntN(len(steps))] // the step that most of them begin at
	between := one(rng, 500*time.Millisecond, 2*time.Second, 8*time.Second, 20*time.Second)
	lasts := one(rng, 3*time.Second, 12*time.Second, 40*time.Second)
	storm := one(rng, 5*time.Second, 30*time.Second, 2*time.Minute, p.Length)
	calm := one(rng, 30*time.Second, 90*time.Second)
	var all []Fault

	for at := 20 * time.Second; at < p.Length; at += calm {
		for end := at + storm; at < end && at < p.Length; at += 100*time.Millisecond + exponential(rng, between) {
			f := Fault{
				At:      at,
				Replica: rng.IntN(p.Replicas+1) - 1,
				Do:      favourite,
				For:     exponential(rng, lasts),
			}

			if rng.IntN(3) > 0 {
				f.Do = one(rng, kinds...)
			}

			isAtStep := rng.IntN(4) < atSteps
			if isAtStep || slices.Contains(onlyAtSteps, f.Do) {
				f.Step = one(rng, steps...)
				f.After = rng.IntN(2) == 0
				if rng.IntN(3) == 0 {
					f.Step = only
				}
			}

			all = append(all, f.with(rng))
			if dies && rng.IntN(4) == 0 { // what was under way then is somebody else's
				dies := Fault{
					At:      at + exponential(rng, 3*time.Second),
					Replica: f.Replica,
					Do:      Kill,
					For:     exponential(rng, lasts),
				}

				all = append(all, dies.with(rng))
			}
		}
	}

	return all
}

// with returns f with what its action needs.
func (f Fault) with(rng *rand.Rand) Fault {
	switch f.Do {
	case Kill, Stop, Rollout:
		f.For = min(time.Second+f.For, 30*time.Second)

	case Away, Refuse, Cut, Half, Lossy:
		f.Services = some(rng)
		f.Status = one(rng, 503, 500, 429, 408)
		f.For = min(f.For, 90*time.Second)

	case Slow:
		f.Services = []Service{one(rng, Blobs, Windows, Items, Receivers)}
		f.For = min(f.For, 90*time.Second)

	case Late, Twice:
		f.For = min(f.For, 20*time.Second)

	case Orphan: // it comes when another replica has taken over
		f.For = min(5*time.Second+f.For, latest-time.Second)

	case Choke: // for as long as a message is tried until it is given up
		f.For = min(2*time.Minute+f.For, 4*time.Minute)
		f.Status = 500

	case Freeze:
		f.For = min(f.For, 90*time.Second)

	case Down:
		f.Status = one(rng, 503, 503, 429, 422, 500)
	}
	return f
}

// some returns services, in half of all cases one.
func some(rng *rand.Rand) (of []Service) {
	if rng.IntN(2) == 0 {
		return []Service{one(rng, services...)}
	}

	for _, s := range services {
		if rng.IntN(2) == 0 {
			of = append(of, s)
		}
	}

	return of
}

// exponential returns a time that is short mostly, and long now and then.
func exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean)).Round(time.Millisecond)
}

// after returns how long after its end a fault may still be felt, besides what everything needs to heal.
func (p Plan) after(f Fault) time.Duration {
	switch f.Do {
	case Rollout: // replicas come one after the other, and stand by while others have different settings
		return time.Duration(p.Replicas)*f.For + standsBy

	case Recreate, FailOver:
		return holds + notices + p.Silent

	case Expire: // a gap, after which no silence is certain
		return p.Silent

	case Down:
		if f.Status == 429 { // who was told that there are too many begins slowly
			return 2 * time.Minute
		}

	case Links, Claims:
		return refuses

	case Half: // until somebody asks why nothing comes
		return halfOpen

	case Mute: // until the hub, asked once a minute, was found to be ahead for two of them, and the link is open again
		return 2 * time.Minute
	}
	return 0
}

// replacesHub reports whether another hub is there after f.
func (f Fault) replacesHub() bool { return f.Do == Recreate || f.Do == FailOver }

// within reports whether f befalls a service.
func (f Fault) within(s Service) bool {
	return f.Services == nil || slices.Contains(f.Services, s)
}

// String says what f does, without when and to whom.
func (f Fault) String() string {
	s := string(f.Do)

	if f.Services != nil {
		s += fmt.Sprint(" ", f.Services)
	}

	if f.Status != 0 {
		s += fmt.Sprint(" ", f.Status)
	}

	if f.For != 0 {
		s += fmt.Sprint(" for ", f.For)
	}

	return s
}
