package ledgertest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// Whatever owners do in whichever order, and whatever the network does to them: an owner that has
// been replaced never comes back, what was acknowledged is never lost, and nobody is told that
// they have lost, or hold, what they have not.
func TestProtocol(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		store := &ledger.Memory{}
		type owner struct {
			Holder
			name string
			net  *faulty
		}
		var owners []owner
		var history []string // of the owners in the record
		var acknowledged, attempted int64
		record := func() (ledger.Record, ledger.Content) {
			r, err := store.Read(ctx, name)
			if err != nil || r.ETag == "" {
				return r, ledger.Content{}
			}
			var aside ledger.Memory
			if _, err := aside.Write(ctx, name, ledger.Record{Content: r.Content}); err != nil {
				t.Fatal(err)
			}
			_, c, err := ledger.Open(ctx, &aside, name)
			if err != nil {
				t.Fatal(err)
			}
			return r, c
		}
		pick := func(t *rapid.T) owner {
			if len(owners) == 0 {
				t.Skip("no owner yet")
			}
			return owners[rapid.IntRange(max(0, len(owners)-3), len(owners)-1).Draw(t, "owner")]
		}
		disturb := func(t *rapid.T, net *faulty) {
			what := rapid.SampledFrom([]fault{"", "", lostRequest, lostAnswer, repeated, late}).Draw(t, "fault")
			net.arm(what, rapid.IntRange(0, 2).Draw(t, "calls before it"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				net := &faulty{Store: store}
				disturb(t, net)
				l, c, err := ledger.Open(ctx, net, name)
				if err != nil {
					return
				}
				r, there := record()
				if c.Position != there.Position {
					t.Fatalf("opened at %d, and it is at %d", c.Position.Sequence, there.Position.Sequence)
				}
				owners = append(owners, owner{l, r.Owner, net})
			},
			"write": func(t *rapid.T) {
				o := pick(t)
				disturb(t, o.net)
				attempted++
				at := attempted
				err := o.Write(ctx, ledger.Content{Position: telemetry.Position{Sequence: at}})
				r, c := record()
				switch {
				case err == nil:
					if acknowledged = at; r.Owner != o.name || c.Position.Sequence != at {
						t.Fatalf("an owner was told that %d is written: it is at %d", at, c.Position.Sequence)
					}
				case errors.Is(err, ledger.ErrLost) && r.Owner == o.name:
					t.Fatal("an owner was told that it has lost what it holds")
				}
			},
			"check": func(t *rapid.T) {
				o := pick(t)
				disturb(t, o.net)
				err := o.Check(ctx)
				if r, _ := record(); err == nil && r.Owner != o.name || errors.Is(err, ledger.ErrLost) && r.Owner == o.name {
					t.Fatalf("an owner checks: %v; the ledger is its own: %t", err, r.Owner == o.name)
				}
			},
			"late": func(t *rapid.T) { // any write of any time comes once more
				w := rapid.SampledFrom(pick(t).net.writes).Draw(t, "write")
				_, _ = store.Write(ctx, w.name, w.record)
			},
			"": func(t *rapid.T) {
				r, c := record()
				if c.Position.Sequence < acknowledged {
					t.Fatalf("%d was acknowledged: it is at %d", acknowledged, c.Position.Sequence)
				}
				if n := len(history); r.Owner != "" && (n == 0 || history[n-1] != r.Owner) {
					if slices.Contains(history, r.Owner) {
						t.Fatal("an owner that was replaced is back")
					}
					history = append(history, r.Owner)
				}
			},
		})
	})
}
