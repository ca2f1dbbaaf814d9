// Alert rules on what Azure Monitor has of the worker: its log, and the platform's metrics. deploy/prometheus has the rules on
// the worker's own metrics.
param location string
param tags object
param workspaceId string
param appId string
param namespaceId string
param appName string
param alertEmail string

var actionGroupIds = empty(alertEmail) ? [] : [
  actionGroup.id
]

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(alertEmail)) {
  name: 'ag-${appName}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'alertworker'
    enabled: true
    emailReceivers: [
      {
        name: 'operator'
        emailAddress: alertEmail
        useCommonAlertSchema: true
      }
    ]
  }
}

// Azure disables a rule whose query fails for a week, so it must not fail before the table has its first line.
var lines = '''union isfuzzy=true (datatable(TimeGenerated: datetime, ContainerAppName: string, ContainerGroupName: string, Log: string)[]), ContainerAppConsoleLogs
  | where ContainerAppName == "{0}"
  | project TimeGenerated, replica = ContainerGroupName, text = Log, line = parse_json(Log)
  | extend msg = tostring(line.msg)'''

// A replica logs a problem with its effect when it begins, again ("still: ") after 1, 2, 4, … and then every 60 minutes, and logs its
// end, unless it stops first. So a problem lasts if its newest line is younger than the longest pause, and newer than the
// last start or stop of the replica. One of a replica that was lost without a word counts for those 70 minutes.
var problems = '''let lines = {0};
  let ends = lines | where msg in ("starting", "stopped") | summarize ended = max(TimeGenerated) by replica;
  lines
  | extend over = msg matches regex " (is back|again|can be opened)$"
  | where over or isnotempty(line.effect)
  | extend what = extract("^(?:still: |all )?(receiver|the hub|the devices|partitions|the checkpoint store|the ledger|the throttle store|the dead letters|replicas)", 1, msg), receiver = tostring(line.receiver)
  | summarize arg_max(TimeGenerated, over), begun = maxif(TimeGenerated, not(over) and msg !startswith "still: ") by replica, what, receiver
  | join kind=leftouter ends on replica
  | where not(over) and TimeGenerated > ago(70m) and (isnull(ended) or TimeGenerated > ended) and (isnull(begun) or begun < ago({1}))'''

var rules = [
  {
    name: 'errors'
    severity: 1
    window: 'PT5M'
    description: 'Alerts that became dead letters, events that were lost, containers that were deleted: the line says which, and docs/operations.md what to do.'
    query: '${format(lines, appName)}\n  | where line.level == "error" and isempty(line.effect) // what has an effect lasts, and has the next two rules'
  }
  {
    name: 'receiver-down'
    severity: 1
    window: 'PT2H'
    description: 'A receiver has been down for 5 minutes. Its alerts wait; those older than NOTIFY_GIVE_UP become dead letters.'
    query: '${format(problems, format(lines, appName), '5m')} and what == "receiver"'
  }
  {
    name: 'blocked'
    severity: 1
    window: 'PT2H'
    description: 'The hub, the checkpoints, the throttle store or a ledger have not answered for 10 minutes. Alerts wait; no event is lost within the hub\'s retention.'
    query: '${format(problems, format(lines, appName), '10m')} and what !in ("receiver", "the devices", "replicas")' // after the first deployment roles take minutes
  }
  {
    name: 'no-readings'
    severity: 1
    window: 'PT2H'
    description: 'A replica has read no event for 10 minutes, although its partitions can be read: are devices connected to the IoT Hub, and is its route enabled? For devices that report less often, disable this rule.'
    query: '${format(problems, format(lines, appName), '0m')} and what == "the devices"'
  }
  {
    name: 'rules-differ'
    severity: 2
    window: 'PT2H'
    description: 'Replicas have had different rules or thresholds for 10 minutes, so an alert depends on the partition of its device: the line says which. Finish or undo the deployment.'
    query: '${format(problems, format(lines, appName), '0m')} and what == "replicas"' // the replica waits 10 minutes before it says so
  }
  {
    name: 'restarts'
    severity: 1
    window: 'PT30M'
    description: 'A replica was started more than 3 times within half an hour. Its last lines say why; with a wrong setting they list all of them.'
    query: '${format(lines, appName)}\n  | where msg == "starting" or text startswith "alertworker: " // which is how a start with wrong settings ends\n  | summarize starts = count() by replica\n  | where starts > 3'
  }
]

resource logAlerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for rule in rules: {
  name: '${appName}-${rule.name}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'alertworker: ${rule.name}'
    description: rule.description
    severity: rule.severity
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: rule.window
    criteria: {
      allOf: [
        {
          query: rule.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    skipQueryValidation: true // the table comes with the first line
    autoMitigate: true
    actions: {
      actionGroups: actionGroupIds
    }
  }
}]

resource absent 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${appName}-absent'
  location: 'global'
  tags: tags
  properties: {
    description: 'No replica is running: no device is monitored. No event is lost within the hub\'s retention.'
    severity: 0
    enabled: true
    scopes: [
      appId
    ]
    evaluationFrequency: 'PT1M'
    windowSize: 'PT5M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'replicas'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'Replicas'
          timeAggregation: 'Maximum'
          operator: 'LessThan'
          threshold: 1
        }
      ]
    }
    actions: [for id in actionGroupIds: {
      actionGroupId: id
    }]
  }
}

// The metric of replicas may have no value at all when none runs.
resource unread 'Microsoft.Insights/metricAlerts@2018-03-01' = if (!empty(namespaceId)) {
  name: '${appName}-unread'
  location: 'global'
  tags: tags
  properties: {
    description: 'Devices send messages, and nobody reads them. No event is lost within the hub\'s retention.'
    severity: 0
    enabled: true
    scopes: [
      namespaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'incoming'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'IncomingMessages'
          timeAggregation: 'Total'
          operator: 'GreaterThan'
          threshold: 0
        }
        {
          name: 'outgoing'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'OutgoingMessages'
          timeAggregation: 'Total'
          operator: 'LessThan'
          threshold: 1
        }
      ]
    }
    actions: [for id in actionGroupIds: {
      actionGroupId: id
    }]
  }
}
