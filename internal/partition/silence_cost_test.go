package partition_test

import (
	partitions "alertworker/internal/partition"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
)

// What a rule about silence costs in storage: one of the 32 partitions of a million devices, each of which sends every ten
// minutes, and of which some fall silent.
func TestSilenceStorage(t *testing.T) {
	if partitions.RaceEnabled || testing.Short() {
		t.Skip("there is no time for so many events")
	}
	synctest.Test(t, func(t *testing.T) {
		const devices, partitions, every, perHour = 1_000_000 / 32, 32, 600, 2 // half an hour is measured
		p, r, memory, calls := newPartition("0"), &receiver{}, &records.Memory{}, map[string]int{}
		s := silence(t, nil, r)
		var mu sync.Mutex // of calls
		s.ledgers = records.Around(memory, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			mu.Lock()
			calls[fmt.Sprint(op, " ", name)]++
			mu.Unlock()
			return call(ctx)
		})
		s.start(p)
		names, random := make([]string, devices), rand.New(rand.NewPCG(1, 2))
		for i := range names {
			a, b := random.Uint64(), random.Uint64()
			names[i] = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
		}
		for second := range 4 * every {
			if second == every {
				mu.Lock()
				clear(calls)
				mu.Unlock()
			}
			for i := second % every; i < devices; i += every {
				if i%1000 != 7 || second < every {
					p.publishBody(names[i], `{"hello":1}`)
				}
			}
			time.Sleep(time.Second)
		}
		stored, err := memory.Read(t.Context(), "roster/0", 1<<26)
		if err != nil {
			t.Fatal(err)
		}
		s.end()
		writes, checks := calls["write roster/0"], calls["stat 0"]
		t.Logf("a roster of %d devices has %d bytes; %d partitions an hour: %d writes of rosters, %d of ledgers, %d questions whose a ledger is",
			devices, len(stored.Content), partitions, perHour*partitions*writes, perHour*partitions*calls["write 0"], perHour*partitions*checks)
		if writes > 32 || checks > 90 || len(calls) > 4 || calls["list roster/"] > 70 {
			t.Errorf("in half an hour %v", calls)
		}
		if n := len(r.alerts("")); n == 0 || n > devices/1000+1 {
			t.Errorf("%d devices are silent", n)
		}
	})
}
