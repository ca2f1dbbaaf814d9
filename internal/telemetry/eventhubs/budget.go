package eventhubs

const (
	// maxEventBytes is the largest event that IoT Hub accepts. Every event that has been asked
	// for counts as that large, since its size is not known before it comes.
	maxEventBytes = 256 << 10

	// minCredit is how many events each partition may ask for, however many there are: with
	// fewer, it would wait for the hub after every other event.
	minCredit = 8
)

// credit returns how many events a partition may ask for if this replica reads n partitions. A
// consumer holds as many again: those of its last Receive.
func (c *Config) credit(n int) int {
	return min(c.Prefetch, max(minCredit, c.BufferBytes/maxEventBytes/max(1, n)))
}
