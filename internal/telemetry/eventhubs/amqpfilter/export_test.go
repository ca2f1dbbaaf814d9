package amqpfilter

// Message returns what the library gets in place of a message that comes on a link
// with events.
func Message(m []byte) (after []byte, cause error) {
	var p place
	if cause = check(m, &p); cause == nil {
		cause = p.event()
	}
	l := &link{at: position{sequence: -1}, max: MaxMessage}
	after, err := l.message(nil, m)
	if err != nil {
		panic(err) // for replies only
	}
	if after == nil {
		after = m
	}
	return after, cause
}

// Check returns why the library cannot take a message.
func Check(message []byte) error { return check(message, new(place)) }

// Bounded says whether an error is about a bound that the library does not have.
func Bounded(err error) bool { return err == errDepth || err == errValues }

// Sequence and Offset are what can be found in any message.
func Found(message []byte) (sequence int64, known bool, offset string) {
	p := find(message)
	sequence, known = intOf(p.sequence)
	text, _ := textOf(p.offset)
	return sequence, known, string(text)
}
