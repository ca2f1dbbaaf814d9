package worker

// LimitWaiting sets how many alerts may wait before the oldest become dead letters.
// Call it before anything is consumed.
func (w *Worker) LimitWaiting(n int) { w.maxWaiting = n }

// LimitChanges sets how many changes of alarms behind the watermark are kept apart. Call it before anything is
// consumed.
func (w *Worker) LimitChanges(n int) { w.maxChanges = n }

// MostWaiting returns how many alerts wait for the receiver and the partition that have the most.
func (w *Worker) MostWaiting() int {
	most := 0
	for _, r := range w.receivers {
		r.mu.Lock()
		for _, q := range r.queues {
			most = max(most, q.waiting())
		}
		r.mu.Unlock()
	}
	return most
}

// RaceEnabled is whether the race detector slows the test down.
const RaceEnabled = raceEnabled
