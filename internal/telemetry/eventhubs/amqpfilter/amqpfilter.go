// Package amqpfilter sits between a connection and github.com/Azure/go-amqp, and passes
// no message of a partition that the library could not handle.
//
// If the library cannot decode a message, it closes the link, and the next one begins with
// the same message, forever. Some messages make the library panic or overflow its stack in a
// goroutine of its own, where nobody can recover; and some take fifty times their size in
// memory.
//
// So the filter keeps the messages back. The library gets a message with a number instead, and decodes nothing that a
// publisher wrote. By the number the reader of the partition takes the messages from the filter (Take), and makes an
// [Event] of each (event.go), from whatever came.
//
// The filter follows frames as the library reads them (conn.go), and knows by what the library asks for which sessions
// read a partition. What of a partition has come at once, the library gets as one message, because most of what
// reading costs is the way of a message through the library: two goroutines and three queues. The library therefore
// knows nothing of most transfers. In what it tells the peer about session windows and credit, the filter adds them,
// and subtracts them from what the peer says that it has sent, so that both see what they would if the library got
// each alone. A session that reads a partition has no other link. Messages of several frames keep all their frames.
//
// Replies to requests pass as they are; the service writes them, and no publisher can.
package amqpfilter

const (
	// MaxMessage is the largest message that is read, in bytes: twice what Event Hubs
	// accepts.
	MaxMessage = 2 << 20

	// MaxKept is how much of an undecodable message its Event carries, in bytes.
	MaxKept = 64 << 10
)
