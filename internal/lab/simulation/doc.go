// Package simulation runs whole replicas, by the worker's own wiring, in one process on virtual time: hours in minutes.
// A seed makes a [Plan]: the settings, the devices, and the faults, which begin at any time or at any step of a
// replica. The hub, the stores and the receivers are in memory, behind the real clients: the hub over connections, and
// all others by round trips of HTTP, which the plan cuts. What receivers got is judged by package verify.
//
// Each seed has a world of its own: what is common in one is rare in the next. Some have devices that store what they
// measure while they are offline, or change their kind, devices with two sensors, limits that are counted from messages,
// fleets whose way to the hub is away, owners of partitions that do not hear that they are replaced, or an Alertmanager
// that restarts. Most have a scene: faults that seldom meet by chance, as that a window is recorded when it is about to
// be over. While faults last an alert may be late, and nothing else may be wrong.
//
// In one of twenty worlds nothing is wrong but secrets: the storage account's signature changes in the file that all
// replicas read, perhaps to one that does not work for minutes. No alert may be late for that.
//
// A dead replica reaches nobody, though its goroutines run until they have noticed. A frozen one reaches nobody until
// all that it has sent arrives at once; its timers go on, as those of a stopped process do not, which
// internal/lab/e2e tests. All replicas have one clock, which may be far from that of the services. That is enough,
// because nothing that replicas share holds their own time, which every world looks for, but a roster.
//
// What was not read when a hub was recreated is lost, whoever reads. So it is recreated when nothing of it has to be
// read again, while devices wait for that.
package simulation
