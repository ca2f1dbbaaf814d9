// Permission to read single secrets of a key vault, which may be in another resource group.
param vaultName string
param secretNames array
param principalId string

var fromKeyVaultUser = '4633458b-17de-408a-b874-0445c86b69e6'

resource secrets 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = [for name in secretNames: {
  name: '${vaultName}/${name}'
}]

resource roles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, i) in secretNames: {
  name: guid(secrets[i].id, principalId, fromKeyVaultUser)
  scope: secrets[i]
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', fromKeyVaultUser)
  }
}]
