package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/lease/bloblease"
)

// The values of THROTTLE_STORE, and of CHECKPOINT_STORE as far as it has them.
const (
	StoreMemory    Choice = "memory"
	StoreBlob      Choice = "blob"
	StoreBlobLease Choice = "blob-lease"
	StoreCosmos    Choice = "cosmos"
)

// A Store is what there is to know of a throttle store by its name. How it is opened is in stores.go of cmd/alertworker.
type Store struct {
	Name Choice
	Help string // in the help of THROTTLE_STORE, after the name

	// Service is what keeps the windows, for people. It is empty for the memory of one replica.
	Service string
	// Variable returns the variable that says where the service is, empty without one.
	Variable func(Config) string
	// Place says where windows are, for people.
	Place func(Config) string

	// Shortest and Longest are how long a lease can last; 0: there is no limit.
	Shortest, Longest time.Duration

	validate func(*Config, *configError) // the settings that it has to itself; nil: none
	isSet    func(Config) bool           // they are there, and ignored with another store; nil: never
}

const azureStorage = "Azure Storage"

// Stores are all throttle stores.
var Stores = []Store{
	{
		Name: StoreMemory, Help: "(single replica only)",
		Variable: func(Config) string { return "" },
		Place:    func(Config) string { return "in memory, for a single replica" },
	},
	{
		Name: StoreBlob, Help: "(ETags)",
		Service: azureStorage, Variable: Config.StorageVariable,
		Place: func(c Config) string { return fmt.Sprintf("container %q, ETags", c.ThrottleContainer) },
	},
	{
		Name: StoreBlobLease, Help: "(native leases, 15 to 60 s)",
		Service: azureStorage, Variable: Config.StorageVariable,
		Place:    func(c Config) string { return fmt.Sprintf("container %q, native leases", c.ThrottleContainer) },
		Shortest: bloblease.MinTTL, Longest: bloblease.MaxTTL,
	},
	{
		Name:    StoreCosmos,
		Service: "Cosmos DB", Variable: Config.CosmosVariable,
		Place:    func(c Config) string { return fmt.Sprintf("Cosmos DB %s/%s", c.CosmosDatabase, c.CosmosContainer) },
		validate: (*Config).validateCosmos, isSet: Config.hasCosmos,
	},
}

// Store returns the throttle store; the one in memory if THROTTLE_STORE names none.
func (c Config) Store() Store {
	i := slices.IndexFunc(Stores, func(s Store) bool { return s.Name == c.ThrottleStore })
	return Stores[max(i, 0)]
}

// Lasts reports whether a lease can last for d.
func (s Store) Lasts(d time.Duration) bool {
	return s.Shortest <= d && (s.Longest == 0 || d <= s.Longest)
}

// lasting says how long a lease that is limited can last.
func (s Store) lasting() string {
	return fmt.Sprintf("%.0fs to %.0fs", s.Shortest.Seconds(), s.Longest.Seconds())
}

// unlimited says in a clause which stores have no such limit.
func unlimited() string {
	var others []string
	for _, other := range Stores {
		if other.Longest == 0 && other.Service != "" {
			others = append(others, "THROTTLE_STORE="+string(other.Name))
		}
	}

	return humanize.And(others) + " have no such limit"
}

// storesHelp lists all throttle stores.
func storesHelp() string {
	var all []string
	for _, s := range Stores {
		all = append(all, strings.TrimSpace(string(s.Name)+" "+s.Help))
	}
	return humanize.Or(all)
}
