// What is in the resource group. Names follow from the token, so that no file has to wait
// for another only to learn one.
param location string
param tags object
param token string
param image string
param registryId string
param temperatureThreshold string
param temperatureField string
param rules string
@secure()
param notifyUrls string?
@secure()
param webhookSecret string
param keyVaultId string
param fromKeyVault object
param throttleWindow string
param throttleStore string
param settings object
param source string
param partitions int
param iotHubUnits int
param throughputUnits int
param retentionDays int
param eventsPerSecondPerReplica int
param replicaSize string
param enrichments array
param subnetId string
param ingress bool
param alertEmail string

var iotHubName = 'iot-${token}'
var namespaceName = 'evhns-${token}'
var storageName = 'st${token}'
var cosmosName = 'cosmos-${token}'
var appName = 'ca-${token}'
var consumerGroup = 'alertworker'

// An id is /subscriptions/…/resourceGroups/…/providers/…/…/….
var registry = split(empty(registryId) ? resourceGroup().id : registryId, '/')
var vault = split(empty(keyVaultId) ? resourceGroup().id : keyVaultId, '/')

// The worker's identity. Each module below gives it the roles that it needs there.
resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'id-${token}'
  location: location
  tags: tags
}

module pull 'pull.bicep' = if (!empty(registryId)) {
  name: 'pull-${token}' // in a group that others may be deploying to
  scope: resourceGroup(registry[2], registry[4])
  params: {
    registryName: last(registry)
    principalId: identity.properties.principalId
  }
}

module secrets 'vault.bicep' = if (!empty(fromKeyVault)) {
  name: 'secrets-${token}'
  scope: resourceGroup(vault[2], vault[4])
  params: {
    vaultName: empty(keyVaultId) ? fail('fromKeyVault needs keyVaultId') : last(vault)
    secretNames: map(items(fromKeyVault), secret => secret.value)
    principalId: identity.properties.principalId
  }
}

module hub 'hub.bicep' = {
  name: 'hub'
  params: {
    location: location
    tags: tags
    iotHubName: iotHubName
    namespaceName: namespaceName
    source: source
    consumerGroup: consumerGroup
    partitions: partitions
    iotHubUnits: iotHubUnits
    throughputUnits: throughputUnits
    retentionDays: retentionDays
    enrichments: enrichments
    principalId: identity.properties.principalId
  }
}

module storage 'storage.bicep' = {
  name: 'storage'
  params: {
    location: location
    tags: tags
    storageName: storageName
    principalId: identity.properties.principalId
  }
}

module cosmos 'cosmos.bicep' = if (throttleStore == 'cosmos') {
  name: 'cosmos'
  params: {
    location: location
    tags: tags
    cosmosName: cosmosName
    principalId: identity.properties.principalId
  }
}

module app 'app.bicep' = {
  name: 'app'
  params: {
    location: location
    tags: tags
    appName: appName
    token: token
    image: image
    registryServer: empty(registryId) ? '' : split(image, '/')[0] // it may have a hash that the registry's name has not
    identityId: identity.id
    identityClientId: identity.properties.clientId
    source: source
    iotHubName: iotHubName
    namespaceName: namespaceName
    eventHubName: 'telemetry'
    consumerGroup: consumerGroup
    storageName: storageName
    cosmosName: cosmosName
    throttleStore: throttleStore
    throttleWindow: throttleWindow
    temperatureThreshold: temperatureThreshold
    temperatureField: temperatureField
    rules: rules
    settings: settings
    notifyUrls: notifyUrls
    webhookSecret: webhookSecret
    keyVaultName: last(vault)
    fromKeyVault: fromKeyVault
    subnetId: subnetId
    ingress: ingress && empty(subnetId) ? fail('ingress needs subnetId') : ingress
    partitions: partitions
    eventsPerSecondPerReplica: eventsPerSecondPerReplica
    replicaSize: replicaSize
  }
  // It starts with its roles, or its first replicas fail until they have them.
  dependsOn: [
    pull
    secrets
    hub
    storage
    cosmos
  ]
}

module alerts 'alerts.bicep' = {
  name: 'alerts'
  params: {
    location: location
    tags: tags
    workspaceId: app.outputs.workspaceId
    appId: app.outputs.appId
    namespaceId: hub.outputs.namespaceId
    appName: appName
    alertEmail: alertEmail
  }
}

output iotHubName string = iotHubName
output storageName string = storageName
output appName string = appName
