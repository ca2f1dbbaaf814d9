// Package partition takes the events of one partition through decoding, the rules and alarms, hands what receivers are
// to get to package delivery, and moves the checkpoint. From the bottom up:
//
//   - an [Evaluator] has the rules of a replica, and says what a reading reaches;
//   - a register takes the events of a partition, follows its alarms, and decides what receivers are to be told;
//   - a [Stream] is a partition while this replica owns it: it writes what the next owner has to know. A [Backtest] has
//     registers alone, for the partitions of a recording.
//
// One reading goes through stream.go, which reads, and at last writes the ledger and the checkpoint; evaluation.go, from top
// to bottom; register.go, where alarms change; alarms.go, which has what they are and were; and owner.go, which package
// delivery asks. Beside that way are evaluator.go, which makes of the rules what a reading meets, saved.go, which has alarms
// as ledgers have them, takeover.go, silence.go, groups.go and incidents.go (who writes and asks for the records of groups),
// refresh.go, removal.go, report.go, unreadable.go and backtest.go.
//
// # Settled
//
// A reading that reaches a limit is settled, for each receiver, when its alert is delivered,
// when a recorded delivery covers it, or when its alert is kept as a dead letter. Every other
// event is settled once it is read. The watermark is the position before the first event that
// is not settled, or the last position read; the checkpoint follows it.
//
// One goroutine reads a partition, another writes its checkpoint. Nearly every event ends as
// it is read: it reaches no limit, or its device's window is known to be in force. Any other
// starts a delivery to each receiver that wants its level, or joins one: see package delivery.
//
// # Alarms
//
// An alarm is the state of one device at one level of a rule, unless that is normal: pending or
// open. It follows from the device's readings in the order of the partition, by the times at
// which the hub or the device took them, and from nothing else: deliveries, windows and crashes
// have no part in it, so reading again gives the same.
//
//		from      on a reading that                     to                      notice
//		normal    reaches the limit, without for        open                    alert
//		normal    reaches the limit, with for           pending since then
//		pending   reaches it, and for is over           open                    alert
//		pending   does not reach it                     normal
//		open      reaches it                            open                    alert: a reminder after the window, or after
//		                                                                        the rule's repeat if that is longer
//		open      is between clear and limit            open                    alert, if one was held back, or if the rule
//		                                                                        says how often it is sent again
//		open      is clear, and clear_for is over       normal                  recovery due, if the rule has resolved
//		open      a condition of the rule excludes it   normal                  likewise
//		due       opens an alarm again                  open, what was due is   alert
//		                                                not sent
//
//	  - A level alerts only while no higher level of its rule is open. A quiet or muted device sends no alerts, but
//	    recoveries. An open alarm whose alert is held back like this makes up for it: when that ends, its
//	    next reading alerts, whatever its value. Nothing is compared for that but the order of the levels.
//	  - A reading that its device took before another one that the alarm has seen changes nothing, and alerts nobody.
//	  - A recovery is due to the receivers that may have been alerted since the last one, whatever they ask for now. Of
//	    alarms from before its time, and of readings that another owner may have read, an owner does not know who they
//	    are: then it is due to everybody, and the gate knows.
//	  - A reading that opens an alarm asks the gate, unless this replica remembers a window that
//	    began since it took the partition over. Within an earlier one, which it alone knows because the
//	    receiver refused an alert, another replica may have sent a recovery.
//	  - A recovery that is due has a delivery to each receiver. It does not hold the watermark:
//	    the ledger keeps it until every receiver has settled it. While the window is in force it
//	    waits and takes no turn. If the device opens an alarm again it is dropped, unless it is
//	    being sent. Its receivers then get the recovery of that new alarm, also where the alarm is part of an incident.
//	    Under its claim, before it is sent, the replica asks who owns the ledger: a claim proves nothing about the
//	    partition. One answer serves all that wait for it; while the ledger does not answer, no recovery is claimed.
//	  - After a take-over no recovery is sent until the new owner has read what the hub held
//	    then, or for a minute: the device may be hot again.
//	  - A removed rule cannot say when its alarms clear. A replica that finds alarms of a rule
//	    that it does not have drops the pending ones and leaves the open ones alone until no
//	    replica has other rules, because during a rollout the partition may go on to one that has it.
//	    Then recoveries are due, about the last event read, with the rule's own window and names, which
//	    the ledger keeps. An alarm about the hub waits for the last one of another rule: see below.
//	    A silence that is due waits meanwhile, because nobody knows who is heard.
//	  - Alarms of a device that an operator removes end behind the last event read. The operator is answered once the ledger
//	    and the roster are there, so that nobody reads an earlier event again: not before what was alerted is settled.
//	    Alarms of a device of which rules about silence expect nothing any more end there, too.
//	  - An alert that is given up becomes a dead letter first. Then the gate notes it, so that a
//	    replay does not send the alert after a recovery.
//
// The live alarms run ahead of the ledger, which must not pass the watermark. The changes since
// the ledger wait in memory, in one segment per checkpoint tick. The ledger moves to the end of
// the last segment that the watermark has passed, and the checkpoint up to the first change
// that the ledger does not hold. With 131,072 changes reading pauses.
//
// # Silence
//
// A rule about silence opens an alarm when a device was not heard until a deadline: its last event that counts, or
// the floor of the partition's roster if that is later, and then Silent, or the end of its quiet time. What was heard
// is as of the last event read; events up to a time T are proven to be read if
//
//   - an event was read that the hub took 2 s after T or later, or
//   - the last event of the partition was read, as the hub answered to a question that was asked 5 s after T or
//     later, by the earlier of the store's clock and ours.
//
// A proof counts while it is younger than a quarter of Silent, 30 s at least and 5 min at most. So nothing is said of
// devices that were silent long ago in what is read late.
//
//		from      on                                           to        notice
//		normal    the deadline, once it is proven to be over   open      the silence is due; a waiting recovery is dropped
//		open      an event that counts, after its place        normal    recovery due, if the rule has resolved; a waiting
//		                                                                 silence is dropped
//		any       Forget, once that is proven to be over       unknown   of an open alarm as above. One that would be
//		                                                         forgotten before it was silent has as much time
//		                                                         after its quiet time; or after a take-over, a
//		                                                         long gap, or what has expired, if nobody heard
//		                                                         what came before
//
//	  - An alarm opens at once, wherever the watermark is, and is claimed for only when the ledger in the store has it.
//	    Before each claim the silence must be proven by this owner, and under it the ledger is asked as for recoveries. If the
//	    floor has risen since its deadline it is never proven; when Silent is over once more after the floor, whoever was not
//	    told is told of that silence. An incident is proven then: who was heard since the floor is no member any more.
//	  - The place of a silence is after that of the event that it is about, and before that of every later one; of two
//	    about one event, as when their rule was removed in between, the one that was found later comes later. It is
//	    compared with windows by its deadline.
//	  - A device that is silent while people mute that counts as quiet until then.
//	  - A rule with conditions expects a device to report if the conditions hold in its last event that has their names. Of others
//	    the roster knows when they were heard, and that nothing is expected of them.
//	  - Before the end of a silence of a device that is forgotten can leave the ledger, the store has a roster without it.
//	  - The roster is read after the ledger. If the device of an open alarm was heard after the alarm's place, a former
//	    owner that did not know of the alarm has read that: the alarm has ended.
//	  - While the newest event of all partitions, as the hub says, is older than half of Silent, no silence opens. Once it
//	    is older than the shortest Silent that any device has, the hub is cut off from its devices: the roster says so,
//	    and no silence opens by any rule until a newer event comes to any partition. Then the floor rises for all, as it
//	    does at an event before which nothing came to the partition for Silent, if several devices have no alarm. A
//	    device that is all that the hub has is silent as any other.
//	  - The floor also rises if a silence could not be proven for half of Silent after its deadline, and no event of the
//	    hub is known of from half of Silent before that until then: nobody could reach the hub.
//	  - Partition 0 has one alarm about a hub that is cut off, whose place is the time of the newest event. Each
//	    receiver hears of it by the rule with the shortest Silent that it wants, also if that is removed meanwhile. A rule
//	    that opens after a take-over tells all that want it: whom a former owner told by another one is not known.
//	  - The floor rises where events may be missing that nobody has heard: at a gap in sequence numbers longer than
//	    Silent, and at a take-over if the roster is missing, of another hub, or more than 10 minutes behind the
//	    start. Else reading begins at the roster's position, and up to the start events are only heard. A silence is
//	    then late, and never false. A shorter gap has a deadline begin anew once: a compacted hub has gaps all the
//	    time, and keeps the last event of each device.
//
// Package absence finds who has fallen silent, under a lock of its own, which is taken before the register's.
//
// # Incidents
//
// Alarms of a rule that is rules.Rule.Grouped are members of the group of the value that their device shares, as the
// message that opened them says it; of a silence, the device's last one. Nothing changes about an alarm by that, but
// that nobody is told of it: a group tells of the incident.
//
//		at the event that                  the group                                        then
//		opens the first member             has its record written, drops an end             its alert is due
//		reaches the limit of a member      has its alert due, unless it is covered
//		ends the last member               has its record written, drops an alert           the record says whether the end is due
//
//	  - What is written are the members as of the last event read. The watermark stays before the first change that the
//	    record lacks, and before the reading of an alert that is not settled. The ledger keeps ends, groups
//	    whose record lacks that the last member has left, and with each alarm its value; a silence is in the ledger before it
//	    is a member.
//	  - An alert is given once the record has the members, and an end once it is over. Under the claim the ledger is asked
//	    as for recoveries, and then the record: see package incident.
//	  - At a take-over each group that has members has its record written, and alerts of silences are due again: the gate
//	    knows whether they were sent.
//
// # Locks
//
// In a partition the lock of a batch is taken before that of package absence, this before the register's, and that before
// those of package delivery: a delivery is started or withdrawn when that is decided, so that an event is read once its
// alerts hold the watermark. Package delivery asks a stream without a lock of its own. The lock of what asks the ledger is
// taken under no other.
package partition
