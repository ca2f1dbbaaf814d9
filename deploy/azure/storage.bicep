// Checkpoints, windows and dead letters, in a container each.
param location string
param tags object
param storageName string
param principalId string

var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var containerNames = [
  'alertworker-checkpoints'
  'alertworker-throttle'
  'alertworker-deadletters'
]

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: storageName
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS' // a fail-over to an older copy would forget windows: exception (e) of docs/promise.md
  }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    isHnsEnabled: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

// These hold for the whole account, so it should hold nothing else: soft delete and versions
// would keep a copy of each of the many writes of a checkpoint, a heartbeat or a window.
resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: {
      enabled: false
    }
    containerDeleteRetentionPolicy: {
      enabled: false
    }
    isVersioningEnabled: false
    changeFeed: {
      enabled: false
    }
  }
}

resource containers 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = [for name in containerNames: {
  parent: blobs
  name: name
}]

resource roles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, i) in containerNames: {
  name: guid(account.id, name, principalId, blobDataContributor)
  scope: containers[i]
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}]

// The worker never deletes a dead letter that was not delivered.
resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2023-05-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'old-dead-letters'
          enabled: true
          type: 'Lifecycle'
          definition: {
            filters: {
              blobTypes: [
                'blockBlob'
              ]
              prefixMatch: [
                'alertworker-deadletters/alerts/'
                'alertworker-deadletters/malformed/'
                'alertworker-deadletters/replayed/'
                'alertworker-deadletters/discarded/'
              ]
            }
            actions: {
              baseBlob: {
                delete: {
                  daysAfterModificationGreaterThan: 180
                }
              }
            }
          }
        }
      ]
    }
  }
}
