package azure_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// What a setting, a policy or a network causes is answered with what to set. Each row has the code, and what its
// advice must name.
func TestAdvice(t *testing.T) {
	const (
		key      = "STORAGE_CONNECTION_STRING"
		endpoint = "STORAGE_ACCOUNT_URL"
		names    = "CHECKPOINT_CONTAINER"
		cosmos   = "COSMOS_CONNECTION_STRING"
	)
	for _, test := range []struct {
		of     azure.Service
		status int
		code   string
		names  []string
	}{
		{azure.Storage, 401, "NoAuthenticationInformation", []string{key, "HTTPS_PROXY"}},
		{azure.Storage, 401, "InvalidAuthenticationInfo", []string{"AZURE_TENANT_ID", "clock"}},
		{azure.Storage, 400, "InvalidAuthenticationInfo", []string{key}},
		{azure.Storage, 403, "AuthenticationFailed", []string{key, "key", "clock"}},
		{azure.Storage, 403, "KeyBasedAuthenticationNotPermitted", []string{endpoint, "identity", "Storage Blob Data Contributor"}},
		{azure.Storage, 403, "AuthorizationFailure", []string{"network rules", key}},
		{azure.Storage, 403, "AuthorizationPermissionMismatch", []string{"Storage Blob Data Contributor", endpoint, key}},
		{azure.Storage, 403, "AuthorizationSourceIPMismatch", []string{key, "IP"}},
		{azure.Storage, 403, "AuthorizationProtocolMismatch", []string{key, "https"}},
		{azure.Storage, 403, "AuthorizationResourceTypeMismatch", []string{key, "srt=co"}},
		{azure.Storage, 403, "AuthorizationServiceMismatch", []string{key, "ss=b"}},
		{azure.Storage, 403, "UnauthorizedBlobOverwrite", []string{key, "write"}},
		{azure.Storage, 403, "AccountIsDisabled", []string{"disabled", key}},
		{azure.Storage, 409, "AccountBeingCreated", []string{key}},
		{azure.Storage, 400, "AccountRequiresHttps", []string{"DefaultEndpointsProtocol=https", key}},
		{azure.Storage, 403, "InsufficientAccountPermissions", []string{"-secondary", key}},
		{azure.Storage, 403, "KeyVaultEncryptionKeyNotFound", []string{"Key Vault"}},
		{azure.Storage, 403, "KeyVaultAccessTokenCannotBeAcquired", []string{"Key Vault"}},
		{azure.Storage, 403, "KeyVaultVaultNotFound", []string{"Key Vault"}},
		{azure.Storage, 404, "ContainerNotFound", []string{names}},
		{azure.Storage, 409, "ContainerBeingDeleted", []string{"wait"}},
		{azure.Storage, 409, "ContainerDisabled", []string{names}},
		{azure.Storage, 404, "ResourceNotFound", []string{key, endpoint}},
		{azure.Storage, 400, "InvalidResourceName", []string{names}},
		{azure.Storage, 400, "InvalidUri", []string{key}},
		{azure.Storage, 400, "RequestUrlFailedToParse", []string{key}},
		{azure.Storage, 400, "OutOfRangeInput", []string{names}},
		{azure.Storage, 409, "BlobImmutableDueToPolicy", []string{"policy", names}},
		{azure.Storage, 409, "BlobArchived", []string{"lifecycle", names}},
		{azure.Storage, 409, "BlobBeingRehydrated", []string{"lifecycle", names}},
		{azure.Storage, 409, "BlobUsesCustomerSpecifiedEncryption", []string{names}},
		{azure.Storage, 409, "InvalidBlobType", []string{names}},
		{azure.Storage, 412, "LeaseIdMissing", []string{names}},
		{azure.Storage, 409, "SnapshotsPresent", []string{names}},
		{azure.Storage, 400, "InvalidHeaderValue", []string{"HTTPS_PROXY"}},
		{azure.Storage, 400, "UnsupportedHeader", []string{"HTTPS_PROXY"}},
		{azure.Storage, 405, "UnsupportedHttpVerb", []string{"HTTPS_PROXY"}},
		{azure.Storage, 411, "MissingContentLengthHeader", []string{"HTTPS_PROXY"}},
		{azure.Storage, 400, "Md5Mismatch", []string{"HTTPS_PROXY"}},
		{azure.Storage, 503, "ServerBusy", []string{key}},
		{azure.Storage, 500, "OperationTimedOut", []string{"latency"}},
		{azure.Storage, 500, "InternalError", []string{"Azure's status"}},
		{azure.Storage, 400, "one that is new", []string{"HTTPS_PROXY"}},
		{azure.Storage, 401, "", []string{key, endpoint}},
		{azure.Storage, 403, "", []string{"network rules", key}},
		{azure.Storage, 407, "", []string{"HTTPS_PROXY"}},
		{azure.Storage, 429, "", []string{"metrics", key}},
		{azure.Storage, 502, "", []string{"HTTPS_PROXY"}},
		{azure.Storage, 503, "", []string{"metrics"}},

		{azure.Cosmos, 400, "1001", []string{"COSMOS_CONTAINER"}},
		{azure.Cosmos, 400, "", []string{"HTTPS_PROXY", cosmos}},
		{azure.Cosmos, 401, "", []string{cosmos, "clock"}},
		{azure.Cosmos, 401, "5000", []string{"HTTPS_PROXY"}},
		{azure.Cosmos, 401, "5002", []string{cosmos}},
		{azure.Cosmos, 401, "5004", []string{"AZURE_TENANT_ID"}},
		{azure.Cosmos, 401, "5005", []string{"clock"}},
		{azure.Cosmos, 401, "5006", []string{"clock"}},
		{azure.Cosmos, 401, "5007", []string{"AZURE_TENANT_ID"}},
		{azure.Cosmos, 401, "5202", []string{"COSMOS_ENDPOINT", "identity"}},
		{azure.Cosmos, 401, "5203", []string{"COSMOS_ENDPOINT", "identity"}},
		{azure.Cosmos, 403, "", []string{"network rules", "clock", cosmos}},
		{azure.Cosmos, 403, "3", []string{"write region"}},
		{azure.Cosmos, 403, "1008", []string{"COSMOS_ENDPOINT"}},
		{azure.Cosmos, 403, "1014", []string{"COSMOS_CONTAINER"}},
		{azure.Cosmos, 403, "4002", []string{"Key Vault"}},
		{azure.Cosmos, 403, "4018", []string{"Key Vault"}},
		{azure.Cosmos, 403, "5300", []string{"COSMOS_CONTAINER", "COSMOS_DATABASE"}},
		{azure.Cosmos, 403, "5302", []string{"Cosmos DB Built-in Data Contributor", "AZURE_CLIENT_ID"}},
		{azure.Cosmos, 403, "5307", []string{"network security perimeter"}},
		{azure.Cosmos, 407, "", []string{"HTTPS_PROXY"}},
		{azure.Cosmos, 423, "", []string{"COSMOS_CONTAINER"}},
		{azure.Cosmos, 429, "3200", []string{"throughput", "COSMOS_CONTAINER"}},
		{azure.Cosmos, 503, "", []string{"Azure's status", cosmos}},

		{azure.EventHubs, 401, "", []string{"EVENTHUB_CONNECTION_STRING", "network rules", "clock", "Azure Event Hubs Data Receiver"}},
		{azure.EventHubs, 0, "amqp:unauthorized-access", []string{"EVENTHUB_CONNECTION_STRING", "network rules", "clock"}},
		{azure.EventHubs, 403, "", []string{"network rules", "EVENTHUB_CONNECTION_STRING"}},
		{azure.EventHubs, 0, "com.microsoft:entity-disabled", []string{"EVENTHUB_NAME"}},
		{azure.EventHubs, 0, "com.microsoft:server-busy", []string{"throughput units"}},
		{azure.EventHubs, 0, "amqp:not-allowed", []string{"EVENTHUB_CONSUMER_GROUP"}},
		{azure.EventHubs, 0, "com.microsoft:argument-error", []string{"EVENTHUB_NAME"}},
	} {
		got := azure.Advice(test.of, test.status, test.code)
		for _, name := range test.names {
			if !strings.Contains(got, name) {
				t.Errorf("%d %s: %q does not name %s", test.status, test.code, got, name)
			}
		}
	}
	for _, code := range []bloberror.Code{
		bloberror.BlobAlreadyExists, bloberror.ContainerAlreadyExists, bloberror.LeaseAlreadyPresent, bloberror.ConditionNotMet, bloberror.BlobNotFound,
	} { // answers that the stores ask for
		if got := azure.Advice(azure.Storage, http.StatusConflict, string(code)); got != "" {
			t.Errorf("%s: %q", code, got)
		}
	}
	refused := answered(403, "KeyBasedAuthenticationNotPermitted")
	if got := lease.AddHint(azure.Explain(refused), "X").Error(); !strings.HasPrefix(got, "403 KeyBasedAuthenticationNotPermitted: the account accepts no keys: set STORAGE_ACCOUNT_URL") {
		t.Error(got)
	}
}

// Who knows better is not told to check the address.
func TestOthersThanTheAddress(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer proxy.Close()
	address, _ := url.Parse(proxy.URL)
	client := azure.NewHTTPClient()
	defer client.CloseIdleConnections()
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(address)
	_, err := client.Get("https://acc.blob.core.windows.net/") //nolint:bodyclose // there is none
	if got := lease.AddHint(lease.Summary(azure.Explain(err)), "X").Error(); !strings.Contains(got, "407") || !strings.Contains(got, "HTTPS_PROXY") || strings.Contains(got, "in X") {
		t.Error(got)
	}

	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	server.Config.ErrorLog = nil
	dir := t.TempDir()
	yaml := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(yaml, []byte("rules: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"": "SSL_CERT_FILE", filepath.Join(dir, "typo.pem"): "SSL_CERT_FILE cannot be read", yaml: "holds no certificate"} {
		t.Setenv("SSL_CERT_FILE", value)
		plain := azure.NewHTTPClient()
		_, err := plain.Get(server.URL) //nolint:bodyclose // there is none
		plain.CloseIdleConnections()
		if got := lease.AddHint(lease.Summary(azure.Explain(err)), "X").Error(); !strings.Contains(got, want) || strings.Contains(got, "in X") {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
		if wrong := value != ""; (azure.CertFile() != nil) != wrong {
			t.Errorf("%q: %v", value, azure.CertFile())
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
