package delivery

// MostWaiting returns how many deliveries wait for the receiver for which most do.
func (o *Outbox) MostWaiting() (most int) {
	for _, q := range o.queues {
		q.to.mu.Lock()
		most = max(most, q.waiting())
		q.to.mu.Unlock()
	}

	return most
}
