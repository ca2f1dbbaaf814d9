package ownership_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry/ownership"
)

// Replicas see what the others report, as long as they live.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store records.Memory
		said := map[string]string{"a": "I am a", "b": "I am b", "c": strings.Repeat("x", 100<<10)}
		replicas := map[string]*ownership.Reports{}
		for name := range said {
			replicas[name] = ownership.NewReports(&store, func() []byte { return []byte(said[name]) }, 8*time.Second)
		}
		beat := func(names ...string) {
			for _, name := range names {
				if err := ownership.Beat(t.Context(), replicas[name], "ns/hub/group", name, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		sees := func(want string) {
			t.Helper()
			all, err := replicas["a"].Others(t.Context())
			if got := fmt.Sprintf("%s", all); got != want || err != nil {
				t.Errorf("a sees %s, %v, want %s", got, err, want)
			}
		}
		sees("[]")
		beat("a", "b", "c") // of which one says too much
		sees("[I am b]")
		said["b"] = "I am still b"
		time.Sleep(3 * time.Second)
		beat("b")
		sees("[I am b]")
		time.Sleep(7 * time.Second)
		beat("b")
		sees("[I am still b]")
		if all, err := ownership.List(t.Context(), &store, "ns/hub/group"); err != nil || len(all.Heartbeats) != 3 {
			t.Errorf("%v, %v", all, err)
		}
		time.Sleep(10 * time.Second)
		sees("[]")
	})
}
