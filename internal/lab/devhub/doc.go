// Package devhub is an Event Hubs namespace in memory, with one hub in it, that
// official clients can use like the real one: it speaks AMQP 1.0, over TCP and over
// WebSockets at the same port. Tests and the simulation read from it what simulated
// devices publish.
//
// # What it does
//
//   - SASL by ANONYMOUS, EXTERNAL, MSSBCBS and PLAIN; claims put to $cbs, whose
//     signatures it checks; no link without a claim, except after PLAIN.
//   - $management: the properties of the hub and of its partitions, for who has a claim
//     or gives a token with the request; 50 a second, as the service documents, and no more.
//   - Receivers at HUB/ConsumerGroups/GROUP/Partitions/N, for any group, that
//     start at an offset, a sequence number, a time or the end; credit, drain and epochs;
//     the end of the partition with each event, if asked for.
//   - Senders at HUB, in turn or by partition key, which is hashed as the SDKs do, and
//     HUB/Partitions/N; batches.
//   - The annotations that an IoT Hub adds to what its devices send.
//   - The redirection from an IoT Hub to its Event Hub, if Config.RedirectTo is set.
//   - Faults on demand: see Reset, Detach, DetachWithoutError, Mute, Stall, SetLatency, Expire, Stale, RefuseClaims,
//     DropClaims, ExpireClaims, RefuseLinks, RefuseLongNames, RefuseOffsets, RefuseSequences,
//     RefuseManagement and LimitManagement.
//
// It writes frames as the service is seen to write them in public traces, where many hubs for
// tests do not: all fields with their nulls, numbers of transfers from 1 on, channels and handles
// of its own, at most 255 handles, events settled whatever was asked for and without a tag, replies
// unsettled. It asks for the windows of sessions, and for credit on links that have events and none.
// A frame on an unknown handle costs the session. A connection may be without links.
//
// Errors have the service's wording. Not supported, unless on demand: transactions,
// geo-replication, schema registry, other throttling, retention by time, and the expiry of accepted
// claims. A token other than a shared access signature is accepted unchecked.
//
// # How it works
//
// A message is encoded once, as it is published, into the log of its partition.
// All readers share the bytes; for each of them a connection's writer only adds a
// transfer's header, many to a write. Deliveries are sent settled: azeventhubs never
// settles any, and its credit would run out.
//
// Everything is bounded: the logs by Config.MaxEvents and Config.MaxBytes, a message by
// 1 MiB, a frame by 64 KiB; and while a client does not read what it asked for, the hub
// reads nothing more from it. A reader that has fallen behind the start of a log
// continues at its start.
package devhub
