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
	"errors"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/records"
)

// Of a scope, namespace/hub/consumer group, a partition's record is <scope>/ownership/<partition>
// and a replica's heartbeat <scope>/owner/<owner>. One listing returns both.
const (
	listed     = "/owner" // what the names of both begin with, and no others
	partitions = "/ownership/"
	heartbeats = "/owner/"

	ownerValue   = "ownerid"
	leavingValue = "leaving"
)

// Records is everything a store holds of a scope, in the order of names.
type Records struct {
	Partitions []Record
	Heartbeats []Heartbeat
}

// A Record says who owns a partition.
type Record struct {
	Partition string
	Owner     string // empty if it was given back
	Version   string // changes with every write
}

// A Heartbeat shows that a replica is live.
type Heartbeat struct {
	Owner   string
	Version string // changes with every beat
	Leaving bool
	Age     time.Duration // as of records.Record.Age
}

// List returns all records and heartbeats of a scope.
func List(ctx context.Context, store records.Store, scope string) (Records, error) {
	found, err := records.All(ctx, store, scope+listed)
	if err != nil {
		return Records{}, fmt.Errorf("list ownerships of %s: %w", scope, err)
	}

	var all Records
	for _, r := range found {
		if id, ok := strings.CutPrefix(r.Name, scope+partitions); ok {
			all.Partitions = append(all.Partitions, Record{id, r.Values[ownerValue], r.ETag})
		} else if id, ok := strings.CutPrefix(r.Name, scope+heartbeats); ok {
			all.Heartbeats = append(all.Heartbeats, Heartbeat{id, r.ETag, r.Values[leavingValue] == "true", r.Age()})
		}
	}

	return all, nil
}

// Claim writes the record of a partition. It returns false, and changes nothing, unless the present
// one has r's version; the version of a record that does not exist is empty. After an error the
// outcome is unknown.
func Claim(ctx context.Context, store records.Store, scope string, r Record) (bool, error) {
	_, err := store.Write(ctx, records.Record{
		Name:   scope + partitions + r.Partition,
		Values: map[string]string{ownerValue: r.Owner},
		ETag:   r.Version,
	})
	switch {
	case errors.Is(err, records.ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("claim partition %s of %s: %w", r.Partition, scope, err)
	}

	return true, nil
}

// Beat writes the heartbeat of owner. leaving says that the owner keeps its partitions and claims
// no more. report is what Reports returns from then on; if it is nil, that stays as it is.
func Beat(ctx context.Context, store records.Store, scope, owner string, leaving bool, report []byte) error {
	values := map[string]string{}
	if leaving {
		values[leavingValue] = "true"
	}

	_, err := store.Write(ctx, records.Record{
		Name:    scope + heartbeats + owner,
		Values:  values,
		Content: report,
		Type:    "application/json",
		ETag:    records.Any,
	})
	if err != nil {
		return fmt.Errorf("write the heartbeat of %s in %s: %w", owner, scope, err)
	}

	return nil
}

// MaxReport is how many bytes a report has at most.
const MaxReport = 64 << 10

// Reports returns what the owners other than me report, unless their heartbeats are as old as expiry.
func Reports(
	ctx context.Context, store records.Store, scope, me string, expiry time.Duration,
) (reports [][]byte, err error) {
	all, err := List(ctx, store, scope)
	if err != nil {
		return nil, err
	}

	for _, b := range all.Heartbeats {
		if b.Owner == me || b.Age >= expiry {
			continue
		}

		r, err := store.Read(ctx, scope+heartbeats+b.Owner, MaxReport)
		if err != nil && !errors.Is(err, records.ErrNotFound) {
			return nil, fmt.Errorf("read the report of %s in %s: %w", b.Owner, scope, err)
		}

		if len(r.Content) > 0 {
			reports = append(reports, r.Content)
		}
	}

	return reports, nil
}

// forget removes the heartbeat of owner if it still has this version, which may be records.Any.
func forget(ctx context.Context, store records.Store, scope, owner, version string) error {
	if err := store.Delete(ctx, scope+heartbeats+owner, version); err != nil && !errors.Is(err, records.ErrConflict) {
		return fmt.Errorf("remove the heartbeat of %s in %s: %w", owner, scope, err)
	}
	return nil
}

// Owners returns the owner of each partition that has one, unless its heartbeat is as old as expiry or missing.
func (r Records) Owners(expiry time.Duration) map[string]string {
	live := map[string]bool{}
	for _, b := range r.Heartbeats {
		live[b.Owner] = b.Age < expiry
	}

	owners := map[string]string{}
	for _, p := range r.Partitions {
		if live[p.Owner] {
			owners[p.Partition] = p.Owner
		}
	}

	return owners
}
