// Package ledger keeps, for each partition, the alarms of rules with state as they were at
// one position of its log, so that the next owner of the partition goes on where the last one
// stopped: which are pending or open, since when, and which recoveries are due; and of the levels that they are of,
// what recoveries need once the rule is removed. If no rule has state, a ledger is read only as long as the checkpoint
// names it, because it has alarms of rules that are gone.
//
// A ledger is one record beside the checkpoints, named after the IoT Hub if there is one:
// compressed JSON, which az storage blob download … | gunzip shows.
//
//   - The ledger is written first, then the checkpoint. The checkpoint never passes a change
//     that the ledger does not hold. While nothing changes only the checkpoint moves.
//   - A new owner reads the ledger and writes it back under an owner's name that nobody ever
//     had, if nobody has written it in between. Only then are events read, from the later of the
//     two positions. From then on the former owner cannot write. Positions are ordered by sequence
//     number within one generation of a hub; those of two generations are not compared.
//   - A lost answer is settled by reading: if the ledger has our name, writing goes on from what
//     is there; if it has another, or the record was deleted, the partition is lost. Each write
//     names the version that it replaces, so a late copy of a write does nothing.
//   - The ledger has an id, which every checkpoint of its owners repeats. If at a take-over the
//     checkpoint is beyond the ledger and does not hold its id, events were passed without rules
//     with state: pending alarms are dropped, because nobody knows whether the limit still held;
//     open alarms stay open, and recoveries due stay due.
//   - A ledger that cannot be read is not an empty one: its partition waits. Deleting it forgets
//     the partition's alarms: a device that is still hot alerts again once its window is over,
//     and no recovery is sent for the others.
//
// If an IoT Hub fails over and a device is then in another partition, that partition knows
// nothing of its alarm: an open one is opened again, and stays open in the ledger of the former
// partition.
package ledger
