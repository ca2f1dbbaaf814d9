package simulation

import "testing"

// What only some worlds have is in some of the first.
func TestPlansDiffer(t *testing.T) {
	has := map[string]int{}
	count := func(name string, is bool) {
		if is {
			has[name]++
		}
	}

	const seeds = 40
	for seed := range uint64(seeds) {
		p := NewPlan(seed)
		count("clear_for", p.ClearFor > 0)
		count("limits from messages", p.Counts)
		count("devices that change their kind", p.Kinds)
		count("devices of which nothing is expected", p.Expects && p.Silent > 0)
		count("devices that store", p.Clocks)
		count("an Alertmanager", p.Forgets)
		count("mute times", len(p.Mutes) > 0)
		count("repeat", p.Repeat > 0)
		count("outages of a fleet", len(p.Outages) > 0 && len(p.Devices)/p.Partitions > 20)
		count("owners who do not hear that they are replaced", p.Parts)
		for _, f := range p.Faults {
			count(string(f.Do), true)
		}
		for _, d := range p.Devices {
			count(string(d.Kind), true)
		}
	}

	for _, name := range []string{
		"clear_for", "limits from messages", "devices that change their kind", "devices that store",
		"devices of which nothing is expected", "an Alertmanager", "mute times", "repeat",
		"outages of a fleet", "owners who do not hear that they are replaced",
		string(Kill), string(Freeze), string(Rollout), string(Slow), string(Orphan), string(Choke),
		string(Replay), string(Spoil),
		string(Walks), string(Returns), string(Relapses),
	} {
		if has[name] == 0 {
			t.Errorf("none of %d worlds has %s", seeds, name)
		}
	}
}
