// Alert rules on what Azure Monitor has of the worker: its log and the platform's metrics. Container Apps does
// not collect the worker's own metrics; deploy/prometheus has the rules on those.
param location string
param tags object
param workspaceId string
param appId string
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

// Lines of level error: dead letters, lost events, a container that was deleted. A start with wrong settings
// prints no JSON; the rule on restarts has it.
resource errors 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: '${appName}-errors'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'alertworker: errors in the log'
    description: 'Alerts that became dead letters, events that were lost, containers that were deleted: the line says which, and docs/operations.md what to do.'
    severity: 1
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT5M'
    criteria: {
      allOf: [
        {
          query: 'ContainerAppConsoleLogs_CL | where ContainerAppName_s == "${appName}" | extend line = parse_json(Log_s) | where line.level == "error"'
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
}

// A receiver is announced when it goes down and when it is back, with reminders at least every hour between.
resource receiverDown 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: '${appName}-receiver-down'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'alertworker: a receiver is down'
    description: 'A receiver is down and has not come back. Its alerts wait; those older than NOTIFY_GIVE_UP become dead letters.'
    severity: 1
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT2H'
    criteria: {
      allOf: [
        {
          query: 'ContainerAppConsoleLogs_CL | where ContainerAppName_s == "${appName}" | extend line = parse_json(Log_s) | extend msg = replace_string(tostring(line.msg), "still: ", ""), receiver = tostring(line.receiver) | where msg startswith "receiver is down" or msg startswith "receiver is back" | summarize arg_max(TimeGenerated, msg), begun = min(TimeGenerated) by receiver, ContainerGroupName_s | where msg startswith "receiver is down" and begun < ago(5m)'
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
    skipQueryValidation: true
    autoMitigate: true
    actions: {
      actionGroups: actionGroupIds
    }
  }
}

// A replica announces what it cannot use, reminds of it at least every hour, and announces that it is back.
resource unreachable 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: '${appName}-unreachable'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'alertworker: a service cannot be reached'
    description: 'The hub, the checkpoints, the throttle store or a ledger have not answered for some time. Alerts wait; no event is lost within the hub\'s retention.'
    severity: 1
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT2H'
    criteria: {
      allOf: [
        {
          query: 'ContainerAppConsoleLogs_CL | where ContainerAppName_s == "${appName}" | extend line = parse_json(Log_s) | extend msg = replace_string(tostring(line.msg), "still: ", "") | where msg startswith "the hub can" or msg startswith "the checkpoint store can" or msg startswith "the throttle store can" or msg startswith "the ledger of a partition can" | extend service = extract("^the (hub|checkpoint store|throttle store|ledger)", 1, msg) | summarize arg_max(TimeGenerated, msg), begun = min(TimeGenerated) by service, ContainerGroupName_s | where msg contains "cannot" and begun < ago(2m)'
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
    skipQueryValidation: true
    autoMitigate: true
    actions: {
      actionGroups: actionGroupIds
    }
  }
}

resource restarts 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${appName}-restarts'
  location: 'global'
  tags: tags
  properties: {
    description: 'Replicas end and are started again: exit code 2 is a wrong setting, and the log lists all of them.'
    severity: 1
    enabled: true
    scopes: [
      appId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'restarts'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'RestartCount'
          timeAggregation: 'Maximum'
          operator: 'GreaterThan'
          threshold: 2
        }
      ]
    }
    actions: [for id in actionGroupIds: {
      actionGroupId: id
    }]
  }
}

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
