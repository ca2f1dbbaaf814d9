// Package ownership divides the partitions of a hub among replicas: each partition has
// one owner, each replica its share, and the partitions of a dead replica are taken
// over.
//
// A replica shows that it is live by one heartbeat, however many partitions it owns.
// The record of a partition is written only when its owner changes, and only if it is
// still the version that was read: of two replicas that claim a partition, one gets it.
// No replica's clock is compared with any other's, nor with the store's.
package ownership

import (
	"context"
	"time"
)

// Shareable reports whether members can share partitions with these times: a live one must
// not lose its partitions because one heartbeat is late.
func Shareable(expiry, interval time.Duration) bool { return expiry >= 2*interval }

// A Store keeps the records of any number of scopes. A scope is
// namespace/hub/consumer group. Stores are safe for concurrent use, and return
// by the time ctx ends. After an error the outcome of a write is unknown.
type Store interface {
	// List returns all records and heartbeats of a scope. It includes every write
	// that was answered before the call.
	List(ctx context.Context, scope string) (Records, error)

	// Claim makes owner the owner of a partition, or nobody if owner is empty. It
	// returns false, and changes nothing, unless the partition's record has this
	// version; the version of a record that does not exist is empty. Every
	// successful claim changes the version.
	Claim(ctx context.Context, scope, partition, owner, version string) (bool, error)

	// Beat writes the heartbeat of owner unconditionally. leaving says that the
	// owner keeps its partitions and claims no more.
	Beat(ctx context.Context, scope, owner string, leaving bool) error

	// Forget removes the heartbeat of owner if it has this version; with an empty
	// version, in any case. A heartbeat that is not there, or not of that
	// version, is no error.
	Forget(ctx context.Context, scope, owner, version string) error
}

// Records is everything a store holds of a scope, in no particular order.
type Records struct {
	Partitions []Record
	Heartbeats []Heartbeat
}

// A Record says who owns a partition. The replicas of versions without
// heartbeats renew it instead.
type Record struct {
	Partition string
	Owner     string // empty if it was given back
	Version   string // changes with every write
	Age       time.Duration
}

// A Heartbeat shows that a replica is live. Its Age is the time since it was written,
// by the store's clock, rounded down: a store whose clock counts in seconds subtracts
// one.
type Heartbeat struct {
	Owner   string
	Version string // changes with every beat
	Leaving bool
	Age     time.Duration
}

// earlierExpiry is how long the owner of a partition that has no heartbeat is
// trusted after it renewed its record, unless the expiry is longer. It is what
// versions without heartbeats had as their default.
const earlierExpiry = 30 * time.Second

// Owners returns the owner of each partition that has one, unless its last sign
// of life is as old as expiry.
func (r Records) Owners(expiry time.Duration) map[string]string {
	beats := r.beats()
	owners := map[string]string{}
	for _, p := range r.Partitions {
		if s := signOf(p, beats, expiry); p.Owner != "" && s.age < s.expiry {
			owners[p.Partition] = p.Owner
		}
	}
	return owners
}

func (r Records) beats() map[string]Heartbeat {
	beats := make(map[string]Heartbeat, len(r.Heartbeats))
	for _, b := range r.Heartbeats {
		beats[b.Owner] = b
	}
	return beats
}

// A sign is the last sign of life of an owner.
type sign struct {
	name   string // what was written, and its version
	age    time.Duration
	expiry time.Duration
	beat   bool // a heartbeat; else a record of a version without
}

// signOf returns the sign of life of p's owner.
func signOf(p Record, beats map[string]Heartbeat, expiry time.Duration) sign {
	if b, ok := beats[p.Owner]; ok {
		return signOfBeat(b, expiry)
	}
	return sign{name: "partition/" + p.Partition + "/" + p.Version, age: p.Age, expiry: max(expiry, earlierExpiry)}
}

func signOfBeat(b Heartbeat, expiry time.Duration) sign {
	return sign{name: "heartbeat/" + b.Owner + "/" + b.Version, age: b.Age, expiry: expiry, beat: true}
}
