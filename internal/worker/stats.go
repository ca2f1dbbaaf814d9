package worker

import (
	"alertworker/internal/delivery"
	"alertworker/internal/partition"
)

// Stats counts what a worker has done since it started. Its fields may be read at any
// time.
type Stats struct {
	delivery.Stats
	partition.Counters
}
