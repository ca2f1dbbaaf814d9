// Package amqpfilter stands between a connection and github.com/Azure/go-amqp,
// and lets no message through that the library cannot take.
//
// The library's answer to a message that it cannot decode is to close the link. Its
// caller, azeventhubs, attaches another one after the last event that it returned,
// and gets the same message, for ever. Some messages make the library panic or run
// out of stack on a goroutine of its own, where nobody can recover; and what azeventhubs
// cannot convert costs it the events that came before. So each message is checked
// before (check.go), and one that would do harm is replaced by one that takes its
// place in the partition and carries it as it came (replace.go).
//
// Frames are followed as the library reads them (conn.go). Their number, their order
// and all but their payload stay: the library's and the peer's idea of windows
// and credit agree as if there were no filter.
//
// What comes with the replies to requests is checked too. A reply that would do harm
// is the end of the connection, with an error that says so.
package amqpfilter

// Annotation is the name of the message annotation that marks a replacement. Its
// value is a string, why the library could not take the message. The data section is
// the message itself, or of a large one the first MaxKept bytes.
const Annotation = "x-opt-alertworker-undecodable"

// Guessed is the name of the annotation, true, of a replacement whose sequence number
// the message did not tell.
const Guessed = "x-opt-alertworker-sequence-guessed"

const (
	// MaxMessage is the largest message that is let through, in bytes: twice what Event
	// Hubs takes. It is less where the peer says that it sends no such: the library
	// closes a link on which a message is larger.
	MaxMessage = 2 << 20

	// MaxKept is how much of a message a replacement has.
	MaxKept = 64 << 10
)
