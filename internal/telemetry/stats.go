package telemetry

import (
	"cmp"
	"time"
)

// SourceStats says what a Source has done and what it has.
type SourceStats struct {
	Running bool  // the hub and the checkpoint store have answered; false again while it reconnects
	Hub     Fault // why the hub last did not answer; zero once it has answered since

	Owned   int // partitions this replica owns
	Reading int // partitions whose link is open

	// Faults says why partitions that this replica owns are not read. Those that are just being
	// opened are not in it.
	Faults map[string]Fault

	// AtRisk says why partitions that are read may soon not be: the right to read them cannot be renewed, or another
	// program reads them too.
	AtRisk map[string]Fault

	Lost     int64 // partitions lost to another replica, or because the hub became another one
	Reopened int64 // links to partitions that failed and were opened again
	Stalled  int64 // those of them on which nothing came although the hub was ahead

	Moves       int64 // times the IoT Hub's events were found at another endpoint
	StartedOver int64 // partitions not resumed from their checkpoint: it was of another hub, or could not be read
	Expired     int64 // events that the hub had dropped before the partition was read from its checkpoint on
	Skipped     int64 // events missing between two that were read
}

// A Fault is a failure that lasts. The zero Fault is none.
type Fault struct {
	Since   time.Time // the first failure in a row
	Err     error     // the last one; it says what to do and holds no secret
	Refused bool      // the credentials were refused
}

// A PartitionStatus is a partition as all replicas see it.
type PartitionStatus struct {
	Partition  string
	Owner      string // the id under which a replica owns it; empty if none does
	Mine       bool   // that is this replica
	Checkpoint int64  // sequence number; -1 if there is none
	// Last is the sequence number of the last event. It is -1 if there never was one, if the hub does
	// not say, and if it is before the checkpoint: then the hub has been replaced.
	Last int64
}

// ComparePartitions orders the ids of partitions, which are numbers, by value; longer ones that are none come later.
func ComparePartitions(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
