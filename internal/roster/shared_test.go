package roster_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
)

// What devices share is what a plain map has of them, also after they were written, moved and forgotten; a column without
// a Per, and one with another, knows nothing.
func TestShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := columns("offline", "dead")
		all[0].Per = "gateway"
		r, model := roster.New(all), map[string]string{}
		device := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("device-", rapid.IntRange(0, 5).Draw(t, "device")) })
		sequence := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"share": func(t *rapid.T) {
				name, value := device.Draw(t, "name"), rapid.SampledFrom([]string{"", "gw-1", "gw-2", "gw-3"}).Draw(t, "value")
				sequence++
				number := r.Add(sensor.Of(name))
				r.Hear(number, 0, roster.Heard{Sequence: sequence, Time: 1})
				r.Share(number, 0, []byte(value))
				model[name] = value
			},
			"forget": func(t *rapid.T) {
				name := device.Draw(t, "name")
				if number := r.Device(sensor.Of(name)); number >= 0 {
					r.Forget(number, 0)
					delete(model, name)
				}
			},
			"come back": func(t *rapid.T) {
				back, err := roster.Decode(records.Compress(r.Encode()))
				if err != nil {
					t.Fatal(err)
				}
				r = back.With(all, 1)
			},
			"": func(t *rapid.T) {
				for name, want := range model {
					if got := r.Shared(r.Device(sensor.Of(name)), 0); got != want {
						t.Fatalf("%s shares %q, want %q", name, got, want)
					}
				}
			},
		})

		all[0].Per = "site"
		other := r.With(all, 1)
		for name := range model {
			if got := other.Shared(other.Device(sensor.Of(name)), 0); got != "" {
				t.Fatalf("%s shares %q by another name", name, got)
			}
		}
	})
}

// A device that says something else in every message leaves no trace of what it said.
func TestSharedIsBounded(t *testing.T) {
	all := columns("offline")
	all[0].Per = "time"
	r := roster.New(all)
	changing, steady := r.Add(sensor.Of("changing")), r.Add(sensor.Of("steady"))
	r.Share(steady, 0, []byte("gw-1"))
	for i := range 100_000 {
		r.Share(changing, 0, fmt.Append(nil, i))
	}
	if got := r.Shared(changing, 0) + ", " + r.Shared(steady, 0); got != "99999, gw-1" {
		t.Errorf("they share %s", got)
	}
	if n := len(r.Encode()); n > 1000 {
		t.Errorf("it has %d bytes", n)
	}

	value := []byte("gw-1")
	if n := testing.AllocsPerRun(100, func() { r.Share(steady, 0, value) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
