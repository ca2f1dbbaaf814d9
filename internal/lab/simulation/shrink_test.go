package simulation

import (
	"slices"
	"testing"
	"time"
)

// What is left of a plan is what makes it fail.
func TestShrink(t *testing.T) {
	p := NewPlan(7)
	p.Length = 4 * time.Minute
	p.Faults = make([]Fault, 100)
	for i := range p.Faults {
		p.Faults[i] = Fault{At: time.Duration(i) * time.Second, Do: Cut}
	}
	p.Faults[17].Do, p.Faults[80].Do = Kill, Mute
	has := func(p Plan, do Action) bool {
		return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Do == do })
	}
	needed := p.Devices[1].Name
	tries := 0
	small := Shrink(p, func(p Plan) bool {
		tries++
		device := slices.ContainsFunc(p.Devices, func(d Device) bool { return d.Name == needed })
		return has(p, Kill) && has(p, Mute) && device && p.Length > time.Minute
	})
	if len(small.Faults) != 2 || len(small.Devices) != 1 || small.Length > 90*time.Second {
		t.Errorf("left are %v, %v, %v", small.Faults, small.Devices, small.Length)
	}
	if tries > 150 {
		t.Errorf("it took %d tries", tries)
	}
	if got := Shrink(p, func(Plan) bool { return true }); len(got.Faults) != 0 || len(got.Devices) != 1 {
		t.Errorf("left are %v and %v of what always fails", got.Faults, got.Devices)
	}
}
