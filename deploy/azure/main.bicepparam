// azd compiles this with the values of its environment: azd env set NAME VALUE. What has no default there is required.
// To set another parameter of main.bicep, add a line for it.
using 'main.bicep'

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME')
param location = readEnvironmentVariable('AZURE_LOCATION')
param image = readEnvironmentVariable('IMAGE')
param registryId = readEnvironmentVariable('REGISTRY_ID', '')
param source = readEnvironmentVariable('SOURCE', 'eventhubs')
param alertEmail = readEnvironmentVariable('ALERT_EMAIL', '')

param temperatureThreshold = readEnvironmentVariable('TEMPERATURE_THRESHOLD', '')
param temperatureField = readEnvironmentVariable('TEMPERATURE_FIELD', 'temperature,temp')
param rules = readEnvironmentVariable('RULES', loadTextContent('rules.yaml')) // rules in that file need no variable
param throttleStore = readEnvironmentVariable('THROTTLE_STORE', 'blob')
param throttleWindow = readEnvironmentVariable('THROTTLE_WINDOW', '60s')
param notifyUrls = readEnvironmentVariable('NOTIFY_URLS') // remove this line if fromKeyVault has them
param webhookSecret = readEnvironmentVariable('NOTIFY_WEBHOOK_SECRET', '')

// Further settings by their names, such as NOTIFY_RESOLVED: 'true'.
param settings = {}
