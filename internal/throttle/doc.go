// Package throttle is the gate: it lets at most one alert per device and window through,
// however many replicas ask, and never loses one; and a recovery, the message that a device is
// normal again, once the window of the alert before it is over.
//
// The package holds policy and no clock of its own: a [lease.Store] decides what time it is.
// Each key (scope, receiver, rule, level, device) has one record there.
//
// # Three steps
//
// The caller claims the key ([Gate.Claim]), sends, and settles the claim ([Gate.Settle]), which
// records the window. What the gate decides at the claim holds for exactly the record that it replaces, by compare-and-swap:
//
//   - A window that is in force, or that ended after the reading was enqueued, covers the
//     reading. So does a later reading whose recovery was sent or whose alert was given up
//     (R4), and an alert about the same alarm (R5). The gate writes nothing: [Throttled].
//   - A claim that is in force, or a record that proves nothing any more (R2), makes the gate
//     wait and ask again: [Busy]. The holder of the claim may have died.
//   - If it is not known whether the last alert was taken (R1), the gate claims the key and
//     sends that alert's id again.
//   - Otherwise it claims the key and sends the id of the reading.
//
// The send gets at most [Config.SendTimeout], and nothing is sent under a claim with less than
// that and 3 s left, as after a slow answer of the store or after the machine was suspended.
// If the alert was taken, the claim's record becomes the window, counted from the receiver's
// answer. If it was not, the key is freed at once. If it may have been taken, its id stays in
// the record.
//
// # Rules
//
//   - R1, the id survives. A claim's record holds the alert's id. The id is removed only when a
//     window is recorded, or when the receiver certainly did not take an alert that was sent for
//     the first time. A claim made less than claim length + window after one whose alert may
//     have been taken sends the same id again, and the send counts as ambiguous.
//   - R2, a late record suppresses nothing. A record counts as proof of delivery only until
//     claim time + claim length + window. After that it still blocks other claims.
//   - R3, replays are silent. A record keeps the end of the last recorded window. A reading
//     enqueued before it is covered, however late it is read.
//   - R4, a recovery ends the window. An alert may follow a recovery at once, so the claim of a
//     recovery removes the window's end from the record and remembers its reading instead; if the
//     recovery was certainly not sent, the end comes back.
//     Readings up to that one are covered, as by R3. A dead letter of a rule with recoveries has
//     readings up to its own covered too, unless the key is held; the window's end, and an id whose
//     fate is unknown, stay. Readings over HTTP have no place in a
//     partition: only windows cover them.
//   - R5, an alert covers its alarm for [Request.Repeat]. The record keeps the latest reading whose
//     alert was taken, and when it was claimed. Readings of an alarm that a reading up to that one has
//     opened are covered for so long. An alert under the id of an earlier one counts for nothing here:
//     the receiver may have dropped it. Nor does one whose recovery may have been taken, although the alarm goes on.
//
// Readings are in the order of their numbers in one log, a partition of one generation of a hub.
// The record names the log with each reading that it remembers. Between two logs nobody knows the order: no reading of one
// covers one of the other, and a recovery comes after the alerts of other logs, or of readings over HTTP, only if its
// time is later than theirs. What is not certain may alert, and never says that a device is normal.
//
// # Recoveries
//
// A recovery shares key, claim and token with the alerts of its device, so that the last
// message that a receiver got is accurate. For a recovery about the reading c the gate asks
// the record, in this order:
//
//   - A recovery about c or a later reading was taken, or the key was claimed for an alert
//     about a later one: [Unneeded].
//   - A claim or a window is in force: [Busy].
//   - An alert may have been taken, less than claim length + window ago: [Busy], because it may
//     still arrive.
//   - The receiver was not notified since the last recovery: [Unneeded].
//   - A recovery may have been taken, and no alert was claimed since: the gate claims the key
//     and sends that recovery's id again, however late.
//   - Otherwise it claims the key and sends the id of c.
//
// R1 holds within a kind: an alert is never sent under a recovery's id, nor the reverse. An
// alert's claim forgets a recovery's id. If that alert is then refused and becomes a dead
// letter, the next recovery may follow the last one with no alert between them. A record that
// was removed says that nobody was notified.
//
// # Incidents
//
// A request may be about an incident ([Request.Incident]), whose members are in several logs. Their places say nothing
// there: the record keeps which incident the receiver was told of, and when, and which one it may have been told of. For
// an alert the gate asks the record, in this order:
//
//   - The receiver was told of this incident, and less than [Request.Repeat] ago, or the reading is from before then:
//     [Throttled]. Not so if an end may have been taken since.
//   - A claim or a window is in force, or the alert of another incident may have been taken, less than claim length +
//     window ago: [Busy].
//   - Otherwise it claims the key and sends the incident's id, always the same.
//
// An end is [Unneeded] if the receiver was not told of the incident, and may not have been. It waits as a recovery does.
// Its claim leaves what was told, so that giving it back is no loss; that it may have been taken stays in the record until
// an alert is taken. Its id is made of the incident's and of the time of the alert that the receiver got last, or may have:
// no two ends have the same id unless there was no alert between them.
//
// # Clocks
//
// The store's clock decides whether a key is free and, compared with the hub's, whether a
// reading is covered. This machine's clocks can only make a replica stop early: see [lease.Ahead].
package throttle
