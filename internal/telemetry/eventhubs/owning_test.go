package eventhubs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

func (h *hub) scope() string { return strings.ToLower(h.Addr() + "/telemetry/$default") }

// records returns the record of each partition.
func (h *hub) records(t *testing.T) map[string]ownership.Record {
	t.Helper()
	all, err := ownership.List(context.WithoutCancel(t.Context()), &h.store.well, h.scope())
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]ownership.Record{}
	for _, r := range all.Partitions {
		records[r.Partition] = r
	}
	return records
}

// owned returns how many partitions an owner has.
func (h *hub) owned(t *testing.T, owner string) (n int) {
	t.Helper()
	for _, r := range h.records(t) {
		if r.Owner == owner {
			n++
		}
	}
	return n
}

// A replica that was killed writes no heartbeat and gives nothing back.
func TestPartitionsOfADeadReplicaAreTakenOver(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	for _, id := range h.Partitions() {
		h.own(t, id, "dead")
	}
	s := h.source(t, h.config())
	_, _ = read(t, s)
	eventually(t, "both partitions to be taken over", func() bool { return s.Stats().Reading == 2 })
}

// The hub is asked for its partitions, which it has had for as long as this replica reads it.
func TestPartitionsOfTheHub(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	if _, _, err := s.Partitions(t.Context()); err == nil {
		t.Error("partitions of a hub that is not read")
	}
	began := time.Now()
	_, _ = read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	all, since, err := s.Partitions(t.Context())
	if err != nil || !slices.Equal(all, h.Partitions()) || since.Before(began) || since.After(time.Now()) {
		t.Errorf("%v since %v, %v, want %v", all, since, err, h.Partitions())
	}
}

func TestEndGivesPartitionsBack(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	_, stop := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	if n := h.owned(t, s.Owner()); n != 2 {
		t.Errorf("the store has %d partitions of ours, want 2", n)
	}
	stop()
	if n := h.owned(t, s.Owner()); n != 0 {
		t.Errorf("the store has %d partitions of ours after Run returned, want 0", n)
	}
	if stats := s.Stats(); stats.Reading != 0 || stats.Owned != 0 || stats.Lost != 0 {
		t.Errorf("%+v: want nothing left and nothing lost", stats)
	}
}

// A claim whose answer was lost is a partition that is read all the same, and
// given back.
func TestLostAnswerOfAClaim(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	config := h.config()
	config.Records = forgetful{h.store}
	s := h.source(t, config)
	_, stop := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	stop()
	if n := h.owned(t, s.Owner()); n != 0 {
		t.Errorf("the store has %d partitions of ours after Run returned, want 0", n)
	}
}

// forgetful claims and then fails, unless a partition is given back.
type forgetful struct{ records.Store }

func (f forgetful) Write(ctx context.Context, r records.Record) (string, error) {
	etag, err := f.Store.Write(ctx, r)
	if r.Values["ownerid"] != "" {
		return "", errOnPurpose
	}
	return etag, err
}

// While consumers settle, their partitions are kept and no more are taken.
func TestEndKeepsPartitionsUntilConsumersReturn(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.own(t, "1", "another")
	config := h.config()
	config.BalanceInterval, config.OwnershipExpiry = 20*time.Millisecond, time.Minute
	s := h.source(t, config)
	reading, settled := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			close(reading)
			<-settled
			return nil
		})
	}()
	<-reading
	beat := func() (version string, leaving bool) {
		all, err := ownership.List(context.WithoutCancel(t.Context()), &h.store.well, h.scope())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all.Heartbeats {
			if b.Owner == s.Owner() {
				return b.Version, b.Leaving
			}
		}
		return "", false
	}
	cancel()
	eventually(t, "it to say that it leaves", func() bool { _, leaving := beat(); return leaving })
	if ok, err := ownership.Claim(context.WithoutCancel(t.Context()), &h.store.well, h.scope(), ownership.Record{Partition: "1", Version: h.records(t)["1"].Version}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for range 3 {
		before, _ := beat()
		eventually(t, "a heartbeat", func() bool { now, _ := beat(); return now != before })
	}
	records := h.records(t)
	if who := records["0"].Owner; who != s.Owner() {
		t.Errorf("partition 0 belongs to %q while it is settled", who)
	}
	if who := records["1"].Owner; who != "" {
		t.Errorf("%s took a partition while it was ending", who)
	}
	select {
	case <-done:
		t.Error("Run returned before its consumer")
	default:
	}
	close(settled)
	<-done
	if who := h.records(t)["0"].Owner; who != "" {
		t.Errorf("partition 0 still belongs to %s", who)
	}
}

// Another replica has claimed the partition and has yet to open its link: the
// hub says nothing of it.
func TestLossInTheStoreEndsReceive(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	s := h.source(t, h.config())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, reading, done := make(chan error, 10), make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			reading <- struct{}{}
			_, err := p.Receive(t.Context())
			result <- err
			<-ctx.Done()
			return nil
		})
	}()
	<-reading
	if err := ownership.Beat(t.Context(), &h.store.well, h.scope(), "another", false, nil); err != nil {
		t.Fatal(err)
	}
	if ok, err := ownership.Claim(t.Context(), &h.store.well, h.scope(), ownership.Record{Partition: "0", Owner: "another", Version: h.records(t)["0"].Version}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, telemetry.ErrLost) {
			t.Errorf("Receive: %v, want ErrLost", err)
		}
	case <-time.After(waitLimit):
		t.Error("Receive did not notice")
	}
	h.Close() // in case it did not
	cancel()
	<-done
}
