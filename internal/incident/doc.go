// Package incident has one incident for one cause: alarms of a level whose rule has `per`, and whose devices share a
// value, are members of one group, whatever partitions they are in. People are told of the incident, not of its members.
//
// A small record for each group says which partitions have members. Owners of partitions write it; the alarms themselves
// stay in the partitions, and nothing about them changes.
//
//	the owner of a partition   writes                                          then
//	its first member opens     its entry; if no other is there, the incident   the alert is due
//	                           runs: under its id if it was over, else
//	                           under a new one
//	its last member ends       takes its entry out; if none remains,           if it is over, its end is due
//	                           the incident is over
//	all have settled the end   that it is closed, if it still is over          the end leaves its ledger
//
// What is written comes from a position in the partition's log, which stays when the entry goes. Nothing is written from
// an earlier one: a former owner was further, and what it has written holds. Positions of another log do not count.
//
// Before an alert is claimed, the entry is in the record; under the claim the record is read: an alert goes out only
// while the entry is there, under that id, and an end only while the incident is over as when the end became due.
package incident
