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
	Receivers  int
	Devices    []Device
	Faults     []Fault
}

// A Device sends readings.
type Device struct {
	Name   string
	Period time.Duration // about so long between two readings
	Kind   DeviceKind
	Step   float64 // of its temperature, between two readings
	Limit  float64 // of its own; 0: it has none
	Site   string  // empty: it has none
	Calls  bool    // it is quiet at times
	Mute   bool    // it says nothing at times, for minutes
	Seed   uint64  // of its readings
}

// A DeviceKind is how a device's temperature moves.
type DeviceKind string

const (
	Walks  DeviceKind = "walks"  // up and down, at random
	Flaps  DeviceKind = "flaps"  // about its limit
	Spikes DeviceKind = "spikes" // is hot for one reading now and then
	Tells  DeviceKind = "tells"  // is hot once, and says nothing for minutes
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
	Lossy  Action = "lossy"  // one in four requests of the replica, or its answer, is lost
	Lose   Action = "lose"   // the request of a step, or its answer, is lost
	Late   Action = "late"   // the request of a step, or its answer, comes so much later
	Twice  Action = "twice"  // the request of a step comes again, so much later

	Rollout Action = "rollout" // one replica after the other is replaced, and their rules change

	Down   Action = "down"   // a receiver answers everybody with Status
	Detach Action = "detach" // the hub closes the links to a partition
	Links  Action = "links"  // the hub refuses some links
	Claims Action = "claims" // the hub refuses some tokens
	Asked  Action = "asked"  // the hub refuses to answer some questions
	Mute   Action = "mute"   // the hub sends nothing more on the links of a partition
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
	Other      Step = "other"
)

// Known are steps of every world.
var Known = []Step{Ask, Claim, Record, Send, Ledger, AskLedger, Checkpoint, Ownership, Settings}

// steps are where faults begin, those more often that more depends on.
var steps = []Step{
	Ask, Claim, Claim, Record, Record, GiveBack, Lock, Send, Send, Ledger, Ledger, AskLedger, Checkpoint, Checkpoint,
	Ownership, Ownership, Roster, AskRoster, Letter, Settings,
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
		Partitions: 1 << rng.IntN(4),
		Replicas:   2 + rng.IntN(2),
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
	}
	if p.Store == config.StoreBlobLease {
		p.Window = max(p.Window, 20*time.Second) // such a lease lasts 15 s at least
	}
	p.Devices = devices(rng, p)
	p.Faults = faults(rng, p)
	return p
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// devices have in common how often they speak and how far their temperature moves.
func devices(rng *rand.Rand, p Plan) []Device {
	kinds := []DeviceKind{Walks, Flaps, Spikes, Tells}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+rng.IntN(len(kinds))]
	step := one(rng, 0.5, 2, 8)
	often := one(rng, time.Second, 4*time.Second, 15*time.Second)
	own, sites, calls := rng.IntN(2) == 0, 1+rng.IntN(4), rng.IntN(2) == 0
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

// faults come in storms, between which there is calm. Each world has faults of a few kinds, and storms of one density.
func faults(rng *rand.Rand, p Plan) []Fault {
	kinds := []Action{
		Kill, Kill, Stop, Away, Refuse, Cut, Lossy, Lose, Lose, Late, Twice, Down, Detach, Links, Claims, Asked, Mute,
		Rollout,
	}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+rng.IntN(10)]
	favourite, dies := kinds[0], rng.IntN(2) == 0
	atSteps := rng.IntN(4)              // of so many in four
	only := steps[rng.IntN(len(steps))] // the step that most of them begin at
	between := one(rng, 500*time.Millisecond, 2*time.Second, 8*time.Second, 20*time.Second)
	lasts := one(rng, 3*time.Second, 12*time.Second, 40*time.Second)
	storm := one(rng, 5*time.Second, 30*time.Second, 2*time.Minute, p.Length)
	calm := one(rng, 30*time.Second, 90*time.Second)
	var all []Fault
	for at := 20 * time.Second; at < p.Length; at += calm {
		for end := at + storm; at < end && at < p.Length; at += 100*time.Millisecond + exponential(rng, between) {
			f := Fault{At: at, Replica: rng.IntN(p.Replicas+1) - 1, Do: favourite, For: exponential(rng, lasts)}
			if rng.IntN(3) > 0 {
				f.Do = one(rng, kinds...)
			}
			if rng.IntN(4) < atSteps || f.Do == Lose || f.Do == Late || f.Do == Twice {
				f.Step, f.After = one(rng, steps...), rng.IntN(2) == 0
				if rng.IntN(3) == 0 {
					f.Step = only
				}
			}
			all = append(all, f.with(rng))
			if dies && rng.IntN(4) == 0 { // what was under way then is somebody else's
				dies := Fault{At: at + exponential(rng, 3*time.Second), Replica: f.Replica, Do: Kill, For: exponential(rng, lasts)}
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
	case Away, Refuse, Cut, Lossy:
		for _, s := range services {
			if rng.IntN(2) == 0 {
				f.Services = append(f.Services, s)
			}
		}
		f.Status = one(rng, 503, 500, 429, 408)
		f.For = min(f.For, 90*time.Second)
	case Late, Twice:
		f.For = min(f.For, 20*time.Second)
	case Down:
		f.Status = one(rng, 503, 503, 429, 422, 500)
	}
	return f
}

func exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean)).Round(time.Millisecond)
}

// within reports whether f befalls a service.
func (f Fault) within(s Service) bool { return f.Services == nil || slices.Contains(f.Services, s) }

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
