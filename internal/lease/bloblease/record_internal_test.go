package bloblease

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/records"
)

func TestRecordSurvivesMetadata(t *testing.T) {
	for _, r := range []caslease.Record{
		{},
		{ID: "id", Record: lease.Record{Token: 1, Claimed: time.UnixMilli(1).UTC()}},
		{ID: "id", Released: true, Record: lease.Record{Note: " ü\n", Token: 1 << 60, Claimed: time.UnixMilli(1795261928000).UTC(), Hold: 1500 * time.Millisecond}},
	} {
		values := encode("k", r)
		for name, value := range values {
			if strings.TrimSpace(value) != value || value == "" {
				t.Errorf("%q is no value for %q", value, name)
			}
		}
		got, err := decode(records.Record{Values: values})
		if err != nil || got != r {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
	}
}

// Whatever somebody writes into the metadata, decoding it ends in an error or in a
// record that survives.
func FuzzDecode(f *testing.F) {
	f.Add("id", "1", "2", "3", "held", "bm90ZQ==")
	f.Add("id", "1", "2", "-3", "free", "")
	f.Add("", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, id, token, claimed, hold, phase, note string) {
		r, err := decode(records.Record{Values: map[string]string{"id": id, "token": token, "claimed": claimed, "hold": hold, "phase": phase, "note": note}})
		if err != nil {
			return
		}
		again, err := decode(records.Record{Values: encode("k", r)})
		if err != nil || again != r {
			t.Errorf("%+v came back as %+v, %v", r, again, err)
		}
	})
}
