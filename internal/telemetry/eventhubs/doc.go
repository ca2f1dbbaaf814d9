// Package eventhubs reads telemetry from an Event Hub, or from the Event Hub-compatible endpoint
// of an IoT Hub: a [telemetry.Source] on go-amqp.
//
//   - [Source.Run] finds out what there is to read and where partitions without a checkpoint
//     begin (start.go), and starts again only if the hub has become another one.
//   - A hub is one generation of the hub. It runs a consumer for each partition that its
//     [ownership.Member] holds, and checks that the hub still is the one that is read (hub.go).
//   - Each partition has a goroutine that opens its link, and opens it again after an error.
//     Nobody else notices (partition.go, link.go). It knows where reading is (cursor.go). Partitions
//     share connections, which pass through amqpfilter, so that no message can break them,
//     and renew the claim to read (dial.go, rpc.go).
//   - A checkpoint moves only forward, and only within one generation (checkpoints.go).
//
// Questions to the hub about itself have connections of their own, and a pace (questions.go): the checks, lag, and what
// people are shown (status.go). An IoT Hub's endpoint can move (endpoint.go). [Probe], [Try] and [OpenHistory] look at a
// hub beside its readers, and change nothing (look.go, history.go). What its errors mean is in errors.go.
//
// # Where reading begins
//
// The checkpoint is written every CHECKPOINT_INTERVAL and every 10,000 events, and once more at
// a hand-over. It is not written after the partition was lost. A write succeeds only if nobody
// else has written since the checkpoint was read; after a conflict it is read again, and left
// alone if it is further ahead.
//
// Without a checkpoint a partition begins where EVENTHUB_START says. "latest" is resolved once,
// at the consumer group's first start, and written down as checkpoints; a partition that is
// without one later begins at the earliest event. So does one whose checkpoint cannot be read.
//
// If the hub refuses a checkpoint's offset, reading continues after its sequence number, or else
// at its time less 10 minutes, or else from the earliest event.
//
// # Links
//
// A partition whose link fails opens it again after 0.5 s, doubled up to a minute. Why it is not
// read stands in the log and in the status, in the hub's words. If nothing comes for 2 minutes although the hub holds
// more than was received, the link is opened again, once for each end. A replica whose heartbeat is overdue reads
// what it has open, and makes no connection and no link. When a new owner connects, the hub disconnects the old one.
// A reader that is none of the replicas is named as another program.
//
// # Questions
//
// A hub answers 50 questions a second, to all replicas of a consumer group together. Each asks 20 at
// most. What a partition waits for that is to be read goes first, what people are shown last. Who
// wants to know the same shares a question that was not sent yet, or an answer that is new enough. If the hub has no
// time for one, the replica asks nothing for 0.5 s, doubled up to 5 s, and then that one again, for 10 s in all.
// One that fails does so alone.
//
// # Another hub
//
// Every position names the generation of its hub: namespace, name and time of creation. Within a
// generation, sequence numbers alone give the order; positions of two are never compared. The
// generation is checked before reading begins, whenever a consumer asks the hub, when a link fails until the hub
// answers, and every 15 s. Nothing is requested on a link before the hub, asked after the link was opened, has said
// which one it is, and at first that it has come to the checkpoint: the old position is meaningless in another one. If
// it does not answer, the link fails.
//
// If the generation is another one, or the hub ends before what was read, and says so twice, reading continues from
// the checkpoints' oldest time less 10 minutes, or from the earliest event if that time is not known. Nothing
// is missed, and nothing is sent again: replays are silent (package throttle, R3).
//
// An IoT Hub that fails over has its events in another namespace and hub. It is asked where they
// are when a link fails and every 5 minutes, and the last place is kept on record. Partitions of
// the new place without a checkpoint begin at the oldest time of all checkpoints of the former
// one, less 10 minutes, because a device need not stay in a partition of the same number.
//
// If the first event after the checkpoint is not the next one, the hub has dropped those between:
// they are counted as lost, as are events missing between two that were read. If the hub has dropped
// all that was to come, an event with the source [telemetry.SourceExpired] stands for them.
//
// # Bounds
//
// Events requested count as 256 KiB each, the most that IoT Hub accepts, so that the buffer of a
// replica is bounded whatever comes. It is divided among the partitions of the hub, all of which a replica may come
// to read, with at least 8 events for each.
package eventhubs
