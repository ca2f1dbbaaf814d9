// The worker as a container app, with its log and its scale rule.
param location string
param tags object
param appName string
param token string
param image string
param registryServer string
param identityId string
param identityClientId string
param source string
param iotHubName string
param namespaceName string
param eventHubName string
param consumerGroup string
param storageName string
param cosmosName string
param throttleStore string
param throttleWindow string
param temperatureThreshold string
param temperatureField string
param rules string
param settings object
@secure()
param notifyUrls string
@secure()
param webhookSecret string
param partitions int
param eventsPerSecondPerReplica int

var routed = source == 'eventhubs'
var checkpointSeconds = 5 // CHECKPOINT_INTERVAL

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: 'log-${token}'
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: 30
  }
}

resource environment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: 'cae-${token}'
  location: location
  tags: tags
  properties: {
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: {
        customerId: workspace.properties.customerId
        sharedKey: workspace.listKeys().primarySharedKey
      }
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

// IoT Hub's own endpoint takes no identity. The policy "service" may read, and nothing of the registry.
var iotHubSecret = routed ? [] : [
  {
    name: 'iothub'
    value: 'HostName=${iotHubName}.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=${listKeys(resourceId('Microsoft.Devices/IotHubs/IotHubKeys', iotHubName, 'service'), '2023-06-30').primaryKey}'
  }
]
var iotHubEnv = [
  {
    name: 'IOTHUB_CONNECTION_STRING'
    secretRef: 'iothub'
  }
]
var eventHubsEnv = [
  {
    name: 'EVENTHUB_NAMESPACE'
    value: '${namespaceName}.servicebus.windows.net'
  }
  {
    name: 'EVENTHUB_NAME'
    value: eventHubName
  }
]
var cosmosEnv = throttleStore == 'cosmos' ? [
  {
    name: 'COSMOS_ENDPOINT'
    value: 'https://${cosmosName}.documents.azure.com:443/'
  }
] : []
var webhookSecretSecret = empty(webhookSecret) ? [] : [
  {
    name: 'webhook-secret'
    value: webhookSecret
  }
]
var webhookSecretEnv = empty(webhookSecret) ? [] : [
  {
    name: 'NOTIFY_WEBHOOK_SECRET'
    secretRef: 'webhook-secret'
  }
]

// Either a file of rules or one threshold: the worker refuses both.
var rulesSecret = empty(rules) ? [] : [
  {
    name: 'rules'
    value: rules
  }
]
var rulesEnv = [
  {
    name: 'RULES_FILE'
    value: '/etc/alertworker/rules.yaml'
  }
]
var temperatureEnv = [
  {
    name: 'TEMPERATURE_THRESHOLD'
    value: temperatureThreshold
  }
  {
    name: 'TEMPERATURE_FIELD'
    value: temperatureField
  }
]
var furtherEnv = [for setting in items(settings): {
  name: setting.key
  value: string(setting.value)
}]

// KEDA asks both the hub and the checkpoints with the identity, which IoT Hub's own endpoint does not take.
// All names are lower case, as the worker writes them in the names of checkpoints.
var lagRule = {
  name: 'lag'
  custom: {
    type: 'azure-eventhub'
    identity: identityId
    metadata: {
      eventHubNamespace: namespaceName
      eventHubName: eventHubName
      consumerGroup: consumerGroup
      storageAccountName: storageName
      blobContainer: 'alertworker-checkpoints'
      checkpointStrategy: 'blobMetadata'
      unprocessedEventThreshold: string(2 * eventsPerSecondPerReplica * checkpointSeconds)
    }
  }
}
var cpuRule = {
  name: 'cpu'
  custom: {
    type: 'cpu'
    metadata: {
      type: 'Utilization'
      value: '70'
    }
  }
}

resource app 'Microsoft.App/containerApps@2025-01-01' = {
  name: appName
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    managedEnvironmentId: environment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: empty(registryServer) ? [] : [
        {
          server: registryServer
          identity: identityId
        }
      ]
      secrets: concat(iotHubSecret, webhookSecretSecret, rulesSecret, [
        {
          name: 'notify-urls'
          value: notifyUrls
        }
      ])
    }
    template: {
      terminationGracePeriodSeconds: 60 // more than DRAIN_TIMEOUT, 20 s, and what comes after it
      containers: [
        {
          name: 'alertworker'
          image: image
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          env: concat(routed ? eventHubsEnv : iotHubEnv, cosmosEnv, webhookSecretEnv, empty(rules) ? temperatureEnv : rulesEnv, furtherEnv, [
            {
              name: 'AZURE_CLIENT_ID'
              value: identityClientId
            }
            {
              name: 'GOMEMLIMIT'
              value: '900MiB'
            }
            {
              name: 'EVENTHUB_CONSUMER_GROUP'
              value: consumerGroup
            }
            {
              name: 'STORAGE_ACCOUNT_URL'
              value: 'https://${storageName}.blob.core.windows.net'
            }
            {
              name: 'THROTTLE_STORE'
              value: throttleStore
            }
            {
              name: 'THROTTLE_WINDOW'
              value: throttleWindow
            }
            {
              name: 'NOTIFY_URLS'
              secretRef: 'notify-urls'
            }
          ])
          volumeMounts: empty(rules) ? [] : [
            {
              volumeName: 'rules'
              mountPath: '/etc/alertworker'
            }
          ]
          probes: [
            {
              type: 'Startup' // the first token of an identity may take a minute
              httpGet: {
                path: '/healthz'
                port: 8080
              }
              periodSeconds: 15
              failureThreshold: 10
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/healthz'
                port: 8080
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 6
            }
            {
              type: 'Readiness'
              httpGet: {
                path: '/readyz'
                port: 8080
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 3
            }
          ]
        }
      ]
      volumes: empty(rules) ? [] : [
        {
          name: 'rules'
          storageType: 'Secret' // the only kind of volume that takes a text; rules are no secret
          secrets: [
            {
              secretRef: 'rules'
              path: 'rules.yaml'
            }
          ]
        }
      ]
      scale: {
        minReplicas: 2 // if one dies, the other reads its partitions within 12 s
        maxReplicas: partitions
        rules: [
          routed ? lagRule : cpuRule
        ]
      }
    }
  }
}

output workspaceId string = workspace.id
output appId string = app.id
