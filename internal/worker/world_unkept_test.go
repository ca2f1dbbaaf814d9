package worker_test

import "slices"

// kept is p without what the worker is known not to keep yet. It goes when the last of these is mended.
func (p plan) kept() plan {
	p.moves = slices.DeleteFunc(p.moves, func(m move) bool { return m.what == forget }) // which a crash undoes
	return p
}
