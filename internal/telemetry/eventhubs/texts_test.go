package eventhubs

import (
	"bytes"
	"fmt"
	"testing"
)

func TestTexts(t *testing.T) {
	var kept texts
	long := bytes.Repeat([]byte("x"), maxTextLen+1)
	for _, b := range [][]byte{nil, []byte("oven-7"), []byte("oven-7"), []byte("Oven-7"), []byte("\x00\xff"), long, long} {
		if got := kept.get(b); got != string(b) {
			t.Errorf("%q became %q", b, got)
		}
	}
	for i := range 3 * maxTexts { // many share a place
		b := fmt.Append(nil, "device-", i)
		want := string(b)
		got := kept.get(b)
		b[0] = 'x' // the caller's bytes are its own
		if got != want || kept.get([]byte(want)) != want {
			t.Fatalf("%q became %q", want, got)
		}
	}
	b := []byte("device-1")
	kept.get(b)
	if n := testing.AllocsPerRun(100, func() { kept.get(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
