// Package worker puts together what takes each event of a replica from a partition to the receivers. A [Worker] has
// the partitions that it consumes (package partition), which share its deliveries (package delivery), and answers what
// people ask about all of them.
//
// An [Intake], the HTTP trigger, takes events through the same rules and filters. It has rules without state and no log: it
// asks the gate and the receivers while its caller waits, who must send again what is not settled.
package worker
