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
param notifyUrls string?
@secure()
param webhookSecret string
param keyVaultName string
param fromKeyVault object
param subnetId string
param ingress bool
param partitions int
param eventsPerSecondPerReplica int
param replicaSize string

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

resource appEnvironment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: 'cae-${token}'
  location: location
  tags: tags
  properties: {
    appLogsConfiguration: {
      destination: 'azure-monitor'
    }
    vnetConfiguration: empty(subnetId) ? null : {
      infrastructureSubnetId: subnetId
      internal: true
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

resource log 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'log'
  scope: appEnvironment
  properties: {
    workspaceId: workspace.id
    logs: [
      {
        category: 'ContainerAppConsoleLogs'
        enabled: true
      }
      {
        category: 'ContainerAppSystemLogs'
        enabled: true
      }
    ]
  }
}

// IoT Hub's own endpoint takes no identity. The policy "service" may read, and nothing of the registry.
#disable-next-line use-recognized-resource-type // Bicep has no type for it; the version is given
var iotHubKey = routed ? '' : listKeys(resourceId('Microsoft.Devices/IotHubs/IotHubKeys', iotHubName, 'service'), '2023-06-30').primaryKey

// What Container Apps gives with so many vCPUs, and 90 % of it: near its limit Go collects garbage more often, and is not killed.
var memory = {
  '0.25': { size: '0.5Gi', limit: '460MiB' }
  '0.5': { size: '1Gi', limit: '920MiB' }
  '1': { size: '2Gi', limit: '1840MiB' }
  '2': { size: '4Gi', limit: '3680MiB' }
}

// Either rules or one threshold: the worker refuses both.
var ownEnv = union(
  {
    EVENTHUB_CONSUMER_GROUP: consumerGroup
    STORAGE_ACCOUNT_URL: 'https://${storageName}.blob.${environment().suffixes.storage}'
    THROTTLE_STORE: throttleStore
    THROTTLE_WINDOW: throttleWindow
    GOMEMLIMIT: memory[replicaSize].limit
  },
  routed ? {
    EVENTHUB_NAMESPACE: '${namespaceName}.servicebus.windows.net'
    EVENTHUB_NAME: eventHubName
  } : {},
  throttleStore == 'cosmos' ? {
    COSMOS_ENDPOINT: 'https://${cosmosName}.documents.azure.com:443/'
  } : {},
  empty(rules) ? {
    TEMPERATURE_THRESHOLD: temperatureThreshold
    TEMPERATURE_FIELD: temperatureField
  } : {
    RULES: rules
  }
)
var twice = intersection(objectKeys(settings), concat(objectKeys(ownEnv), objectKeys(fromKeyVault), [
  'AZURE_CLIENT_ID'
  'IOTHUB_CONNECTION_STRING'
  'NOTIFY_URLS'
  'NOTIFY_WEBHOOK_SECRET'
]))
var plainEnv = map(items(union(ownEnv, empty(twice) ? settings : fail('Remove from settings what has a parameter of its own: ${join(twice, ', ')}'))), e => {
  name: e.key
  value: string(e.value)
})

// What fromKeyVault has is not set by value.
var iotHubSecret = routed || contains(fromKeyVault, 'IOTHUB_CONNECTION_STRING') ? [] : [
  {
    name: 'iothub'
    value: 'HostName=${iotHubName}.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=${iotHubKey}'
  }
]
var iotHubEnv = empty(iotHubSecret) ? [] : [
  {
    name: 'IOTHUB_CONNECTION_STRING'
    secretRef: 'iothub'
  }
]
var notifySecret = contains(fromKeyVault, 'NOTIFY_URLS') ? [] : [
  {
    name: 'notify-urls'
    value: notifyUrls
  }
]
var notifyEnv = empty(notifySecret) ? [] : [
  {
    name: 'NOTIFY_URLS'
    secretRef: 'notify-urls'
  }
]
var webhookSecretSecret = empty(webhookSecret) || contains(fromKeyVault, 'NOTIFY_WEBHOOK_SECRET') ? [] : [
  {
    name: 'webhook-secret'
    value: webhookSecret
  }
]
var webhookSecretEnv = empty(webhookSecret) || contains(fromKeyVault, 'NOTIFY_WEBHOOK_SECRET') ? [] : [
  {
    name: 'NOTIFY_WEBHOOK_SECRET'
    secretRef: 'webhook-secret'
  }
]
var vaultSecrets = map(items(fromKeyVault), s => {
  name: s.value
  keyVaultUrl: 'https://${keyVaultName}${environment().suffixes.keyvaultDns}/secrets/${s.value}'
  identity: identityId
})
var vaultEnv = map(items(fromKeyVault), s => {
  name: s.key
  secretRef: s.value
})
// The page refuses host names that it does not know.
var hostsEnv = ingress && !contains(settings, 'HTTP_HOSTS') ? [
  {
    name: 'HTTP_HOSTS'
    value: '${appName}.${appEnvironment.properties.defaultDomain}'
  }
] : []
var secrets = concat(iotHubSecret, notifySecret, webhookSecretSecret, vaultSecrets)

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
    managedEnvironmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      ingress: ingress ? {
        external: true // to the virtual network: the environment is internal
        targetPort: 8080
      } : null
      registries: empty(registryServer) ? [] : [
        {
          server: registryServer
          identity: identityId
        }
      ]
      secrets: secrets
    }
    template: {
      terminationGracePeriodSeconds: 60 // more than DRAIN_TIMEOUT, 20 s, and what comes after it
      containers: [
        {
          name: 'alertworker'
          image: image
          resources: {
            cpu: json(replicaSize)
            memory: memory[replicaSize].size
          }
          env: concat(plainEnv, iotHubEnv, notifyEnv, webhookSecretEnv, vaultEnv, hostsEnv, [
            {
              name: 'AZURE_CLIENT_ID'
              value: identityClientId
            }
            {
              name: 'SECRETS_HASH' // a changed secret alone makes no revision, and replicas would keep the old one
              value: uniqueString(string(secrets))
            }
          ])
          probes: [
            {
              type: 'Startup' // /healthz answers at once: this only covers a slow start of the container
              httpGet: {
                path: '/healthz'
                port: 8080
              }
              periodSeconds: 2
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
      scale: {
        minReplicas: 2 // if one dies, the other reads its partitions within 12 s
        maxReplicas: partitions
        rules: [
          routed ? lagRule : cpuRule
        ]
      }
    }
  }
  dependsOn: [
    log // or its first lines are missing
  ]
}

output workspaceId string = workspace.id
output appId string = app.id
