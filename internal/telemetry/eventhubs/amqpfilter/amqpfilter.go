// Package amqpfilter sits between a connection and github.com/Azure/go-amqp, and passes
// no message that the library cannot handle.
//
// If the library cannot decode a message, it closes the link. Its caller, azeventhubs,
// then attaches another after the last event that it returned, and gets the same message
// again, forever. Some messages make the library panic or overflow the stack in a
// goroutine of its own, where nobody can recover; and if azeventhubs cannot convert a
// message, it loses the events before it. So each message is checked first (check.go),
// and a harmful one is replaced by one that has its place in the partition and carries
// the original (replace.go).
//
// The filter follows frames as the library reads them (conn.go). It changes neither their
// number nor their order, and only their payload: the library and the peer agree on
// session windows and credit as if there were no filter.
//
// An event as IoT Hub delivers it is made compact (compact.go): what the worker reads of it
// goes into the data section, and nothing but the sequence number stays an annotation,
// because decoding annotations is most of what the library spends on an event.
//
// Replies to requests are checked too. A harmful reply ends the connection, with an error
// that says so.
package amqpfilter

// Annotation is the name of the message annotation that marks a replacement. Its
// value is a string, why the library could not take the message. The data section is
// the message itself, or of a large one the first MaxKept bytes.
const Annotation = "x-opt-alertworker-undecodable"

// Guessed is the name of the annotation, true, of a replacement whose message had no
// readable sequence number.
const Guessed = "x-opt-alertworker-sequence-guessed"

const (
	// MaxMessage is the largest message that is passed, in bytes: twice what Event Hubs
	// accepts. It is less if the peer announces a smaller limit, because the library
	// closes a link on which a message is larger.
	MaxMessage = 2 << 20

	// MaxKept is how much of a message a replacement carries, in bytes.
	MaxKept = 64 << 10
)
