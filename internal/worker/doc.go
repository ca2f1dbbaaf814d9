// Package worker puts together what takes each event of a replica from a partition to the receivers. A [Worker] has
// the partitions that it consumes (package partition), which share its deliveries (package delivery), and answers what
// people ask about all of them.
//
// Two more take events through the same rules and filters: an [Intake] is the HTTP trigger, which has rules without
// state and no log: it asks the gate and the receivers while its caller waits, who must send again what is not settled. A
// [Backtest] takes a recording, and takes notices in the place of deliveries.
package worker
