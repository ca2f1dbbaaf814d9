# What a month costs, from the prices that -v gives: docs/operations.md shows how.
function row(what, dollars) { printf "%-52s %8.2f\n", what, dollars }
# A fleet: a reading every 10 s, 1 % of the devices hot all the time, a window of 60 s, one receiver, THROTTLE_STORE=blob.
function fleet(devices, partitions, replicas, cpus, gibs, units) {
  alerts = devices / 100 / 62 * month
  store = alerts * 3 * other + replicas * replica + partitions * (checkpoints + alarms) + settings
  row(devices " devices, " partitions " partitions: storage", store)
  row("  " replicas " replicas of " cpus " vCPU, " gibs " GiB", replicas * month * (vcpu * cpus + gib * gibs))
  row("  a namespace, " units (units > 1 ? " throughput units" : " throughput unit"), units * tu * month / 3600 + devices / 10 * month / 1e6 * event)
}
BEGIN {
  other /= 1e4; list /= 1e4; write /= 1e4; read /= 1e4; month = 30 * 86400
  replica = month * (other / 3.3 + list / 6 + write / 60 + read / 10)
  checkpoints = month * other / 5
  alarms = month * write / 5
  settings = month * write / 10
  row("a million alerts, blob", 1e6 * 3 * other)
  row("a million alerts, cosmos", 21 * ru)
  row("a million events into Event Hubs", event)
  row("a million events into IoT Hub, S2", s2 / (6 * 30))
  row("a replica and month: heartbeats, shares, reports", replica)
  row("a partition and month: checkpoints", checkpoints)
  row("a partition and month: alarms that always change", alarms)
  row("all replicas and month: settings", settings)
  row("a throughput unit and month", tu * month / 3600)
  row("a replica and month: 0.25 vCPU, 0.5 GiB, active", month * (vcpu / 4 + gib / 2))
  fleet(1000, 4, 2, 0.25, 0.5, 1)
  fleet(100000, 32, 2, 1, 2, 10)
}
