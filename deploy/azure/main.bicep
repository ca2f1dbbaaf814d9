// alertworker with everything that it needs, in a resource group of its own.
targetScope = 'subscription'

@description('Name of the deployment: of the resource group, and in the names of what is in it.')
@minLength(1)
@maxLength(40)
param environmentName string

@description('Region of all resources.')
param location string

@description('Container image, with a tag or a digest.')
@minLength(1)
param image string

@description('Resource id of the Azure container registry that the image is in. Empty: the image is public.')
param registryId string = ''

@description('TEMPERATURE_THRESHOLD. A string, because Bicep has no fractions. Required without rules.')
param temperatureThreshold string = ''

@description('TEMPERATURE_FIELD.')
param temperatureField string = 'temperature,temp'

@description('RULES, the text of a file of rules, for several limits, levels or fields: temperatureThreshold and temperatureField are then not used.')
param rules string = ''

@secure()
@minLength(1)
@description('NOTIFY_URLS. They may hold secrets. Required unless fromKeyVault has them.')
param notifyUrls string?

@secure()
@description('NOTIFY_WEBHOOK_SECRET. Empty: webhooks are not signed.')
param webhookSecret string = ''

@description('Resource id of a key vault that uses roles and has the secrets of fromKeyVault.')
param keyVaultId string = ''

@description('Settings that Container Apps reads from the key vault, and the names of their secrets there: { NOTIFY_URLS: \'notify-urls\', HTTP_ADMIN_TOKEN: \'admin-token\' }. A new version of a secret is used within half an hour, by a restart.')
param fromKeyVault object = {}

@description('THROTTLE_WINDOW.')
param throttleWindow string = '60s'

@description('THROTTLE_STORE. cosmos makes a Cosmos DB account besides.')
@allowed([
  'blob'
  'blob-lease'
  'cosmos'
])
param throttleStore string = 'blob'

@description('Further settings by their names, such as { NOTIFY_RESOLVED: \'true\', TIME_ZONE: \'Europe/Berlin\' }. No secrets: everybody who may read the app sees them.')
param settings object = {}

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
@minValue(1)
param iotHubUnits int = 1

@description('Throughput units of the Event Hubs namespace, 1,000 events or 1 MB per second each. The namespace adds units up to 10 by itself and never removes them, but every deployment sets this number: keep it at what the load needs.')
@minValue(1)
@maxValue(40)
param throughputUnits int = 1

@description('For how many days the hub keeps events. NOTIFY_GIVE_UP, 12 h, must be less.')
@minValue(1)
@maxValue(7)
param retentionDays int = 1

@description('Events per second that one replica should read. Decides how much lag adds a replica.')
param eventsPerSecondPerReplica int = 1000

@description('vCPUs of a replica, with 2 GiB for each. 0.25 is enough for some thousand events a second; more if events are larger than 64 KB. docs/operations.md has the formulas.')
@allowed([
  '0.25'
  '0.5'
  '1'
  '2'
])
param replicaSize string = '0.25'

@description('Device twin tags that IoT Hub adds to every message as application properties: [{ key: \'…\', value: \'$twin.tags.…\' }], at most 10.')
@maxLength(10)
param enrichments array = []

@description('Resource id of a subnet of at least /27, delegated to Microsoft.App/environments, from which the worker connects. Empty: a network of Azure\'s. Cannot be changed later.')
param subnetId string = ''

@description('With subnetId: serve the status page and the other paths of HTTP_ADDR to that virtual network, over HTTPS. Whoever can reach them sees devices.')
param ingress bool = false

@description('Who gets an e-mail when an alert rule fires. Empty: nobody; the alerts show in the portal.')
param alertEmail string = ''

var tags = {
  'azd-env-name': environmentName
}

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-alertworker-${environmentName}'
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
    temperatureThreshold: empty(temperatureThreshold) && empty(rules) ? fail('Set TEMPERATURE_THRESHOLD, or RULES.') : temperatureThreshold
    temperatureField: temperatureField
    rules: rules
    notifyUrls: notifyUrls
    webhookSecret: webhookSecret
    keyVaultId: keyVaultId
    fromKeyVault: fromKeyVault
    throttleWindow: throttleWindow
    throttleStore: throttleStore
    settings: settings
    source: source
    partitions: partitions
    iotHubUnits: iotHubUnits
    throughputUnits: throughputUnits
    retentionDays: retentionDays
    eventsPerSecondPerReplica: eventsPerSecondPerReplica
    replicaSize: replicaSize
    enrichments: enrichments
    subnetId: subnetId
    ingress: ingress
    alertEmail: alertEmail
  }
}

output RESOURCE_GROUP string = group.name
output IOT_HUB string = all.outputs.iotHubName
output STORAGE_ACCOUNT string = all.outputs.storageName
output CONTAINER_APP string = all.outputs.appName
