package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"alertworker/internal/config"
)

// Busy returns a plan of 20 minutes in which only devices and faults differ from seed to seed: three replicas, eight
// partitions and ten readings a second. How fast worlds happen is measured with it.
func Busy(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	p := Plan{
		Seed:       seed,
		Length:     20 * time.Minute,
		Partitions: 8,
		Replicas:   3,
		Store:      config.StoreBlob,
		Window:     time.Minute,
		Clear:      limit - 2,
		Levels:     2,
		Resolved:   true,
		Silent:     90 * time.Second,
		Receivers:  1,
		Adds:       Reads,
		Checkpoint: 5 * time.Second,
		Balance:    6 * time.Second,
	}

	for i := range 20 {
		p.Devices = append(p.Devices, Device{
			Name:   fmt.Sprintf("device-%02d", i),
			Period: 2 * time.Second,
			Kind:   Walks,
			Step:   2,
			Seed:   rng.Uint64(),
		})
	}

	p.Faults = faults(rng, p)

	return p
}
