//go:build unix && race

package e2e_test

const raceEnabled = true
