package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// heapGoal is the size of the heap at which the next collection begins.
func heapGoal() uint64 {
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return goal[0].Value.Uint64()
}

func TestBallast(t *testing.T) {
	t.Setenv("GOGC", "")
	before := heapGoal()
	release := addBallast()
	with := heapGoal()
	release()
	if with < 2*ballastSize {
		t.Errorf("the goal was %d and is %d", before, with)
	}
	if after := heapGoal(); after > before+ballastSize {
		t.Errorf("the goal was %d and stays %d", before, after)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(leastLimit - 1))
	release = addBallast()
	if with := heapGoal(); with > before+ballastSize {
		t.Errorf("the goal was %d and is %d with a small memory limit", before, with)
	}
	release()
}
