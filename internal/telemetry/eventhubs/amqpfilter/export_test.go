package amqpfilter

// EventOf returns what is made of a message.
func EventOf(message []byte) Event {
	e, _ := Messages(nil).add(message).Next()
	return e
}

// Read returns what is read of a message, and why it is undecodable.
func Read(message []byte) (e Event, err error) {
	err = e.read(message)
	return e, err
}

// Forget drops what was not taken.
func (c *Conn) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.batches)
}
