package bloblease

import (
	"encoding/base64"
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
		values := encode("ü", r)
		for name, value := range values {
			if strings.TrimSpace(value) != value || value == "" {
				t.Errorf("%q is no value for %q", value, name)
			}
		}
		key, got, err := decode(records.Record{Values: values})
		if err != nil || got != r || key != "ü" {
			t.Errorf("%+v came back as %+v of %q, %v", r, got, key, err)
		}
	}
}

// Whatever somebody writes into the metadata, decoding it ends in an error or in a
// record that survives.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"key":"k","leaseId":"id","phase":"held","token":1,"claimed":"2026-01-01T00:00:00Z","holdSec":60,"note":"n"}`))
	f.Add([]byte(`{"leaseId":"id","phase":"free","holdSec":-1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		key, r, err := decode(records.Record{Values: map[string]string{metadata: base64.StdEncoding.EncodeToString(document)}})
		if err != nil {
			return
		}
		again, same, err := decode(records.Record{Values: encode(key, r)})
		if err != nil || again != key || same != r {
			t.Errorf("%+v of %q came back as %+v of %q, %v", r, key, same, again, err)
		}
	})
}
