package bloblease

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

func TestRecordSurvivesMetadata(t *testing.T) {
	for _, r := range []caslease.Record{
		{},
		{ID: "id", Record: lease.Record{Token: 1, Claimed: time.UnixMilli(1).UTC()}},
		{ID: "id", Released: true, Record: lease.Record{Note: " ü\n", Token: 1 << 60, Claimed: time.UnixMilli(1795261928000).UTC(), Hold: 1500 * time.Millisecond}},
	} {
		metadata := encode("k", r)
		returned := map[string]*string{} // as the service does
		for name, value := range metadata {
			if strings.TrimSpace(*value) != *value || *value == "" {
				t.Errorf("%q is no value for %q", *value, name)
			}
			returned[strings.ToUpper(name[:1])+name[1:]] = value
		}
		got, err := decode(returned)
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
		r, err := decode(map[string]*string{"Id": &id, "Token": &token, "Claimed": &claimed, "Hold": &hold, "Phase": &phase, "Note": &note})
		if err != nil {
			return
		}
		again, err := decode(encode("k", r))
		if err != nil || again != r {
			t.Errorf("%+v came back as %+v, %v", r, again, err)
		}
	})
}
