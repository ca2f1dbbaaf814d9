package amqpfilter

// Message returns what the library gets in place of the first message that comes on a link
// with events.
func Message(message []byte) []byte {
	l := &link{max: MaxMessage}
	return l.message(nil, message)
}

// Append appends to b what the library gets in place of a message. It may be called again.
func Appender() func(b, message []byte) []byte {
	l := &link{max: MaxMessage}
	return l.message
}

// Read returns what is read of a message, and why it is undecodable.
func Read(message []byte) (e Event, err error) {
	err = e.read(message)
	return e, err
}
