package main

import (
	"bytes"
	"testing"
)

// The same seed and schedule tell the same story, to the byte.
func TestReplay(t *testing.T) {
	m, err := open(t.Context())
	if err != nil {
		t.Skipf("no WebAssembly here: %v", err)
	}
	defer m.close(t.Context())
	w := world{seed: 12, length: "1m"}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if _, err := m.run(t.Context(), w, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.Len() < 10_000 || !bytes.Contains(first.Bytes(), []byte("FAULT")) {
		t.Errorf("that is no story:\n%s", first.Bytes())
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs of one seed tell different stories")
	}
}
