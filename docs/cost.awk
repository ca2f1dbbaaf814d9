# What a month costs, from the prices that -v gives: docs/operations.md shows how.
function row(what, dollars) { printf "%-52s %8.2f\n", what, dollars }
BEGIN {
  other /= 1e4; list /= 1e4; write /= 1e4; read /= 1e4; month = 30 * 86400
  row("a million alerts, blob", 1e6 * 3 * other)
  row("a million alerts, cosmos", 21 * ru)
  row("a million events into Event Hubs", event)
  row("a million events into IoT Hub, S2", s2 / (6 * 30))
  row("a replica and month: heartbeats, shares, reports", month * (other / 3.3 + list / 6 + write / 60 + read / 10))
  row("a partition and month: checkpoints", month * other / 5)
  row("a partition and month: alarms that always change", month * write / 5)
  row("all replicas and month: settings", month * write / 10)
  row("a throughput unit and month", tu * month / 3600)
  row("a replica and month: 0.25 vCPU, 0.5 GiB, active", month * (vcpu / 4 + gib / 2))
}
