// What is in the resource group. Names follow from the token, so that no file has to wait
// for another only to learn one.
param location string
param tags object
param token string
param image string
param registryId string
param temperatureThreshold string
param temperatureField string
@secure()
param notifyUrls string
@secure()
param webhookSecret string
param throttleWindow string
param throttleStore string
param source string
param partitions int
param iotHubUnits int
param retentionDays int
param eventsPerSecondPerReplica int
param enrichments array
param rules string
param settings object
param alertEmail string

var iotHubName = 'iot-${token}'
var namespaceName = 'evhns-${token}'
var storageName = 'st${token}'
var cosmosName = 'cosmos-${token}'
var appName = 'ca-${token}'
var consumerGroup = 'alertworker'

// The id of a registry is /subscriptions/…/resourceGroups/…/providers/Microsoft.ContainerRegistry/registries/…
var registrySubscription = empty(registryId) ? subscription().subscriptionId : split(registryId, '/')[2]
var registryGroup = empty(registryId) ? resourceGroup().name : split(registryId, '/')[4]
var registryName = last(split(registryId, '/'))

// The worker's identity. Each module below gives it the roles that it needs there.
resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'id-${token}'
  location: location
  tags: tags
}

module pull 'pull.bicep' = if (!empty(registryId)) {
  name: 'pull'
  scope: resourceGroup(registrySubscription, registryGroup)
  params: {
    registryName: registryName
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
    registryServer: empty(registryId) ? '' : '${registryName}.azurecr.io'
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
    partitions: partitions
    eventsPerSecondPerReplica: eventsPerSecondPerReplica
  }
  // It starts with its roles, or its first replicas fail until they have them.
  dependsOn: [
    pull
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
    appName: appName
    alertEmail: alertEmail
  }
}

output iotHubName string = iotHubName
output storageName string = storageName
output appName string = appName
