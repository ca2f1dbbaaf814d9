package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/records/recordstest"
	"alertworker/internal/telemetry"
)

// Whatever owners do in whichever order, and whatever the network does to them: an owner that has
// been replaced never comes back, what was acknowledged is never lost, and nobody is told that
// they have lost, or hold, what they have not.
func TestProtocol(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		store := &records.Memory{}
		type owner struct {
			holder
			name string
			net  *recordstest.Network
		}
		var owners []owner
		var history []string // of the owners in the record
		var acknowledged, attempted int64
		record := func() (owner string, c ledger.Content) {
			r, err := store.Read(ctx, name, ledger.MaxBytes)
			if err != nil {
				return "", c
			}
			var aside records.Memory
			if _, err := aside.Write(ctx, records.Record{Name: name, Content: r.Content}); err != nil {
				t.Fatal(err)
			}
			if _, c, err = ledger.Open(ctx, &aside, name); err != nil {
				t.Fatal(err)
			}
			return r.Values["owner"], c
		}
		pick := func(t *rapid.T) owner {
			if len(owners) == 0 {
				t.Skip("no owner yet")
			}
			return owners[rapid.IntRange(max(0, len(owners)-3), len(owners)-1).Draw(t, "owner")]
		}
		disturb := func(t *rapid.T, net *recordstest.Network) {
			what := rapid.SampledFrom(append(recordstest.Faults, "", "")).Draw(t, "fault")
			net.Arm(what, rapid.IntRange(0, 2).Draw(t, "calls before it"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				net := &recordstest.Network{}
				disturb(t, net)
				l, c, err := ledger.Open(ctx, net.Via(store), name)
				if err != nil {
					return
				}
				by, there := record()
				if c.Position != there.Position {
					t.Fatalf("opened at %d, and it is at %d", c.Position.Sequence, there.Position.Sequence)
				}
				owners = append(owners, owner{l, by, net})
			},
			"write": func(t *rapid.T) {
				o := pick(t)
				disturb(t, o.net)
				attempted++
				at := attempted
				err := o.Write(ctx, ledger.Content{Position: telemetry.Position{Sequence: at}})
				by, c := record()
				switch {
				case err == nil:
					if acknowledged = at; by != o.name || c.Position.Sequence != at {
						t.Fatalf("an owner was told that %d is written: it is at %d", at, c.Position.Sequence)
					}
				case errors.Is(err, ledger.ErrLost) && by == o.name:
					t.Fatal("an owner was told that it has lost what it holds")
				}
			},
			"check": func(t *rapid.T) {
				o := pick(t)
				disturb(t, o.net)
				err := o.Check(ctx)
				if by, _ := record(); err == nil && by != o.name || errors.Is(err, ledger.ErrLost) && by == o.name {
					t.Fatalf("an owner checks: %v; the ledger is its own: %t", err, by == o.name)
				}
			},
			"late": func(t *rapid.T) { // any write of any time comes once more
				pick(t).net.RepeatOne(rapid.IntRange(0, 1<<20).Draw(t, "write"))
			},
			"": func(t *rapid.T) {
				by, c := record()
				if c.Position.Sequence < acknowledged {
					t.Fatalf("%d was acknowledged: it is at %d", acknowledged, c.Position.Sequence)
				}
				if n := len(history); by != "" && (n == 0 || history[n-1] != by) {
					if slices.Contains(history, by) {
						t.Fatal("an owner that was replaced is back")
					}
					history = append(history, by)
				}
			},
		})
	})
}
