//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"alertworker/internal/records"
)

// audit asks the hub and the stores, once the workers have stopped, what became of all that receivers should have heard. It
// returns how many notices are accounted for in each way, and what is missing.
func (w *world) audit() (counts map[string]int, missing []string) {
	w.t.Helper()
	p := alertworker(w.t.T, "audit", w.env, "audit", "--since", "1h", "--group", "auditors", "--rate", "0", "--json")
	within(w.t, startWithin, "the audit ends", func() bool { return !p.running() })
	if strings.Contains(p.stderr.String(), "context deadline exceeded") {
		w.t.Missed("the store did not answer the audit in time")
	}

	var report struct {
		Counts  map[string]int
		Missing []struct{ Device, Rule string }
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &report); err != nil {
		w.t.Fatalf("an audit ends with %v and says %q: %v", p.cmd.ProcessState, p.stdout.String(), err)
	}
	for _, m := range report.Missing {
		missing = append(missing, m.Device)
	}
	slices.Sort(missing)
	want := 0
	if len(missing) > 0 {
		want = 1
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		w.t.Errorf("%d are missing, and an audit ends with %d", len(missing), got)
	}
	return report.Counts, missing
}

// audited has an audit account for everything, and then find exactly what was lost.
func (w *world) audited() {
	w.t.Helper()
	counts, missing := w.audit()
	if len(missing) > 0 || counts["recorded"] == 0 {
		w.t.Errorf("accounted for: %v, missing %q", counts, missing)
	}
	w.t.Logf("an audit accounts for %v", counts)

	// Nobody has read these, and then the checkpoints say that somebody has.
	var late []string
	for i := range 2 * w.partitions {
		late = append(late, fmt.Sprintf("late%02d", i))
		w.publish(late[i], threshold)
	}
	want := maps.Clone(counts)
	want["unsettled"] = len(late)
	if counts, missing := w.audit(); len(missing) > 0 || !maps.Equal(counts, want) {
		w.t.Errorf("accounted for: %v, missing %q; want %v", counts, missing, want)
	}
	w.each("CHECKPOINT_CONTAINER", w.namespace+"/"+hubName+"/$default/checkpoint/", func(store records.Store, r records.Record) error {
		n, err := strconv.Atoi(r.Values["sequencenumber"])
		if err != nil {
			return err
		}
		r.Values["sequencenumber"] = strconv.Itoa(n + 1000)
		_, err = store.Write(w.t.Context(), r)
		return err
	})
	if counts, missing := w.audit(); counts["recorded"] != want["recorded"] || !slices.Equal(missing, late) {
		w.t.Errorf("accounted for: %v, missing %q; want %q", counts, missing, late)
	}

	hot := map[string]bool{}
	for _, a := range w.receiver.Taken() {
		hot[a.Device] = true
	}
	w.each("THROTTLE_CONTAINER", "", func(store records.Store, r records.Record) error { return store.Delete(w.t.Context(), r.Name, r.ETag) })
	all := slices.Sorted(maps.Keys(hot))
	counts, missing = w.audit()
	if !slices.Equal(missing, slices.Sorted(slices.Values(slices.Concat(all, late)))) {
		w.t.Errorf("without records, accounted for: %v, missing %q; want %q and %q", counts, missing, all, late)
	}
}

// each does something with all records of a container whose names begin so.
func (w *world) each(variable, prefix string, do func(records.Store, records.Record) error) {
	w.t.Helper()
	store := w.records(variable)
	for page, err := range records.Pages(w.t.Context(), store, prefix) {
		for _, r := range page {
			if err == nil {
				err = do(store, r)
			}
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}
