package amqpfilter

// Message returns what the library gets in place of a message that comes alone.
func Message(message []byte) []byte { return Appender()(nil, message) }

// Appender returns a function that appends to b what the library gets in place of a message. It may be called again.
func Appender() func(b, message []byte) []byte {
	l := &session{max: MaxMessage}
	return func(b, message []byte) []byte {
		start := len(b)
		b = l.add(begin(b), message)
		seal(b[start:], 1)
		return b
	}
}

// Read returns what is read of a message, and why it is undecodable.
func Read(message []byte) (e Event, err error) {
	err = e.read(message)
	return e, err
}
