// An IoT Hub, and where the worker reads its telemetry: the hub's own endpoint, or an Event
// Hubs namespace that the hub routes telemetry to.
param location string
param tags object
param iotHubName string
param namespaceName string
param source string
param consumerGroup string
param partitions int
param iotHubUnits int
param throughputUnits int
param retentionDays int
param enrichments array
param principalId string

var routed = source == 'eventhubs'
var endpointName = routed ? 'telemetry' : 'events'
var eventHubsDataSender = '2b629674-e913-4c01-ae53-ef4638d8f975'
var eventHubsDataReceiver = 'a638d3c7-ab3a-418d-83e6-5f17a39d4fde'

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' = if (routed) {
  name: namespaceName
  location: location
  tags: tags
  sku: {
    name: 'Standard'
    tier: 'Standard'
    capacity: throughputUnits
  }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    isAutoInflateEnabled: true
    maximumThroughputUnits: max(10, throughputUnits)
  }
}

resource eventHub 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' = if (routed) {
  parent: namespace
  name: 'telemetry'
  properties: {
    partitionCount: partitions
    messageRetentionInDays: retentionDays
  }
}

resource group 'Microsoft.EventHub/namespaces/eventhubs/consumergroups@2024-01-01' = if (routed) {
  parent: eventHub
  name: consumerGroup
}

// The worker reads, and KEDA asks how far it has come.
resource receive 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (routed) {
  name: guid(eventHub.id, principalId, eventHubsDataReceiver)
  scope: eventHub
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', eventHubsDataReceiver)
  }
}

// The hub's identity, which has to have its role before the hub has the route.
resource hubIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = if (routed) {
  name: 'id-${iotHubName}'
  location: location
  tags: tags
}

resource send 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (routed) {
  name: guid(eventHub.id, hubIdentity.id, eventHubsDataSender)
  scope: eventHub
  properties: {
    principalId: hubIdentity!.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', eventHubsDataSender)
  }
}

resource hub 'Microsoft.Devices/IotHubs@2023-06-30' = {
  name: iotHubName
  location: location
  tags: tags
  sku: {
    name: 'S1'
    capacity: iotHubUnits
  }
  identity: routed ? {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${hubIdentity.id}': {}
    }
  } : {
    type: 'None'
  }
  properties: {
    minTlsVersion: '1.2'
    eventHubEndpoints: {
      events: {
        retentionTimeInDays: retentionDays
        partitionCount: partitions
      }
    }
    routing: {
      endpoints: {
        eventHubs: routed ? [
          {
            name: 'telemetry'
            authenticationType: 'identityBased'
            endpointUri: 'sb://${namespaceName}.servicebus.windows.net'
            entityPath: 'telemetry'
            identity: {
              userAssignedIdentity: hubIdentity.id
            }
            subscriptionId: subscription().subscriptionId
            resourceGroup: resourceGroup().name
          }
        ] : []
      }
      routes: [
        {
          name: 'telemetry'
          source: 'DeviceMessages'
          condition: 'true'
          endpointNames: [
            endpointName
          ]
          isEnabled: true
        }
      ]
      fallbackRoute: {
        name: '$fallback'
        source: 'DeviceMessages'
        condition: 'true'
        endpointNames: [
          'events'
        ]
        isEnabled: true
      }
      enrichments: [for e in enrichments: {
        key: e.key
        value: e.value
        endpointNames: [
          endpointName
        ]
      }]
    }
  }
  dependsOn: [
    send
  ]
}

resource builtInGroup 'Microsoft.Devices/IotHubs/eventHubEndpoints/ConsumerGroups@2023-06-30' = if (!routed) {
  name: '${hub.name}/events/${consumerGroup}'
  properties: {
    name: consumerGroup
  }
}

output namespaceId string = routed ? namespace.id : ''
