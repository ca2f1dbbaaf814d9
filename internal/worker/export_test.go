package worker

// LimitWaiting sets how many alerts may wait before the oldest become dead letters.
// Call it before anything is consumed.
func (w *Worker) LimitWaiting(n int) { w.dispatcher.MaxWaiting = n }

// LimitChanges sets how many changes of alarms behind the watermark are kept apart. Call it before anything is
// consumed.
func (w *Worker) LimitChanges(n int) { w.partitions.MaxChanges = n }

// MostWaiting returns how many alerts wait for the receiver and the partition that have the most.
func (w *Worker) MostWaiting() int {
	most := 0
	for s := range w.streams {
		most = max(most, s.MostWaiting())
	}
	return most
}

// RaceEnabled is whether the race detector slows the test down.
const RaceEnabled = raceEnabled
