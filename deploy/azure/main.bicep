// alertworker with everything that it needs, in a resource group of its own.
targetScope = 'subscription'

@description('Name of the deployment: of the resource group, and in the names of what is in it.')
@minLength(1)
@maxLength(40)
param environmentName string

@description('Region of all resources.')
param location string

@description('Container image, with a tag or a digest.')
param image string

@description('Resource id of the Azure container registry that the image is in. Empty: the image is public.')
param registryId string = ''

@description('TEMPERATURE_THRESHOLD. A string, because Bicep has no fractions. Required without rules.')
param temperatureThreshold string = ''

@description('TEMPERATURE_FIELD.')
param temperatureField string = 'temperature,temp'

@secure()
@description('NOTIFY_URLS. They may hold secrets.')
param notifyUrls string

@secure()
@description('NOTIFY_WEBHOOK_SECRET. Empty: webhooks are not signed.')
param webhookSecret string = ''

@description('THROTTLE_WINDOW.')
param throttleWindow string = '60s'

@description('THROTTLE_STORE. cosmos makes a Cosmos DB account besides.')
@allowed([
  'blob'
  'blob-lease'
  'cosmos'
])
param throttleStore string = 'blob'

@description('Where the worker reads. eventhubs: IoT Hub routes telemetry to an Event Hubs namespace, there are no keys, and the number of replicas follows the lag. iothub: IoT Hub\'s own endpoint, which needs a key; the number of replicas follows CPU use.')
@allowed([
  'eventhubs'
  'iothub'
])
param source string = 'eventhubs'

@description('Partitions of the hub: the most replicas that can read at a time. Cannot be changed later.')
@minValue(2)
@maxValue(32)
param partitions int = 4

@description('Units of the IoT Hub, of tier S1: 400,000 messages of 4 KB a day each.')
param iotHubUnits int = 1

@description('For how many days the hub keeps events. NOTIFY_GIVE_UP, 12 h, must be less.')
@minValue(1)
@maxValue(7)
param retentionDays int = 1

@description('Events per second that one replica should read. Decides how much lag adds a replica.')
param eventsPerSecondPerReplica int = 1000

@description('Device twin tags that IoT Hub adds to every message as application properties: [{ key: \'…\', value: \'$twin.tags.…\' }], at most 10.')
param enrichments array = []

@description('The text of a RULES_FILE, for several limits, levels or fields: then temperatureThreshold and temperatureField do not count. Empty: none.')
param rules string = ''

@description('Further settings by their names, such as { TEMPERATURE_FOR: \'2m\', NOTIFY_RESOLVED: \'true\' }. No secrets: everybody who may read the app sees them.')
param settings object = {}

@description('Who gets an e-mail when an alert rule fires. Empty: nobody; the alerts show in the portal.')
param alertEmail string = ''

var tags = {
  'azd-env-name': environmentName
}

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module all 'resources.bicep' = {
  name: 'alertworker'
  scope: group
  params: {
    location: location
    tags: tags
    token: uniqueString(subscription().id, environmentName, location)
    image: image
    registryId: registryId
    temperatureThreshold: temperatureThreshold
    temperatureField: temperatureField
    notifyUrls: notifyUrls
    webhookSecret: webhookSecret
    throttleWindow: throttleWindow
    throttleStore: throttleStore
    source: source
    partitions: partitions
    iotHubUnits: iotHubUnits
    retentionDays: retentionDays
    eventsPerSecondPerReplica: eventsPerSecondPerReplica
    enrichments: enrichments
    rules: rules
    settings: settings
    alertEmail: alertEmail
  }
}

output RESOURCE_GROUP string = group.name
output IOT_HUB string = all.outputs.iotHubName
output STORAGE_ACCOUNT string = all.outputs.storageName
output CONTAINER_APP string = all.outputs.appName
