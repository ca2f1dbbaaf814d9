package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is too large is refused before it is written, and what was written before stays.
func TestTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a content beyond the bound")
	}
	store := &records.Memory{}
	l, _, err := ledger.Open(t.Context(), store, "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(t.Context(), full()); err != nil {
		t.Fatal(err)
	}
	c := full()
	c.Alarms[0].Device = ledger.Text(strings.Repeat("x", ledger.MaxBytes))
	if err := l.Write(t.Context(), c); err == nil || !strings.Contains(err.Error(), fmt.Sprint("and a ledger holds ", ledger.MaxBytes)) {
		t.Errorf("%.200v", err)
	}
	if _, c, err := ledger.Open(t.Context(), store, "name"); err != nil || len(c.Alarms) != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}
