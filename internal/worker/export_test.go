package worker

// LimitChanges sets how many changes of alarms behind the watermark are kept apart. Call it before anything is
// consumed.
func (w *Worker) LimitChanges(n int) { w.Config.Partitions.MaxChanges = n }
