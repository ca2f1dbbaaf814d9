package azure

import (
	"net/http"
	"strconv"
)

// A Service is one whose refusals Advice knows.
type Service int

const (
	Storage Service = iota
	Cosmos
	EventHubs
)

// An adviceRow is what to do about an answer that a setting, a policy or a network can cause. Of answers that say the same
// about whatever is asked, such as that there is no such blob, there is none. Of a service's rows the first that fits counts:
// those with a code come first.
type adviceRow struct {
	status int    // 0: any
	code   string // in Storage the error code, in Cosmos DB the sub-status, in Event Hubs the AMQP condition; empty: any other
	advice string
}

const (
	andClock  = ", and this machine's clock" // is left out if the clock is seen to be right
	inStorage = "STORAGE_CONNECTION_STRING"
	inEither  = "STORAGE_CONNECTION_STRING or STORAGE_ACCOUNT_URL"
	inNames   = "CHECKPOINT_CONTAINER, THROTTLE_CONTAINER or DEAD_LETTER_CONTAINER"

	changed = "the request is not as it was sent, or the service too old for it: check the proxy (HTTPS_PROXY), and that " + inEither +
		" is of a general-purpose v2 account or a current emulator"
	rejected        = "the credentials were rejected: check the account's name and its key, signature or identity in " + inEither + andClock
	storageKeyVault = "the account's own encryption key cannot be used: check the key in Key Vault, and that the account of " + inEither +
		" may use it"
	badToken = "the identity's token is not accepted: it must be of the account's tenant (AZURE_TENANT_ID, AZURE_CLIENT_ID), and this " +
		"machine's clock must be right"
	cosmosKeyVault = "the account's own encryption key cannot be used: check the key in Key Vault, and that the account of " + inCosmos +
		" may use it"
	cosmosRole = "not permitted: give the identity (AZURE_CLIENT_ID) the role Cosmos DB Built-in Data Contributor"
	inCosmos   = "COSMOS_CONNECTION_STRING or COSMOS_ENDPOINT"
	noProxy    = "the proxy asks for a login: put its user and password into HTTPS_PROXY, or the host into NO_PROXY"
	trouble    = "the service has a fault: alerts wait; if it lasts, see Azure's status and the resource's health"
	tooBusy    = "the account does more than it may: see its metrics; use an account of its own in " + inEither
)

// advice has what the services list:
//
//   - Storage: learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes, …/blob-service-error-codes and
//     …/sas-error-codes.
//   - Cosmos DB: learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb; sub-statuses as
//     Azure/azure-cosmos-dotnet-v3 has them in SubStatusCodes.cs.
//   - Event Hubs: learn.microsoft.com/azure/event-hubs/event-hubs-messaging-exceptions,
//     learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot, and, that an address which the network
//     rules do not allow is said to be unauthorized, learn.microsoft.com/azure/event-hubs/event-hubs-ip-filtering.
var advice = map[Service][]adviceRow{
	Storage: {
		{0, "NoAuthenticationInformation", "no credentials arrived: check whether the proxy (HTTPS_PROXY) removes them, and the key or signature in " + inStorage},
		{400, "InvalidAuthenticationInfo", "the credentials are malformed: copy the whole connection string into " + inStorage},
		{0, "InvalidAuthenticationInfo", badToken},
		{0, "AuthenticationFailed", rejected},
		{0, "KeyBasedAuthenticationNotPermitted", "the account accepts no keys: set STORAGE_ACCOUNT_URL, and give an identity the role Storage " +
			"Blob Data Contributor, instead of " + inStorage},
		{0, "AuthorizationFailure", "not permitted: check that the account's network rules (firewall, private endpoint) allow this machine, and " +
			"check the key, or what the signature allows, in " + inStorage},
		{0, "AuthorizationPermissionMismatch", "not permitted: check that the identity of STORAGE_ACCOUNT_URL has the role Storage Blob Data " +
			"Contributor, or that the signature in " + inStorage + " can read, write and create, delete and list (racwdl)"},
		{0, "AuthorizationSourceIPMismatch", "the signature in " + inStorage + " is for other IP addresses: make one for this machine's"},
		{0, "AuthorizationProtocolMismatch", "the signature in " + inStorage + " is for another protocol: set DefaultEndpointsProtocol=https in it"},
		{0, "AuthorizationResourceTypeMismatch", "the signature in " + inStorage + " is not for containers and blobs: it needs the resource types srt=co"},
		{0, "AuthorizationServiceMismatch", "the signature in " + inStorage + " is not for blobs: it needs the service ss=b"},
		{0, "UnauthorizedBlobOverwrite", "the signature in " + inStorage + " may not overwrite: it needs write (w), not create alone"},
		{0, "AccountIsDisabled", "the storage account is disabled: check its subscription, and the account in " + inEither},
		{0, "AccountBeingCreated", "the storage account is being created: wait, or check the account in " + inEither},
		{0, "AccountRequiresHttps", "the account accepts https alone: set DefaultEndpointsProtocol=https in " + inStorage},
		{0, "InsufficientAccountPermissions", "the account does not permit this now: reads or writes are disabled; check its state, and that " + inEither +
			" has its primary address, not the -secondary one"},
		{0, "KeyVaultEncryptionKeyNotFound", storageKeyVault},
		{0, "KeyVaultAccessTokenCannotBeAcquired", storageKeyVault},
		{0, "KeyVaultVaultNotFound", storageKeyVault},
		{0, "ContainerNotFound", "the container does not exist: the worker creates it if permitted; otherwise create it, or correct " + inNames},
		{0, "ContainerBeingDeleted", "the container is being deleted: wait a minute; the worker then creates it if permitted"},
		{0, "ContainerDisabled", "the container is disabled: an administrator did that; name another one in " + inNames},
		{0, "ResourceNotFound", "the account or the resource does not exist: check the account's name in " + inEither},
		{0, "InvalidResourceName", "a container cannot have that name: correct " + inNames},
		{0, "InvalidUri", "the account's address is not one: check " + inEither},
		{0, "RequestUrlFailedToParse", "the account's address is not one: check " + inEither},
		{0, "OutOfRangeInput", "a name is too long or too short: check " + inNames + ", and the account's name in " + inEither},
		{0, "BlobImmutableDueToPolicy", "a policy (immutability, or a legal hold) keeps the blob as it is: remove it from the container, or name another " +
			"one in " + inNames},
		{0, "BlobArchived", "a lifecycle rule has archived the blob: except these containers from it, and delete the blob or name another one in " + inNames},
		{0, "BlobBeingRehydrated", "the blob is coming back from the archive, which takes hours: wait, and except " + inNames + " from lifecycle rules"},
		{0, "BlobUsesCustomerSpecifiedEncryption", "the blob was written with a key that the worker does not have: delete it, or name another container in " + inNames},
		{0, "InvalidBlobType", "the blob is another program's: name another container in " + inNames},
		{0, "LeaseIdMissing", "somebody has leased the blob or the container: break that lease, or name another container in " + inNames},
		{0, "SnapshotsPresent", "the blob has snapshots: delete them, or name another container in " + inNames},
		{0, "FeatureVersionMismatch", changed},
		{0, "InvalidHeaderValue", changed},
		{0, "InvalidInput", changed},
		{0, "InvalidQueryParameterValue", changed},
		{0, "InvalidXmlDocument", changed},
		{0, "MissingRequiredHeader", changed},
		{0, "MissingRequiredQueryParameter", changed},
		{0, "MissingContentLengthHeader", changed},
		{0, "Md5Mismatch", changed},
		{0, "Crc64Mismatch", changed},
		{0, "ConditionHeadersNotSupported", changed},
		{0, "MultipleConditionHeadersNotSupported", changed},
		{0, "UnsupportedHeader", changed},
		{0, "UnsupportedHttpVerb", changed},
		{0, "UnsupportedQueryParameter", changed},
		{0, "InvalidHttpVerb", changed},
		{0, "ServerBusy", tooBusy},
		{0, "OperationTimedOut", "the account is slow: see its latency in Azure's metrics, and use an account of its own in " + inEither},
		{0, "InternalError", trouble},
		{400, "", changed},
		{401, "", rejected},
		{403, "", "not permitted: check the key, or that the signature or identity can read, write and create " +
			"(role Storage Blob Data Contributor), in " + inEither + ", and that the account's network rules allow this machine"},
		{405, "", changed},
		{407, "", noProxy},
		{411, "", changed},
		{413, "", "too large: check the proxy (HTTPS_PROXY), and whether " + inEither + " is of a general-purpose v2 account"},
		{429, "", tooBusy},
		{500, "", trouble},
		{502, "", "a proxy or gateway got no answer: check HTTPS_PROXY, and see Azure's status"},
		{503, "", tooBusy},
		{504, "", "a proxy or gateway got no answer: check HTTPS_PROXY, and see Azure's status"},
	},
	Cosmos: {
		{400, "1001", "the container's partition key is not /id: name another container in COSMOS_CONTAINER"},
		{401, "5000", "no credentials arrived: check whether the proxy (HTTPS_PROXY) removes them, and the key in COSMOS_CONNECTION_STRING"},
		{401, "5001", "the credentials are malformed: check the proxy (HTTPS_PROXY), and the key in COSMOS_CONNECTION_STRING"},
		{401, "5002", "the account accepts no identities: set COSMOS_CONNECTION_STRING, or allow them"},
		{401, "5003", badToken},
		{401, "5004", badToken},
		{401, "5005", "the identity's token is not valid yet: this machine's clock, or that of its AZURE_CLIENT_ID's issuer, is wrong"},
		{401, "5006", "the identity's token has expired: this machine's clock is wrong, or AZURE_CLIENT_ID gets no new one"},
		{401, "5007", badToken},
		{401, "5008", badToken},
		{401, "5009", badToken},
		{401, "5010", badToken},
		{401, "5011", badToken},
		{401, "5013", badToken},
		{401, "5200", badToken},
		{401, "5201", badToken},
		{401, "5202", cosmosKeyless},
		{401, "5203", cosmosKeyless},
		{403, "3", "this region accepts no writes: the account fails over; if it lasts, check its write region, and the address in " + inCosmos},
		{403, "1008", "the account is not in this region, or deleted: check the address in " + inCosmos},
		{403, "1014", "a logical partition is full: name another container in COSMOS_CONTAINER"},
		{403, "4000", cosmosKeyVault}, {403, "4001", cosmosKeyVault}, {403, "4002", cosmosKeyVault}, {403, "4003", cosmosKeyVault},
		{403, "4004", cosmosKeyVault}, {403, "4005", cosmosKeyVault}, {403, "4006", cosmosKeyVault}, {403, "4007", cosmosKeyVault},
		{403, "4008", cosmosKeyVault}, {403, "4009", cosmosKeyVault}, {403, "4010", cosmosKeyVault}, {403, "4011", cosmosKeyVault},
		{403, "4012", cosmosKeyVault}, {403, "4013", cosmosKeyVault}, {403, "4014", cosmosKeyVault}, {403, "4015", cosmosKeyVault},
		{403, "4016", cosmosKeyVault}, {403, "4017", cosmosKeyVault}, {403, "4018", cosmosKeyVault}, {403, "4019", cosmosKeyVault},
		{403, "5202", cosmosKeyless},
		{403, "5203", cosmosKeyless},
		{403, "5300", "an identity may not do this, whatever its role: create the database and the container (COSMOS_DATABASE, COSMOS_CONTAINER) yourself"},
		{403, "5301", cosmosRole},
		{403, "5302", cosmosRole},
		{403, "5303", cosmosRole},
		{403, "5304", cosmosRole},
		{403, "5305", cosmosRole},
		{403, "5306", cosmosRole},
		{403, "5307", "the account's network security perimeter does not admit this machine: add a rule for it, or check " + inCosmos},
		{403, "5400", cosmosRole},
		{404, "1013", "the container is being created: wait, or check COSMOS_CONTAINER"},
		{429, "", "the container's throughput is used up: raise it if this lasts, or give COSMOS_CONTAINER one of its own"},
		{400, "", "the account does not take such a request: check the proxy (HTTPS_PROXY), that " + inCosmos + " is an account for NoSQL, and its consistency"},
		{401, "", "the credentials were refused: check the account's address and its key or identity in " + inCosmos + andClock},
		{403, "", "not allowed: an identity needs the role Cosmos DB Built-in Data Contributor, the account's network " +
			"rules must admit this machine, this machine's clock must be right, and " + inCosmos + " must name the right account"},
		{405, "", "the account does not take such a request: check the proxy (HTTPS_PROXY), and that " + inCosmos + " is an account for NoSQL"},
		{407, "", noProxy},
		{408, "", "the account is slow: see its latency in Azure's metrics, and its region in " + inCosmos},
		{413, "", "too large: check the proxy (HTTPS_PROXY)"},
		{423, "", "the container's throughput is being changed: wait; if it lasts, see COSMOS_CONTAINER in the portal"},
		{500, "", trouble},
		{502, "", "a proxy or gateway got no answer: check HTTPS_PROXY, and see Azure's status"},
		{503, "", "the account is unavailable here: alerts wait; if it lasts, see Azure's status and the regions of the account in " + inCosmos},
		{504, "", "a proxy or gateway got no answer: check HTTPS_PROXY, and see Azure's status"},
	},
	EventHubs: {
		{0, "amqp:unauthorized-access", hubUnauthorized},
		{0, "com.microsoft:auth-failed", hubUnauthorized},
		{0, "com.microsoft:entity-disabled", "has disabled the event hub: enable it, or check EVENTHUB_NAME"},
		{0, "com.microsoft:server-busy", "is busy: its throughput units are used up; raise them, and see whether other programs read with EVENTHUB_CONSUMER_GROUP"},
		{0, "com.microsoft:timeout", "was too slow: it is repeated; if it lasts, see the namespace's metrics and EVENTHUB_TRANSPORT"},
		{0, "amqp:not-allowed", "does not allow that: check the namespace's tier, and EVENTHUB_CONSUMER_GROUP: in the tier Basic there is $Default alone"},
		{0, "amqp:not-implemented", "does not know that: check that EVENTHUB_CONNECTION_STRING is of an Event Hubs namespace"},
		{0, "com.microsoft:argument-error", "did not take a parameter: check EVENTHUB_NAME and EVENTHUB_CONSUMER_GROUP"},
		{0, "amqp:connection:framing-error", "was not understood: check what is between it and this machine (EVENTHUB_TRANSPORT, HTTPS_PROXY)"},
		{0, "amqp:internal-error", "has a fault: reading goes on by itself; if it lasts, see Azure's status and EVENTHUB_CONNECTION_STRING's namespace"},
		{401, "", hubUnauthorized},
		{403, "", "denied access: check the network rules of the namespace, and the key in EVENTHUB_CONNECTION_STRING, which needs Listen"},
		{407, "", noProxy},
		{503, "", "is busy: its throughput units are used up; raise them, and see whether other programs read with EVENTHUB_CONSUMER_GROUP"},
		{500, "", "has a fault: reading goes on by itself; if it lasts, see Azure's status and EVENTHUB_CONNECTION_STRING's namespace"},
	},
}

const (
	cosmosKeyless = "the account accepts no keys: set COSMOS_ENDPOINT, and give an identity the role Cosmos DB Built-in Data Contributor, instead " +
		"of COSMOS_CONNECTION_STRING"
	hubUnauthorized = "rejected the key or identity: check the key's name and the key in EVENTHUB_CONNECTION_STRING, which needs Listen (an " +
		"identity: the role Azure Event Hubs Data Receiver), that the namespace's network rules allow this machine, and its clock"
)

// Advice returns what to do about what a service answered: see adviceRow. It is empty if nothing that people set causes it.
func Advice(of Service, status int, code string) string {
	for _, r := range advice[of] {
		if (r.code == code || r.code == "") && (r.status == status || r.status == 0) {
			return r.advice
		}
	}

	return ""
}

// A ProxyError means that a proxy did not connect to a service.
type ProxyError struct {
	Status int
}

func (e *ProxyError) Error() string {
	text := "the proxy answered " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	if e.Status == http.StatusProxyAuthRequired {
		return text + ": " + noProxy
	}

	return text + ": check HTTPS_PROXY, and whether it may connect to this host"
}
