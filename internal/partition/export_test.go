package partition

// RaceEnabled is whether the race detector slows the test down.
const RaceEnabled = raceEnabled
