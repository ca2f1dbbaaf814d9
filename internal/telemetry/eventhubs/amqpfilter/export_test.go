package amqpfilter

// Message returns what the library gets in place of a message that comes alone.
func Message(message []byte) []byte { return AppendMessage(nil, message) }

// AppendMessage appends to b what the library gets in place of a message.
func AppendMessage(b, message []byte) []byte {
	start := len(b)
	b = add(begin(b), message, MaxMessage)
	seal(b[start:], 1)

	return b
}

// Read returns what is read of a message, and why it is undecodable.
func Read(message []byte) (e Event, err error) {
	err = e.read(message)
	return e, err
}
